"""HashConverter: replace values by a keyed hash."""

from __future__ import annotations

import hmac

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import ColumnsOnce, EachRowConverter, replaced, retyped
from gobblin_dagster.constructs.converters.keys import EnvName, secret
from gobblin_dagster.constructs.types.arrow import is_binary
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'hash'"


class HashConverter(EachRowConverter):
    """Replace values by their HMAC-SHA256 in hexadecimal; equal texts have equal hashes, in all columns and runs.

    Without the key, nobody can find a value by trying all possible ones. Numbers and times are hashed as text, so 5 and
    the decimal 5.0 have different hashes; null stays null.

    Shape: all columns in their order, as many rows; hashed columns are `string`, null for null.

    Source: none; in Gobblin this is a converter of the user.
    """

    class Options(SpecModel):
        """Options of `type: hash`."""

        columns: ColumnsOnce = Field(min_length=1)
        """Columns whose values are replaced by text; null stays null."""
        key_env: EnvName
        """Environment variable with the key, a secret of 16 bytes or more. The key itself is never in the job file."""
        digits: int = Field(default=64, ge=16, le=64)
        """Number of hexadecimal digits to keep, from the beginning."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._key = secret(options.key_env, _NAME)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._options.columns, schema, _NAME, self._context)
        for name in self._options.columns:
            self._bytes(name, pa.nulls(0, schema.field(name).type))
        return retyped(schema, dict.fromkeys(self._options.columns, pa.string()))

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return replaced(batch, {name: self._hashed(name, batch.column(name)) for name in self._options.columns})

    def _hashed(self, name: str, values: pa.Array) -> pa.Array:
        """Return the hashes; each distinct value is hashed once, because names and codes repeat."""
        distinct = self._bytes(name, values).dictionary_encode()
        hashes = pa.array([self._hash(value) for value in distinct.dictionary.to_pylist()], pa.string())
        return hashes.take(distinct.indices)

    def _bytes(self, name: str, values: pa.Array) -> pa.Array:
        try:
            return (values if is_binary(values.type) else values.cast(pa.string())).cast(pa.binary())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            problem = f"column {name!r}: expected a plain value, got {values.type}"
            raise convert_error(problem, _NAME, self._context) from error

    def _hash(self, value: bytes) -> str:
        return hmac.digest(self._key, value, "sha256").hex()[: self._options.digits]
