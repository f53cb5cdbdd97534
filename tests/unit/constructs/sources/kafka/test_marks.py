from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
