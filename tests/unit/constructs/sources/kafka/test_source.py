"""Partitions whose leader is not settled, as after a broker's restart; a cluster that does that on demand cannot be
had."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.kafka import source as kafka
from gobblin_dagster.constructs.sources.kafka.offsets import PartitionOffsets
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import ConstructSpec


class Admin:
    """Answers with an error for partition 1, a number of times."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times = code, times
        self.asked: list[list[int]] = []

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.asked.append([key.partition for key in asked])
        return {key: self._answer(key.partition) for key in asked}

    def _answer(self, partition: int) -> Future[Any]:
        answer: Future[Any] = Future()
        if partition == 1 and len(self.asked) <= 3 * self.times:
            answer.set_exception(KafkaException(KafkaError(self.code)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return answer


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> kafka.KafkaSource:
    monkeypatch.setattr(kafka, "_ASK_AGAIN_S", 0)
    spec = ConstructSpec(type="kafka", brokers="127.0.0.1:1", value={"type": "bytes"})
    made: kafka.KafkaSource = registry.create(ConstructKind.SOURCE, spec, ConstructContext(job="events", base_dir="/"))
    return made


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE])
def test_partition_whose_leader_comes_back_is_asked_again_alone(source: kafka.KafkaSource, code: int) -> None:
    admin = Admin(code, times=2)
    found = source._offsets(admin, [("t", 0), ("t", 1)])
    assert found == {("t", number): PartitionOffsets("t", number, 7, 7, 7) for number in (0, 1)}
    assert admin.asked == [[0, 1]] * 3 + [[1]] * 6


def test_partition_that_stays_without_a_leader_is_named(
    source: kafka.KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_LEADER_WAIT_S", 0.01)
    found = source._offsets(Admin(KafkaError.LEADER_NOT_AVAILABLE, times=10**9), [("t", 0), ("t", 1)])
    assert found["t", 1] == "partition t-1: Broker: Leader not available."
    assert isinstance(found["t", 0], PartitionOffsets)


def test_other_fault_is_not_asked_about_again(source: kafka.KafkaSource) -> None:
    admin = Admin(KafkaError.TOPIC_AUTHORIZATION_FAILED, times=10**9)
    assert "Topic authorization failed" in str(source._offsets(admin, [("t", 1)])["t", 1])
    assert len(admin.asked) == 3
