"""KafkaExtractor: read ranges of offsets, partition by partition, into Arrow batches built column by column."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.clients.kafka import (
    KafkaConnection,
    is_absent,
    is_of_group,
    kafka_error,
    new_client,
    telling,
    topic_ids,
    translated_kafka_errors,
)
from gobblin_dagster.constructs.decoders.avro import AvroDecoder
from gobblin_dagster.constructs.decoders.base import (
    AvroDecoding,
    BytesDecoder,
    BytesDecoding,
    DecodeError,
    Decoder,
    Decoding,
    JsonDecoder,
    JsonDecoding,
    StringDecoder,
    decode_batch,
)
from gobblin_dagster.constructs.decoders.left_out import LeftOutFields
from gobblin_dagster.constructs.sources.kafka.marks import mark_of
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ExtractError, GobblinDagsterError, TransientError, UsageError
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import SpecModel

_POLL_S = 0.2
_LOOK_S = 5.0
"""Seconds to wait at most for the answer whether a topic without messages still exists."""
_MAX_MESSAGES = 10_000
_FIRST_MESSAGES = 500
"""Number of messages of the first batch; their sizes decide about the next batches."""
_LOOKED_AT = 100
"""Number of messages that are searched for undeclared fields; of those behind them, one of as many is."""
MetadataName: TypeAlias = Literal["topic", "partition", "offset", "timestamp", "headers", "raw"]
_METADATA: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "raw": pa.binary(),
}


class KafkaReading(SpecModel):
    """How messages become rows; part of the options of the source `kafka`."""

    key: Decoding | None = Field(default_factory=BytesDecoding)
    """How keys are decoded, `{type: bytes}`, `string`, `json` or `avro`, into the column `key`; `null` leaves it
    out."""
    value: Decoding = Field(default_factory=BytesDecoding)
    """How values are decoded: into the column `value`, or into one column per field of JSON and Avro records."""
    metadata: tuple[MetadataName, ...] = ("partition", "offset", "timestamp")
    """More columns: any of `topic`, `partition`, `offset`, `timestamp`, `headers`, `raw` (the value's bytes)."""
    metadata_prefix: str = ""
    """Prefix of `key` and the columns of `metadata`, for values that have fields of these names. Default: none."""
    on_undecodable: Literal["fail", "null"] | None = "fail"
    """What to do with a message that cannot be decoded: `fail` its work unit, or make its key or value null
    (`null`)."""


class KafkaExtractor:
    """Read the offsets in `WorkUnit.read`: `{"partitions": {component: {"topic", "topic_id", "partition", "start"}}}`.

    Each partition is read from `start` to the unit's expected high. Offsets without a message (compacted, aborted, or
    control records of transactions) are skipped. If the broker sends neither messages nor the end of the partition for
    `timeout_s`, reading fails with TransientError. If a topic was created again during the reading, the rows may be of
    either topic, and the work unit fails.

    Shape: key, the value's columns, then `metadata`; rows in order of their offsets; `Chunk.rows` is the offset.

    Source: gobblin-kafka-common `KafkaExtractor`. Differs: a fetch error fails the work unit; a message that cannot be
    decoded is never skipped silently.
    """

    def __init__(
        self,
        unit: WorkUnit,
        connection: KafkaConnection,
        reading: KafkaReading,
        isolation: str,
        context: ConstructContext,
    ) -> None:
        self.bytes_read = 0
        self._urn = unit.dataset_urn
        self._timeout_s = connection.timeout_s
        self._connection = connection
        self._reading = reading
        self._partitions: dict[str, Any] = unit.read["partitions"]  # type: ignore[assignment]  # our own shape
        self._highs: dict[str, Any] = {name: high for name, _, high in unit.interval.pairs()}
        self._reached: dict[str, Any] = dict(unit.low.components())
        self._last: dict[str, Any] = {}
        """Last message yielded, by component."""
        self._target_bytes = context.block_bytes
        self._batch = _FIRST_MESSAGES
        self._left_rows = context.limit_rows or 0
        """Messages up to the limit, at which a chunk ends; 0 without one, or behind it."""
        self._told: list[Any] = []
        self._left_out = {
            part: LeftOutFields(decoding.columns, f"the {part}")
            for part, decoding in (("key", reading.key), ("value", reading.value))
            if isinstance(decoding, JsonDecoding)
        }
        self._count = 0
        """Messages yielded."""
        topic = next((one["topic"] for one in self._partitions.values()), unit.dataset_urn)
        self._key = _decoder(reading.key, topic, "key", context) if reading.key is not None else None
        self._value = _decoder(reading.value, topic, "value", context)
        self.schema: pa.Schema = _schema(reading, self._key, self._value, f"Dataset {self._urn!r}")
        self._consumer: Any = self._open(connection, isolation, context) if self._partitions else None

    def chunks(self) -> Iterator[Chunk]:
        for name, partition in self._partitions.items():
            for messages, offsets in self._batches(name, partition, self._highs[name]):
                try:
                    chunk = self._chunk(name, messages, offsets)
                except ExtractError as error:
                    # The messages before it are complete, and may be published (`commit.policy: partial`).
                    yield from self._before(name, messages, offsets, error.row or 0)
                    raise
                self._reached[name], self._last[name] = offsets[-1] + 1, messages[-1]
                self._left_rows = max(0, self._left_rows - len(messages))
                yield chunk
            self._reached[name] = self._highs[name]
        self._require_planned_topics()

    def _before(self, name: str, messages: list[Any], offsets: list[int], bad: int) -> Iterator[Chunk]:
        """Yield the messages before the first one that cannot be decoded; `bad` is the offset where decoding failed."""
        while inside := bisect_left(offsets, bad):
            try:
                chunk = self._chunk(name, messages[:inside], offsets[:inside])
            except ExtractError as error:
                bad = error.row or 0
                continue
            self._reached[name], self._last[name] = offsets[inside - 1] + 1, messages[inside - 1]
            yield chunk
            return

    def position(self) -> CompositeWatermark | None:
        """Return the offset behind the last message of each partition; None if it may belong to another topic."""
        try:
            self._require_planned_topics()
        except GobblinDagsterError:
            return None
        return CompositeWatermark(self._reached)

    def row_marks(self) -> dict[str, RowMark]:
        return {name: mark_of(message) for name, message in self._last.items()}

    def reading_notes(self) -> tuple[str, ...]:
        return tuple(note for one in self._left_out.values() for note in one.notes())

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _open(self, connection: KafkaConnection, isolation: str, context: ConstructContext) -> Any:
        own = {
            "group.id": f"gobblin-{context.job}",  # the library requires one; no offset is ever committed to it
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "error_cb": self._told.append,
        }
        with optional_package("confluent_kafka"):
            from confluent_kafka import Consumer  # noqa: PLC0415  # optional package

        with translated_kafka_errors(self._urn, "all partitions"):
            # By default the library rests for a second whenever it is 100,000 messages ahead, which makes reading 5x
            # slower.
            return new_client(Consumer, connection, own, {"fetch.queue.backoff.ms": 10})

    def _require_planned_topics(self) -> None:
        """Raise ExtractError if a topic was created again during the reading.

        A deleted topic may have been read whole.
        """
        planned = {one["topic"]: one["topic_id"] for one in self._partitions.values() if one["topic_id"]}
        with translated_kafka_errors(self._urn, "all partitions"):
            ids, faults = topic_ids(self._connection, planned) if planned else ({}, {})
        for topic, identity in ids.items():
            if identity and identity != planned[topic]:
                problem = (
                    f"the topic was created again while it was read: its id is {identity} now. Run again to plan again."
                )
                raise ExtractError(dataset_urn=self._urn, file=topic, problem=problem)
        for topic, error in faults.items():
            if not is_absent(error):
                raise kafka_error(self._urn, topic, error)

    def _stuck(self, name: str, position: int) -> ExtractError | TransientError:
        """Return why no message comes: the topic is gone, or the library's last error."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

        topic, look_s = self._partitions[name]["topic"], min(self._timeout_s, _LOOK_S)
        try:
            _, faults = topic_ids(self._connection.model_copy(update={"timeout_s": look_s}), [topic])
        except KafkaException:
            faults = {}
        if topic in faults and is_absent(faults[topic]):
            return kafka_error(self._urn, name, faults[topic])
        why = telling(self._told).rstrip(".")
        return TransientError(
            problem=f"Dataset {self._urn!r}, partition {name}: no message for {self._timeout_s:g} s at offset "
            f"{position}, and the end {self._highs[name]} is not reached{f': {why}' if why else ''}."
        )

    def _batches(self, name: str, partition: Any, high: int) -> Iterator[tuple[list[Any], list[int]]]:
        """Yield messages with their offsets, up to `high`."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import Message, TopicPartition  # noqa: PLC0415  # optional package

        position, deadline = int(partition["start"]), time.monotonic() + self._timeout_s
        if position < high:
            self._consumer.assign([TopicPartition(partition["topic"], partition["partition"], position)])
        while position < high:
            with translated_kafka_errors(self._urn, name):
                most = min(self._batch, self._left_rows or self._batch, high - position)
                messages = self._consumer.consume(most, _POLL_S)
            ends = []
            if any(map(Message.error, messages)):
                ends = [message for message in messages if message.error() is not None]
                messages = [message for message in messages if message.error() is None]
            offsets: list[Any] = list(map(Message.offset, messages))
            if offsets:
                position, deadline = offsets[-1] + 1, time.monotonic() + self._timeout_s
            if position > high:
                inside = bisect_left(offsets, high)
                messages, offsets = messages[:inside], offsets[:inside]
            if offsets:
                yield messages, offsets
            position = max([position, *(end for end in map(self._end, ends, [name] * len(ends)))])
            if position < high and time.monotonic() > deadline:
                raise self._stuck(name, position)

    def _end(self, message: Any, name: str) -> int:
        """Return the end of the partition if the message reports it; raises any other error that it reports."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
        if is_of_group(error):
            return 0
        if error.retriable() and not error.fatal():
            return 0  # the library retries; the deadline limits it
        raise kafka_error(self._urn, name, error)

    def _chunk(self, name: str, messages: list[Any], offsets: list[int]) -> Chunk:
        with optional_package("confluent_kafka"):
            from confluent_kafka import Message  # noqa: PLC0415  # optional package

        values = list(map(Message.value, messages))
        columns = []
        if self._key is not None:
            columns.append(self._decoded(self._key, list(map(Message.key, messages)), name, offsets, "key"))
        value = self._decoded(self._value, values, name, offsets, "value")
        columns += value.flatten() if pa.types.is_struct(value.type) else [value]
        columns += [self._metadata(kind, messages, values, offsets) for kind in self._reading.metadata]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self._look_for_left_out(messages)
        size = max(1, sum(map(len, filter(None, values))))
        self.bytes_read += size
        self._batch = min(_MAX_MESSAGES, max(1, self._target_bytes * len(values) // size))
        return Chunk(batch, name, pa.array(offsets, pa.int64()))

    def _look_for_left_out(self, messages: list[Any]) -> None:
        """Look for undeclared fields in some messages: Arrow does not tell them, and parsing all again is slow."""
        first, self._count = self._count, self._count + len(messages)
        if not self._left_out:
            return
        for message in searched(messages, first):
            for part, left_out in self._left_out.items():
                try:
                    raw = (message.key() if part == "key" else message.value()) or b"null"
                    left_out.add(json.loads(raw.decode()))  # of bytes, `json` would guess the encoding
                except (ValueError, RecursionError):
                    continue  # a message that cannot be decoded, and is null

    def _decoded(
        self, decoder: Decoder, values: list[bytes | None], name: str, offsets: list[int], part: str
    ) -> pa.Array:
        try:
            return decode_batch(decoder, values, null_where_bad=self._reading.on_undecodable != "fail")
        except DecodeError as error:
            row = offsets[error.index] if error.index is not None else offsets[0]
            problem = f"the {part} {error.problem.rstrip('.')}. `on_undecodable: null` makes such keys and values null."
            raise ExtractError(dataset_urn=self._urn, file=name, row=row, problem=problem) from error

    def _metadata(self, kind: str, messages: list[Any], values: list[bytes | None], offsets: list[int]) -> pa.Array:
        with optional_package("confluent_kafka"):
            from confluent_kafka import Message  # noqa: PLC0415  # optional package

        data: list[Any] = values
        match kind:
            case "topic":
                data = list(map(Message.topic, messages))
            case "partition":
                data = list(map(Message.partition, messages))
            case "offset":
                data = offsets
            case "timestamp":
                data = [at if at >= 0 else None for _, at in map(Message.timestamp, messages)]  # -1 means none
            case "headers":
                data = [_headers(message) for message in messages]
        return pa.array(data, _METADATA[kind])


def declared_schema(reading: KafkaReading, context: ConstructContext) -> pa.Schema | None:
    """Return the columns of all messages; None if only a schema registry knows them.

    Raises:
        UsageError: a column would exist twice, or a schema file is missing or holds no Avro schema.
        EnvironmentFaultError: as `AvroDecoder.open`.
    """
    decodings = (reading.key, reading.value)
    if any(isinstance(one, AvroDecoding) and one.schema_file is None for one in decodings):
        return None
    key, value = (None if one is None else _decoder(one, "", "", context) for one in decodings)
    assert value is not None  # noqa: S101  # only keys can be left out
    return _schema(reading, key, value, "Source kafka")


def _schema(reading: KafkaReading, key: Decoder | None, value: Decoder, whose: str) -> pa.Schema:
    prefix, kind = reading.metadata_prefix, value.type
    fields = [pa.field(f"{prefix}key", key.type)] if key is not None else []
    fields += list(kind) if pa.types.is_struct(kind) else [pa.field("value", kind)]
    fields += [pa.field(f"{prefix}{name}", _METADATA[name]) for name in reading.metadata]
    if twice := repeated(field.name for field in fields):
        raise UsageError(
            problem=f"{whose}: the column(s) {', '.join(twice)} would exist twice.",
            hint="Set `metadata_prefix: kafka_`, or leave them out of `metadata` (`key: null`).",
        )
    return pa.schema(fields)


def searched(messages: Sequence[Any], first: int) -> Iterator[Any]:
    """Yield the messages of a batch that are searched for undeclared fields.

    Args:
        messages: the batch.
        first: number of its first message in the work unit, from 0.
    """
    yield from messages[: max(_LOOKED_AT - first, 0)]
    yield from messages[max(_LOOKED_AT - first, -first % _LOOKED_AT) :: _LOOKED_AT]


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in message.headers() or ()]


def _decoder(decoding: Decoding, topic: str, part: str, context: ConstructContext) -> Decoder:
    match decoding:
        case BytesDecoding():
            return BytesDecoder()
        case JsonDecoding():
            return JsonDecoder(decoding.columns)
        case AvroDecoding():
            return AvroDecoder.open(decoding, f"{topic}-{part}", context)
    return StringDecoder()
