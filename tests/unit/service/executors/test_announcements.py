"""Workers that do not reach the service's database announce themselves through their executor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.service.executors.announcements import (
    is_announcement,
    read_announcement,
    save_announced,
    write_announcement,
)
from gobblin_dagster.service.executors.base import ReportingExecutor
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.kafka import KafkaExecutor, KafkaLink
from gobblin_dagster.service.executors.rest import RestExecutor, RestInlet
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.store.node_rows import Node, delete_node, load_workers, save_node
from gobblin_dagster.service.store.state_place_rows import load_state_places
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.model import KafkaTopics
from tests.contract.memory_kafka import MemoryKafka

TOPICS = KafkaTopics(brokers="127.0.0.1:1", orders="orders", reports="reports")
ABOUT = {"jobs_at_once": 2, "constructs": ["source.files"], "extras": [], "state": "sqlite:far:/state.db"}


def worker_of(executor: str) -> Node:
    now = SystemClock().now()
    return Node("w", LeaseOwner.current("w"), "", "0.1", now, now, now, executor, ABOUT)


class Sides:
    """The stores of a service and of workers far away, which are alive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service, self.own = (ServiceStore(f"sqlite:///{folder}/{one}.db", SystemClock()) for one in ("a", "b"))

    def inbox(self, executor: str) -> StoreExecutor:
        """Return the inbox of an executor with one worker."""
        with self.own.write() as transaction:
            delete_node(transaction, "w")
            save_node(transaction, worker_of(executor))
        return StoreExecutor(executor, self.own)

    def known(self, executor: ReportingExecutor) -> list[tuple[str, str, dict[str, Any]]]:
        """Return name, version and announcement of the workers that the service knows after a turn."""
        dispatcher = Dispatcher(self.service, executor, lambda _: None)
        dispatcher.start()
        deadline = time.monotonic() + 60
        while not (found := self._workers(executor.name)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        dispatcher.stop()
        return [(one.name, one.program, dict(one.about)) for one in found]

    def _workers(self, executor: str) -> list[Node]:
        with self.service.read() as transaction:
            now = self.service.now(transaction)
            return [one for one in load_workers(transaction) if one.executor == executor and one.is_alive(now)]

    def places(self, executor: str) -> frozenset[str]:
        with self.service.read() as transaction:
            return load_state_places(transaction)[executor]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    made = Sides(tmp_path_factory.mktemp("announced"))
    yield made
    made.service.close()
    made.own.close()


def test_worker_behind_https_is_known_with_what_it_can_do_and_where_it_keeps_watermarks(sides: Sides) -> None:
    inbox = sides.inbox("south")

    class Line:
        def call(self, method: str, path: str, body: str) -> tuple[int, Any]:
            status, answer = RestInlet(inbox).answer(method, path.rpartition("/")[2].partition("?")[0], body)
            if path.endswith("health"):
                answer["workers"].append('{"worker":{}}')
            return status, json.loads(json.dumps(answer))

        def close(self) -> None:
            """Nothing is open."""

    executor = RestExecutor("south", "https://worker", Line())
    assert sides.known(executor) == [("afar:south:w", "0.1", ABOUT)], "one that cannot be read harms no other"
    assert sides.places("south") == {"sqlite:far:/state.db"}
    assert executor.take_announcements() == []


def test_worker_behind_kafka_is_known_from_its_last_announcement_but_no_old_one(sides: Sides) -> None:
    broker: Any = MemoryKafka(lambda: None)
    inbox = sides.inbox("west")
    KafkaLink(TOPICS, inbox, sides.folder, broker, "stranger").step()
    assert broker.logs["reports"] == [], "it says nothing of others"
    link = KafkaLink(TOPICS, inbox, sides.folder, broker, "w")
    link.step()
    link.step()
    [(text, written_ms)] = broker.logs["reports"]
    old = text.replace(b'"w"', b'"old"'), written_ms - 60_000
    broker.logs["reports"] = [old, (b'{"worker":[]}', written_ms), (text, int(time.time() * 1000))]
    executor = KafkaExecutor("west", TOPICS, list, clients=broker)
    assert sides.known(executor) == [("afar:west:w", "0.1", ABOUT)]
    assert broker.committed["gobblin-service-west", "reports"] == 3
    assert sides.places("west") == {"sqlite:far:/state.db"}


def test_row_of_a_worker_afar_counts_for_nobody_who_works_in_the_same_database(sides: Sides) -> None:
    inbox = sides.inbox("same")
    with sides.own.write() as transaction:
        save_announced(transaction, "same", inbox.alive_workers(), sides.own.now(transaction))
        assert [one.name for one in load_workers(transaction)] == ["afar:same:w", "w"]
    assert [one.name for one in inbox.alive_workers()] == ["w"], "it is not announced again"


def test_announcement_is_read_as_it_was_written() -> None:
    worker = worker_of("west")
    text = write_announcement(worker)
    assert is_announcement(text)
    found = read_announcement(text)
    assert (found.name, found.owner, found.started_at, found.about) == ("w", worker.owner, worker.started_at, ABOUT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"worker"', '{"wroker"'),
        ('"name":"w"', '"name":1'),
        ('"name":"w"', '"name":"\\u0000"'),
        ('"pid":', '"pid":"x","pit":'),
        ('"state":"', '"state":1,"more":"'),
        ("+00:00", ""),
        ('"0.1"', f'"{"x" * 70_000}"'),
        ('"about":{', f'"about":{"[" * 20_000}{{'),
    ],
    ids=["key", "type", "nul", "owner", "state", "zone", "long", "deep"],
)
def test_announcement_with_a_fault_is_refused(old: str, new: str) -> None:
    text = write_announcement(worker_of("west"))
    assert old in text
    with pytest.raises(ValueError, match="no announcement of a worker"):
        read_announcement(text.replace(old, new, 1))
