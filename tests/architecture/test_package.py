"""What holds for every module of the package: documented, typed, one version, nothing that runs foreign text as
code."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import gobblin_dagster

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gobblin_dagster"
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def parse(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def readable(module: Path) -> str:
    return str(module.relative_to(ROOT))


def test_every_module_says_what_it_is() -> None:
    assert [readable(module) for module in MODULES if not ast.get_docstring(parse(module))] == []


def test_every_folder_with_modules_is_a_package() -> None:
    assert [readable(module) for module in MODULES if not (module.parent / "__init__.py").exists()] == []


@pytest.mark.parametrize("init", [m for m in MODULES if m.name == "__init__.py"], ids=readable)
def test_all_of_a_package_names_only_what_is_there(init: Path) -> None:
    there, named = set(), set()
    for node in parse(init).body:
        match node:
            case ast.ImportFrom():
                there |= {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef() | ast.ClassDef():
                there.add(node.name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                named = set(ast.literal_eval(value))
            case ast.Assign(targets=[ast.Name(id=name)]):
                there.add(name)
    assert named - there == set()


FORBIDDEN = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "cloudpickle.loads",
    "marshal.loads",
    "os.system",
    "yaml.load",
}


@cache
def calls(module: Path) -> tuple[ast.Call, ...]:
    return tuple(node for node in ast.walk(parse(module)) if isinstance(node, ast.Call))


@pytest.mark.parametrize("module", MODULES, ids=readable)
def test_no_module_runs_foreign_text_as_code(module: Path) -> None:
    assert {ast.unparse(call.func) for call in calls(module)} & FORBIDDEN == set()


@pytest.mark.parametrize("module", MODULES, ids=readable)
def test_no_module_starts_a_shell(module: Path) -> None:
    assert "shell=True" not in {ast.unparse(keyword) for call in calls(module) for keyword in call.keywords}


CASTS = {
    "constructs/quality/values.py": "the time is compared, not kept",
    "constructs/sql/session.py": "from DuckDB's types, and dictionaries, to those with the same values",
    "constructs/writers/orc.py": "dictionaries, and days that have no time, become the same values",
    "engine/task/spark_partition.py": "only the zone is another one",
    "orchestration/published.py": "Spark reads a float from its text",
}
"""Modules that cast to types which are not written there; and why no value can change."""


def _is_open_cast(call: ast.AST) -> bool:
    """Return whether a call casts to a type that is not written there, to a number with a point, or without checks."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "cast":
        return False
    owner = ast.unparse(call.func.value)
    if owner == "sa" or owner.startswith("memoryview("):
        return False
    kind = ast.unparse(call.args[1 if owner == "pc" else 0]) if call.args else ""
    is_written = kind.startswith("pa.") and not kind.startswith(("pa.decimal", "pa.float"))
    return not is_written or any(keyword.arg == "safe" for keyword in call.keywords)


def test_types_that_are_given_are_cast_to_by_the_casts_that_change_no_value() -> None:
    """Arrow's own casts change decimals, floats and days without a word: see `exact_cast` and `strict_cast`."""
    found: dict[str, list[str]] = {}
    for module in MODULES:
        name = module.relative_to(PACKAGE).as_posix()
        if ".cast(" in module.read_text(encoding="utf-8") and not name.startswith(("constructs/types/", "testing/")):
            found[name] = [ast.unparse(node) for node in ast.walk(parse(module)) if _is_open_cast(node)]
    assert {name: casts for name, casts in found.items() if casts}.keys() == CASTS.keys()


def test_types_are_shipped() -> None:
    assert (files(gobblin_dagster) / "py.typed").is_file()


def test_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "gobblin_dagster.__version__"}
    assert version("gobblin-dagster") == gobblin_dagster.__version__
    assert f"## {gobblin_dagster.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_constraints_pin_versions_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.replace(".", "").replace("-", "").replace("=", "").isalnum()] == []
    assert all(line.count("==") == 1 for line in lines)
    assert not {line.split("==")[0] for line in lines} & {"pip", "setuptools", "wheel", "uv", "gobblin-dagster"}
