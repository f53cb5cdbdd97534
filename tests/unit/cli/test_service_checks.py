"""`gobblin doctor` in a project with a service: what is there, what runs, and what is wrong, without changing it."""

from __future__ import annotations

import shutil
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gobblin_dagster.cli.service_checks import service_checks
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.database.engine import WRITE, make_engine, parse_url
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.node_rows import Node, save_node
from gobblin_dagster.service.store.schema import CHAIN
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.topology_rows import save_file
from gobblin_dagster.spec.project import ServiceSpec
from tests.services.flow_project import make_project
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli


@contextmanager
def stranger() -> Iterator[int]:
    """Answer as another program does, and yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(root: Path, spec: ServiceSpec) -> dict[str, str]:
    told = {}
    for name, check in service_checks(root, spec):
        try:
            told[name] = check()
        except GobblinDagsterError as error:
            told[name] = f"FAULT {error}"
    return told


def test_service_that_never_ran_is_told_and_not_made(cli: Cli, root: Path) -> None:
    (root / "jobs").mkdir()
    (root / "gobblin.yaml").write_text("project: tests\nservice: {port: 1}\n")
    out = cli("doctor").out
    assert f"{root}/templates: 1 template" in out
    assert "service.db is not there yet; `gobblin serve` makes it" in out
    assert "does not run at http://127.0.0.1:1; `gobblin serve` starts it" in out
    assert not (root / ".gobblin" / "service.db").exists()


def test_running_service_is_told_with_its_nodes(root: Path) -> None:
    core = CoreServices(root, ServiceSpec(port=0), ["false"])
    try:
        with answering(core) as url:
            core.url = url
            core.start()
            told = {"service nodes": ""}
            while "fires" not in told["service nodes"]:
                time.sleep(0.05)
                told = checked(root, ServiceSpec(port=int(url.rpartition(":")[2])))
    finally:
        core.stop(at_once=True)
    assert told["service"].startswith(f"answers at {url}, version ")
    assert told["service"].endswith(", ready")
    assert told["service nodes"] == f"{core.node} at {url}, fires schedules"
    assert told["service store"].endswith("service.db: schema version 0014")
    assert checked(root, ServiceSpec(port=1))["service nodes"] == "none runs", "it has ended"


def test_clock_disk_templates_and_strangers_are_faults(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "templates" / "bad.template").write_text("template: [")
    core = CoreServices(root, ServiceSpec(port=0), ["false"])
    now = datetime.now(UTC)
    with core.store.write() as transaction:
        owner = LeaseOwner.current("n")
        save_node(transaction, Node("n", owner, "", "0", now, now, now + timedelta(seconds=90)))
    core.store.close()
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1 << 20))
    with stranger() as port:
        told = checked(root, ServiceSpec(port=port))
    assert "bad.template" in told["templates"]
    assert "FAULT" in told["templates"]
    assert "Only 1 MiB are free" in told["service disk"]
    assert "differ by 90 s" in told["service nodes"]
    assert "that is not the service" in told["service"]


def test_topology_is_told_if_there_is_one(root: Path) -> None:
    assert "topology" not in checked(root, ServiceSpec(port=1))
    (root / "topology").mkdir()
    (root / "topology" / "all.yaml").write_text("nodes: {lake: {type: lake}}\n")
    told = checked(root, ServiceSpec(port=1))["topology"]
    assert told == f"{root}/topology: 1 node, 0 edges, 0 executors"
    (root / "topology" / "all.yaml").write_text("nodes: {lake: {}}\n")
    told = checked(root, ServiceSpec(port=1))["topology"]
    assert "topology/all.yaml:1: nodes.lake.type: is missing" in told
    assert "`gobblin topology check` shows all faults" in told


def test_executors_without_a_worker_are_told(root: Path) -> None:
    (root / "topology").mkdir()
    executors = "{east: {type: store, capabilities: [{}]}, here: {capabilities: [{}]}}"
    (root / "topology" / "all.yaml").write_text(f"executors: {executors}\n".replace("[{}]", "[{source: lake}]"))
    assert checked(root, ServiceSpec(port=1))["service workers"] == "none runs"
    with ServiceStore(f"sqlite:///{root}/.gobblin/service.db", SystemClock()) as store:
        told = checked(root, ServiceSpec(port=1))["service workers"]
        assert told.startswith("FAULT No worker runs for east: its jobs wait.")
        now = datetime.now(UTC)
        with store.write() as transaction:
            save_node(transaction, Node("w", LeaseOwner.current("w"), "", "0", now, now, now, "east"))
        assert checked(root, ServiceSpec(port=1))["service workers"] == "east: 1 worker"
        assert checked(root, ServiceSpec(port=1))["service nodes"] == "none runs", "a worker is no node"
        with store.write() as transaction:
            save_file(transaction, "west", "executors: {west: {type: store, capabilities: [{}]}}\n", "somebody", now)
        found = checked(root, ServiceSpec(port=1))
        assert found["service workers"].startswith("FAULT No worker runs for west"), "stored over REST"
        assert found["topology"] == f"{root}/topology: 0 nodes, 0 edges, 3 executors"


def test_database_of_an_older_program_is_left_as_it_is(root: Path) -> None:
    url = parse_url(ServiceSpec().store, root)
    engine = make_engine(url).execution_options(**{WRITE: True})
    with engine.begin() as connection:
        replace(CHAIN, revisions=CHAIN.revisions[: CHAIN.revisions.index("0005") + 1]).upgrade(connection, "the store")
    engine.dispose()
    told = checked(root, ServiceSpec(port=1))
    assert told["service nodes"] == "not known: the database is of an older program"
    assert "schema version 0005; the next `gobblin serve` brings it to" in told["service store"]


def test_programs_of_dagster_beside_the_service_are_told(root: Path) -> None:
    spec = ServiceSpec(port=1, dagster=True)
    assert checked(root, spec)["Dagster beside"] == "does not run; `gobblin serve` starts it"
    with ServiceStore(f"sqlite:///{root}/.gobblin/service.db", SystemClock()) as store:

        def beat(**about: str) -> str:
            with store.write() as transaction:
                now = store.now(transaction)
                owner = LeaseOwner.current("n")
                told = {"beside": about} if about else {}
                save_node(transaction, Node("n", owner, "", "0", now, now, now, about=told))
            return checked(root, spec)["Dagster beside"]

        assert "No node of the service runs Dagster" in beat()
        assert beat(pages="", daemon="") == "pages and daemon run"
        assert "FAULT" in (found := beat(pages="ended 3 times, last with code 1; see x", daemon=""))
    assert "pages ended 3 times, last with code 1; see x." in found
    assert "Dagster beside" not in checked(root, ServiceSpec(port=1))
