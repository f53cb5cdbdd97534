"""A program that knows `/openapi.json`, and nothing of Rest.li, reaches the whole service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from gobblin_dagster import __version__
from gobblin_dagster.service.api.openapi import openapi_document
from gobblin_dagster.service.flow_jobs import flow_jobs
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.server import CoreServices
from tests.services.asgi import AsgiAnswer, answer
from tests.services.flow_project import NEVER, URI, make_project, open_core, run_flow, store_flow

FLOW = FlowId("g", "a,b:c (d)'/é%")
FLOW_ID = {"flowId.flowGroup": FLOW.group, "flowId.flowName": FLOW.name}
CONFIG = {
    "id": {"flowGroup": FLOW.group, "flowName": FLOW.name},
    "templateUris": URI,
    "properties": {},
    "schedule": {"cronSchedule": NEVER},
}
BODIES: dict[str, Any] = {
    "rollback": {"version": 1},
    "setStartpoint": {"position": "3", "reason": "test", "onRewind": "append"},
    "removeStartpoint": {"reason": "test"},
    "killJob": {"jobName": "nope"},
    "a flow or a patch": {**CONFIG, "patch": {"properties": {"$set": {"rows": "7"}}}},
    "a topology file": {"body": "nodes: {lake: {type: lake}}\n"},
}


@dataclass
class Program:
    """Fills in the paths of the document, as a client that is made from it does."""

    core: CoreServices
    values: dict[str, str]

    def __call__(self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None) -> AsgiAnswer:
        filled = path.format(**{name: quote(value, safe="") for name, value in self.values.items()})
        target = f"{filled}?{urlencode(query)}" if query else filled
        headers = [(b"authorization", f"Bearer {self.core.token}".encode())]
        return answer(self.core.app, method.upper(), target.encode(), headers, [json.dumps(body).encode()])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    root = tmp_path_factory.mktemp("openapi")
    make_project(root)
    core = open_core(root)
    store_flow(core, FLOW)
    run_flow(root, core, FLOW)
    with core.store.write() as transaction:
        number = core.manager.run_now(transaction, FLOW)
    values = {"flowGroup": FLOW.group, "flowName": FLOW.name, "flowExecutionId": str(number)}
    (job,) = flow_jobs(core.store, core.compile, FLOW)
    yield Program(core, {**values, "jobName": job.name, "datasetUrn": "b/c", "name": "west"})
    core.store.close()


def operations(*methods: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the operations of some methods: path, method, and what is said of them."""
    paths = openapi_document()["paths"]
    return [(path, method, item[method]) for path, item in paths.items() for method in methods if method in item]


def choices(operation: dict[str, Any], name: str) -> list[str]:
    return [one for each in operation["parameters"] if each["name"] == name for one in each["schema"]["enum"]]


def test_every_resource_is_described(program: Program) -> None:
    told = json.loads(program("GET", "/nope").body)["message"].partition("resources: ")[2]
    described = {path.split("/")[1] for path in openapi_document()["paths"]}
    assert described == {*re.findall(r"/(\w+)", told), "health", "version"}


def test_every_finder_finds(program: Program) -> None:
    executions = {"flowGroup": "g", "countPerFlow": "2"}
    wanted = {
        "filterFlows": {"flowName": FLOW.name},
        "latestFlowGroupExecutions": executions,
        "events": {**FLOW_ID, "flowExecutionId": program.values["flowExecutionId"], "after": "0"},
    }
    for path, _, operation in operations("get"):
        for finder in choices(operation, "q"):
            query = {"q": finder, **wanted.get(finder, FLOW_ID)}
            told = program("GET", path, query)
            assert {*query} <= {one["name"] for one in operation["parameters"]}, "all are described"
            assert (told.status, bool(json.loads(told.body)["elements"])) == (200, True), (path, finder, told)
        names = {one["name"] for one in operation["parameters"]} - {"q", "start", "count", *FLOW_ID}
        if "filterFlows" in choices(operation, "q"):
            told = program("GET", path, {"q": "filterFlows", **dict.fromkeys(names, "x")})
            assert (told.status, json.loads(told.body)["elements"]) == (200, [])


def test_token_is_needed_unless_the_document_says_otherwise(program: Program) -> None:
    for path, method, operation in operations("get"):
        told = answer(program.core.app, method.upper(), path.partition("/(")[0].encode())
        assert (told.status == 401) == ("security" not in operation), (path, told)
    assert json.loads(program("GET", "/version").body) == {"version": __version__}


def test_everything_that_is_described_is_there(program: Program) -> None:
    # What deletes comes last; the first resource then looks for a flow that the second one deleted.
    for path, method, operation in [*operations("put", "post", "get"), *operations("delete")]:
        kind = "a topology file" if path.startswith("/topology") else "a flow or a patch"
        for action in choices(operation, "action") or [""]:
            query = {"action": action} if action else {}
            if finders := choices(operation, "q"):
                query = {"q": finders[0], **({} if finders[0] == "filterFlows" else FLOW_ID)}
            told = program(method, path, query, BODIES.get(action, BODIES[kind]))
            said = (method, path, action, told)
            assert told.status in {"get": {200}, "delete": {200, 404, 409}}.get(method, {200, 201, 404, 409}), said
            if told.status == 404:
                assert (method, b"nope" in told.body) in {("delete", False), ("post", True)}, said
