"""Base of converters that make one row of each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

import pyarrow as pa
from pydantic import AfterValidator

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.utils.duplicates import repeated


def _require_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := repeated(names):
        raise ValueError(f"{', '.join(twice)} more than once")
    return names


ColumnsOnce: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_require_once)]
"""Names of columns, each of them once: whoever names one twice may expect that it is converted twice."""


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


def retyped(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema in which the named columns have other types."""
    return pa.schema([pa.field(field.name, kinds[field.name]) if field.name in kinds else field for field in schema])


def replaced(batch: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch in which the named columns have other values, of any type."""
    columns = [values.get(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    kinds = {name: column.type for name, column in values.items()}
    return pa.RecordBatch.from_arrays(columns, schema=retyped(batch.schema, kinds))


def python_value(value: pa.Scalar) -> object:
    """Return a value for a message; a description if Python cannot hold it, e.g. a time in the year 10000."""
    try:
        found: object = value.as_py()
    except (OverflowError, ValueError):
        return f"a {value.type} beyond Python's"
    return found
