"""Decoders: convert the bytes of messages to Arrow columns, a whole batch at a time.

A decoder knows nothing about Kafka. If a batch cannot be decoded, the bad messages are found by bisection, so that good
batches are decoded without looking at single messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import json as arrow_json
from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.types.arrow_json import (
    first_too_large,
    json_problem,
    read_days,
    require_end,
    require_kept,
)
from gobblin_dagster.constructs.types.json_shapes import JSON, dump_exactly, load_exactly
from gobblin_dagster.constructs.types.shapes import JsonShape, json_type
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.spec.job import SpecModel


class BytesDecoding(SpecModel):
    """Bytes, unchanged."""

    type: Literal["bytes"] = "bytes"


class StringDecoding(SpecModel):
    """UTF-8 text."""

    type: Literal["string"]


class JsonDecoding(SpecModel):
    """One JSON object per message."""

    type: Literal["json"]
    columns: Mapping[str, JsonShape] = Field(min_length=1)
    """Types by field name, e.g. `{id: int64, tags: [string], place: {city: string}}`: `[...]` is a list, `{...}` an
    object, and `json` any value, as text with its JSON. Other fields are dropped, and the run names them; missing ones
    become null."""


class AvroDecoding(SpecModel):
    """One Avro datum per message, of a single schema or in the wire format of a schema registry."""

    type: Literal["avro"]
    schema_file: str | None = None
    """File with the Avro schema for the columns, relative to the project. Without `registry`, it is the schema of all
    messages. Default, with `registry`: the newest schema of the subject."""
    registry: str | None = None
    """Schema registry: a URL, or a folder with `<id>.avsc` and `<subject>.avsc`. Each message begins with a zero byte
    and the id of its schema in four bytes. Source: `kafka.schema.registry.url`."""
    subject: str | None = None
    """Subject in the registry; default: `<topic>-value`, or `<topic>-key` for keys."""
    registry_auth_env: str | None = None
    """Environment variable with `user:password` for the registry. Default: no login."""

    @field_validator("registry")
    @classmethod
    def _no_secrets(cls, registry: str | None) -> str | None:
        if registry is not None and urlsplit(registry).username is not None:
            raise ValueError(
                "a user and a password must not be in a job file; name their variable in `registry_auth_env`"
            )
        return registry

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.schema_file is None and self.registry is None:
            raise ValueError("needs `schema_file` or `registry`")
        return self


Decoding: TypeAlias = Annotated[
    BytesDecoding | StringDecoding | JsonDecoding | AvroDecoding, Field(discriminator="type")
]


class DecodeError(Exception):
    """A batch, or one message in it, cannot be decoded."""

    def __init__(self, problem: str, index: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.index = index
        """Index of the message in its batch; None if the batch as a whole failed."""


class Decoder(Protocol):
    """Decodes batches of messages."""

    type: pa.DataType
    """Type of the decoded arrays; a struct becomes columns."""

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        """Return one element per message, null for None; raises DecodeError."""


class BytesDecoder:
    """Return bytes unchanged."""

    type = pa.binary()

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        return pa.array(values, pa.binary())


class StringDecoder:
    """Decode UTF-8."""

    type = pa.string()

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DecodeError("is no UTF-8 text") from error


class JsonDecoder:
    """Decode JSON objects into declared columns.

    Args:
        columns: shapes by field name; `json` is text with the JSON of the values.
    """

    def __init__(self, columns: Mapping[str, JsonShape]) -> None:
        self.type = pa.struct([(name, json_type(shape)) for name, shape in columns.items()])
        self._any = [name for name, shape in columns.items() if shape == JSON]

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        if not values:
            return pa.array([], self.type)
        if self._any:
            values = [value if value is None else self._with_json(value) for value in values]
        given = [b"null" if value is None else value for value in values]
        try:
            b"\n".join(given).decode()  # Arrow accepts invalid UTF-8, but readers of Parquet do not
            rows = read_days(lambda mask, kind: _read_wrapped(_only(given, mask), kind), self.type, lambda: given)
        except UnicodeDecodeError as error:
            raise DecodeError(f"is no text in UTF-8: {error.reason}") from error
        except MemoryError:
            raise
        except pa.ArrowException as error:
            raise DecodeError(f"is no JSON object of the declared columns: {json_problem(error, 'v')}") from error
        if large := first_too_large(rows, lambda: given):
            raise DecodeError(f"does not fit its columns: {large}")
        return rows

    def _with_json(self, value: bytes) -> bytes:
        """Return a message in which each value of a `json` column is a text with its JSON."""
        try:
            record = load_exactly(value)
            if isinstance(record, dict):
                record |= {name: dump_exactly(record[name]) for name in self._any if record.get(name) is not None}
            return dump_exactly(record).encode()
        except ValueError as error:
            raise DecodeError(f"is no JSON object of the declared columns: {first_line(error)}") from error
        except RecursionError:
            raise DecodeError("has lists and objects nested too deep to be read") from None


def _only(values: list[bytes], mask: pa.BooleanArray | None) -> list[bytes]:
    return values if mask is None else list(itertools.compress(values, mask.to_pylist()))


def _read_wrapped(values: list[bytes], kind: pa.DataType) -> pa.Array:
    """Parse values of a type; raises ArrowInvalid."""
    # Wrap each message: then one without a value, or with two, cannot be made up for by another one, and equal counts
    # mean that each row belongs to its message.
    text = b'{"v":' + b'}\n{"v":'.join(values) + b"}"
    parsing = arrow_json.ParseOptions(
        explicit_schema=pa.schema([("v", kind)]), newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(pa.BufferReader(text), read_options=reading, parse_options=parsing)
    rows = require_kept(table, text).column("v").combine_chunks()
    if len(rows) != len(values):
        raise DecodeError("is not one JSON object")
    require_end(text)
    return rows


def decode_batch(decoder: Decoder, values: Sequence[bytes | None], *, null_where_bad: bool) -> pa.Array:
    """Decode a batch; bad messages become null, or raise DecodeError with the index of the first one."""
    try:
        return decoder.decode(values)
    except DecodeError:
        kept = list(values)
        for error in _bad(decoder, values, 0):
            if not null_where_bad:
                raise error from None
            assert error.index is not None  # noqa: S101  # `_bad` sets it
            kept[error.index] = None
        return decoder.decode(kept)


def _bad(decoder: Decoder, values: Sequence[bytes | None], start: int) -> Iterator[DecodeError]:
    """Yield an error with its index for each message that cannot be decoded, in order."""
    try:
        decoder.decode(values)
    except DecodeError as error:
        if len(values) == 1:
            yield DecodeError(error.problem, start)
            return
        half = len(values) // 2
        yield from _bad(decoder, values[:half], start)
        yield from _bad(decoder, values[half:], start + half)
