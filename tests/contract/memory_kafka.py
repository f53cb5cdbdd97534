"""Kafka's clients on a log in memory, which outlives those who use it; each durable step may be the last one."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TopicPartition


@dataclass(frozen=True)
class Record:
    """A message of a topic with one partition."""

    name: str
    at: int
    content: bytes
    written_ms: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self.written_ms

    def value(self) -> bytes:
        return self.content


class MemoryKafka:
    """A broker; it takes the place of `KafkaClients`."""

    def __init__(self, point: Callable[[], None]) -> None:
        self.point = point
        self.topics = {"orders", "reports"}
        self.logs: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
        """Messages by topic, each with the instant when it was written."""
        self.committed: dict[tuple[str, str], int] = {}

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def producer(self) -> Any:
        return _Producer(self)

    def consumer(self, group: str, name: str = "") -> Any:
        return _Consumer(self, group)

    def members(self, group: str) -> set[str]:
        return set()


class _Producer:
    def __init__(self, broker: MemoryKafka) -> None:
        self._broker = broker
        self._waiting: list[tuple[str, bytes, Any]] = []

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Any) -> None:
        self._waiting.append((topic, value, on_delivery))

    def flush(self, timeout: float) -> int:
        for topic, value, delivered in self._waiting:
            self._broker.logs[topic].append((value, self._broker.now_ms()))
            self._broker.point()
            delivered(None, None)
        self._waiting.clear()
        return 0


class _Consumer:
    def __init__(self, broker: MemoryKafka, group: str) -> None:
        self._broker = broker
        self._group = group
        self._topic = ""
        self._position = 0

    def subscribe(self, topics: Sequence[str], on_assign: Any = None) -> None:
        self._topic = topics[0]
        self._position = self._broker.committed.get((self._group, self._topic), 0)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.subscribe([partitions[0].topic])

    def consume(self, limit: int, timeout: float) -> list[Record]:
        log = self._broker.logs[self._topic]
        found = [Record(self._topic, at, *log[at]) for at in range(self._position, len(log))][:limit]
        self._position += len(found)
        return found

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        self._broker.committed[self._group, self._topic] = offsets[0].offset
        self._broker.point()

    def list_topics(self, timeout: float) -> Any:
        partitions = SimpleNamespace(partitions={0: None})
        return SimpleNamespace(topics=dict.fromkeys(self._broker.topics, partitions))

    def close(self) -> None:
        """Leave the log as it is."""
