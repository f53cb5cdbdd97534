"""The page on sources names every option of the sources that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.files.source import FilesOptions
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.spec.job import ExecutionSpec

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("heading", "model"), [("`files`", FilesOptions), ("`query`", QueryOptions)])
def test_table_of_a_source_has_a_row_for_each_option(heading: str, model: type[BaseModel]) -> None:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))))
    assert {name.partition(".")[0] for name in named} >= set(model.model_fields)


def test_fields_named_for_every_source_exist() -> None:
    fields = re.findall(r"^\| `execution\.(\w+)`", PAGE, re.MULTILINE)
    assert fields == ["retries", "max_work_units"]
    assert set(fields) <= set(ExecutionSpec.model_fields)


def test_section_on_files_names_every_format_and_its_options() -> None:
    section = PAGE.partition("### Formats\n")[2].partition("\n### ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    formats = {
        name: registry.load(ConstructKind.FORMAT, name).Options.model_fields
        for name in registry.types(ConstructKind.FORMAT)
    }
    assert set(rows) - {"type"} == set(formats)
    assert {
        name: sorted(set(options) - set(re.findall(r"`(\w+)`", rows[name]))) for name, options in formats.items()
    } == {name: [] for name in formats}
