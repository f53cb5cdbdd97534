"""Workers that the service keeps running: as many as the topology asks for, none twice, none after its owner's end."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.cli.commands import worker
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.service.provisioner import Provisioner
from gobblin_dagster.service.store.node_rows import Node, load_nodes
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.graph import EMPTY, FlowGraph
from gobblin_dagster.service.topology.model import CapabilitySpec, TopologySpec
from tests.services.gobblin_serve import ServeProcess


class Fakes:
    """A launcher whose workers run when they were started, and end when the test lets them."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def launch(self, executor: str, number: int) -> FakeWorker:
        return FakeWorker(self, f"{executor}{number}")


class FakeWorker:
    def __init__(self, fakes: Fakes, name: str) -> None:
        self._fakes, self._name = fakes, name
        self.problem = "it ended 3 times"

    def start(self) -> None:
        assert self._name not in self._fakes.running, "no worker runs twice"
        self._fakes.running.append(self._name)

    def stop(self, *, at_once: bool = False) -> None:
        assert at_once or self._fakes.may_end.wait(60)
        if self._name in self._fakes.running:
            self._fakes.running.remove(self._name)


def graph(**workers: int | None) -> FlowGraph:
    capabilities = (CapabilitySpec(),)
    parts = {name: TopologySpec(type="store", capabilities=capabilities, workers=n) for name, n in workers.items()}
    return FlowGraph({}, {}, parts)


def until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_workers_follow_the_topology_and_none_takes_the_place_of_one_that_has_not_ended() -> None:
    fakes, topology, leads = Fakes(), [EMPTY], [True]
    provisioner = Provisioner(fakes, lambda: topology[0], lambda: leads[0])

    def running(*names: str) -> None:
        provisioner.step()
        until(lambda: sorted(fakes.running) == list(names))

    running()
    topology[0] = graph(east=2, west=1, others=None)
    running("east1", "east2", "west1")
    running("east1", "east2", "west1")
    assert provisioner.problems["west 1"] == "it ended 3 times"
    topology[0] = graph(east=1)
    running("east1")
    leads[0] = False
    fakes.may_end.clear()
    running("east1")
    leads[0] = True
    running("east1")
    assert provisioner.problems == {}, "it is told to end, and its place is not taken yet"
    fakes.may_end.set()
    until(lambda: fakes.running == [])
    until(lambda: not [one for one in threading.enumerate() if one.name == "end-east"])
    running("east1")
    provisioner.start()
    provisioner.stop()
    assert fakes.running == []


def test_end_at_once_does_not_wait_for_workers_that_end_gracefully() -> None:
    fakes = Fakes()
    fakes.may_end.clear()
    provisioner = Provisioner(fakes, lambda: graph(east=2), lambda: True)
    provisioner.step()
    graceful = threading.Thread(target=provisioner.stop)
    provisioner.start()
    graceful.start()
    until(lambda: any(one.name == "end-east" for one in threading.enumerate()))
    provisioner.kill()
    until(lambda: fakes.running == [])
    fakes.may_end.set()
    graceful.join()


def test_worker_that_cannot_be_started_is_tried_again_and_keeps_no_other_from_its_start() -> None:
    fakes, faults = Fakes(), ["launch", "start"]

    class Faulty(FakeWorker):
        def start(self) -> None:
            super().start()
            raise OSError

    class Launcher:
        def launch(self, executor: str, number: int) -> FakeWorker:
            if executor == "east" and "launch" in faults:
                raise OSError
            return (Faulty if executor == "east" and faults else FakeWorker)(fakes, executor)

    provisioner = Provisioner(Launcher(), lambda: graph(east=1, west=1), lambda: True)
    provisioner.step()
    assert fakes.running == ["west"]
    faults.remove("launch")
    provisioner.step()
    until(lambda: fakes.running == ["west"])
    faults.clear()
    until(lambda: not [one for one in threading.enumerate() if one.name == "end-east"])
    provisioner.step()
    assert fakes.running == ["west", "east"]
    provisioner.stop()


def test_worker_of_the_service_ends_like_any_program_while_its_owner_lives() -> None:
    # The function alone: to import the commands takes a second.
    code = (
        f"import os, sys, threading, time\n{inspect.getsource(worker._end_with_owner)}\n"
        "threading.Thread(target=_end_with_owner, daemon=True).start(); time.sleep(0.1)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0, "Python would abort if the thread had its standard input"


def test_killed_worker_is_started_again_and_none_outlives_a_killed_service(tmp_path: Path) -> None:
    settings = "project: tests\nservice: {port: 0}\nworker: {store: 'sqlite:///of-others.db'}\n"
    (tmp_path / "gobblin.yaml").write_text(settings)
    (tmp_path / "topology").mkdir()
    file = tmp_path / "topology" / "east.yaml"
    file.write_text("executors: {east: {type: store, workers: 1, capabilities: [{}]}}\n")
    service = ServeProcess(tmp_path)
    service.start()
    try:
        with closing(ServiceStore(f"sqlite:///{tmp_path}/.gobblin/service.db", SystemClock())) as store:

            def alive() -> list[Node]:
                with store.read() as transaction:
                    now = store.now(transaction)
                    return [one for one in load_nodes(transaction, "east") if one.is_alive(now)]

            until(lambda: len(alive()) == 1, 120)
            [first] = alive()
            os.kill(first.owner.pid, signal.SIGKILL)
            until(lambda: [one.name for one in alive()] not in ([], [first.name]), 120)
            [second] = alive()
            service.end(signal.SIGKILL)
            until(second.owner.is_provably_dead)
            assert alive() == []
    finally:
        if service.process is not None and service.process.poll() is None:
            service.end()


@pytest.mark.parametrize("kind", ["embedded", "rest"])
def test_workers_are_for_executors_that_share_the_service_s_database(kind: str) -> None:
    with pytest.raises(ValueError, match=f"`workers` is for executors of the type store, not {kind}|needs `rest"):
        TopologySpec.model_validate({"type": kind, "workers": 1, "capabilities": [{}]})
