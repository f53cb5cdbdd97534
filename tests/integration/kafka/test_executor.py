"""The executor `kafka` on a real broker: workers share the partitions, the broker was away, messages are no orders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewPartitions

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.kafka import REFUSED, KafkaExecutor, KafkaLink
from gobblin_dagster.service.executors.monitor import JobMonitor
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.model import ExecutionStatus
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.model import KafkaTopics
from tests.contract.executor_worlds import NotingWorker, RemoteWorld
from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class BrokerWorld(RemoteWorld):
    """A service and two workers that share a store."""

    topics: KafkaTopics

    def start(self) -> None:
        executor = KafkaExecutor(self.queue, self.topics, list)
        self.dispatcher = Dispatcher(self.store, executor, self._report)
        self.own = ServiceStore(f"sqlite:///{self.folder}/worker.db", SystemClock())
        self.links, self.sides = [], []
        for name in ("one", "two"):
            worker = NotingWorker(self.kills, self.begun, self.published)
            monitor = JobMonitor(self.queue, Inbox(self.queue, self.own, name), worker, SystemClock(), 2)
            self.sides.append((monitor, worker))
            self.links.append(KafkaLink(self.topics, StoreExecutor(self.queue, self.own), self.folder))

    def service_pass(self) -> None:
        """A broker that has just started may not be coordinator yet: the service tries again, and so does this."""
        with suppress(TransientError):
            super().service_pass()

    def worker_pass(self) -> None:
        for link, (monitor, worker) in zip(self.links, self.sides, strict=True):
            link.step()
            monitor.step(takes_over=False)
            worker.run()

    def close(self) -> None:
        for link in self.links:
            link.stop()
        self.own.close()
        super().close()


@pytest.fixture
def world(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerWorld]:
    broker.new_topic("jobs-orders", 2)
    broker.new_topic("jobs-reports")
    topics = KafkaTopics(brokers=broker.address, orders="jobs-orders", reports="jobs-reports", timeout_s=20)
    monkeypatch.setattr(BrokerWorld, "topics", topics, raising=False)
    made = BrokerWorld(f"sqlite:///{tmp_path}/service.db", tmp_path)
    yield made
    made.close()


def test_jobs_run_once_though_the_broker_was_away_and_messages_are_no_orders(
    world: BrokerWorld, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G13, G15: the outbox keeps the orders while the broker is away."""
    executions = [world.order() for _ in range(4)]
    elsewhere = KafkaTopics(**{**world.topics.model_dump(), "brokers": "127.0.0.1:1", "timeout_s": 0.5})
    away = KafkaExecutor(world.queue, elsewhere, list)
    with pytest.raises(TransientError, match="Kafka at"):
        Dispatcher(world.store, away, world.orchestrator.report).step()
    assert "Kafka at" in away.health()
    producer = broker.producer()
    for poison in (b"\xff\xfe", b"{}", b'{"kind": "JobNews"}'):
        producer.produce("jobs-orders", poison)
        producer.produce("jobs-reports", poison)
    producer.flush()
    assert all(world.passes(one, 200) for one in executions)
    assert {(world.job(one).status, world.job(one).attempt) for one in executions} == {(ExecutionStatus.COMPLETE, 1)}
    assert len(world.begun) == len(set(world.begun)) == 4
    _check_that_partitions_are_found(world, broker, monkeypatch)
    _check_that_workers_share_one_store(world, tmp_path)
    aside = [json.loads(line) for line in (tmp_path / REFUSED.format(executor="east")).read_text().splitlines()]
    assert len(aside) == 3
    assert {one["topic"] for one in aside} == {"jobs-orders"}
    assert all(one["reason"].startswith(("no message of a worker", "'utf-8' codec")) for one in aside)


def _check_that_partitions_are_found(world: BrokerWorld, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports come through partitions that were added to their topic while the service runs."""
    for added in broker.admin.create_partitions([NewPartitions("jobs-reports", 6)]).values():
        added.result()
    monkeypatch.setattr("gobblin_dagster.service.executors.kafka.PARTITIONS_S", 0)
    monkeypatch.setattr(world.dispatcher.executor, "_look_at", 0)
    assert all(world.passes(one, 200) for one in [world.order() for _ in range(6)])


def _check_that_workers_share_one_store(world: BrokerWorld, folder: Path) -> None:
    """A worker with a database of its own would call jobs stopped that others run; it takes no orders."""
    with ServiceStore(f"sqlite:///{folder}/other.db", SystemClock()) as other:
        stranger = KafkaLink(world.topics, StoreExecutor(world.queue, other), folder)
        with pytest.raises(TransientError, match="keep their orders in another database"):
            stranger.step()
        for link in world.links:
            link.stop()
        stranger.step()
        stranger.stop()
