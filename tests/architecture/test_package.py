"""What holds for every module of the package: documented, typed, one version, nothing that runs foreign text as
code."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import gobblin_dagster

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gobblin_dagster"
MODULES = sorted(PACKAGE.rglob("*.py"))


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


@pytest.mark.parametrize("module", MODULES, ids=readable)
def test_no_module_runs_foreign_text_as_code(module: Path) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(parse(module)) if isinstance(node, ast.Call)}
    assert calls & FORBIDDEN == set()


@pytest.mark.parametrize("module", MODULES, ids=readable)
def test_no_module_starts_a_shell(module: Path) -> None:
    keywords = {ast.unparse(node) for node in ast.walk(parse(module)) if isinstance(node, ast.keyword)}
    assert "shell=True" not in keywords


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
