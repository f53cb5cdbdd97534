"""Write `__all__` and `_HOMES` of `gobblin_dagster/api.py` from the imports that stand there for type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

API = Path(__file__).parent.parent / "gobblin_dagster" / "api.py"
WIDTH = 105


def homes(tree: ast.Module) -> dict[str, list[str]]:
    """Return the imported names by module, below the package."""
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = [node for node in checked.body if isinstance(node, ast.ImportFrom) and node.module]
    return {
        str(node.module).removeprefix("gobblin_dagster."): sorted(alias.name for alias in node.names) for node in found
    }


def rewritten(text: str) -> str:
    """Return the module with both lists as its imports say."""
    tree = ast.parse(text)
    known = homes(tree)
    names = sorted(name for of_module in known.values() for name in of_module)
    entries = [f'    "{module}": {_literal(" ".join(known[module]), WIDTH - len(module))},' for module in sorted(known)]
    new = {
        "__all__": f"__all__ = {names}",
        "_HOMES": "\n".join(["_HOMES: Mapping[str, str] = {", *entries, "}"]),
    }
    lines = text.splitlines()
    for node in reversed(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name in new:
                lines[node.lineno - 1 : node.end_lineno] = [new[name]]
    return "\n".join(lines) + "\n"


def _literal(names: str, width: int) -> str:
    """Return names as a string literal, of several lines if they are longer than `width`."""
    if len(names) <= width:
        return f'"{names}"'
    parts = textwrap.wrap(names, WIDTH)
    return "(" + "\n".join([*(f'"{part} "' for part in parts[:-1]), f'"{parts[-1]}"']) + ")"


if __name__ == "__main__":
    API.write_text(rewritten(API.read_text(encoding="utf-8")), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(API)], check=True)
