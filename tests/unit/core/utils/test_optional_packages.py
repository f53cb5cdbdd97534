from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gobblin_dagster
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.utils.optional_packages import EXTRAS, missing_package, optional_package

PACKAGE = Path(gobblin_dagster.__file__).parent


def test_package_that_is_missing_is_named_with_its_purpose_and_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with (
        pytest.raises(EnvironmentFaultError) as caught,
        optional_package("fastavro"),
    ):
        import fastavro  # noqa: F401  # the import is what is tested

    assert str(caught.value) == (
        "The package fastavro is not installed; it is needed for Avro. "
        "Install it with: pip install 'gobblin-dagster[avro]'."
    )
    assert isinstance(caught.value.__cause__, ImportError)


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="of its own"), optional_package("fastavro"):
        raise ValueError("of its own")


def imports_of(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Yield (module, line, whether it is guarded) of each import of a module of `EXTRAS` in a file."""
    text = path.read_text(encoding="utf-8")
    if not any(name.partition(".")[0] in text for name in EXTRAS):
        return  # parsing all takes seconds
    tree = ast.parse(text)
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
        is_guard = any(isinstance(c, ast.Call) and ast.unparse(c.func) == "optional_package" for c in calls)
        is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        catches = {ast.unparse(h.type) for h in node.handlers if h.type} if isinstance(node, ast.Try) else set()
        is_caught = any("ImportError" in one or "ModuleNotFoundError" in one for one in catches)
        if is_guard or is_typing or is_caught:
            body = node.body  # type: ignore[attr-defined]  # With, If and Try have one
            guarded.update(inner for one in body for inner in ast.walk(one))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name in EXTRAS or name.partition(".")[0] in EXTRAS:
                yield name, node.lineno, node in guarded  # type: ignore[attr-defined]  # imports have a line


def test_every_import_of_an_optional_package_says_how_to_install_it() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line} {name}": is_guarded
        for path in PACKAGE.rglob("*.py")
        for name, line, is_guarded in imports_of(path)
    }
    assert len(found) > 30
    assert [place for place, is_guarded in found.items() if not is_guarded] == []


def test_table_of_optional_packages_is_that_of_the_extras() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    names = {
        (extra, re.split(r"[\[><=]", requirement)[0])
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in {"conformance", "dev", "docs", "test"}  # no job needs them
        for requirement in requirements
    }
    assert {(one.extra, one.package) for one in EXTRAS.values()} | {("kafka", "fastavro")} == names


def test_missing_package_is_told_from_other_missing_modules() -> None:
    found = missing_package(
        ModuleNotFoundError("No module named 'confluent_kafka.admin'", name="confluent_kafka.admin")
    )
    assert "pip install 'gobblin-dagster[kafka]'" in str(found)
    assert missing_package(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert missing_package(ValueError("x")) is None
