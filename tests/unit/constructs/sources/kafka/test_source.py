"""Partitions whose leader is not settled, as after a broker's restart; a cluster that does that on demand cannot be
had."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.kafka import source as kafka
from gobblin_dagster.constructs.sources.kafka.extractor import searched
from gobblin_dagster.constructs.sources.kafka.offsets import PartitionOffsets
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import ConstructContext, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import StartpointError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.startpoint import Oldest
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
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


@pytest.mark.parametrize(
    ("partition", "position", "is_refused"),
    [
        ("t-0", Oldest(), True),
        ("", CompositeWatermark({"t-0@2": 3}), True),
        ("", CompositeWatermark({"t-0@2": 3, "t-1@2": 0}), False),
        ("", Oldest(), False),
    ],
    ids=["partition", "some", "all", "oldest"],
)
def test_startpoint_names_every_partition_of_a_topic_made_anew(
    source: kafka.KafkaSource, monkeypatch: pytest.MonkeyPatch, partition: str, position: Any, is_refused: bool
) -> None:
    """The others would go on at their offsets in the former topic, and what lies before them would never be read."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    committed = CommittedRanges(CompositeWatermark, {"t-0": ((0, 5),), "t-1": ((0, 5),)})
    state = DatasetState("events", "t", 1, committed, snapshot=1, run_id="r", updated_at=now, origin={"t": "old"})
    bounds = {("t", number): PartitionOffsets("t", number, 0, 9, 9, "new") for number in (0, 1)}
    monkeypatch.setattr(source, "_admin", lambda: None)
    monkeypatch.setattr(source, "_topics", lambda *_: ({"t": list(bounds)}, {}, {}))
    monkeypatch.setattr(source, "_bounds", lambda *_: bounds)
    context = SourceContext(Extract("x", "t"), {"t": state}, lambda _: True, SystemClock())
    with pytest.raises(StartpointError, match="t-1@2 would go on at offsets") if is_refused else nullcontext():
        if partition:
            source.resolve_partition_startpoint("t", partition, position, context)
        else:
            found = source.resolve_startpoint("t", position, context)
            assert set(found.components()) == {"t-0@2", "t-1@2"}


@pytest.mark.parametrize("sizes", [[500, 500], [30, 40, 30, 1, 199, 700], [1] * 1000])
def test_undeclared_fields_are_looked_for_in_100_messages_and_then_in_each_hundredth(
    sizes: list[int],
) -> None:
    """Looking at each message only to leave it out took 4% of the time of reading."""
    first, looked = 0, []
    for size in sizes:
        batch = range(first, first + size)
        looked += [*searched(batch, first)]
        first += size
    assert looked == [*range(100), *range(100, 1000, 100)]
