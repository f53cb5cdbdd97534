from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from gobblin_dagster.constructs.clients.kafka import KafkaConnection
from gobblin_dagster.constructs.sources.kafka.marks import find_cuts, mark_of
from gobblin_dagster.core.row_mark import RowMark

MESSAGE: dict[str, Any] = {
    "offset": 7,
    "timestamp": (1, 1_795_000_000_000),
    "headers": None,
    "key": b"k",
    "value": b"v",
    "leader_epoch": 3,
}


def marked(**parts: Any) -> RowMark:
    return mark_of(SimpleNamespace(**{name: lambda part=part: part for name, part in (MESSAGE | parts).items()}))


@pytest.mark.parametrize(
    "parts",
    [
        {"timestamp": (1, 1_795_000_000_001)},
        {"timestamp": (2, 1_795_000_000_000)},
        {"headers": [("a", b"")]},
        {"key": None},
        {"key": b""},
        {"value": None},
        {"key": b"kv", "value": b""},
        {"key": b"", "value": b"kv"},
    ],
    ids=str,
)
def test_each_part_of_a_message_tells_it_from_others(parts: dict[str, Any]) -> None:
    assert marked(**parts).digest != marked().digest
    assert marked() == marked()
    assert (marked().position, marked().epoch, marked().time_ms) == (7, 3, 1_795_000_000_000)


def test_client_without_epochs_gives_none() -> None:
    assert marked(leader_epoch=None).epoch == -1


def test_brokers_that_do_not_answer_are_told() -> None:
    connection = KafkaConnection(brokers="127.0.0.1:1", timeout_s=0.05)
    cuts, faults = find_cuts(connection, "j", {("t", 0): RowMark(7, "a", 3)})
    assert cuts == {}
    assert faults["t", 0].startswith("no message for 0.05 s")


PLACE = ("t", 0)
READ = RowMark(19, marked().digest, 3, 1_000)
TRUNCATED = "Partition log truncation detected: broker end offset is 10 (offset leader epoch 4)."


class Consumer:
    """The client library's, of a broker with one log; an epoch that was asked for ends at offset 10."""

    messages: ClassVar[dict[int, int]] = {}
    """Times by offset."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._asked: list[Any] = []

    def assign(self, asked: list[Any]) -> None:
        self._asked = asked

    def consume(self, number: int, timeout_s: float) -> list[Any]:
        told = []
        for one in self._asked:
            there = [offset for offset in self.messages if offset >= one.offset]
            is_cut = one.leader_epoch is not None and one.leader_epoch >= 0
            error = SimpleNamespace(str=lambda: TRUNCATED, code=int, retriable=bool) if is_cut or not there else None
            parts = MESSAGE | {"topic": one.topic, "partition": one.partition, "error": error}
            if there:
                parts |= {"offset": there[0], "timestamp": (1, self.messages[there[0]])}
            told.append(SimpleNamespace(**{name: lambda part=part: part for name, part in parts.items()}))
        return told

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self._asked = []

    def close(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the times of the log's messages by offset, to be filled."""
    monkeypatch.setattr(Consumer, "messages", {})
    monkeypatch.setattr("confluent_kafka.Consumer", Consumer)
    return Consumer.messages


@pytest.mark.parametrize(
    ("messages", "offset"),
    [
        ({9: 900, 10: 2_000}, 10),
        ({9: 1_500, 10: 2_000}, None),
        ({8: 900, 10: 2_000}, 10),  # offset 9 ends a transaction
        ({8: 1_500, 10: 2_000}, None),
        ({10: 2_000}, 10),  # compaction deleted those before
        ({}, 10),
    ],
    ids=["older before", "newer before", "transaction", "transaction, newer", "compaction", "nothing"],
)
def test_messages_before_a_cut_tell_whether_the_broker_knows_it(
    messages: dict[int, int], offset: int | None, log: dict[int, int]
) -> None:
    log.update(messages)
    cuts, faults = find_cuts(KafkaConnection(brokers="b:1"), "j", {PLACE: READ})
    assert (cuts[PLACE].offset, faults) == (offset, {})


@pytest.mark.parametrize("parts", [{"epoch": -1}, {"time_ms": -1}], ids=str)
def test_message_is_the_same_whatever_else_one_mark_knows(parts: dict[str, int], log: dict[int, int]) -> None:
    log[7] = marked().time_ms
    read = replace(marked(), **{"epoch": -1, **parts})  # type: ignore[arg-type]  # a number each
    assert find_cuts(KafkaConnection(brokers="b:1"), "j", {PLACE: read}) == ({}, {})
    cuts, _ = find_cuts(KafkaConnection(brokers="b:1"), "j", {PLACE: replace(read, digest="another")})
    assert "holds another message" in cuts[PLACE].how
