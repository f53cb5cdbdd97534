"""The face: its names agree, nothing inside imports it, it costs no start-up time, and pages and examples import
nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster import api

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gobblin_dagster"
FACE = [PACKAGE / "api.py", *(PACKAGE / "face").glob("*.py")]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PROGRAMS = [ROOT / "definitions.py", *sorted((ROOT / "examples").rglob("*.py"))]
DEMO = "gobblin_dagster.demo.downstream"
"""An asset of the demo, which `definitions.py` shows."""
PUBLIC = re.compile(r"gobblin_dagster(\.api|\.orchestration|\.testing(\.\w+)*)?")


def readable(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the modules of this package that a tree imports, with the names taken from the package itself."""
    for one in ast.walk(node):
        match one:
            case ast.Import():
                yield from (alias.name for alias in one.names)
            case ast.ImportFrom(module="gobblin_dagster"):
                yield from (f"gobblin_dagster.{alias.name}" for alias in one.names)
            case ast.ImportFrom(module=str(module)):
                yield module


def test_names_for_type_checkers_are_those_that_are_loaded() -> None:
    tree = ast.parse((PACKAGE / "api.py").read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = {
        (alias.name, str(node.module).removeprefix("gobblin_dagster."))
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == {*api._HOME_OF.items()}, "write them anew: python scripts/api_names.py"
    assert sorted(api.__all__) == sorted(api._HOME_OF)


def test_every_name_stands_on_the_page_of_the_api_once() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: gobblin_dagster\.api\.(\w+)$", page, re.MULTILINE)) == sorted(api.__all__)


def test_no_name_of_the_api_hides_a_module_of_the_package() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules & {*api.__all__} == set()


def test_nothing_inside_imports_the_face() -> None:
    inside = [path for path in PACKAGE.rglob("*.py") if path not in FACE and path != PACKAGE / "__init__.py"]
    names = {f"gobblin_dagster.{name}" for name in (*api.__all__, "api", "face")}
    mention = re.compile(r"gobblin_dagster\s+import|" + "|".join(map(re.escape, names)))  # parsing all takes seconds
    texts = {path: path.read_text(encoding="utf-8") for path in inside}
    found = {
        readable(path)
        for path, text in texts.items()
        if mention.search(text)
        for name in imported(ast.parse(text))
        if name in names or name.startswith("gobblin_dagster.face.")
    }
    assert found == set()


@pytest.mark.parametrize("command", [["--help"], ["--version"]], ids=" ".join)
def test_start_of_the_command_line_loads_neither_face_nor_engine(command: list[str]) -> None:
    code = (
        "import sys; from gobblin_dagster.cli.program import run_command; "
        f"run_command({command}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.split() if name.startswith("gobblin_dagster.")}
    heavy = ("api", "face", "engine", "constructs", "state", "spec")
    assert [name for name in loaded if name.split(".")[1] in heavy] == []


def test_converter_that_names_the_package_loads_no_engine() -> None:
    code = "import sys; from gobblin_dagster import Chunk, ConstructContext, ConvertError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("gobblin_dagster.")}
    assert rooms == {"api", "core"}


@pytest.mark.parametrize("page", PAGES, ids=readable)
def test_page_imports_what_is_meant_to_stay(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^ *(?:from|import) (gobblin_dagster[\w.]*)|`from (gobblin_dagster[\w.]*)", text, re.MULTILINE)
    assert [name for pair in lines for name in pair if name and not PUBLIC.fullmatch(name)] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=readable)
def test_program_imports_what_is_meant_to_stay(program: Path) -> None:
    names = {*imported(ast.parse(program.read_text(encoding="utf-8")))}
    taken = {f"gobblin_dagster.{name}" for name in api.__all__}
    ours = {name for name in names if name.split(".")[0] == "gobblin_dagster"} - taken
    assert {name for name in ours if not PUBLIC.fullmatch(name)} <= (
        {DEMO} if program.name == "definitions.py" else set()
    )
