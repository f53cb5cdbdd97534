"""A description of the REST API for programs that do not know Rest.li.

The signs of Rest.li's keys stand in the paths, `/flowconfigsV2/(flowGroup:{flowGroup},flowName:{flowName})`, so that a
client made from the document has plain values to put in.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from gobblin_dagster import __version__
from gobblin_dagster.core.startpoint import OnRewind

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_FLOW = "(flowGroup:{flowGroup},flowName:{flowName})"
_EXECUTION = "(flowExecutionId:{flowExecutionId},flowGroup:{flowGroup},flowName:{flowName})"
_DATASET = "(datasetUrn:{datasetUrn},flowGroup:{flowGroup},flowName:{flowName})"
_JOB_DATASET = "(datasetUrn:{datasetUrn},flowGroup:{flowGroup},flowName:{flowName},jobName:{jobName})"
_TOPOLOGY = "(name:{name})"
_FIELD = re.compile(r"{(\w+)}")
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
    paths: dict[str, Any] = {
        **_flow_paths("flowconfigsV2"),
        **_flow_paths("flowconfigs"),
        **_execution_paths("flowexecutions", "latestFlowExecution"),
        **_execution_paths("flowstatuses", "latestFlowStatus"),
        **_other_paths(),
        "/health/live": {"get": _open("Whether the process works")},
        "/health/ready": {"get": _open("Whether requests can be answered")},
        "/version": {"get": _open("The version of the service")},
    }
    for path, item in paths.items():
        if names := _FIELD.findall(path):
            item["parameters"] = [_path(name) for name in names]
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


def _flow_paths(resource: str) -> dict[str, Any]:
    flow = _body({"$ref": "#/components/schemas/FlowConfig"})
    change = [_header("If-Match")]
    exact = ("flowGroup", "flowName", "templateUri", "schedule", "owningGroup", "managedBy")
    found = [_choice("q", "filterFlows", "history"), *map(_query, (*exact, "propertyFilter", "search")), *_flow_id()]
    action = _choice("action", "runImmediately", "pause", "unpause", "rollback", "explain")
    patch = {"type": "object", "properties": {"patch": {"type": "object"}, "version": {"type": "integer"}}}
    return {
        f"/{resource}": {
            "get": _operation("All flows, or those that a finder finds", [*_page(), *found]),
            "post": {**_operation("Create a flow", [_header("Idempotency-Key")], created=True), **flow},
        },
        f"/{resource}/{_FLOW}": {
            "get": _operation("One flow", []),
            "put": {**_operation("Put a flow in the place of one", change), **flow},
            "post": {**_operation("Act on a flow; without an action: patch it", [action, *change]), **_body(patch)},
            "delete": _operation("Take a flow out of the catalog", change),
        },
    }


def _execution_paths(resource: str, latest: str) -> dict[str, Any]:
    finder = _choice("q", latest, "latestFlowGroupExecutions", "events", required=True)
    where = [*_flow_id(), *map(_query, ("flowGroup", "flowExecutionId", "after", "count", "countPerFlow"))]
    action = _choice("action", "resume", "killJob", required=True)
    job = {"type": "object", "properties": {"jobName": {**_TEXT, "description": "the job that killJob ends"}}}
    return {
        f"/{resource}": {"get": _operation("Executions that a finder finds", [finder, *where])},
        f"/{resource}/{_EXECUTION}": {
            "get": _operation("One execution", []),
            "post": {**_operation("Resume an execution, or end one job of it", [action]), **_body(job)},
            "delete": _operation("End an execution", []),
        },
    }


def _other_paths() -> dict[str, Any]:
    put = _operation("Put a topology file; refused if the topology would have faults", [])
    return {
        f"/flowdatasets/{_FLOW}": {"get": _operation("How far the datasets of a flow are", _page())},
        f"/flowdatasets/{_DATASET}": _dataset("one dataset of a flow"),
        f"/flowdatasets/{_JOB_DATASET}": _dataset("a dataset that several jobs of a flow have"),
        "/flowtemplates": {"get": _operation("What flows can be made of", [])},
        "/topology": {"get": _operation("Topology files that the service keeps", [])},
        f"/topology/{_TOPOLOGY}": {
            "get": _operation("One topology file", []),
            "put": {**put, **_body(_TOPOLOGY_FILE)},
            "delete": _operation("Delete a topology file", []),
        },
    }


def _dataset(what: str) -> dict[str, Any]:
    action = _choice("action", "setStartpoint", "removeStartpoint", required=True)
    post = _operation(f"Say where the next run of {what} begins", [action])
    return {"get": _operation(f"How far {what} is", []), "post": {**post, **_body(_STARTPOINT)}}


def _operation(summary: str, parameters: list[dict[str, Any]], *, created: bool = False) -> dict[str, Any]:
    told = {
        "201" if created else "200": {"description": "done"},
        "4XX": {"description": "refused; `message` says why"},
        "503": {"description": "the database cannot be used now; `Retry-After` says when to try again"},
    }
    return {"summary": summary, "parameters": parameters, "responses": told}


def _open(summary: str) -> dict[str, Any]:
    """Return an operation that needs no token."""
    return {**_operation(summary, []), "security": []}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _path(name: str) -> dict[str, Any]:
    told = "percent-encoded, `( ) , : ' /` too"
    return {"name": name, "in": "path", "required": True, "description": told, "schema": _TEXT}


def _query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": _TEXT}


def _choice(name: str, *choices: str, required: bool = False) -> dict[str, Any]:
    return {**_query(name), "required": required, "schema": {**_TEXT, "enum": list(choices)}}


def _header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": _TEXT}


def _page() -> list[dict[str, Any]]:
    return [{**_query(name), "schema": _COUNT} for name in ("start", "count")]


def _flow_id() -> list[dict[str, Any]]:
    """Return the parameter `flowId` as protocol 1.0.0 writes it: the service takes it from clients that name none."""
    return [_query("flowId.flowGroup"), _query("flowId.flowName")]
