"""Writes docs/reference/options.md: every option of converters, policies, forks and writers, from their models.

Called with `--check`, it ends with exit code 1 where the page is out of step.
"""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.writers.files import FileOptions
from gobblin_dagster.spec.descriptions import description_of

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"
TITLES = {
    ConstructKind.CONVERTER: "Converters",
    ConstructKind.ROW_POLICY: "Row policies",
    ConstructKind.TASK_POLICY: "Task policies",
    ConstructKind.FORK: "Fork operators",
    ConstructKind.WRITER: "Writers",
}
HEAD = """# Options

Every option of the constructs whose pages tell of them in groups: [converters](converters.md), [policies](policies.md),
[forks](forks.md), [writers](writers.md). The options of sources and publishers stand on their own pages. An option
without a default is required; `columns: format` is the option `format` of a value of `columns`.
"""


def render() -> str:
    """Return the page as it should be."""
    parts = [HEAD]
    for kind, title in TITLES.items():
        parts.append(f"\n## {title}\n")
        models = {name: registry.load(kind, name).Options for name in registry.types(kind)}
        if kind is ConstructKind.WRITER:
            parts += _table("All but `console`", _rows(FileOptions))
        for name, model in models.items():
            common = [*_rows(FileOptions)] if issubclass(model, FileOptions) else []
            parts += _table(f"`{name}`", (row for row in _rows(model) if row not in common))
    return "".join(parts)


def _table(heading: str, rows: Iterable[str]) -> list[str]:
    found = [*dict.fromkeys(rows)]  # models that may stand for each other have keys in common
    return [f"\n### {heading}\n| Option | Default | What it is |\n| --- | --- | --- |\n", *found] if found else []


def _rows(model: type[BaseModel], inside: str = "") -> Iterator[str]:
    """Yield a row for each field of a model, and of the models inside it."""
    for name, field in model.model_fields.items():
        meaning = re.sub(r"\s+", " ", description_of(model, name)).partition(" Source: ")[0]
        values = [f"`{value}`" for value in _choices(field.annotation) if isinstance(value, str)]
        if any(value not in meaning for value in values):
            meaning = f"{' or '.join(values)}. {meaning}"
        cells = (f"`{inside}{name}`", _default(field), meaning.strip())
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        for inner in _models(field.annotation):
            yield from _rows(inner, f"{inside}{name}: ")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and value:
        return f"`{json.dumps(value)}`"
    return f"`{value}`" if isinstance(value, str | int | float) and value != "" else "none"


def _choices(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) in {Annotated, Union, types.UnionType}:
        for inner in get_args(annotation):
            yield from _choices(inner)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(render() != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(render(), encoding="utf-8")
