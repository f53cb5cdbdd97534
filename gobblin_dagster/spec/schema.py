"""The JSON schema of a job file with the options of all constructs, so that editors can complete and check job files.

In place of numbers and booleans the schema also allows references to environment variables, which are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gobblin_dagster.spec.descriptions import described_schema
from gobblin_dagster.spec.job import JobSpec

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_KIND_OF_MODEL = {"ConverterSpec": "converter", "RowPolicySpec": "row_policy", "TaskPolicySpec": "task_policy"}
"""Kind of construct, by the name of its model."""
_KIND_OF_FIELD = {"source": "source", "writer": "writer", "publisher": "publisher", "operator": "fork"}
"""Kind of construct, by the name of the field, for fields of type `ConstructSpec`."""
_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def job_schema(construct_schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a job file.

    Args:
        construct_schemas: by kind (`source`, `converter`, `row_policy`, `task_policy`, `fork`, `writer`,
            `publisher`), a schema of all types of this kind: `oneOf` with a constant `type`. Its `$defs` are merged
            into those of the result. For kinds that are missing, any options are allowed.
    """
    schema = _bound(described_schema(JobSpec), construct_schemas, "")
    definitions: dict[str, Any] = schema.pop("$defs")
    for kind, construct in construct_schemas.items():
        definitions |= construct.get("$defs", {})
        definitions[kind] = {key: value for key, value in construct.items() if key != "$defs"}
    return {"$schema": SCHEMA_DIALECT, **_with_references({**schema, "$defs": definitions})}


def _bound(node: Any, kinds: Mapping[str, Any], field: str) -> Any:
    """Point the references to construct models at the schemas of their kinds."""
    if isinstance(node, list):
        return [_bound(item, kinds, field) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        model = node["$ref"].rpartition("/")[2]
        kind = _KIND_OF_FIELD.get(field) if model == "ConstructSpec" else _KIND_OF_MODEL.get(model)
        if kind in kinds:
            return node | {"$ref": f"#/$defs/{kind}"}
    if isinstance(node.get("properties"), dict):
        properties = {name: _bound(body, kinds, name) for name, body in node["properties"].items()}
        node = node | {"properties": properties}
    return {key: value if key == "properties" else _bound(value, kinds, field) for key, value in node.items()}


def _with_references(node: Any) -> Any:
    """Allow a reference in each place of a number or boolean."""
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {
        key: value if key in {"default", "const", "enum"} else _with_references(value) for key, value in node.items()
    }
    if inner.get("type") not in ("integer", "number", "boolean"):
        return inner
    outer = {key: inner.pop(key) for key in ("title", "description", "default") if key in inner}
    return {**outer, "anyOf": [inner, _REFERENCE]}
