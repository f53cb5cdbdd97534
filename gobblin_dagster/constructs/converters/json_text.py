"""JsonTextConverter: convert a text column with JSON objects to columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import EachRowConverter, splice, spliced
from gobblin_dagster.constructs.types.arrow_json import (
    first_too_large,
    json_problem,
    read_days,
    require_end,
    require_kept,
)
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_text
from gobblin_dagster.constructs.types.shapes import Shape, arrow_shape
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'json_text'"


class JsonTextConverter(EachRowConverter):
    """Parse the JSON objects in a text column into columns of declared types, which replace the column.

    A missing field is null, as are all fields of a null text.

    Shape: as many rows; the declared columns, all nullable, are in the place of the text column.

    Source: gobblin-core `JsonStringToJsonIntermediateConverter`. Differs: typed columns; a value of another type is an
    error instead of a text.
    """

    class Options(SpecModel):
        """Options of `type: json_text`."""

        column: str
        """Text column with one JSON object in each value."""
        columns: dict[str, Shape] = Field(min_length=1)
        """Shape by field name: a type's name, `[shape]` for a list, `{name: shape}` for an object. A `date` is a text
        such as `2026-01-31`, or a number of days since 1970-01-01."""
        unknown: bool = True
        """Whether objects may have other fields, which are dropped. False: another field is an error."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._schema = pa.schema([(name, arrow_shape(shape)) for name, shape in options.columns.items()])
        self._record = pa.struct(list(self._schema))

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column = self._options.column
        require_text([column], schema, _NAME, self._context, "see `bytes_to_text`")
        result = spliced(schema, column, list(self._schema))
        refuse_twice(result.names, _NAME, self._context)
        return result

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = batch.column(self._options.column).cast(pa.string())
        columns = self._read(texts) if len(texts) else [pa.nulls(0, field.type) for field in self._schema]
        return splice(batch, self._options.column, list(self._schema), columns)

    def _read(self, texts: pa.Array) -> list[pa.Array]:
        try:
            record = read_days(
                lambda mask, kind: self._parse(texts if mask is None else texts.filter(mask), kind),
                self._record,
                texts.to_pylist,
            )
        except pa.ArrowInvalid as error:
            raise self._error(texts, json_problem(error, "r")) from error
        if large := first_too_large(record, lambda: map(str.encode, texts.drop_null().to_pylist())):
            raise self._error(texts, large)
        columns: list[pa.Array] = record.flatten()
        return columns

    def _parse(self, texts: pa.Array, record: pa.StructType) -> pa.StructArray:
        # Each text is put into an object of its own, so that a text that is empty, or has two objects, is an error.
        lines = pc.binary_join_element_wise('{"r":', pc.fill_null(texts, "null"), "}", "")
        block = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_buffer()
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([("r", record)]),
                unexpected_field_behavior="ignore" if self._options.unknown else "error",
                newlines_in_values=True,
            ),
        )
        given = block.to_pybytes()
        found = require_kept(table, given).column("r").combine_chunks()
        if len(found) != len(texts):
            raise pa.ArrowInvalid(f"found {len(found)} objects in {len(texts)} texts")
        require_end(given)
        return found

    def _error(self, texts: pa.Array, problem: str) -> Exception:
        names = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        got = shown(texts[0].as_py())
        message = f"column {self._options.column!r}: expected a JSON object with {names}; got {got}: {problem}"
        return convert_error(message, _NAME, self._context)
