"""`gobblin serve` while something is missing: its database, space on its disk, or itself."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.services.gobblin_clients import FlowConfigV2Client, FlowExecutionClient, Told, Wire
from tests.services.gobblin_serve import COMMAND, ServeProcess, serving
from tests.services.missing import missing
from tests.services.postgres import binaries, named_url, running_postgres

NEVER = "0 0 0 ? 1 1 2050"
URI = "FS:///t.template"
TEMPLATE = """
template: t
job:
  source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {}}
  extract: {namespace: test, table: rows}
  output: {path: lake}
"""


def project(root: Path, store: str = "sqlite:///.gobblin/service.db", port: int = 0) -> None:
    settings = f"service: {{port: {port}, anonymous: true, store: '{named_url(store)}'}}\n"
    (root / "gobblin.yaml").write_text(f"project: faults\n{settings}")
    (root / "templates").mkdir()
    (root / "templates" / "t.template").write_text(TEMPLATE)


def config(name: str, cron: str | None = NEVER) -> dict[str, Any]:
    document = {"id": {"flowGroup": "g", "flowName": name}, "templateUris": URI, "properties": {}}
    return document if cron is None else {**document, "schedule": {"cronSchedule": cron}}


def until(wanted: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_refused_for_now(told: Told) -> bool:
    return (told.status, told.headers.get("retry-after")) == (503, "5") and "cannot be used now" in told.message


def reads_what_nobody_asked_for_before(flows: FlowConfigV2Client, executions: FlowExecutionClient) -> None:
    quiet = flows.get_flow_config("g", "quiet")
    assert (quiet.status, quiet.json["id"]["flowName"]) == (200, "quiet")
    assert quiet.headers["warning"] == '110 - "Response is Stale"'
    listed = flows.get_all_flow_configs()
    assert [one["id"]["flowName"] for one in listed.json["elements"]] == ["n", "quiet"]
    latest = executions.get_latest_flow_execution("g", "once")
    assert [one["executionStatus"] for one in latest.json["elements"]] == ["COMPLETE"]
    assert executions.get_latest_flow_execution("g", "once", count="11").status == 503, "10 are copied"


@pytest.mark.postgres
def test_service_waits_for_its_database_reads_on_without_it_and_comes_back(tmp_path: Path) -> None:
    folder = binaries()
    if folder is None:
        missing("no PostgreSQL server is installed here")
    with running_postgres(folder) as server:
        project(tmp_path, server.url(server.new_database()))
        server.stop()
        with serving(tmp_path) as served:
            wire = Wire(served.port)
            flows, executions = FlowConfigV2Client(wire), FlowExecutionClient(wire)

            def health() -> tuple[int, bool, bool]:
                told = wire("GET", "/health/ready")
                return told.status, told.json["ready"], told.json["read_only"]

            # Not there at the start: the process lives, and says what it waits for.
            assert wire("GET", "/health/live").status == 200
            assert health() == (503, False, False)
            assert "Connection refused" in wire("GET", "/health/ready").json["problems"][0]
            assert is_refused_for_now(flows.create_flow_config(config("n")))
            assert is_refused_for_now(flows.get_flow_config("g", "n"))
            server.start()
            until(lambda: health() == (200, True, False), "the service finds its database")
            assert flows.create_flow_config(config("n")).status == 201
            number = int(flows.create_flow_config_status_id(config("once", None))["flowExecutionId"])
            until(
                lambda: executions.get_flow_execution("g", "once", number).json["executionStatus"] == "COMPLETE",
                "the flow runs",
            )
            shown = flows.get_flow_config("g", "n")
            assert "warning" not in shown.headers
            assert flows.create_flow_config(config("quiet")).status == 201
            begun = time.monotonic()
            until(
                lambda: wire("GET", "/health/ready").json["copy_age_s"] < time.monotonic() - begun,
                "the node's copy of the database has the flow",
            )
            server.stop()
            reads_what_nobody_asked_for_before(flows, executions)
            # Lost later: what was read before can be read; nothing is accepted that could be lost.
            stale = flows.get_flow_config("g", "n")
            assert (stale.status, stale.json) == (200, shown.json)
            assert (stale.headers["warning"], stale.headers["age"].isdigit()) == ('110 - "Response is Stale"', True)
            assert executions.get_flow_execution("g", "once", number).json["executionStatus"] == "COMPLETE"
            assert is_refused_for_now(flows.get_flow_config("g", "never-asked-for"))
            for told in (
                flows.create_flow_config(config("x")),
                flows.update_flow_config(config("n")),
                flows.delete_flow_config("g", "n"),
                flows.run_immediately("g", "n"),
                flows.partial_update_flow_config("g", "n", {}),
                executions.delete_flow_execution("g", "once", number),
            ):
                assert is_refused_for_now(told), told
            assert health() == (200, True, True)
            assert "Connection refused" in wire("GET", "/health/ready").json["problems"][0]
            server.start()
            until(lambda: health() == (200, True, False), "the service finds its database again")
            assert flows.get_flow_config("g", "x").status == 404, "what was refused was not done"
            assert "warning" not in flows.get_flow_config("g", "n").headers
            assert flows.run_immediately("g", "n").status == 200
            latest = executions.get_latest_flow_execution
            until(
                lambda: latest("g", "n").json["elements"][0]["executionStatus"] == "COMPLETE",
                "flows run again, without a restart",
            )
            assert served.process is not None
            assert served.process.poll() is None


def test_full_disk_refuses_changes_and_they_go_on_when_there_is_space(tmp_path: Path) -> None:
    project(tmp_path)
    with serving(tmp_path) as served:
        flows = FlowConfigV2Client(Wire(served.port))
        assert flows.create_flow_config(config("n")).status == 201
        assert served.process is not None
        # No file of the process may grow: what a disk without space, or a quota, does to it.
        limits = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
        told = flows.create_flow_config(config("x"))
        assert (told.status, told.headers.get("retry-after")) == (503, "5")
        assert "free space" in told.message
        assert flows.get_flow_config("g", "n").status == 200
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, limits)
        assert flows.get_flow_config("g", "x").status == 404
        assert flows.create_flow_config(config("x")).status == 201


def test_port_that_is_taken_is_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    project(first)
    with serving(first) as served:
        project(second, port=served.port)
        told = subprocess.run([*COMMAND, "serve"], cwd=second, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1
    assert f"cannot listen on 127.0.0.1:{served.port}: Address already in use" in told.stderr
    assert "Set another `service: {port: ...}`" in told.stderr


def test_second_signal_ends_at_once_what_the_first_one_lets_end(tmp_path: Path) -> None:
    project(tmp_path)
    log = tmp_path / "serve.log"
    with serving(tmp_path) as served, socket.create_connection(("127.0.0.1", served.port)) as slow:
        slow.sendall(b"POST /flowconfigsV2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        for _ in range(2):  # the request above has begun when the service answers later ones
            assert Wire(served.port)("GET", "/health/live").status == 200
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        until(lambda: "signal 15: ending" in log.read_text(), "the service hears of the first signal")
        assert served.process.poll() is None, "it waits for the body of the request"
        assert served.end() == 0
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := slow.recv(4096):
                answer += part
    assert b"did not come whole" not in answer
    assert "signal 15: ending at once" in log.read_text()


def test_nothing_acknowledged_is_lost_or_run_twice_over_kills(tmp_path: Path) -> None:
    project(tmp_path)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown if the test fails
    moments = random.Random(seed)
    acknowledged: dict[str, int] = {}
    ticks = {**config("ticks", "0/5 * * ? * *"), "id": {"flowGroup": "t", "flowName": "ticks"}}
    ticks["properties"] = {"flow.catchUp": "all", "flow.concurrency": "allow"}
    ticks_from_ms = 0.0
    served = ServeProcess(tmp_path)
    for round_number in range(3):
        served.start()
        assert served.process is not None
        killer = threading.Timer(moments.uniform(0.05, 0.8), served.process.kill)
        flows = FlowConfigV2Client(Wire(served.port))
        if round_number == 0:
            assert flows.create_flow_config(ticks).status == 201
            ticks_from_ms = time.time() * 1000
        with contextlib.suppress(ConnectionError):  # the kill came, between two requests or in one
            for at in itertools.count():
                name = f"f{round_number}-{at}"
                told = flows.create_flow_config(config(name, None))
                assert told.status == 201
                acknowledged[name] = int(told.headers["location"].partition("flowExecutionId:")[2].partition(",")[0])
                if at == 0:  # however slow the machine is, something was acknowledged
                    killer.start()
        killer.join()
        assert served.process.wait() == -signal.SIGKILL
    served.start()
    try:
        wire = Wire(served.port)
        flows, executions = FlowConfigV2Client(wire), FlowExecutionClient(wire)
        for name, number in acknowledged.items():
            found = executions.get_latest_flow_execution("g", name, count="5")
            assert [one["id"]["flowExecutionId"] for one in found.json["elements"]] == [number], "one, and no other"
        # Each fire time since the flow was accepted has its execution, also those that came while no service ran.
        again_from_ms = int(time.time() * 1000)

        def fired() -> list[int]:
            told = executions.get_latest_flow_execution("t", "ticks", count="1000").json
            return sorted(one["id"]["flowExecutionId"] for one in told.get("elements", []))

        until(lambda: fired()[-1:] > [again_from_ms], "the schedule goes on")
        numbers = fired()
        assert numbers[0] <= ticks_from_ms + 5000
        assert numbers == list(range(numbers[0], numbers[-1] + 1, 5000)), "no fire is lost, none is doubled"
        assert flows.delete_flow_config("t", "ticks").status == 200
        # All of them, those too whose answer did not arrive, are taken up and leave the catalog.
        until(lambda: flows.get_all_flow_configs().json["elements"] == [], "flows that run once have run")
        group = executions.get_latest_flow_group_executions("g", countPerFlow="5").json["elements"]
        assert len(group) - len(acknowledged) in range(4), "at most one without an answer for each kill"
        assert {one["executionStatus"] for one in group} == {"COMPLETE"}
        assert len({one["id"]["flowName"] for one in group}) == len(group), "none ran twice"
    finally:
        served.end()
