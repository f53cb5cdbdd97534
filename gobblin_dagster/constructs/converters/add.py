"""AddConverter: add columns with a constant, or with facts about a row's origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type
from gobblin_dagster.constructs.types.columns import refuse_twice
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel

_ORIGINS: dict[str, pa.DataType] = {
    "dataset_urn": pa.string(),
    "job": pa.string(),
    "run_id": pa.string(),
    "load_time": pa.timestamp("us", "UTC"),
    "source_file": pa.string(),
    "source_row": pa.int64(),
}


class Added(SpecModel):
    """Content of a new column: either `value` or `source`."""

    value: str | bool | int | float | None = None
    """Constant for all rows."""
    type: TypeName | None = None
    """Type of `value`; default: `string`, `bool`, `int64` or `float64`, by the form of the value."""
    source: Literal["dataset_urn", "job", "run_id", "load_time", "source_file", "source_row"] | None = None
    """Fact about each row: `load_time` is when the attempt on its work unit began; `source_row` counts from 1, and is
    null if a converter made the row of several."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.value is None) == (self.source is None):
            raise ValueError("expected value or source, one of both")
        if self.type is not None and self.source is not None:
            raise ValueError(f"{self.source} has a type of its own; leave out `type`")
        self.scalar()  # refuses a value that does not fit its type when the job file is read
        return self

    def scalar(self) -> pa.Scalar:
        """Return the constant in its type; raises ValueError if it does not fit."""
        values = pa.array([self.value])
        try:
            return (values if self.type is None else strict_cast(values, arrow_type(self.type)))[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"expected a value of type {self.type}, got {self.value!r}") from error


class AddConverter:
    """Add columns at the end; their names must be new.

    Shape: all columns, then the new ones in the order of the job file; as many rows.

    Source: none; in Gobblin this is a converter of the user that reads the work unit's state.
    """

    class Options(SpecModel):
        """Options of `type: add`."""

        columns: dict[str, Added] = Field(min_length=1)
        """Content by column name: `{value: DE}`, `{value: 7, type: int8}` or `{source: run_id}`; `DE` is short for
        `{value: DE}`."""

        @field_validator("columns", mode="before")
        @classmethod
        def _short_form(cls, columns: object) -> object:
            if not isinstance(columns, dict):
                return columns
            return {
                name: given if isinstance(given, dict | Added) else {"value": given} for name, given in columns.items()
            }

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._added = options.columns
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        result = pa.schema([*schema, *(pa.field(name, _type(added)) for name, added in self._added.items())])
        refuse_twice(result.names, "converter 'add'", self._context)
        return result

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        batch = chunk.batch
        for name, added in self._added.items():
            batch = batch.append_column(pa.field(name, _type(added)), self._values(added, chunk))
        yield Chunk(batch, chunk.file, chunk.rows)

    def _values(self, added: Added, chunk: Chunk) -> pa.Array:
        if added.source == "source_row":
            return chunk.rows
        known: dict[str | None, Any] = {
            None: added.scalar(),
            "dataset_urn": self._context.dataset_urn,
            "job": self._context.job,
            "run_id": self._context.run_id,
            "load_time": self._context.load_time,
            "source_file": chunk.file,
        }
        value = known[added.source]
        return pa.repeat(value if added.source is None else pa.scalar(value, _type(added)), chunk.batch.num_rows)


def _type(added: Added) -> pa.DataType:
    return added.scalar().type if added.source is None else _ORIGINS[added.source]
