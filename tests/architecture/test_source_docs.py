"""The pages on sources: a word on each option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from gobblin_dagster.constructs.registry import ConstructKind, registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reference" / f"sources-{name}.md" for name in ("kafka", "python", "rest", "spark")]


def names_of(annotation: Any) -> Iterator[str]:
    """Yield the keys of the models inside an annotation, and of those inside them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield name
            yield from names_of(field.annotation)
    for inner in get_args(annotation):
        yield from names_of(inner)


def test_every_option_of_a_source_stands_on_its_page() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        options = registry.load(ConstructKind.SOURCE, page.stem.removeprefix("sources-")).Options
        assert [name for name in names_of(options) if not re.search(rf"\b{name}\b", text)] == []
