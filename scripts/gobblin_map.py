"""Writes docs/gobblin-map.md: each original class of Gobblin, what it became, the difference, the test that shows it.

    python scripts/gobblin_map.py           write the map again
    python scripts/gobblin_map.py --check   exit code 1 where it is out of step

Originals and differences are read from the `Source:` and `Differs:` sections of docstrings. A test that stands in the
map is kept as long as it exists; where there is none, the nearest one that names the class is put in.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from gobblin_dagster.constructs.registry import ConstructKind, registry

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gobblin_dagster"
MAP = ROOT / "docs" / "gobblin-map.md"

HEAD = """# Where Gobblin's classes went

One row for each class, field or key of Apache Gobblin that has a successor here. Originals and differences are taken
from the docstrings (`python scripts/gobblin_map.py`); a test keeps this page in step with them.

| Original | Ours | Difference | Shown by |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one docstring says of its original."""

    ours: str
    """Module and name below the package, e.g. `core.work_unit.WorkUnit`."""
    source: str
    differs: str


def entries() -> list[Entry]:
    """Return what all docstrings of the package say, by module and place in it."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for name, text in _docstrings(ast.parse(file.read_text(encoding="utf-8")), module):
            match = re.search(r"\bSource: (.+?)(?:\s+Differs: (.+?))?(?:\n\s*\n|$)", text, re.DOTALL)
            if match and not match[1].startswith("none"):
                found.append(Entry(name, _one_line(match[1]).rstrip("."), _one_line(match[2] or "").rstrip(".")))
    return found


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, docstring) of a module, its classes, functions and documented fields."""
    body: list[ast.stmt] = getattr(node, "body", [])
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        yield name, ast.get_docstring(node) or ""
    for statement, following in zip_longest(body, body[1:]):
        match statement, following:
            case ((ast.ClassDef(name=inner) | ast.FunctionDef(name=inner)), _):
                yield from _docstrings(statement, f"{name}.{inner}")
            case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text))):
                yield f"{name}.{field}", text


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def known_tests() -> dict[str, str]:
    """Return the last column of the map by the name of ours, as far as it names tests that exist."""
    text = MAP.read_text(encoding="utf-8") if MAP.exists() else ""
    rows = re.findall(r"^\|[^\n]*?\| `([^`]+)` \|[^\n]*\| `([^`]+)` \|$", text, re.MULTILINE)
    return {ours: test for ours, test in rows if (ROOT / test).is_file()}


def nearest_test(ours: str, tests: dict[str, str]) -> str:
    """Return the test that mirrors the module, or the one nearest to it that names the class; empty if none does."""
    parts = ours.split(".")
    name = next((part for part in reversed(parts) if part != part.lower()), parts[-1])
    module = parts[: parts.index(name)]
    mirror = f"tests/unit/{'/'.join(module[:-1])}/test_{module[-1]}.py"
    if mirror in tests:
        return mirror
    words = [rf"\b{name}\b", *(rf'"{word}"' for word in registered_names().get(".".join([*module, name]), ()))]
    if parts[-1] != name:
        words.append(rf"\b{parts[-1]}\b")  # a field: tests write its key in a job
    counts = {path: sum(len(re.findall(word, text)) for word in words) for path, text in tests.items()}
    # The options of a source lie in modules of its name (`query_options`), and so do the tests of the source.
    subject = module[-1].split("_")[0]
    naming = [path for path, count in counts.items() if count] or [path for path in tests if f"/test_{subject}" in path]
    return max(naming, key=lambda path: (sum(part in path for part in parts), counts[path]), default="")


@cache
def registered_names() -> dict[str, tuple[str, ...]]:
    """Return the short names that job files, and so tests, use for a construct; by its class."""
    names: dict[str, tuple[str, ...]] = {}
    for kind in ConstructKind:
        for short, target in registry.types(kind).items():
            ours = target.replace(":", ".").removeprefix("gobblin_dagster.")
            names[ours] = (*names.get(ours, ()), short)
    return names


def render() -> str:
    """Return the map as it should be."""
    known = known_tests()
    tests = {
        str(file.relative_to(ROOT)): file.read_text("utf-8") for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    lines = []
    for entry in entries():
        test = known.get(entry.ours) or nearest_test(entry.ours, tests)
        shown = f"`{test}`" if test else "-"
        lines.append(f"| {entry.source} | `{entry.ours}` | {entry.differs or '-'} | {shown} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(render() != MAP.read_text(encoding="utf-8"))
    MAP.write_text(render(), encoding="utf-8")
