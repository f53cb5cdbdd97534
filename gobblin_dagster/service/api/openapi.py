"""A description of the REST API for programs that do not know Rest.li."""

from __future__ import annotations

from typing import Any, get_args

from gobblin_dagster import __version__
from gobblin_dagster.core.startpoint import OnRewind

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "`(flowGroup:GROUP,flowName:NAME)`; values are percent-encoded, `( ) , : ' /` among them.",
    "schema": _TEXT,
}
_EXECUTION_KEY = {
    **_KEY,
    "description": "`(flowExecutionId:NUMBER,flowGroup:GROUP,flowName:NAME)`, values percent-encoded.",
}
_DATASET_KEY = {
    **_KEY,
    "description": "`(flowGroup:GROUP,flowName:NAME)` is the whole flow; `datasetUrn:URN` and `jobName:JOB` in it name "
    "one dataset. Values are percent-encoded.",
}
_TOPOLOGY_KEY = {**_KEY, "description": "`(name:NAME)`"}
_TOPOLOGY_FILE = {
    "type": "object",
    "required": ["body"],
    "properties": {"body": {**_TEXT, "description": "the file's YAML: nodes, edges, executors"}},
}
_STARTPOINT = {
    "type": "object",
    "required": ["reason"],
    "properties": {
        "position": {**_TEXT, "description": "a watermark, timestamp:INSTANT, oldest or upcoming"},
        "reason": _TEXT,
        "expiresInDays": {"type": "integer", "minimum": 1, "maximum": 36500},
        "onRewind": {"type": "string", "enum": list(get_args(OnRewind)), "default": "refuse"},
    },
}
_FLOW_CONFIG = {
    "type": "object",
    "required": ["id", "templateUris", "properties"],
    "properties": {
        "id": {
            "type": "object",
            "required": ["flowGroup", "flowName"],
            "properties": {name: {**_TEXT, "minLength": 1, "maxLength": 128} for name in ("flowGroup", "flowName")},
        },
        "templateUris": {
            **_TEXT,
            "description": "URIs of templates with commas between them, such as FS:///shop/to-lake.template",
        },
        "properties": {"type": "object", "additionalProperties": _TEXT},
        "schedule": {
            "type": "object",
            "required": ["cronSchedule"],
            "properties": {
                "cronSchedule": {**_TEXT, "description": "Quartz cron of 6 or 7 fields"},
                "runImmediately": {"type": "boolean"},
            },
        },
        "explain": {"type": "boolean", "description": "true: compile only, store nothing"},
        "owningGroup": _TEXT,
    },
}


def openapi_document() -> dict[str, Any]:
    """Return the API as OpenAPI 3.1."""
    flow = {"$ref": "#/components/schemas/FlowConfig"}
    body = {"required": True, "content": {"application/json": {"schema": flow}}}
    page = [_query("start", _COUNT), _query("count", _COUNT)]
    paths: dict[str, Any] = {
        "/flowconfigsV2": {
            "get": _operation("All flows, or those that a finder finds", [*page, _query("q", _TEXT)]),
            "post": {**_operation("Create a flow", [_header("Idempotency-Key")], created=True), "requestBody": body},
        },
        "/flowconfigsV2/{key}": {
            "get": _operation("One flow", [_KEY]),
            "put": {**_operation("Put a flow in the place of one", [_KEY, _header("If-Match")]), "requestBody": body},
            "post": _operation(
                "Patch a flow, or act on it: runImmediately, pause, unpause, rollback, explain",
                [_KEY, _query("action", _TEXT)],
            ),
            "delete": _operation("Take a flow out of the catalog", [_KEY, _header("If-Match")]),
        },
        "/flowexecutions": {
            "get": _operation(
                "Executions: latestFlowExecution, latestFlowGroupExecutions, events", [_query("q", _TEXT)]
            )
        },
        "/flowexecutions/{key}": {
            "get": _operation("One execution", [_EXECUTION_KEY]),
            "post": _operation(
                "Resume an execution, or end one job: ?action=resume, killJob",
                [_EXECUTION_KEY, _query("action", _TEXT)],
            ),
            "delete": _operation("End an execution", [_EXECUTION_KEY]),
        },
        "/flowdatasets/{key}": {
            "get": _operation("How far the datasets of a flow are, or one of them", [_DATASET_KEY, *page]),
            "post": {
                **_operation(
                    "Say where the next run of a dataset begins: setStartpoint, removeStartpoint",
                    [_DATASET_KEY, _query("action", _TEXT)],
                ),
                "requestBody": {"required": True, "content": {"application/json": {"schema": _STARTPOINT}}},
            },
        },
        "/topology": {"get": _operation("Topology files that the service keeps", [])},
        "/topology/{key}": {
            "get": _operation("One topology file", [_TOPOLOGY_KEY]),
            "put": {
                **_operation("Put a topology file; refused if the topology would have faults", [_TOPOLOGY_KEY]),
                "requestBody": {"required": True, "content": {"application/json": {"schema": _TOPOLOGY_FILE}}},
            },
            "delete": _operation("Delete a topology file", [_TOPOLOGY_KEY]),
        },
        "/health/live": {"get": _operation("Whether the process works", [])},
        "/health/ready": {"get": _operation("Whether requests can be answered", [])},
        "/version": {"get": _operation("The version of the service", [])},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "gobblin_dagster service", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"FlowConfig": _FLOW_CONFIG},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(summary: str, parameters: list[dict[str, Any]], *, created: bool = False) -> dict[str, Any]:
    told = {"201" if created else "200": {"description": "done"}, "4XX": {"description": "refused; `message` says why"}}
    return {"summary": summary, "parameters": parameters, "responses": told}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": _TEXT}
