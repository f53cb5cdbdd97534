"""The reference pages name every type, and their examples pass the checks that job files pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import constructs

PAGES = Path(__file__).parents[3] / "docs" / "reference"
KINDS = {
    "converters.md": [ConstructKind.CONVERTER],
    "forks.md": [ConstructKind.FORK],
    "publishers.md": [ConstructKind.PUBLISHER],
    "policies.md": [ConstructKind.ROW_POLICY, ConstructKind.TASK_POLICY],
    "writers.md": [ConstructKind.WRITER],
}
FRAME: dict[str, Any] = {
    "job": "example",
    "source": {"type": "files", "path": "in/{dataset}/{date}.csv", "format": {"type": "csv"}},
    "extract": {"namespace": "n", "table": "t"},
    "output": {"path": "out"},
}
_FIELDS = {"type", "name", "on_error", "max_errors", "on_violation", "max_share", "enforce"}


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


EXAMPLES = [(page, number, text) for page in KINDS for number, text in enumerate(_blocks(page, "yaml"))]


@pytest.mark.parametrize(("page", "kind"), [(page, kind) for page, kinds in KINDS.items() for kind in kinds], ids=str)
def test_page_names_every_type(page: str, kind: ConstructKind) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| (`.+?) \|", text, re.MULTILINE))
    assert [name for name in registry.types(kind) if f"`{name}`" not in rows] == []


@pytest.mark.parametrize(("page", "number", "text"), EXAMPLES, ids=[f"{page}-{number}" for page, number, _ in EXAMPLES])
def test_example_is_a_job_file_without_fault(page: str, number: int, text: str) -> None:
    body = FRAME | yaml.safe_load(text)
    JobSpec.model_validate(body)
    found = [(kind, node) for _, kind, node in constructs(body) if kind != "source"]
    faults = [
        fault
        for kind, node in found
        for fault in registry.check(
            ConstructKind(kind), node["type"], {key: value for key, value in node.items() if key not in _FIELDS}
        )
    ]
    assert faults == []


@pytest.mark.parametrize("page", ["converters.md", "forks.md", "publishers.md"])
def test_python_of_a_page_compiles(page: str) -> None:
    for text in _blocks(page, "python"):
        compile(text, page, "exec")


def test_benchmark_of_converters_measures_every_type() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/converters.py", "200"],
        cwd=PAGES.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^\| `(\w+)` \|", done.stdout, re.MULTILINE)) == set(registry.types(ConstructKind.CONVERTER))
