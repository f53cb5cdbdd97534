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
KAFKA: dict[str, Any] = {
    "type": "kafka",
    "brokers": "127.0.0.1:1",
    "value": {"type": "json", "columns": {"id": "int64", "at": "string"}},
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


def policy(kind: str, **options: Any) -> dict[str, Any]:
    return {"row_policies": [{"name": "p", "type": kind, "on_violation": "drop", **options}]}


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
        ({"source": KAFKA, "converters": [drop("nope")]}, "converters[0]", "key, id, at, partition, offset, timestamp"),
        ({"source": KAFKA | {"metadata_prefix": "k_"}} | policy("sql", rule="topic = 'x'"), "row_policies[0]", "topic"),
        (
            {"source": KAFKA | {"value": KAFKA["value"] | {"columns": {"key": "json"}}}},
            "source",
            "key would exist twice",
        ),
        ({"source": REST} | policy("not_null", columns=["nope"]), "row_policies[0]", "expected column 'nope'"),
        ({"source": REST} | policy("regex", column="id", pattern="x"), "row_policies[0]", "got int64"),
        (
            {"source": REST, "fork": branches(**policy("sql", rule="nope = 1"))},
            "fork.branches[1].row_policies[0]",
            "nope",
        ),
        (
            {
                "source": REST,
                "fork": branches() | {"operator": {"type": "sql", "branches": {"good": "nope > 1", "bad": "id > 1"}}},
            },
            "fork.operator",
            "nope",
        ),
        ({"source": REST, "writer": {"type": "csv", "partition_by": ["day"]}}, "writer", "expects column 'day'"),
        (
            {
                "source": REST,
                "extract": {"namespace": "n", "table": "t", "primary_keys": ["nr"]},
                "publisher": {"type": "sql_table", "table": "t", "url": "sqlite:///x.db", "mode": "upsert"},
            },
            "publisher",
            "needs column nr; there are id, extra",
        ),
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
        {"source": KAFKA} | policy("sql", rule="id > 1 and at > ''"),
        {"source": KAFKA | {"value": {"type": "avro", "registry": "http://127.0.0.1:1"}}} | policy("sql", rule="x > 1"),
        {
            "source": KAFKA
            | {
                "value": {
                    "type": "avro",
                    "registry": "http://127.0.0.1:1",
                    "schema_file": "x.avsc",
                    "registry_auth_env": "NOT_SET_HERE",
                }
            }
        },
    ],
)
def test_jobs_whose_columns_are_there_or_not_known_have_no_fault(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert faults(tmp_path, **parts) == []
