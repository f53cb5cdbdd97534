"""Gobblin's Java clients, replayed against a running `gobblin serve`: all routes, codes, headers and bodies.

What is asserted was measured on Gobblin's own resources behind a real Rest.li server. Where the service differs on
purpose, `docs/reference/service.md` says so.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.gobblin_clients import (
    FlowConfigClient,
    FlowConfigV2Client,
    FlowExecutionClient,
    FlowStatusClient,
    Told,
    Wire,
)
from tests.services.gobblin_serve import ServeProcess, serving
from tests.services.postgres import PostgresServer, named_url

URI = "FS:///templates/test.template"
WAITING = "FS:///waiting.template"
NEVER = "0 0 0 ? 1 1 2050"
TEMPLATE = """
template: test
parameters:
  param1: {type: text, default: v}
  param2: {type: text, default: w}
job:
  source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {}}
  extract: {namespace: test, table: rows}
  converters: [{type: sql, where: "value <> ${param1} or value <> ${param2}"}]
  output: {path: lake}
"""
WAITING_TEMPLATE = """
template: waiting
job:
  source: {type: "waiting:WaitingSource", datasets: {}}
  extract: {namespace: test, table: rows}
  output: {path: lake}
"""
WAITING_SOURCE = """
import time
from pathlib import Path
from gobblin_dagster.testing.rows_source import RowsSource

class WaitingSource(RowsSource):
    def plan(self, context):
        while not Path("go").exists():
            time.sleep(0.02)
        return iter(())
"""
_GROUPS = (f"group{number}" for number in itertools.count())


@dataclass
class Clients:
    """The four clients on one wire, and a group of flows that no other test uses."""

    wire: Wire
    root: Path

    def __post_init__(self) -> None:
        self.group = next(_GROUPS)
        self.v1 = FlowConfigClient(self.wire)
        self.v2 = FlowConfigV2Client(self.wire)
        self.executions = FlowExecutionClient(self.wire)
        self.statuses = FlowStatusClient(self.wire)

    def config(self, name: str = "n", **changes: Any) -> dict[str, Any]:
        document = {
            "id": {"flowGroup": self.group, "flowName": name},
            "templateUris": URI,
            "properties": {"param1": "v"},
            "schedule": {"cronSchedule": NEVER},
            **changes,
        }
        return {key: value for key, value in document.items() if value is not None}

    def ends(self, name: str, number: int, status: str = "COMPLETE") -> dict[str, Any]:
        """Wait until an execution has a status, and return it."""
        deadline = time.monotonic() + 60
        while True:
            document: dict[str, Any] = self.executions.get_flow_execution(self.group, name, number).json
            if document["executionStatus"] == status:
                return document
            assert time.monotonic() < deadline, document
            time.sleep(0.05)


def _project(root: Path, store: str) -> None:
    settings = f"service: {{port: 0, anonymous: true, jobs_at_once: 1, store: '{named_url(store)}'}}\n"
    (root / "gobblin.yaml").write_text(f"project: replay\n{settings}")
    (root / "templates" / "templates").mkdir(parents=True)
    (root / "templates" / "templates" / "test.template").write_text(TEMPLATE)
    (root / "templates" / "waiting.template").write_text(WAITING_TEMPLATE)
    (root / "waiting.py").write_text(WAITING_SOURCE)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    root = tmp_path_factory.mktemp("replay")
    store = "sqlite:///.gobblin/service.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = server.url(server.new_database())
    _project(root, store)
    with serving(root) as process:
        yield process


@pytest.fixture(params=["2.0.0", "1.0.0", ""], ids=["protocol-2", "protocol-1", "no-version"])
def clients(request: pytest.FixtureRequest, served: ServeProcess) -> Clients:
    """Clients of each protocol; the Java clients speak 2.0.0."""
    return Clients(Wire(served.port, version=request.param), served.root)


@pytest.fixture
def java(served: ServeProcess) -> Clients:
    return Clients(Wire(served.port), served.root)


def empty(told: Told, status: int = 200) -> bool:
    return (told.status, told.body) == (status, b"")


def test_scheduled_flow_lives_its_life(clients: Clients) -> None:
    created = clients.v2.create_flow_config(clients.config())
    group, is_v2 = clients.group, clients.wire.version == "2.0.0"
    assert created.status == 201
    if is_v2:
        key = f"flowGroup:{group},flowName:n"
        assert created.headers["location"] == f"/flowconfigsV2/($params:(flowExecutionId:-1,{key}),{key})"
        assert created.headers["x-restli-id"] == f"({key})"
    else:
        key = f"flowGroup={group}&flowName=n"
        params = f"$params.flowExecutionId=-1&$params.flowGroup={group}&$params.flowName=n"
        assert created.headers["location"] == f"/flowconfigsV2/{params}&{key}"
        assert created.headers["x-linkedin-id"] == key
    echoed = {"param1": "v", "gobblin.service.requester.list": "[]"}
    assert created.json == clients.config(properties=echoed), "an echo has no defaults filled in"
    shown = clients.v2.get_flow_config(group, "n")
    assert shown.json == clients.config(
        properties={**echoed, "flow.group": group, "flow.name": "n", "flow.runImmediately": "false"},
        schedule={"cronSchedule": NEVER, "runImmediately": False},
    )
    assert clients.v1.get_flow_config(group, "n").json == shown.json, "both resources show one catalog"
    replaced = clients.config(properties={"param2": "x"}, schedule={"cronSchedule": "0 0 3 * * ?"})
    assert empty(clients.v2.update_flow_config(replaced))
    changes = {"$set": {"a": "1"}, "$delete": ["param2"]}
    patch: dict[str, Any] = {"schedule": {"$set": {"runImmediately": False}}, "properties": changes}
    refused = clients.v2.partial_update_flow_config(group, "n", patch)
    assert (refused.status, "no template declares the parameter 'a'" in refused.message) == (400, True)
    patch["properties"]["$set"] = {"param1": "1"}
    assert empty(clients.v2.partial_update_flow_config(group, "n", patch))
    after = clients.v2.get_flow_config(group, "n").json
    assert after["schedule"] == {"cronSchedule": "0 0 3 * * ?", "runImmediately": False}
    assert (after["properties"]["param1"], "param2" in after["properties"]) == ("1", False)
    assert empty(clients.v2.unschedule(clients.config(properties={"param2": "lost"})))
    assert clients.v2.get_flow_config(group, "n").json["schedule"]["cronSchedule"] == NEVER
    assert clients.v2.get_flow_config(group, "n").json["properties"]["param1"] == "1"
    assert empty(clients.v2.delete_flow_config(group, "n"))
    assert clients.v2.get_flow_config(group, "n").status == 404


def test_run_once_flow_tells_its_execution_and_completes(java: Clients) -> None:
    status_id = java.v2.create_flow_config_status_id(java.config("once", schedule=None))
    assert (status_id["flowGroup"], status_id["flowName"]) == (java.group, "once")
    number = int(status_id["flowExecutionId"])
    assert abs(number - time.time() * 1000) < 60_000, "an execution id is epoch milliseconds"
    done = java.ends("once", number)
    assert done["id"] == {"flowExecutionId": number, "flowGroup": java.group, "flowName": "once"}
    assert done["executionStatistics"]["executionStartTime"] == number
    assert done["executionStatistics"]["executionEndTime"] >= number
    assert done["issues"] == []
    (job,) = done["jobStatuses"]
    assert job["jobId"] == {"jobName": f"{java.group}__once__test", "jobGroup": java.group}
    assert job["flowId"] == {"flowGroup": java.group, "flowName": "once"}
    assert (job["executionStatus"], job["issues"]) == ("COMPLETE", [])
    assert job["jobState"] == {"lowWatermark": "", "highWatermark": ""}
    numbers = job["executionStatistics"]
    assert sorted(numbers) == [
        "estimatedSecondsToCompletion",
        "executionEndTime",
        "executionStartTime",
        "jobProgress",
        "processedCount",
    ]
    assert (numbers["jobProgress"], numbers["processedCount"], numbers["estimatedSecondsToCompletion"]) == (100, 0, 0)
    assert java.v2.get_flow_config(java.group, "once").status == 404, "a flow without a schedule leaves the catalog"
    status = java.statuses.get_flow_status(java.group, "once", number)
    assert (status.status, status.json) == (200, done)


def test_latest_executions_are_found(clients: Clients) -> None:
    group = clients.group
    numbers: list[int] = []
    for name in ("a", "b", "b"):
        if not numbers or (name == "b" and len(numbers) == 1):
            assert clients.v2.create_flow_config(clients.config(name)).status == 201
        told = clients.v2.run_immediately(group, name)
        text = f"Successfully triggered flow {{flowGroup={group}, flowName={name}}}"
        assert (told.status, told.json) == (200, {"value": text})
        latest = clients.executions.get_latest_flow_execution(group, name).json
        (element,) = latest["elements"]
        assert latest["paging"] == {"count": 10, "start": 0, "links": []}
        numbers.append(element["id"]["flowExecutionId"])
        clients.ends(name, numbers[-1])
    find = clients.executions.get_latest_flow_execution

    def found(told: Told) -> list[int]:
        assert told.status == 200, told.body
        return [one["id"]["flowExecutionId"] for one in told.json["elements"]]

    assert found(find(group, "b", count="5")) == [numbers[2], numbers[1]]
    assert found(find(group, "b", count="5", executionStatus="COMPLETE", includeIssues="true")) == numbers[:0:-1]
    (tagged,) = find(group, "b", tag="t").json["elements"]
    assert tagged["jobStatuses"] == [], "a tag leaves out jobs, not executions"
    of_group = clients.executions.get_latest_flow_group_executions
    assert found(of_group(group)) == [numbers[0], numbers[2]], "one of each flow, flows by name"
    assert found(of_group(group, countPerFlow="2", tag="t")) == [numbers[0], numbers[2], numbers[1]]
    assert found(of_group("nobody")) == []
    assert found(clients.statuses.get_latest_flow_status(group, "b", count="2")) == [numbers[2], numbers[1]]
    assert find(group, "b", executionStatus="FAILED").status == 404
    for told in (find(group, "missing"), clients.statuses.get_latest_flow_status(group, "missing", tag="t")):
        assert (told.status, "No flow execution found for" in told.message) == (404, True)


def test_execution_is_killed_and_resumed(java: Clients) -> None:
    (java.root / "go").unlink(missing_ok=True)
    blocker = int(
        java.v2.create_flow_config_status_id(java.config("first", schedule=None, templateUris=WAITING, properties={}))[
            "flowExecutionId"
        ]
    )
    java.ends("first", blocker, "RUNNING")
    # The worker takes one job at a time: the second flow waits, and can be killed.
    number = int(java.v2.create_flow_config_status_id(java.config("second", schedule=None))["flowExecutionId"])
    java.ends("second", number, "RUNNING")  # compiled: what was killed before that cannot be resumed
    kill, resume = java.executions.delete_flow_execution, java.executions.resume_flow_execution
    assert resume(java.group, "second", number).status == 409, "it was not killed"
    assert empty(kill(java.group, "second", number))
    java.ends("second", number, "CANCELLED")
    assert kill(java.group, "second", number).status == 409, "it is over"
    assert empty(resume(java.group, "second", number))
    (java.root / "go").touch()
    java.ends("second", number)
    java.ends("first", blocker)
    assert resume(java.group, "second", number).status == 409, "it is complete"
    for act in (kill, resume, java.executions.get_flow_execution, java.statuses.get_flow_status):
        told = act(java.group, "second", 1)
        assert (told.status, "No flow execution found for" in told.message) == (404, True)


def test_names_of_all_kinds_go_there_and_back(clients: Clients) -> None:
    for name in ("a b", "par(en)", "a/b", "a,b:c'd", "100%25", "a+b&c=d", "ünï/ж☃", "?#;", "''", "List(a)", "$params"):
        config = clients.config(name)
        created = clients.v2.create_flow_config(config)
        assert created.status == 201, created.body
        assert clients.v2.get_flow_config(clients.group, name).json["id"]["flowName"] == name
        assert created.headers["location"].isascii()
        assert clients.wire("GET", created.headers["location"]).json["id"] == config["id"], "a Location can be followed"
        found = clients.v2.get_flow_configs(flowGroup=clients.group, flowName=name).json["elements"]
        assert [one["id"]["flowName"] for one in found] == [name]
        assert clients.executions.get_latest_flow_execution(clients.group, name).status == 404
        assert empty(clients.v2.delete_flow_config_with_state_store(clients.group, name))


def test_flows_whose_paths_would_be_one_are_two(java: Clients) -> None:
    pairs = [(java.group, "b/c"), (f"{java.group}/b", "c")]
    jobs = []
    for group, name in pairs:
        config = java.config(id={"flowGroup": group, "flowName": name})
        explained = java.v2.create_flow_config({**config, "explain": True}).json["properties"]["gobblin.flow.compiled"]
        jobs.append(json.loads(explained)[0]["job"])
        assert java.v2.create_flow_config(config).status == 201
    assert jobs[0] != jobs[1], "nor do their jobs share a watermark"
    for group, name in pairs:
        shown = java.v2.get_flow_config(group, name).json
        assert shown["id"] == {"flowGroup": group, "flowName": name}
        assert empty(java.v2.delete_flow_config(group, name))
    for bad in ("a\nb", "\0", "\x7f"):
        told = java.v2.create_flow_config(java.config(bad))
        assert (told.status, "holds a control character" in told.message) == (422, True)


def test_pages_finders_and_projections(java: Clients) -> None:
    for number in range(5):
        properties = {"param1": f"v{number}", "user.to.proxy": "me", "gobblin.flow.sourceIdentifier": f"s{number % 2}"}
        schedule = {"cronSchedule": NEVER if number else "0 0 3 ? * *"}
        config = java.config(f"f{number}", properties=properties, schedule=schedule, owningGroup=f"team{number % 2}")
        assert java.v2.create_flow_config(config).status == 201

    def names(told: Told) -> list[str]:
        assert told.status == 200, told.body
        return [one["id"]["flowName"] for one in told.json["elements"]]

    find: Callable[..., Told] = java.v2.get_flow_configs
    group = {"flowGroup": java.group}
    everything = ["f0", "f1", "f2", "f3", "f4"]
    assert names(find(**group)) == everything
    assert names(find(**group, flowName="f3")) == ["f3"]
    assert names(find(**group, templateUri=URI)) == everything
    assert names(find(**group, templateUri="FS:///other")) == []
    assert names(find(**group, userToProxy="me")) == everything
    assert names(find(**group, sourceIdentifier="s1")) == ["f1", "f3"]
    assert names(find(**group, destinationIdentifier="s1")) == []
    assert names(find(**group, schedule="0 0 3 ? * *")) == ["f0"]
    assert names(find(**group, isRunImmediately="false")) == everything
    assert names(find(**group, isRunImmediately="true")) == []
    assert names(find(**group, owningGroup="team0")) == ["f0", "f2", "f4"]
    assert names(find(**group, propertyFilter="param1=v2")) == ["f2"]
    assert names(find(**group, propertyFilter="param1,user.to.proxy=e")) == everything
    assert names(find(**group, propertyFilter="param2")) == []
    page = find(**group, start="1", count="2")
    assert names(page) == ["f1", "f2"]
    links = {link["rel"]: link["href"] for link in page.json["paging"]["links"]}
    assert page.json["paging"]["start"], page.json["paging"]["count"] == (1, 2)
    assert names(java.wire("GET", links["next"])) == ["f3", "f4"]
    assert names(java.wire("GET", links["prev"])) == ["f0", "f1"]
    whole = java.v2.get_all_flow_configs()
    assert whole.json["paging"] == {"count": 10, "start": 0, "links": []}, "everything, though paging says 10"
    assert set(everything) <= set(names(whole))
    first = java.v2.get_all_flow_configs(0, 1)
    assert (len(first.json["elements"]), first.json["paging"]["count"]) == (1, 1)
    assert first.json["paging"]["links"] == [
        {"rel": "next", "type": "application/json", "href": "/flowconfigsV2?start=1&count=1"}
    ]
    key = f"($params:(),flowGroup:{java.group},flowName:f1)"
    assert java.wire("GET", f"/flowconfigsV2/{key}?fields=id,templateUris").json == {
        "id": {"flowGroup": java.group, "flowName": "f1"},
        "templateUris": URI,
    }
    assert java.wire("GET", f"/flowconfigsV2/{key}?fields=id:(flowName)").json == {"id": {"flowName": "f1"}}
    query = f"q=filterFlows&flowGroup={java.group}&flowName=f2".encode()
    tunnel = {"X-HTTP-Method-Override": "GET", "Content-Type": "application/x-www-form-urlencoded"}
    assert names(java.wire("POST", "/flowconfigsV2", query, tunnel)) == ["f2"]


def test_first_resource_overwrites_scheduled_flows_and_has_no_bodies(java: Clients) -> None:
    group = java.group
    created = java.v1.create_flow_config(java.config())
    assert empty(created, 201)
    assert created.headers["location"] == f"/flowconfigs/($params:(),flowGroup:{group},flowName:n)"
    again = java.v1.create_flow_config(java.config(properties={"param1": "second"}))
    assert empty(again, 201), "a flow with a schedule is overwritten"
    assert java.v1.get_flow_config(group, "n").json["properties"]["param1"] == "second"
    once = java.v1.create_flow_config(java.config(schedule=None))
    assert empty(once, 409)
    assert once.headers["location"] == created.headers["location"]
    assert java.v1.get_flow_config(group, "n").json["schedule"]["cronSchedule"] == NEVER, "nothing was done"
    assert empty(java.v1.update_flow_config(java.config(properties={"param1": "third"})))
    assert java.v1.create_flow_config(java.config("x", explain=True)).status == 400
    assert java.v1.create_flow_config(java.config("x", owningGroup="team")).status == 401
    listed = java.config(properties={"gobblin.service.requester.list": "[]"})
    assert java.v1.update_flow_config(listed).status == 401
    assert empty(java.v1.delete_flow_config(group, "n"))
    for told in (java.v1.get_flow_config(group, "n"), java.v1.delete_flow_config(group, "n")):
        assert (told.status, told.message) == (404, "Flow requested does not exist: n")


def test_explain_compiles_and_tells_a_location(java: Clients) -> None:
    told = java.v2.create_flow_config(java.config(explain=True))
    assert told.status == 200
    jobs = json.loads(told.json["properties"]["gobblin.flow.compiled"])
    assert [job["job"] for job in jobs] == [f"{java.group}__n__test"]
    assert java.v2.create_flow_config_status_id(java.config(explain=True))["flowName"] == "n"
    broken = java.v2.create_flow_config(java.config(explain=True, templateUris="FS:///nope", schedule=None))
    assert (broken.status, broken.json["properties"]["gobblin.flow.compiled"]) == (200, "")
    assert java.v2.get_flow_config(java.group, "n").status == 404, "nothing was stored"
    java.v2.create_flow_config(java.config())
    assert java.v2.create_flow_config(java.config(explain=True)).status == 409


def test_fields_that_gobblin_does_not_know_are_echoed_and_values_kept(java: Clients) -> None:
    values = {"param1": ' a b {x:1} "q" ${env} # = * ü', "param2": ""}
    created = java.v2.create_flow_config(java.config(properties=values, comment={"by": ["me"]}))
    assert (created.status, created.json["comment"]) == (201, {"by": ["me"]})
    shown = java.v2.get_flow_config(java.group, "n").json
    assert shown["comment"] == {"by": ["me"]}
    assert {name: shown["properties"][name] for name in values} == values
    # What one client left in the list of requesters stays, if another one does not send it.
    requesters = '[{"name":"me","type":"USER"}]'
    changed = java.config(properties={"gobblin.service.requester.list": requesters})
    assert empty(java.v2.update_flow_config(changed))
    assert empty(java.v2.update_flow_config(java.config()))
    assert java.v2.get_flow_config(java.group, "n").json["properties"]["gobblin.service.requester.list"] == requesters
    changed["properties"]["gobblin.service.requester.list"] = "nonsense"
    assert java.v2.update_flow_config(changed).status == 400


REQUIRED = "field is required but not found and has no default value"
LONG = "x" * 129


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"schedule": {"cronSchedule": "x"}}, 422, 'ERROR :: /schedule/cronSchedule :: "x" is not in Cron format'),
        ({"schedule": {"cronSchedule": "* * * * *"}}, 422, "is not in Cron format"),
        ({"schedule": {}}, 422, f"ERROR :: /schedule/cronSchedule :: {REQUIRED}\n"),
        (
            {"templateUris": "http://x/y"},
            422,
            'ERROR :: /templateUris :: "http://x/y" is not a well-formed comma-separated list of URIs\n',
        ),
        ({"templateUris": None}, 422, f"ERROR :: /templateUris :: {REQUIRED}\n"),
        ({"templateUris": ""}, 400, "names no template"),
        ({"templateUris": "fs:///nope"}, 400, "Flow was not compiled successfully."),
        ({"properties": None}, 422, f"ERROR :: /properties :: {REQUIRED}\n"),
        ({"properties": {"a": 5}}, 422, "ERROR :: /properties/a :: 5 cannot be coerced to String\n"),
        ({"id": None}, 422, f"ERROR :: /id :: {REQUIRED}\n"),
        (
            {"id": {"flowGroup": "", "flowName": LONG}},
            422,
            'ERROR :: /id/flowGroup :: length of "" is out of range 1...128\n'
            f'ERROR :: /id/flowName :: length of "{LONG}" is out of range 1...128\n',
        ),
        ({"explain": "true"}, 422, "ERROR :: /explain :: true cannot be coerced to Boolean\n"),
        ({"properties": {"flow.executionId": "5"}}, 400, "flow.executionId cannot be set by the user"),
    ],
)
def test_bad_flows_are_refused_in_the_words_of_restli(
    java: Clients, changes: dict[str, Any], status: int, message: str
) -> None:
    told = java.v2.create_flow_config(java.config("bad", **changes))
    assert (told.status, message in told.message) == (status, True), told.body
    assert java.v2.get_flow_config(java.group, "bad").status == 404


def test_flow_that_does_not_compile_tells_reasons_as_json_and_leaves_the_old_one(java: Clients) -> None:
    java.v2.create_flow_config(java.config())
    bad = java.config(properties={"typo": "1"})
    for told in (
        java.v2.create_flow_config({**bad, "id": {"flowGroup": java.group, "flowName": "x"}}),
        java.v2.update_flow_config(bad),
        java.v1.update_flow_config(bad),
        java.v2.partial_update_flow_config(java.group, "n", {"properties": {"$set": {"typo": "1"}}}),
    ):
        assert told.status == 400
        reasons = json.loads(told.message)
        assert sorted(reasons) == ["message", "multiHopErrors", "singleHopErrors"]
        assert reasons["message"][0].startswith("Flow was not compiled successfully. ")
        assert "no template declares the parameter 'typo'" in reasons["singleHopErrors"][0]
    assert java.v2.get_flow_config(java.group, "n").json["properties"]["param1"] == "v"


def test_what_is_missing_doubled_or_moved_is_said_in_gobblins_words(clients: Clients) -> None:
    group = clients.group
    clients.v2.create_flow_config(clients.config())
    again = clients.v2.create_flow_config(clients.config())
    text = f"FlowSpec with URI gobblin-flow:/{group}/n already exists, no action will be taken"
    assert (again.status, again.message) == (409, text)
    for told in (
        clients.v2.get_flow_config(group, "x"),
        clients.v2.delete_flow_config(group, "x"),
        clients.v2.update_flow_config(clients.config("x")),
        clients.v2.partial_update_flow_config(group, "x", {"$set": {"templateUris": URI}}),
        clients.v2.run_immediately(group, "x"),
        clients.v1.update_flow_config(clients.config("x")),
    ):
        assert (told.status, told.message) == (404, "Flow requested does not exist: x")
    moves = {"id": {"$set": {"flowName": "y"}}}
    for told in (
        clients.v2._put(clients.v2._path(flowGroup=group, flowName="n"), clients.config("y")),
        clients.v2.partial_update_flow_config(group, "n", moves),
    ):
        assert (told.status, told.message) == (400, "flowName and flowGroup cannot be changed in update")
    for field in ("templateUris", "properties", "id"):
        told = clients.v2.partial_update_flow_config(group, "n", {"$delete": [field]})
        assert (told.status, told.message) == (422, f"ERROR :: /{field} :: cannot delete a required field\n")
    told = clients.v2.partial_update_flow_config(group, "n", {"schedule": {"$delete": ["cronSchedule"]}})
    assert (told.status, told.message) == (422, "ERROR :: /schedule/cronSchedule :: cannot delete a required field\n")
    assert clients.v2.partial_update_flow_config(group, "n", {"$set": {"templateUris": 5}}).status == 422


@pytest.mark.parametrize(
    ("method", "target", "headers", "status", "message"),
    [
        ("GET", "/nothing", {}, 404, "There is no resource"),
        ("GET", "/flowconfigsV2?q=nothing", {}, 400, "no finder"),
        ("GET", "/flowexecutions?q=nothing", {}, 400, "no finder"),
        ("GET", "/flowexecutions", {}, 400, "no method"),
        ("GET", "/flowstatuses", {}, 400, "no method"),
        ("POST", "/flowexecutions", {"X-RestLi-Method": "create"}, 400, "no method"),
        ("POST", "/flowconfigsV2/(flowGroup:g,flowName:n)?action=nothing", {}, 400, "no action"),
        ("POST", "/flowconfigsV2/(flowGroup:g,flowName:n)", {"X-RestLi-Method": "batch_create"}, 400, "Batches"),
        ("GET", "/flowconfigsV2?ids=List((flowGroup:g,flowName:n))", {}, 400, "Batches"),
        ("GET", "/flowconfigsV2?start=-1&count=1", {}, 400, "from 0"),
        ("GET", "/flowconfigsV2?count=many", {}, 400, "takes a number"),
        ("GET", "/flowconfigsV2/(flowGroup:g,flowName:n", {}, 400, "the end"),
        ("GET", "/flowconfigsV2/(flowGroup:g)", {}, 400, "lacks flowName"),
        ("GET", "/flowexecutions/(flowExecutionId:x,flowGroup:g,flowName:n)", {}, 400, "takes a number"),
        ("GET", "/flowexecutions?q=latestFlowExecution", {}, 400, "Parameter 'flowId' is required"),
        ("GET", "/flowexecutions?q=latestFlowGroupExecutions", {}, 400, "Parameter 'flowGroup' is required"),
        ("GET", "/flowstatuses?q=latestFlowStatus", {}, 400, "Parameter 'flowId' is required"),
        ("GET", "/flowconfigsV2", {"Accept": "text/html"}, 406, "application/json"),
    ],
)
def test_requests_that_mean_nothing_are_refused(
    java: Clients, method: str, target: str, headers: dict[str, str], status: int, message: str
) -> None:
    told = java.wire(method, target, b"{}" if method == "POST" else None, headers)
    assert (told.status, message in told.message) == (status, True), told.body


def test_location_can_be_read_by_gobblins_pattern_whatever_the_name(java: Clients) -> None:
    told = java.v2.create_flow_config(java.config("a,b:c)d(e", schedule=None))
    found = re.fullmatch(r".*params:\((..*?)\).*", told.headers["location"])
    assert found is not None
    fields = dict(part.split(":") for part in found[1].split(","))
    assert sorted(fields) == ["flowExecutionId", "flowGroup", "flowName"]
