"""Notes of the publisher `kafka_topic`: messages of a compacted topic that say which commit each topic got last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gobblin_dagster.constructs.clients.kafka import KafkaConnection, is_of_group, new_client
from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.utils.optional_packages import optional_package

TOPIC_ID = "gobblin-topic-id"
"""Header of a note: the id of the topic that the rows were sent to."""
_TRANSACTION_MS = 15 * 60 * 1000
"""Brokers' default limit for a transaction; the rows of one publication must be sent within it."""
_AGAIN_S = 0.05
ENDING_S = 30.0
"""Least time for the end of a transaction that a killed run left open: brokers write to all of its partitions."""


_PARTS_OF_ID = 5


def transactional_id(key: str) -> str:
    """Return the transactional id of who wrote the note with this key: a branch's, without the id of a commit.

    Example:
        >>> transactional_id("gobblin/job/a/all/clicks/0731b301"), transactional_id("gobblin/job/a/all/clicks")
        ('gobblin/job/a/all/clicks', 'gobblin/job/a/all/clicks')
    """
    return "/".join(key.split("/")[:_PARTS_OF_ID])


def new_producer(connection: KafkaConnection, name: str) -> Any:
    """Return a producer with this transactional id, not connected yet.

    Raises:
        EnvironmentFaultError: the client's package is not installed, or refuses a setting.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import Producer  # noqa: PLC0415  # optional package

    own = {"transactional.id": name, "transaction.timeout.ms": _TRANSACTION_MS}
    return new_client(Producer, connection, own, {"compression.type": "lz4", "linger.ms": 20})


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What the commits topic has of a commit."""

    commit: NotedCommit
    topic_id: str
    """Id of the topic that the rows were sent to; empty if brokers have no ids, or an earlier version wrote it."""

    def is_of(self, topic_id: str | None) -> bool:
        """True if the topic may hold the rows: it was not deleted, or created again, since then."""
        return topic_id is not None if not self.topic_id else self.topic_id == topic_id

    def is_later(self, other: CommitNote) -> bool:
        at, before = self.commit.published_at, other.commit.published_at
        return at is not None and (before is None or at > before)


def commit_notes(
    connection: KafkaConnection, commits_topic: str, is_asked: Callable[[str], bool]
) -> dict[str, CommitNote]:
    """Return the note of the last commit of each branch of a dataset, by key in the commits topic.

    Brokers say that a transaction is committed before its messages can be read, and they hide all that stands behind
    a transaction that is open, maybe of a run that was killed. So notes that are asked for and hidden are waited for;
    after `timeout_s`, open transactions are ended, as the next runs of their datasets would do.

    Args:
        connection: settings of the brokers.
        commits_topic: topic of the notes.
        is_asked: whether the note with this key must be known; others may be older ones.

    Raises:
        KafkaException: the notes cannot be read, or transactions do not end.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # as in `new_producer`

    deadline = time.monotonic() + connection.timeout_s
    was_ended = False
    while True:
        notes, hidden = _notes_now(connection, commits_topic)
        if not any(is_asked(key) for key in hidden):
            return notes
        if time.monotonic() > deadline:
            if was_ended:
                problem = f"transactions on topic {commits_topic} do not end; one of: {', '.join(sorted(hidden))[:500]}"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, problem))
            for name in {transactional_id(key) for key in hidden if key.startswith("gobblin/")}:
                new_producer(connection, name).init_transactions(max(connection.timeout_s, ENDING_S))
            was_ended = True
            deadline = time.monotonic() + connection.timeout_s
        time.sleep(_AGAIN_S)


def _notes_now(connection: KafkaConnection, commits_topic: str) -> tuple[dict[str, CommitNote], set[str]]:
    """Return the notes that can be read, and the keys of those that cannot: an open transaction stands before them."""
    found: dict[tuple[str, int], CommitNote | None] = {}
    with _reader(connection, "read_committed") as consumer:
        topics = consumer.list_topics(timeout=connection.timeout_s).topics
        if commits_topic not in topics:
            return {}, set()
        # A topic that was made by hand, or by the broker, may have several partitions.
        partitions = sorted(topics[commits_topic].partitions)
        ends: dict[int, int] = {}
        for message in _messages(
            consumer, connection.timeout_s, _places(commits_topic, dict.fromkeys(partitions)), ends
        ):
            note = None  # somebody deleted the note
            if message.value() is not None:
                at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
                commit = NotedCommit(message.value().decode(errors="replace"), at)
                note = CommitNote(commit, dict(message.headers() or ()).get(TOPIC_ID, b"").decode(errors="replace"))
            found[_key(message), message.partition()] = note
        # What the last fetch said: the end for these readers lies before the end of what is written.
        behind = {
            one.partition: ends[one.partition]
            for one in _places(commits_topic, ends)
            if consumer.get_watermark_offsets(one, cached=True)[1] > ends[one.partition]
        }
    newest: dict[str, CommitNote] = {}
    for (name, _), note in found.items():
        # A note is in two partitions if some were added since: a name goes to another one then.
        if note is not None and (name not in newest or note.is_later(newest[name])):
            newest[name] = note
    hidden: set[str] = set()
    if behind:
        with _reader(connection, "read_uncommitted") as consumer:
            hidden |= {*map(_key, _messages(consumer, connection.timeout_s, _places(commits_topic, behind), {}))}
    return newest, hidden


@contextmanager
def _reader(connection: KafkaConnection, isolation: str) -> Iterator[Any]:
    with optional_package("confluent_kafka"):
        from confluent_kafka import Consumer  # noqa: PLC0415  # as in `new_producer`

    own = {
        "group.id": "gobblin-commits-reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # the end is told after a fetch without messages, which waits for 500 ms by default
    }
    consumer = new_client(Consumer, connection, own)
    try:
        yield consumer
    finally:
        consumer.close()


def _places(topic: str, offsets: Mapping[int, int | None]) -> list[Any]:
    """Return TopicPartitions at these offsets, None for the beginning."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415  # as in `new_producer`

    return [TopicPartition(topic, one, OFFSET_BEGINNING if at is None else at) for one, at in offsets.items()]


def _messages(consumer: Any, timeout_s: float, places: Sequence[Any], ends: dict[int, int]) -> Iterator[Any]:
    """Yield the messages from these TopicPartitions on, and put their ends into `ends`; raises KafkaException."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # as in `new_producer`

    consumer.assign(places)
    while len(ends) < len(places):
        message = consumer.poll(timeout_s)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if message.error() is None:
            yield message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends[message.partition()] = message.offset()
        elif not is_of_group(message.error()):
            raise KafkaException(message.error())


def _key(message: Any) -> str:
    return (message.key() or b"").decode(errors="replace")  # other programs' messages may have any key
