"""Base of converters that make one row of each row."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.core.constructs import Chunk

MAX_VALUE_TEXT = 40
"""Most characters of a value in a message."""


class EachRowConverter(ABC):
    """Base of converters that make exactly one row of each row; each row keeps its row number in the source.

    If a row makes `convert_batch` raise ConvertError, it is raised again with the row's file and number.
    """

    @abstractmethod
    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema after the conversion; raises ConvertError for a missing or unfit column."""

    @abstractmethod
    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the converted rows: as many, in the same order, in the converted schema."""

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        yield Chunk(on_rows(self.convert_batch, chunk), chunk.file, chunk.rows)


def spliced(schema: pa.Schema, column: str, fields: Sequence[pa.Field]) -> pa.Schema:
    """Return a schema in which fields replace a column."""
    at = schema.get_field_index(column)
    return pa.schema([*list(schema)[:at], *fields, *list(schema)[at + 1 :]])


def splice(
    batch: pa.RecordBatch, column: str, fields: Sequence[pa.Field], arrays: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Return a batch in which columns replace a column."""
    at = batch.schema.get_field_index(column)
    columns = [*batch.columns[:at], *arrays, *batch.columns[at + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=spliced(batch.schema, column, fields))


def python_value(value: pa.Scalar) -> object:
    """Return a value for a message; a description if Python cannot hold it, e.g. a time in the year 10000."""
    try:
        found: object = value.as_py()
    except (OverflowError, ValueError):
        return f"a {value.type} beyond Python's"
    return found


def shown(value: object) -> str:
    """Return the repr of a value for a message, cut to MAX_VALUE_TEXT characters."""
    try:
        text = repr(value)
    except RecursionError:  # nested too deep
        text = reprlib.repr(value)
    return text if len(text) <= MAX_VALUE_TEXT else text[: MAX_VALUE_TEXT - 1] + "…"
