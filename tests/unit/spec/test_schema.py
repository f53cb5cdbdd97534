from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gobblin_dagster.spec.schema import SCHEMA_DIALECT, job_schema

KINDS = ("source", "converter", "row_policy", "task_policy", "fork", "writer")


def construct(kind: str) -> dict[str, Any]:
    options = {"type": {"const": f"my_{kind}"}, "size": {"type": "integer", "minimum": 1, "description": "Size."}}
    inner = {"$ref": f"#/$defs/{kind}.my.Inner"}
    return {
        "oneOf": [{"type": "object", "properties": options | {"inner": inner}, "additionalProperties": False}],
        "$defs": {f"{kind}.my.Inner": {"type": "object", "properties": {"type": {"const": "x"}}}},
    }


@pytest.fixture
def schema() -> dict[str, Any]:
    return job_schema({kind: construct(kind) for kind in KINDS})


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_schema_states_its_dialect_and_is_json(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == SCHEMA_DIALECT
    assert json.loads(json.dumps(schema)) == schema


def test_schema_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_schema_constructs_stand_where_jobs_take_them(schema: dict[str, Any]) -> None:
    top, branch = schema["properties"], schema["$defs"]["BranchSpec"]["properties"]
    assert top["source"]["$ref"] == "#/$defs/source"
    assert top["writer"]["$ref"] == "#/$defs/writer"
    assert top["converters"]["items"] == branch["converters"]["items"] == {"$ref": "#/$defs/converter"}
    assert top["row_policies"]["items"] == branch["row_policies"]["items"] == {"$ref": "#/$defs/row_policy"}
    assert top["task_policies"]["items"] == {"$ref": "#/$defs/task_policy"}
    assert branch["task_policies"]["anyOf"][0]["items"] == {"$ref": "#/$defs/task_policy"}
    assert branch["writer"]["anyOf"][0] == {"$ref": "#/$defs/writer"}
    assert schema["$defs"]["ForkSpec"]["properties"]["operator"]["$ref"] == "#/$defs/fork"


def test_schema_absent_kinds_keep_any_options() -> None:
    schema = job_schema({})
    assert schema["properties"]["source"] == {"$ref": "#/$defs/ConstructSpec"}
    assert schema["$defs"]["ConstructSpec"]["additionalProperties"] is True


def test_schema_refuses_unknown_keys(schema: dict[str, Any]) -> None:
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["CommitSpec"]["additionalProperties"] is False


def test_schema_numbers_may_be_references_and_keep_their_help(schema: dict[str, Any]) -> None:
    size = schema["$defs"]["writer"]["oneOf"][0]["properties"]["size"]
    assert size["description"] == "Size."
    assert size["anyOf"] == [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"\$\{"}]
    assert schema["$defs"]["CommitSpec"]["properties"]["parallelism"]["anyOf"][0]["maximum"] == 64
