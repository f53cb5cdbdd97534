"""Compare messages of a topic with those that were read at their offsets: a log can be cut and written again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

from gobblin_dagster.constructs.clients.kafka import KafkaConnection, is_of_group, new_client, telling
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.utils.optional_packages import optional_package

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
_POLL_S = 0.2
_READ_LITTLE = {
    "fetch.message.max.bytes": 16_384,
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,  # by default the library rests for a second with a message in its queue
}
_END = re.compile(r"broker end offset is (\d+)")


@dataclass(frozen=True, slots=True)
class LogCut:
    """A log was cut below a message that was read."""

    how: str
    """How it shows; a part of a sentence."""
    offset: int | None = None
    """First offset that was cut away, and may be written again; None if the broker does not know it."""


def mark_of(message: Any) -> RowMark:
    """Return the mark of a message; the digest is one of time, headers, key and value."""
    digest = blake2b(repr((message.timestamp(), message.headers())).encode(), digest_size=8)
    for part in (message.key(), message.value()):
        digest.update(b"none" if part is None else b"%d:%s" % (len(part), part))
    epoch = message.leader_epoch()
    return RowMark(message.offset(), digest.hexdigest(), -1 if epoch is None else epoch, message.timestamp()[1])


def find_cuts(
    connection: KafkaConnection, job: str, marks: Mapping[Place, RowMark]
) -> tuple[dict[Place, LogCut], dict[Place, str]]:
    """Find out which logs were cut below messages that were read.

    The broker is asked where the leader epoch of each message ends, then the message is read again. One that is gone
    (by compaction or retention) is no sign. A cluster that was set back to a copy gives epochs a second time: then the
    message is another one, or the one before the end of its epoch was written later than it.

    Args:
        connection: how to reach the brokers.
        job: name of the job.
        marks: the messages.

    Returns:
        The logs that were cut; and why others could not be read, each a part of a sentence.

    Raises:
        KafkaException: the client library cannot be used as configured.

    Source: KIP-320, by which consumers that keep running find this.
    """
    if not marks:
        return {}, {}
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    reader = _Reader(connection, job)
    cuts: dict[Place, LogCut] = {}
    faults: dict[Place, str] = {}
    gone = {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
    try:
        known = {place: mark for place, mark in marks.items() if mark.epoch >= 0}
        for place, message in reader.first((*place, mark.position + 1, mark.epoch) for place, mark in known.items()):
            # The library has no code of its own for it, if `auto.offset.reset` is `error`.
            if message.error() is not None and (end := _END.search(message.error().str())):
                at, epoch = int(end[1]), known[place].epoch
                cuts[place] = LogCut(f"what was read of it in leader epoch {epoch} ends at offset {at} now", at)
        for place, time_ms in _times_before(reader, cuts).items():
            if time_ms > marks[place].time_ms >= 0:
                cuts[place] = LogCut(f"{cuts[place].how}, though messages before that were written later")
        rest = {place: mark for place, mark in marks.items() if place not in cuts}
        silent = dict.fromkeys(rest, f"no message for {connection.timeout_s:g} s")
        for place, message in reader.first((*place, mark.position, -1) for place, mark in rest.items()):
            del silent[place]
            if message.error() is None:
                if how := _other(rest[place], mark_of(message)):
                    cuts[place] = LogCut(how)
            elif message.error().code() not in gone:
                faults[place] = message.error().str().rstrip(".")
    finally:
        reader.close()
    why = f": {telling(reader.told).rstrip('.')}" if reader.told else ""
    return cuts, faults | {place: silence + why for place, silence in silent.items()}


def _times_before(reader: _Reader, cuts: Mapping[Place, LogCut]) -> dict[Place, int]:
    """Return when the message before each cut was written; nothing for those without one.

    The offset before a cut may hold the end of a transaction, which is no message: then the one before it counts.
    """
    ends = {place: cut.offset for place, cut in cuts.items() if cut.offset}
    times: dict[Place, int] = {}
    for back in (1, 2):
        before = [(*place, end - back, -1) for place, end in ends.items() if end >= back and place not in times]
        for place, message in reader.first(before):
            if message.error() is None and message.offset() < ends[place]:
                times[place] = message.timestamp()[1]
    return times


def _other(read: RowMark, now: RowMark) -> str:
    """Return how a message differs from the one that was read at its offset; empty if it does not, or that is gone."""
    if now.position != read.position:
        return ""
    if now.epoch != read.epoch and min(now.epoch, read.epoch) >= 0:
        return f"offset {read.position} was read in leader epoch {read.epoch}, and is of epoch {now.epoch} now"
    is_other = now.digest != read.digest  # an epoch or a time may be known to one of the marks only
    return f"offset {read.position} holds another message than the one that was read" if is_other else ""


class _Reader:
    """Reads the first message of partitions from given offsets."""

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        with optional_package("confluent_kafka"):
            from confluent_kafka import Consumer  # noqa: PLC0415  # optional package

        self.told: list[Any] = []
        own = {
            "group.id": f"gobblin-{job}",  # the library requires one; no offset is ever committed to it
            # Also a message of an aborted transaction is another one than the one that was read.
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self.told.append,
        }
        self._timeout_s = connection.timeout_s
        self._consumer = new_client(Consumer, connection, own | _READ_LITTLE)

    def first(self, wanted: Iterable[tuple[str, int, int, int]]) -> Iterable[tuple[Place, Any]]:
        """Yield the first message, or final error, of each `(topic, partition, offset, leader epoch or -1)`.

        Ends without the others if nothing comes for the connection's time limit.
        """
        with optional_package("confluent_kafka"):
            from confluent_kafka import TopicPartition  # noqa: PLC0415  # optional package

        asked = [TopicPartition(topic, number, at, leader_epoch=epoch) for topic, number, at, epoch in wanted]
        waiting = {(one.topic, one.partition) for one in asked}
        self._consumer.assign(asked)
        deadline = time.monotonic() + self._timeout_s
        while waiting and time.monotonic() < deadline:
            for message in self._consumer.consume(len(waiting), _POLL_S):
                place = (message.topic(), message.partition())
                error = message.error()
                passes = error is not None and (is_of_group(error) or (error.retriable() and not error.fatal()))
                if place not in waiting or passes:
                    continue
                waiting.remove(place)
                self._consumer.incremental_unassign([TopicPartition(*place)])
                deadline = time.monotonic() + self._timeout_s
                yield place, message

    def close(self) -> None:
        self._consumer.close()
