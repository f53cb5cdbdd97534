"""Writes docs/gobblin-map.md: each original class of Gobblin, what it became, the difference, the test that shows it.

    python scripts/gobblin_map.py           write the map anew
    python scripts/gobblin_map.py --check   exit code 1 where it is out of step

Originals and differences are read from the `Source:` and `Differs:` sections of docstrings. The column of tests is
written by hand in the map itself and kept.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

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
    """Return the hand-written last column of the map by the name of ours."""
    rows = re.findall(r"^\|[^\n]*?\| `([^`]+)` \|[^\n]*\| ([^|\n]*) \|$", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def render() -> str:
    """Return the map as it should be."""
    tests = known_tests() if MAP.exists() else {}
    return HEAD + "".join(
        f"| {entry.source} | `{entry.ours}` | {entry.differs or '-'} | {tests.get(entry.ours, '-')} |\n"
        for entry in entries()
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(render() != MAP.read_text(encoding="utf-8"))
    MAP.write_text(render(), encoding="utf-8")
