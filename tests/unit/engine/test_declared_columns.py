from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.engine.declared_columns import unknown_columns
from gobblin_dagster.spec.job import JobSpec

EXACT = {"type": "schema", "columns": {"id": "int64", "lines": ["string"]}}
PYTHON = {"type": "python", "read": "nowhere:read", "columns": {"id": "int64", "name": "string"}}
REST = {
    "type": "rest",
    "url": "http://127.0.0.1/x",
    "datasets": {"a": "x"},
    "columns": {"id": "int64", "extra": "json"},
}
MERGE = {"type": "delta", "mode": "merge", "key": ["nr"]}


def faults(root: Path, **parts: Any) -> list[tuple[str, str]]:
    body = {
        "job": "j",
        "source": {"type": "files", "path": "in/{dataset}.csv", "format": "csv"},
        "extract": {"namespace": "n", "table": "t"},
        "output": {"path": "lake"},
    }
    return [(fault.path, fault.problem) for fault in unknown_columns(JobSpec.model_validate(body | parts), root)]


def drop(name: str) -> dict[str, Any]:
    return {"type": "drop", "columns": [name]}


def branches(*converters: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"branches": [{"name": "good"}, {"name": "bad", "converters": [*converters], **parts}]}


@pytest.mark.parametrize(
    ("parts", "place", "said"),
    [
        ({"converters": [EXACT, drop("nope")]}, "converters[1]", "expected column 'nope'; found: id, lines"),
        ({"converters": [drop("x"), EXACT, drop("id"), drop("id")]}, "converters[3]", "found: lines"),
        ({"converters": [EXACT], "fork": branches(drop("nope"))}, "fork.branches[1].converters[0]", "column 'nope'"),
        ({"converters": [EXACT], "fork": branches(publisher=MERGE)}, "fork.branches[1].publisher", "no column nr"),
        ({"source": PYTHON, "converters": [drop("nope")]}, "converters[0]", "found: id, name"),
        ({"source": REST, "publisher": MERGE}, "publisher", "there are id, extra"),
    ],
)
def test_first_part_that_names_an_unknown_column_is_told(
    tmp_path: Path, parts: dict[str, Any], place: str, said: str
) -> None:
    ((found, problem),) = faults(tmp_path, **parts)
    assert found == place
    assert said in problem


@pytest.mark.parametrize(
    "parts",
    [
        {"converters": [drop("x")]},
        {"converters": [EXACT, {"type": "rename", "columns": {"id": "nr"}}], "publisher": MERGE},
        {"converters": [EXACT, {"type": "hash", "columns": ["id"], "key_env": "NOT_SET_HERE"}, drop("nope")]},
        {"source": PYTHON | {"columns": None}, "converters": [drop("nope")]},
        {"source": PYTHON, "converters": [drop("name")], "fork": branches(drop("id"))},
    ],
)
def test_jobs_whose_columns_are_there_or_not_known_have_no_fault(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert faults(tmp_path, **parts) == []
