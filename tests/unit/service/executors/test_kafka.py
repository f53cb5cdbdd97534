"""The executor `kafka` on a log in memory: what the suite of all executors cannot try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.executors.kafka import KafkaExecutor
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport
from gobblin_dagster.service.store.worker_rows import write_report
from gobblin_dagster.service.topology.model import KafkaTopics
from tests.contract.memory_kafka import MemoryKafka

REPORT = JobReport(ExecutionId(FlowId("g", "n"), 1), "a", 1, 1, ExecutionStatus.COMPLETE)


class LoadingBroker(MemoryKafka):
    """Its first consumer hears that the group's coordinator is not there, and nothing else for ever."""

    is_loaded = False

    def consumer(self, group: str, name: str = "") -> Any:
        made = super().consumer(group, name)
        if not self.is_loaded:
            error = KafkaError(KafkaError.NOT_COORDINATOR, "Broker: Not coordinator")
            made.consume = lambda limit, timeout: [SimpleNamespace(error=lambda: error)]
        return made


def test_reports_are_read_after_the_coordinator_of_the_group_was_loading() -> None:
    broker: Any = LoadingBroker(lambda: None)
    broker.logs["reports"].append((write_report(REPORT).encode(), 0))
    topics = KafkaTopics(brokers="127.0.0.1:1", orders="orders", reports="reports")
    executor = KafkaExecutor("west", topics, list, clients=broker)
    with pytest.raises(TransientError, match="NOT_COORDINATOR"):
        executor.take_reports(10)
    broker.is_loaded = True
    assert executor.take_reports(10) == [REPORT]
