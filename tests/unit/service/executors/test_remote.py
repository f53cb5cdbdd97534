"""Executors of the topology get and lose their dispatchers, and nobody who tells of a change waits for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gobblin_dagster.service.executors import remote as module
from gobblin_dagster.service.executors.remote import RemoteExecutors
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.graph import EMPTY, FlowGraph
from gobblin_dagster.service.topology.model import CapabilitySpec, TopologySpec


def graph(description: str) -> FlowGraph:
    spec = TopologySpec(type="store", capabilities=(CapabilitySpec(),), description=description)
    return FlowGraph({}, {}, {"east": spec})


def test_change_of_an_executor_waits_for_its_connections_in_a_thread_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: ServiceStore
) -> None:
    may_close = threading.Event()
    closed: list[str] = []

    class Slow(StoreExecutor):
        def close(self) -> None:
            assert may_close.wait(60)
            closed.append(self.description)

    monkeypatch.setattr(
        module, "make_executor", lambda name, spec, of, _root: Slow(name, of, spec.description, spec.capabilities)
    )
    remote = RemoteExecutors(store, lambda _: None, lambda: False, tmp_path)
    remote.start(graph("first"))
    _wait_for(remote, "first")
    remote.topology_changed(EMPTY, graph("second"))
    remote.topology_changed(EMPTY, graph("third"))
    assert closed == [], "both calls returned while the connection of the first one is open"
    may_close.set()
    _wait_for(remote, "third")
    assert closed == ["first"], "the second one was outdated before it was made"
    remote.stop()
    assert closed == ["first", "third"]


def _wait_for(remote: RemoteExecutors, description: str) -> None:
    deadline = time.monotonic() + 60
    while [one.executor.description for one in remote.dispatchers.values()] != [description]:
        assert time.monotonic() < deadline
        time.sleep(0.005)
