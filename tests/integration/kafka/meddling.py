"""Converters that meddle with the broker while a work unit is read; jobs of these tests name them as `module:Class`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import ClassVar

import pyarrow as pa
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ConvertError


class Meddler:
    """Hands chunks on; does something else at the first chunk of each work unit."""

    address: ClassVar[str] = ""
    """Address of the broker, set by the fixture."""

    class Options(BaseModel):
        """None."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._topic = context.dataset_urn
        self._is_first = True

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._is_first:
            self._is_first = False
            self.meddle()
        yield chunk

    def meddle(self) -> None:
        raise NotImplementedError


class SendsMore(Meddler):
    """Writes a message behind what was planned."""

    def meddle(self) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        producer.produce(self._topic, b'{"id": 1000}', partition=0)
        producer.flush()


class DeletesBefore30(Meddler):
    """Deletes messages as retention does."""

    def meddle(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        for future in admin.delete_records([TopicPartition(self._topic, 0, 30)]).values():
            future.result()


class FailsByChance(Meddler):
    """Fails every other work unit or so."""

    chance: ClassVar[Random] = Random(0)

    def meddle(self) -> None:
        if self.chance.random() < 0.5:
            raise ConvertError(dataset_urn=self._topic, construct="chance", problem="is told to fail.")


class Interrupts(Meddler):
    """Calls what the test put there, once in its life."""

    action: ClassVar[Callable[[], None] | None] = None

    def meddle(self) -> None:
        action, type(self).action = type(self).action, None
        if action is not None:
            action()
