"""Every module is tested somewhere that can be found: in the file that mirrors its path, or where `where_tested.py`
says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from tests.architecture.where_tested import WHERE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gobblin_dagster"


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES: Mapping[str, Path] = {dotted(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def has_code(file: Path) -> bool:
    """Tell whether a module does more than to import and to name."""
    kinds = ast.FunctionDef | ast.ClassDef | ast.If | ast.With | ast.For
    body = tree(file).body
    makes = any(
        isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" not in ast.unparse(node)[:8] for node in body
    )
    return (makes and file.name != "__init__.py") or any(isinstance(node, kinds) for node in body)


MODULES = {file.relative_to(PACKAGE).as_posix(): file for file in FILES.values()}


def mirror(module: str) -> Path:
    """Return the unit test that mirrors a module: `core/urn.py` is tested by `tests/unit/core/test_urn.py`."""
    folder, _, name = module.rpartition("/")
    if name == "__init__.py":
        folder, _, name = folder.rpartition("/")
        name += ".py"
    return ROOT / "tests/unit" / folder / f"test_{name.lstrip('_')}"


@cache
def imported(file: Path) -> frozenset[str]:
    return frozenset(_imported(file))


def _imported(file: Path) -> Iterator[str]:
    """Yield the package's modules that a file imports, and those that a name comes from through a package's
    `__init__`."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                yield from origin(node.module, alias.name)


@cache
def origins(package: str) -> Mapping[str, str]:
    """Return the modules that a package's names come from."""
    file = FILES.get("gobblin_dagster.api" if package == "gobblin_dagster" else package)
    imports = [node for node in ast.walk(tree(file)) if isinstance(node, ast.ImportFrom)] if file else []
    return {alias.asname or alias.name: node.module for node in imports if node.module for alias in node.names}


def origin(package: str, name: str) -> Iterator[str]:
    """Yield the module that a name of a package comes from, also over several steps."""
    is_package = package in FILES and FILES[package].name in {"__init__.py", "api.py"}
    if is_package and (source := origins(package).get(name)):
        yield source
        yield from origin(source, name)


@cache
def used(test: Path) -> frozenset[str]:
    """Return the package's modules that a test imports by itself or by helpers of its own."""
    names = imported(test)
    helpers = {ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names if name.startswith("tests.")}
    beside = {test.parent / "conftest.py"} - {test}
    return frozenset(names.union(*(imported(file) for file in helpers | beside if file.is_file())))


def exercises(test: Path, module: Path, by: str) -> bool:
    """Tell whether a test uses a module.

    Args:
        test: the test's file.
        module: the module's file.
        by: how, see `where_tested`.
    """
    kind, _, name = by.partition(" ")
    if not by:
        return dotted(module) in used(test) or f'"{dotted(module).removesuffix(".__main__")}"' in read(test)
    if (chain := by.split(" > ")) and set(chain) <= set(FILES):
        ways = zip(chain, [*map(FILES.__getitem__, chain[1:]), module], strict=True)
        return chain[0] in used(test) and all(leads_to(FILES[one], there) for one, there in ways)
    if kind == "command":
        command = FILES[f"gobblin_dagster.cli.commands.{name.replace(' ', '.')}"]
        return f"cli({', '.join(json.dumps(word) for word in name.split())}" in read(test) and leads_to(command, module)
    if kind in list(ConstructKind) and name in registry.types(ConstructKind(kind)):
        target, _, _ = registry.types(ConstructKind(kind))[name].partition(":")
        return re.search(rf'"{name}\b', read(test)) is not None and leads_to(FILES[target], module)
    return all(by in re.sub(r"\s+", " ", read(file).replace("\\", "")) for file in (test, module))


def leads_to(file: Path, module: Path) -> bool:
    """Tell whether a file is a module, imports it, or names it in a text."""
    return file == module or dotted(module) in {*imported(file), *re.findall(r"[\w.]+", read(file))}


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", MODULES)
def test_module_is_tested_where_one_looks_for_it(module: str) -> None:
    if not has_code(MODULES[module]):
        assert module not in WHERE, "it only imports and names: take the line out of where_tested.py"
        return
    if mirror(module).is_file():
        assert module not in WHERE, (
            f"{mirror(module).relative_to(ROOT)} mirrors it: take the line out of where_tested.py"
        )
        return
    wanted = mirror(module).relative_to(ROOT)
    assert module in WHERE, f"write {wanted}, or say in tests/architecture/where_tested.py which file tests it"
    name, by = WHERE[module]
    test = ROOT / "tests" / name
    assert test.is_file(), f"there is no {name}"
    assert exercises(test, MODULES[module], by), f"{name} does not use {module} by {by or 'import'}"


def test_table_names_only_modules_that_there_are() -> None:
    assert sorted(set(WHERE) - set(MODULES)) == []


def test_use_is_told_from_no_use() -> None:
    clock, test = PACKAGE / "core/clock.py", ROOT / "tests/unit/core/test_urn.py"
    assert exercises(test, PACKAGE / "core/urn.py", "")
    assert not exercises(test, clock, "")
    assert not exercises(test, clock, "gobblin_dagster.core.urn")
    assert not exercises(test, clock, "a text of neither")
