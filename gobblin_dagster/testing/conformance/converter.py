"""Tests that every converter must pass."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.testing.conformance.construct import ConstructConformance, inside_another, numbered, rows_of


class ConverterConformance(ConstructConformance):
    """Tests of a converter.

    Example:
        ::

            class TestUpper(ConverterConformance):
                spec = {"type": "my_parts:UpperConverter", "column": "name"}
                rows = pa.record_batch({"name": ["a", None]})
                expected = pa.record_batch({"name": ["A", None]})
                unfit_schemas = [pa.schema([("name", pa.int64())])]
    """

    protocol = "gobblin_dagster.core.constructs.Converter"
    kind = ConstructKind.CONVERTER
    rows: pa.RecordBatch
    """Rows that it can take, at least two."""
    expected: pa.RecordBatch | None = None
    """The converted rows; None if only their number and shape are tested."""
    unfit_schemas: Sequence[pa.Schema] = ()
    """Schemas that it cannot take: a column that it needs is missing, or of another type."""
    unfit_rows: Sequence[pa.RecordBatch] = ()
    """Rows whose schema it takes, and whose values it cannot."""
    is_repeatable: bool = True
    """True if a new object converts equal rows equally; False if chance is intended, as in encryption."""

    def convert(self, context: ConstructContext, chunk: Chunk) -> tuple[pa.Schema, list[Chunk]]:
        """Convert a chunk by a fresh object, as a task does: the schema first."""
        converter: Converter = self.make(context)
        schema = converter.convert_schema(chunk.batch.schema)
        return schema, list(converter.convert(chunk))

    def test_chunks_have_the_schema_that_was_announced(self, context: ConstructContext) -> None:
        """Every chunk of `convert` has exactly the schema that `convert_schema` returned."""
        schema, chunks = self.convert(context, numbered(self.rows))
        assert [chunk.batch.schema for chunk in chunks if not chunk.batch.schema.equals(schema)] == [], schema

    def test_schema_is_announced_without_rows(self, context: ConstructContext) -> None:
        """`convert_schema` depends on the schema alone, and may be called again."""
        one, other = self.make(context), self.make(context)
        assert one.convert_schema(self.rows.schema).equals(other.convert_schema(self.rows.schema))
        assert one.convert_schema(self.rows.schema).equals(other.convert_schema(self.rows.schema))

    def test_rows_are_converted_as_expected(self, context: ConstructContext) -> None:
        """`convert` returns the rows that the subclass expects."""
        _, chunks = self.convert(context, numbered(self.rows))
        if self.expected is not None:
            assert rows_of(*(chunk.batch for chunk in chunks)) == rows_of(self.expected)

    def test_each_row_says_where_it_came_from(self, context: ConstructContext) -> None:
        """Each chunk keeps its file and has a number for each row: of the row it was made of, null if of several."""
        given = numbered(self.rows, first=7)
        _, chunks = self.convert(context, given)
        for chunk in chunks:
            assert chunk.file == given.file
            assert chunk.rows.type == pa.int64()
            assert len(chunk.rows) == chunk.batch.num_rows
            assert {number for number in chunk.rows.to_pylist() if number is not None} <= set(given.rows.to_pylist())

    def test_no_rows_stay_no_rows(self, context: ConstructContext) -> None:
        """An empty chunk gives no rows and no error."""
        _, chunks = self.convert(context, numbered(self.rows.slice(0, 0)))
        assert rows_of(*(chunk.batch for chunk in chunks)) == []

    def test_rows_inside_a_larger_batch_are_taken_alone(self, context: ConstructContext) -> None:
        """Of a batch that is a slice of another batch, only its own rows are converted."""
        _, chunks = self.convert(context, numbered(inside_another(self.rows)))
        _, plain = self.convert(context, numbered(self.rows))
        found, wanted = (rows_of(*(chunk.batch for chunk in some)) for some in (chunks, plain))
        assert len(found) == len(wanted)
        assert found == wanted or not self.is_repeatable

    def test_what_was_given_is_not_changed(self, context: ConstructContext) -> None:
        """`convert` does not write into the batch that it was given: other branches read it too."""
        batch = pa.RecordBatch.from_pylist(self.rows.to_pylist(), schema=self.rows.schema)
        self.convert(context, numbered(batch))
        assert rows_of(batch) == rows_of(self.rows)

    def test_fresh_object_makes_the_same_again(self, context: ConstructContext) -> None:
        """After a failure a fresh object converts the same rows: it has no memory outside of itself."""
        first, again = (self.convert(context, numbered(self.rows))[1] for _ in range(2))
        found, wanted = (rows_of(*(chunk.batch for chunk in some)) for some in (again, first))
        assert len(found) == len(wanted)
        assert found == wanted or not self.is_repeatable

    def test_schema_that_it_cannot_take_is_refused(self, context: ConstructContext) -> None:
        """`convert_schema` raises ConvertError for a missing column or an unfit type, before any row is read."""
        for schema in self.unfit_schemas:
            with pytest.raises(ConvertError):
                self.make(context).convert_schema(schema)

    def test_rows_that_it_cannot_take_are_refused(self, context: ConstructContext) -> None:
        """`convert` raises ConvertError, and nothing else, for a value that it cannot take: `on_error` heeds it."""
        for rows in self.unfit_rows:
            with pytest.raises(ConvertError):
                self.convert(context, numbered(rows))
