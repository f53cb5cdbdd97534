"""The pages on sources: the tests that they name exist, and so does a word on each option."""

from __future__ import annotations

import re
from pathlib import Path

from gobblin_dagster.constructs.registry import ConstructKind, registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reference" / f"sources-{name}.md" for name in ("kafka", "python", "rest", "spark")]


def test_tests_that_a_page_names_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))}
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert sorted(name for name in named if f"def {name}(" not in code) == []


def test_every_option_of_a_source_stands_on_its_page() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        options = registry.load(ConstructKind.SOURCE, page.stem.removeprefix("sources-")).Options.model_fields
        assert [name for name in options if not re.search(rf"\b{name}\b", text)] == []
