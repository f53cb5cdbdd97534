"""The metadata keys and the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path

from gobblin_dagster.orchestration import metadata as md

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metadata.md"


def test_page_names_every_key_and_no_other() -> None:
    named = re.findall(r"^\| `([a-z_/]+)(?:<policy>)?` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(md.ALL.values())
    assert len(named) == len(set(named))
