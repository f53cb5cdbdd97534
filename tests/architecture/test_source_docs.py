"""The pages on sources: their job files hold, and the tests that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.spec.job import ConstructSpec

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reference" / f"sources-{name}.md" for name in ("kafka", "python", "rest", "spark")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_job_files_of_a_page_hold(page: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.+?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        spec = ConstructSpec.model_validate(yaml.safe_load(block)["source"])
        assert registry.check(ConstructKind.SOURCE, spec.type, spec.options) == []


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
