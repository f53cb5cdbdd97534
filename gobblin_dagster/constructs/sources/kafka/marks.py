"""Compare messages of a topic with those that were read at their offsets: a log can be cut and written again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from gobblin_dagster.constructs.clients.kafka import KafkaConnection, client_settings, telling
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.utils.optional_packages import optional_package

_POLL_S = 0.2
_FETCH_LITTLE = {"fetch.message.max.bytes": 16_384, "queued.min.messages": 1, "fetch.wait.max.ms": 10}


def mark_of(message: Any) -> RowMark:
    """Return the mark of a message: its offset, a digest of time, headers, key and value, and its leader epoch."""
    digest = blake2b(repr((message.timestamp(), message.headers())).encode(), digest_size=8)
    for part in (message.key(), message.value()):
        digest.update(b"none" if part is None else b"%d:%s" % (len(part), part))
    epoch = message.leader_epoch()
    return RowMark(message.offset(), digest.hexdigest(), -1 if epoch is None else epoch)


def replaced(
    connection: KafkaConnection, job: str, marks: Mapping[tuple[str, int], RowMark]
) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], str]]:
    """Read the messages at the offsets of marks again.

    A message that is gone (compaction, retention) is compared by its leader epoch alone: the broker says where an epoch
    ends.

    Args:
        connection: how to reach the brokers.
        job: name of the job.
        marks: what was read, by topic and partition.

    Returns:
        Why the log is another one, by partition, for those whose log was cut below the mark; and why a partition could
        not be read. Each text is a part of a sentence.

    Raises:
        KafkaException: the client library cannot be used as configured.

    Source: KIP-320, which detects this in a consumer that keeps running.
    """
    if not marks:
        return {}, {}
    with optional_package("confluent_kafka"):
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415  # optional package

    told: list[Any] = []
    own = {
        "group.id": f"gobblin-{job}",  # the library requires one; no offset is ever committed to it
        # Aborted messages too: one that lies where another one was read is another one.
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "error_cb": told.append,
    }
    consumer = Consumer(client_settings(connection, own | _FETCH_LITTLE))
    try:
        waiting = dict(marks)
        consumer.assign([TopicPartition(*key, mark.position, leader_epoch=mark.epoch) for key, mark in marks.items()])
        others: dict[tuple[str, int], str] = {}
        faults: dict[tuple[str, int], str] = {}
        deadline = time.monotonic() + connection.timeout_s
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(len(waiting), _POLL_S):
                key = (message.topic(), message.partition())
                if key not in waiting or (answer := _compared(message, waiting[key])) is None:
                    continue
                del waiting[key]
                is_other, text = answer
                if text:
                    (others if is_other else faults)[key] = text
                consumer.incremental_unassign([TopicPartition(*key)])
                deadline = time.monotonic() + connection.timeout_s
    finally:
        consumer.close()
    why = telling(told).rstrip(".")
    silent = f"no message for {connection.timeout_s:g} s{f': {why}' if why else ''}"
    return others, faults | dict.fromkeys(waiting, silent)


def _compared(message: Any, mark: RowMark) -> tuple[bool, str] | None:
    """Return whether the log is another one, and why, or why nothing is known; None to go on waiting."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    error = message.error()
    if error is not None:
        if error.code() == KafkaError._LOG_TRUNCATION:
            return True, f"the broker says that its leader epoch {mark.epoch} ends before offset {mark.position}"
        gone = {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
        if error.code() in gone:
            return False, ""
        return None if error.retriable() and not error.fatal() else (False, error.str().rstrip("."))
    now = mark_of(message)
    if now.position != mark.position:
        return False, ""
    if now.epoch != mark.epoch and min(now.epoch, mark.epoch) >= 0:
        return True, f"offset {mark.position} was written in leader epoch {mark.epoch} and is of epoch {now.epoch} now"
    return (True, f"offset {mark.position} holds another message now") if now.digest != mark.digest else (False, "")
