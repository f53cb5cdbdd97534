"""Decoders: the bytes of messages become Arrow columns, a whole batch at a time.

A decoder knows nothing of Kafka. Where a batch does not decode, the messages to blame are found by halving, so that the
fast way needs no look at single messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import json as arrow_json
from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type, dates_as_texts
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.spec.job import SpecModel


class BytesDecoding(SpecModel):
    """Bytes as they are."""

    type: Literal["bytes"] = "bytes"


class StringDecoding(SpecModel):
    """UTF-8 text."""

    type: Literal["string"]


class JsonDecoding(SpecModel):
    """One JSON object a message."""

    type: Literal["json"]
    columns: Mapping[str, TypeName] = Field(min_length=1)
    """Types by field name; other fields are left out, missing ones become null."""


class AvroDecoding(SpecModel):
    """One Avro datum a message: of a single schema, or in the wire format of a schema registry."""

    type: Literal["avro"]
    schema_file: str | None = None
    """File with the Avro schema that gives the columns, relative to the project. Without `registry`, all messages are
    written with it. With `registry`, default: the newest schema of the subject."""
    registry: str | None = None
    """Schema registry: a URL, or a folder with `<id>.avsc` and `<subject>.avsc`. Messages begin with a zero byte and
    the id of their schema, four bytes. Source: `kafka.schema.registry.url`."""
    subject: str | None = None
    """Subject in the registry; default: `<topic>-value`, `<topic>-key` for keys."""
    registry_auth_env: str | None = None
    """Environment variable with `user:password` for the registry."""

    @field_validator("registry")
    @classmethod
    def _no_secrets(cls, registry: str | None) -> str | None:
        if registry is not None and urlsplit(registry).username is not None:
            raise ValueError(
                "a user and a password must not stand in a job file; name their variable in `registry_auth_env`"
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
    """A batch does not decode, or one message in it."""

    def __init__(self, problem: str, index: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.index = index
        """Index of the message in its batch; None where the batch as a whole failed."""


class Decoder(Protocol):
    """Decodes batches of one type."""

    type: pa.DataType
    """Type of the arrays; a struct becomes columns."""

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        """Return one element per message, null for none; raises DecodeError."""


class BytesDecoder:
    """Hands bytes on."""

    type = pa.binary()

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        return pa.array(values, pa.binary())


class StringDecoder:
    """Decodes UTF-8."""

    type = pa.string()

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DecodeError("is no UTF-8 text") from error


class JsonDecoder:
    """Decodes JSON objects into declared columns."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.type = pa.struct([(name, arrow_type(kind)) for name, kind in columns.items()])
        self._with_texts = pa.struct(dates_as_texts(self.type))

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        if not values:
            return pa.array([], self.type)
        # Wrapped one by one: a message that holds no value, or two, cannot make up for another one, so that equal
        # counts mean that each row is its message's.
        text = b'{"v":' + b'}\n{"v":'.join([b"null" if value is None else value for value in values]) + b"}"
        try:
            text.decode()  # Arrow hands on what is no UTF-8, and no Parquet reader takes what would be published
            rows = self._read(text)
        except UnicodeDecodeError as error:
            raise DecodeError(f"is no text in UTF-8: {error.reason}") from error
        except pa.ArrowException as error:
            problem = first_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0]
            raise DecodeError(f"is no JSON object of the declared columns: {problem}") from error
        if len(rows) != len(values):
            raise DecodeError("is not one JSON object")
        return rows

    def _read(self, text: bytes) -> pa.Array:
        if self._with_texts == self.type:
            return _read_wrapped(text, self.type)
        try:
            return _read_wrapped(text, self.type)
        except pa.ArrowInvalid:
            return _read_wrapped(text, self._with_texts).cast(self.type)


def _read_wrapped(text: bytes, kind: pa.DataType) -> pa.Array:
    """Read objects `{"v": ...}`, each with a value of a type."""
    parsing = arrow_json.ParseOptions(
        explicit_schema=pa.schema([("v", kind)]), newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(pa.BufferReader(text), read_options=reading, parse_options=parsing)
    return table.column("v").combine_chunks()


def decode_batch(decoder: Decoder, values: Sequence[bytes | None], *, null_where_bad: bool) -> pa.Array:
    """Decode a batch; raises DecodeError with the index of the first bad message unless those become null."""
    try:
        return decoder.decode(values)
    except DecodeError:
        kept = list(values)
        for error in _bad(decoder, values, 0):
            if not null_where_bad:
                raise error from None
            assert error.index is not None  # noqa: S101  # `_bad` names each
            kept[error.index] = None
        return decoder.decode(kept)


def _bad(decoder: Decoder, values: Sequence[bytes | None], start: int) -> Iterator[DecodeError]:
    """Yield an error with its index for each message that does not decode, in order."""
    try:
        decoder.decode(values)
    except DecodeError as error:
        if len(values) == 1:
            yield DecodeError(error.problem, start)
            return
        half = len(values) // 2
        yield from _bad(decoder, values[:half], start)
        yield from _bad(decoder, values[half:], start + half)
