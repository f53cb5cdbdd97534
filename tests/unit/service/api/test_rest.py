"""REST as Gobblin's Java clients speak it: requests replayed byte by byte against a service on a socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from gobblin_dagster.service.api import flowexecutions
from gobblin_dagster.service.api.body import MAX_BODY
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport
from gobblin_dagster.service.orchestrator.quotas import Quotas
from gobblin_dagster.service.security.access import Access, Action, Principal
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store import flow_rows
from gobblin_dagster.spec.project import ServiceSpec
from tests.services.postgres import PostgresServer

TEMPLATE = """
template: to_lake
parameters:
  table: {type: name, description: Table in the lake}
  rows: {type: integer, default: "5"}
job:
  source:
    type: gobblin_dagster.testing.rows_source:RowsSource
    datasets: {a: {rows: "${rows}"}}
  extract: {namespace: test, table: "${table}"}
  output: {path: lake}
"""
URI = "FS:///shop/to-lake.template"
JAVA = {"X-LI-R2-W-MsgType": "REST", "X-RestLi-Protocol-Version": "2.0.0"}
KEY = "($params:(),flowGroup:g,flowName:n)"


@dataclass
class Told:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Rest:
    """A client that sends targets as they are given."""

    port: int
    token: str | None
    core: CoreServices
    headers: dict[str, str] = field(default_factory=lambda: dict(JAVA))

    def __call__(self, method: str, target: str, body: Any = None, **headers: str) -> Told:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in {**sent, "Content-Length": str(len(data or b""))}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        told = Told(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return told

    def create(self, **changes: Any) -> Told:
        return self("POST", "/flowconfigsV2", config(**changes), X_RestLi_Method="create")


def config(**changes: Any) -> dict[str, Any]:
    document = {
        "id": {"flowGroup": "g", "flowName": "n"},
        "templateUris": URI,
        "properties": {"table": "orders"},
        "schedule": {"cronSchedule": "0 0 0 ? 1 1 2050"},
        **changes,
    }
    return {name: value for name, value in document.items() if value is not None}


STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@contextmanager
def serving(request: pytest.FixtureRequest, root: Path) -> Iterator[Rest]:
    """Start a service that answers on a socket; its loops do not run, so that tests see each step."""
    (root / "templates" / "shop").mkdir(parents=True)
    (root / "templates" / "shop" / "to-lake.template").write_text(TEMPLATE)
    store = "sqlite:///service.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = server.url(server.new_database())
    core = CoreServices(root, ServiceSpec(port=0, store=store), ["false"])
    listener = socket.create_server(("127.0.0.1", 0))
    uvicorn_server = uvicorn.Server(uvicorn.Config(core.app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not uvicorn_server.started:
        time.sleep(0.01)
    yield Rest(listener.getsockname()[1], core.token, core)
    uvicorn_server.should_exit = True
    thread.join()
    core.store.close()


@pytest.fixture(params=STORES)
def rest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rest]:
    with serving(request, tmp_path) as started:
        yield started


@pytest.fixture(scope="module", params=STORES)
def refusing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """A service for all requests that change nothing."""
    with serving(request, tmp_path_factory.mktemp("refusing")) as started:
        yield started
        assert started("GET", "/flowconfigsV2").json["elements"] == []


def test_create_of_a_scheduled_flow_answers_as_gobblins_service(rest: Rest) -> None:
    told = rest.create()
    assert told.status == 201
    assert told.headers["location"] == (
        "/flowconfigsV2/($params:(flowExecutionId:-1,flowGroup:g,flowName:n),flowGroup:g,flowName:n)"
    )
    assert told.headers["x-restli-id"] == "(flowGroup:g,flowName:n)"
    assert told.headers["x-restli-protocol-version"] == "2.0.0"
    assert told.json["properties"] == {"table": "orders", "gobblin.service.requester.list": "[]"}
    got = rest("GET", f"/flowconfigsV2/{KEY}")
    assert got.json["schedule"] == {"cronSchedule": "0 0 0 ? 1 1 2050", "runImmediately": False}
    assert got.json["properties"] == {
        "flow.group": "g",
        "flow.name": "n",
        "flow.runImmediately": "false",
        "gobblin.service.requester.list": "[]",
        "table": "orders",
    }
    assert rest("GET", "/flowconfigsV2/(flowGroup:g,flowName:n)").json == got.json, "curl leaves $params out"


def test_run_once_tells_its_execution_by_location_and_property(rest: Rest) -> None:
    told = rest.create(schedule=None)
    number = told.json["properties"]["flow.executionId"]
    assert f"flowExecutionId:{number}," in told.headers["location"]
    found = rest("GET", f"/flowexecutions/($params:(),flowExecutionId:{number},flowGroup:g,flowName:n)")
    assert (found.status, found.json["executionStatus"], found.json["jobStatuses"]) == (200, "PENDING", [])


def test_names_of_any_kind_survive_in_keys_and_headers(rest: Rest) -> None:
    names = {"flowGroup": "a b/c", "flowName": "pär(t),':%"}
    told = rest.create(id=names)
    assert told.status == 201, told.text
    raw = "(flowGroup:a%20b%2Fc,flowName:p%C3%A4r%28t%29%2C%27%3A%25)"
    assert told.headers["location"].endswith(raw[1:])
    assert rest("GET", f"/flowconfigsV2/{raw}").json["id"] == names
    assert rest("DELETE", f"/flowconfigsV2/{raw}").status == 200
    assert rest("GET", f"/flowconfigsV2/{raw}").status == 404


def test_list_of_flows_that_is_longer_than_a_page_comes_whole(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_rows, "PAGE_FLOWS", 5)
    names = [f"f{number}" for number in range(6)]
    for name in names:
        assert rest.create(id={"flowGroup": "g", "flowName": name}).status == 201
    for query, wanted, links in (
        ("", names, []),
        ("?q=filterFlows&flowGroup=g", names, []),
        ("?start=0&count=6", names, []),
        ("?start=1&count=100", names[1:], ["prev"]),
        ("?start=0&count=5", names[:5], ["next"]),
    ):
        told = rest("GET", f"/flowconfigsV2{query}")
        assert told.status == 200
        assert [one["id"]["flowName"] for one in told.json["elements"]] == wanted, query
        assert [link["rel"] for link in told.json["paging"]["links"]] == links, query
        assert ("content-length" in told.headers) == (query == "?start=0&count=5"), (
            "what fits into one page is not sent in parts"
        )


def test_versions_and_executions_that_are_more_than_a_part_come_whole(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_rows, "PAGE_FLOWS", 2)
    monkeypatch.setattr(flowexecutions, "PART", 2)
    for name in ("a", "b"):
        rest.create(id={"flowGroup": "g", "flowName": name})
        for _ in range(3):
            assert rest("POST", f"/flowconfigsV2/(flowGroup:g,flowName:{name})?action=runImmediately", {}).status == 200
    for _ in range(4):
        changed = config(id={"flowGroup": "g", "flowName": "a"})
        assert rest("PUT", "/flowconfigsV2/(flowGroup:g,flowName:a)", changed).status == 200
    told = rest("GET", "/flowconfigsV2?q=history&flowId=(flowGroup:g,flowName:a)")
    assert [one["version"] for one in told.json["elements"]] == [1, 2, 3, 4, 5]
    assert "content-length" not in told.headers
    never = rest("GET", "/flowconfigsV2?q=history&flowId=(flowGroup:g,flowName:never)")
    assert (never.status, never.json["message"]) == (404, "Flow requested does not exist: never")
    for count, is_whole in ((1, True), (2, False), (3, False), (9, False)):
        group = rest("GET", f"/flowexecutions?q=latestFlowGroupExecutions&flowGroup=g&countPerFlow={count}")
        found = [(one["id"]["flowName"], one["id"]["flowExecutionId"]) for one in group.json["elements"]]
        assert [name for name, _ in found] == ["a"] * min(count, 3) + ["b"] * min(count, 3)
        assert len({*found}) == len(found)
        assert ("content-length" in group.headers) == is_whole, "what fits into one part is not sent in parts"
        of_one = rest("GET", f"/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:g,flowName:b)&count={count}")
        numbers = [one["id"]["flowExecutionId"] for one in of_one.json["elements"]]
        assert numbers == sorted((number for name, number in found if name == "b"), reverse=True)
        assert ("content-length" in of_one.headers) == (count <= 2)


def test_update_patch_and_delete_answer_200_without_a_body(rest: Rest) -> None:
    rest.create()
    for told in (
        rest("PUT", f"/flowconfigsV2/{KEY}", config(properties={"table": "second"})),
        rest(
            "POST",
            f"/flowconfigsV2/{KEY}",
            {"patch": {"properties": {"$set": {"rows": "7"}, "$delete": ["nothing"]}}},
            X_RestLi_Method="partial_update",
        ),
        rest("DELETE", f"/flowconfigsV2/{KEY}", delete_state_store="true"),
    ):
        assert (told.status, told.text, told.headers.get("content-type")) == (200, "", None)
    history = rest("GET", "/flowconfigsV2?q=history&flowId=(flowGroup:g,flowName:n)").json["elements"]
    assert [(one["version"], one["change"]) for one in history] == [
        (1, "created"),
        (2, "updated"),
        (3, "updated"),
        (4, "deleted"),
    ]
    assert history[2]["flowConfig"]["properties"] == {"table": "second", "rows": "7"}


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        (
            {"id": {"flowGroup": "g"}},
            422,
            "ERROR :: /id/flowName :: field is required but not found and has no default value\n",
        ),
        ({"schedule": {"cronSchedule": "* * * * *"}}, 422, "is not in Cron format"),
        ({"templateUris": "FS:///nope"}, 400, "Flow was not compiled successfully"),
        ({"properties": {}}, 400, "needs the parameter 'table'"),
        ({"properties": {"table": "t", "typo": "1"}}, 400, "no template declares the parameter 'typo'"),
        ({"properties": {"table": "t", "rows": "many"}}, 400, "is no integer"),
        ({"properties": {"table": "t", "flow.executionId": "5"}}, 400, "flow.executionId cannot be set by the user"),
    ],
)
def test_create_that_is_refused_stores_nothing(refusing: Rest, changes: dict[str, Any], status: int, text: str) -> None:
    told = refusing.create(**changes)
    assert told.status == status, told.text
    assert text in told.json["message"]
    assert told.json["status"] == status
    assert told.headers["x-restli-error-response"] == "true"
    assert refusing("GET", "/flowconfigsV2").json["elements"] == []


def test_what_is_missing_or_there_already_is_said_in_gobblins_words(rest: Rest) -> None:
    rest.create()
    again = rest.create()
    assert (again.status, again.json["message"]) == (
        409,
        "FlowSpec with URI gobblin-flow:/g/n already exists, no action will be taken",
    )
    other = "(flowGroup:g,flowName:x)"
    for told in (
        rest("GET", f"/flowconfigsV2/{other}"),
        rest("DELETE", f"/flowconfigsV2/{other}"),
        rest("PUT", f"/flowconfigsV2/{other}", config(id={"flowGroup": "g", "flowName": "x"})),
        rest("POST", f"/flowconfigsV2/{other}?action=runImmediately", {}, X_RestLi_Method="action"),
    ):
        assert (told.status, told.json["message"]) == (404, "Flow requested does not exist: x")
    moved = rest("PUT", f"/flowconfigsV2/{KEY}", config(id={"flowGroup": "g", "flowName": "x"}))
    assert (moved.status, moved.json["message"]) == (400, "flowName and flowGroup cannot be changed in update")


def test_explain_compiles_and_stores_nothing(rest: Rest) -> None:
    told = rest.create(explain=True)
    assert told.status == 200
    (job,) = json.loads(told.json["properties"]["gobblin.flow.compiled"])
    assert (job["job"], job["executor"], job["parents"]) == ("g__n__to_lake", "embedded", [])
    assert job["config"]["extract"] == {"namespace": "test", "table": "orders"}
    bad = rest.create(explain=True, properties={"x": "1"})
    assert (bad.status, bad.json["properties"]["gobblin.flow.compiled"]) == (200, "")
    assert rest("GET", "/flowconfigsV2").json["elements"] == []


def test_unschedule_keeps_the_flow_and_sets_gobblins_never(rest: Rest) -> None:
    rest.create(schedule={"cronSchedule": "0 0 * ? * *"})
    rest("PUT", f"/flowconfigsV2/{KEY}", config(properties={"flow.unschedule": "true"}))
    got = rest("GET", f"/flowconfigsV2/{KEY}").json
    assert got["schedule"]["cronSchedule"] == "0 0 0 ? 1 1 2050"
    assert got["properties"]["table"] == "orders"


def test_pages_filters_and_projections(rest: Rest) -> None:
    for number in range(12):
        rest.create(
            id={"flowGroup": "g", "flowName": f"f{number:02}"},
            properties={"table": f"t{number}", "user.to.proxy": "me"},
        )
    everything = rest("GET", "/flowconfigsV2").json
    assert len(everything["elements"]) == 12
    assert everything["paging"] == {"count": 10, "start": 0, "links": []}
    page = rest("GET", "/flowconfigsV2?start=5&count=List(5)&fields=id:(flowName)").json
    assert page["elements"] == [{"id": {"flowName": f"f{number:02}"}} for number in range(5, 10)]
    assert [link["rel"] for link in page["paging"]["links"]] == ["prev", "next"]
    assert page["paging"]["links"][1]["href"] == "/flowconfigsV2?fields=id:(flowName)&start=10&count=5"
    found = rest("GET", "/flowconfigsV2?q=filterFlows&userToProxy=me&propertyFilter=table=t1,user.to.proxy").json
    assert [one["id"]["flowName"] for one in found["elements"]] == ["f01", "f10", "f11"]
    tunnelled = rest(
        "POST",
        "/flowconfigsV2",
        b"q=filterFlows&flowName=f03",
        X_HTTP_Method_Override="GET",
        Content_Type="application/x-www-form-urlencoded",
    )
    assert [one["id"]["flowName"] for one in tunnelled.json["elements"]] == ["f03"]


def test_executions_are_found_killed_and_resumed(rest: Rest) -> None:
    rest.create()
    told = rest("POST", f"/flowconfigsV2/{KEY}?action=runImmediately", {}, X_RestLi_Method="action")
    assert told.json == {"value": "Successfully triggered flow {flowGroup=g, flowName=n}"}
    latest = "/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)&count=List(5)"
    number = rest("GET", latest).json["elements"][0]["id"]["flowExecutionId"]
    rest.core.orchestrator.start_accepted()
    key = f"($params:(),flowExecutionId:{number},flowGroup:g,flowName:n)"
    (job,) = rest("GET", f"/flowexecutions/{key}").json["jobStatuses"]
    assert (job["jobId"], job["executionStatus"]) == ({"jobName": "g__n__to_lake", "jobGroup": "g"}, "PENDING")
    assert rest("POST", f"/flowexecutions/{key}?action=resume", {}).status == 409
    assert rest("DELETE", f"/flowexecutions/{key}").status == 200
    assert rest("DELETE", f"/flowexecutions/{key}").status == 409
    execution = ExecutionId(FlowId("g", "n"), number)
    rest.core.orchestrator.report(JobReport(execution, "g__n__to_lake", 1, 1, ExecutionStatus.CANCELLED, "stopped"))
    assert rest("GET", f"/flowstatuses/{key}").json["executionStatus"] == "CANCELLED"
    assert rest("POST", f"/flowexecutions/{key}?action=resume", {}).status == 200
    assert rest("GET", f"/flowexecutions/{key}").json["executionStatus"] == "RUNNING"
    group = rest("GET", "/flowexecutions?q=latestFlowGroupExecutions&flowGroup=g&countPerFlow=3").json["elements"]
    assert [one["id"]["flowExecutionId"] for one in group] == [number]
    events = rest("GET", f"/flowexecutions?q=events&flowId=(flowGroup:g,flowName:n)&flowExecutionId={number}").json
    assert [one["executionStatus"] for one in events["elements"]][-2:] == ["PENDING_RESUME", "RUNNING"]
    missing = rest("GET", "/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:g,flowName:x)")
    assert (missing.status, "No flow execution found" in missing.json["message"]) == (404, True)
    assert rest("GET", "/flowexecutions?q=latestFlowExecution").json["message"] == "Parameter 'flowId' is required"


def test_one_job_of_an_execution_is_killed(rest: Rest) -> None:
    rest.create(schedule={"cronSchedule": "0 0 0 ? 1 1 2050", "runImmediately": True})
    latest = "/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)"
    number = rest("GET", latest).json["elements"][0]["id"]["flowExecutionId"]
    rest.core.orchestrator.start_accepted()
    target = f"/flowexecutions/($params:(),flowExecutionId:{number},flowGroup:g,flowName:n)?action=killJob"
    assert rest("POST", target, {}).status == 400
    unknown = rest("POST", target, {"jobName": "nope"})
    assert (unknown.status, "it has: g__n__to_lake" in unknown.json["message"]) == (404, True)
    assert rest("POST", target, {"jobName": "g__n__to_lake"}).status == 200
    assert rest("POST", target, {"jobName": "g__n__to_lake"}).status == 409


def test_first_resource_takes_the_seeds_flat_body_and_answers_without_one(rest: Rest) -> None:
    flat = {
        "flowName": "n",
        "flowGroup": "g",
        "templateNames": URI,
        "schedule": "",
        "properties": {"table": "orders"},
    }
    told = rest("POST", "/flowconfigs", flat, X_RestLi_Method="create")
    assert (told.status, told.text) == (201, "")
    assert told.headers["location"] == "/flowconfigs/($params:(),flowGroup:g,flowName:n)"
    assert rest("GET", "/flowconfigs/(flowGroup:g,flowName:n)").json["id"] == {"flowGroup": "g", "flowName": "n"}
    assert rest("POST", "/flowconfigs", config(explain=True)).status == 400


def test_protocol_1_writes_keys_as_pairs(rest: Rest) -> None:
    del rest.headers["X-RestLi-Protocol-Version"]
    told = rest("POST", "/flowconfigsV2", config())
    assert told.headers["x-linkedin-id"] == "flowGroup=g&flowName=n"
    assert told.headers["location"] == (
        "/flowconfigsV2/$params.flowExecutionId=-1&$params.flowGroup=g&$params.flowName=n&flowGroup=g&flowName=n"
    )
    assert rest("GET", "/flowconfigsV2/flowGroup=g&flowName=n").status == 200
    assert rest("GET", "/flowconfigsV2/flowGroup=g&flowName=x").headers["x-linkedin-error-response"] == "true"


def test_second_change_from_the_same_version_is_refused(rest: Rest) -> None:
    rest.create()
    tag = rest("GET", f"/flowconfigsV2/{KEY}").headers["etag"]
    assert rest("PUT", f"/flowconfigsV2/{KEY}", config(properties={"table": "b"}), If_Match=tag).status == 200
    late = rest("PUT", f"/flowconfigsV2/{KEY}", config(properties={"table": "c"}), If_Match=tag)
    assert (late.status, "has version 2, not 1" in late.json["message"]) == (412, True)


def test_creates_with_one_idempotency_key_at_the_same_moment_get_one_answer(rest: Rest) -> None:
    told: list[Told] = []
    threads = [
        threading.Thread(
            target=lambda: told.append(rest("POST", "/flowconfigsV2", config(schedule=None), Idempotency_Key="k2"))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.status for one in told] == [201] * 4, told
    assert len({one.text for one in told}) == 1


def test_idempotency_key_gives_the_same_answer_once(rest: Rest) -> None:
    answers = [rest("POST", "/flowconfigsV2", config(schedule=None), Idempotency_Key="k1") for _ in range(3)]
    assert {one.status for one in answers} == {201}
    assert len({one.headers["location"] for one in answers}) == 1
    other = rest("POST", "/flowconfigsV2", config(properties={"table": "b"}), Idempotency_Key="k1")
    assert (other.status, "was used for another request" in other.json["message"]) == (409, True)
    assert rest("POST", "/flowconfigs", config(id={"flowGroup": "g", "flowName": "v1"})).status == 201
    changed = config(id={"flowGroup": "g", "flowName": "v1"}, properties={"table": "b"})
    assert [rest("POST", "/flowconfigs", changed, Idempotency_Key="k3").status for _ in range(2)] == [201, 201]
    assert rest("GET", "/flowconfigsV2/($params:(),flowGroup:g,flowName:v1)").headers["etag"] == '"2"'


def test_two_creates_at_once_make_one_flow(rest: Rest) -> None:
    told: list[int] = []
    threads = [threading.Thread(target=lambda: told.append(rest.create().status)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [201] + [409] * 7


def test_nobody_without_the_token_sees_or_changes_anything(rest: Rest) -> None:
    rest.create()
    rest.token = None
    for method, target in [("GET", "/flowconfigsV2"), ("DELETE", f"/flowconfigsV2/{KEY}"), ("GET", "/nope")]:
        assert rest(method, target).status == 401
    assert rest("GET", "/flowconfigsV2", Authorization="Bearer wrong").status == 401
    assert rest("GET", "/health/live").status == 200
    assert rest("GET", "/health/ready").json == {"ready": True, "read_only": False, "problems": []}
    assert "paths" in rest("GET", "/openapi.json").json


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status"),
    [
        ("POST", "/flowconfigsV2", b"{", {}, 400),
        ("POST", "/flowconfigsV2", b"\xff", {}, 400),
        ("POST", "/flowconfigsV2", b"[" * 100_000, {}, 400),
        ("POST", "/flowconfigsV2", b'{"id": NaN}', {}, 400),
        ("POST", "/flowconfigsV2", b'{"more": 1e999}', {}, 400),
        ("POST", "/flowconfigsV2", b"null", {}, 422),
        ("POST", "/flowconfigsV2", b" " * (MAX_BODY + 1), {}, 413),
        ("GET", "/flowconfigsV2/(flowGroup:g", None, {}, 400),
        ("GET", "/flowconfigsV2/(flowGroup:g)", None, {}, 400),
        ("GET", "/flowconfigsV2/" + "List(" * 9000, None, {}, 400),
        ("GET", "/flowconfigsV2/a/b", None, {}, 400),
        ("GET", "/flowconfigsV2?start=-1", None, {}, 400),
        ("GET", "/flowconfigsV2?count=x", None, {}, 400),
        ("GET", "/flowconfigsV2?q=nope", None, {}, 400),
        ("GET", "/flowconfigsV2?ids=1", None, {}, 400),
        ("GET", "/flowconfigsV2?q=filterFlows&typo=1", None, {}, 400),
        ("POST", "/flowconfigsV2/(flowGroup:g,flowName:n)?action=nope", b"{}", {}, 400),
        ("POST", "/flowconfigsV2?action=runImmediately", b"{}", {}, 400),
        ("PUT", "/flowconfigsV2", b"{}", {}, 400),
        ("PATCH", "/flowconfigsV2", b"{}", {}, 405),
        ("GET", "/flowexecutions/(flowExecutionId:x,flowGroup:g,flowName:n)", None, {}, 400),
        ("GET", "/flowexecutions", None, {}, 400),
        ("GET", "/nope", None, {}, 404),
        ("GET", "/", None, {}, 404),
        ("GET", "/flowconfigsV2", None, {"Accept": "text/html"}, 406),
        ("GET", "/flowconfigsV2", None, {"X-RestLi-Protocol-Version": "3.0.0"}, 400),
        ("POST", "/flowconfigsV2", b"", {"X-HTTP-Method-Override": "DELETE"}, 400),
        ("GET", "/flowconfigsV2", None, {"X-RestLi-Method": "batch_get"}, 400),
        ("PUT", "/flowconfigsV2/(flowGroup:g,flowName:n)", b"{}", {"If-Match": "x"}, 422),
    ],
)
def test_bad_requests_are_refused_with_a_reason(
    refusing: Rest, method: str, target: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    told = refusing(method, target, body, **headers)
    assert told.status == status, told.text
    assert told.json["message"]


def test_what_no_rule_allows_is_403_and_in_the_audit_trail(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy import select

    from gobblin_dagster.service.store.tables import audit

    rest.create()

    def may_read(_access: Access, _principal: Principal, action: Action, _resource: object) -> bool:
        return action is Action.READ

    monkeypatch.setattr(Access, "allows", may_read)
    flow, execution = f"/flowconfigsV2/{KEY}", "/flowexecutions/(flowExecutionId:1,flowGroup:g,flowName:n)"
    assert rest("GET", flow).status == 200
    calls: list[tuple[str, str, Any, str]] = [
        ("POST", "/flowconfigsV2", config(id={"flowGroup": "g", "flowName": "x"}), "create g/x"),
        ("POST", "/flowconfigs", config(id={"flowGroup": "g", "flowName": "x"}), "create g/x"),
        ("PUT", flow, config(properties={"table": "b"}), "update g/n"),
        ("POST", flow, {"patch": {"properties": {"$set": {"rows": "7"}}}}, "update g/n"),
        ("DELETE", flow, None, "delete g/n"),
        ("POST", f"{flow}?action=runImmediately", {}, "run g/n"),
        ("POST", f"{flow}?action=pause", {}, "update g/n"),
        ("POST", f"{flow}?action=rollback", {"version": 1}, "update g/n"),
        ("DELETE", execution, None, "kill g/n"),
        ("POST", f"{execution}?action=resume", {}, "resume g/n"),
        ("POST", f"{execution}?action=killJob", {"jobName": "j"}, "kill g/n"),
        ("POST", "/flowdatasets/(datasetUrn:a,flowGroup:g,flowName:n)?action=setStartpoint", {}, "update g/n"),
        ("PUT", "/topology/(name:west)", {"body": "nodes: {}"}, "operate topology"),
        ("DELETE", "/topology/(name:west)", None, "operate topology"),
    ]
    for method, target, body, wanted in calls:
        told = rest(method, target, body)
        assert (told.status, told.json["message"]) == (403, f"owner may not {wanted}."), (method, target)
    assert rest("GET", flow).headers["etag"] == '"1"'
    with rest.core.store.read() as transaction:
        query = select(audit.c.action, audit.c.resource).where(audit.c.outcome == "denied").order_by(audit.c.number)
        rows = transaction.execute(query).all()
    assert [" ".join(row) for row in rows] == [wanted for *_, wanted in calls]


def test_every_change_is_in_the_audit_trail(rest: Rest) -> None:
    from sqlalchemy import select, update

    from gobblin_dagster.service.security.audit import broken_rows
    from gobblin_dagster.service.store.tables import audit

    rest.create()
    rest("DELETE", f"/flowconfigsV2/{KEY}")
    with rest.core.store.write() as transaction:
        rows = transaction.execute(select(audit.c.principal, audit.c.action, audit.c.resource, audit.c.outcome)).all()
        assert [tuple(row) for row in rows] == [
            ("owner", "create", "g/n", "allowed"),
            ("owner", "delete", "g/n", "allowed"),
        ]
        assert list(broken_rows(transaction)) == []
        transaction.execute(update(audit).where(audit.c.number == 1).values(principal="somebody"))
        assert list(broken_rows(transaction)) == [1]


def test_actions_and_patches_heed_if_match(rest: Rest) -> None:
    rest.create()
    target = "/flowconfigsV2/(flowGroup:g,flowName:n)"
    patch = {"patch": {"properties": {"$set": {"rows": "7"}}}}
    calls: list[tuple[str, Any]] = [
        (f"{target}?action=runImmediately", {}),
        (f"{target}?action=pause", {}),
        (f"{target}?action=unpause", {}),
        (f"{target}?action=rollback", {"version": 1}),
        (target, patch),
    ]
    for number, (path, body) in enumerate(calls, 1):
        told = rest("POST", path, body, If_Match='"9"')
        assert (told.status, "has version" in told.json["message"]) == (412, True), path
        newest = rest("GET", target).headers["etag"]
        assert newest == f'"{max(1, number - 1)}"', path
        assert rest("POST", path, body, If_Match=newest).status == 200, path
    assert rest("GET", target).json["properties"]["rows"] == "7"
    told = rest("POST", "/flowconfigs", config(), X_RestLi_Method="create", If_Match='"9"')
    assert told.status == 412


def test_flow_that_does_not_wait_for_the_quota_is_503_with_retry_after(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest.core.orchestrator, "_quotas", Quotas(per_group=1))
    slow = {"table": "orders", "rows": "5", "flow.whenFull": "refuse"}
    once = {"properties": slow, "schedule": None}
    assert rest.create(**once).status == 201
    told = rest.create(**once, id={"flowGroup": "g", "flowName": "second"})
    assert (told.status, told.headers["retry-after"]) == (503, "30")
    assert "flow group g has 1 executions" in told.json["message"]
    assert rest("GET", "/flowconfigsV2/($params:(),flowGroup:g,flowName:second)").status == 404


def test_topology_files_are_put_read_and_deleted_and_faults_are_422(rest: Rest) -> None:
    body = "nodes: {lake: {type: lake}}\n"
    assert rest("PUT", "/topology/(name:west)", {"body": body}).json == {"version": 1}
    told = rest("GET", "/topology").json
    assert (told["nodes"], told["problem"], told["lost"]) == (1, "", [])
    assert (told["workers"], told["lacking"]) == ([], {})
    assert [(one["name"], one["body"], one["changedBy"]) for one in told["elements"]] == [("west", body, "owner")]
    assert rest("GET", "/topology/(name:west)").json["version"] == 1
    refused = rest("PUT", "/topology/(name:more)", {"body": body})
    assert (refused.status, "the name 'lake' is taken" in refused.json["message"]) == (422, True)
    assert rest("PUT", "/topology/(name:more)", {"text": body}).status == 400
    assert rest("GET", "/topology/(name:more)").status == 404
    assert rest("DELETE", "/topology/(name:west)").status == 200
    assert rest("DELETE", "/topology/(name:west)").status == 404
    assert rest("GET", "/topology").json["nodes"] == 0
    rest.token = None
    assert rest("PUT", "/topology/(name:west)", {"body": body}).status == 401
