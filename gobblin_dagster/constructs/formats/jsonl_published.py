"""PublishedJsonLines: JSON lines of the writer `jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from gobblin_dagster.constructs.formats.lines_published import PublishedLines
from gobblin_dagster.constructs.formats.published import DatasetFormat, Types, as_decimal128, in_64_bits, is_inferred

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_BLOCK_BYTES = 16 << 20
"""Bytes that pyarrow reads at once; no row may be longer."""


class PublishedJsonLines(PublishedLines, DatasetFormat):
    """JSON lines: counted and merged as lines, read back with the types in the dataset's state."""

    spark_name = "json"
    spark_has_float_texts = True

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        import pyarrow.dataset as ds  # noqa: PLC0415  # slow to load
        import pyarrow.json as pajson  # noqa: PLC0415  # slow to load

        return ds.JsonFileFormat(read_options=pajson.ReadOptions(block_size=_BLOCK_BYTES))

    def arrow_schema(self, found: pa.Schema, types: Types) -> pa.Schema:
        """Return the known types: pyarrow's JSON reader takes types for a whole dataset only, not per file."""
        told = {name: as_decimal128(kind) for name, kind in types.items() if kind is not None}
        known = {name: kind for name, kind in told.items() if _is_told(kind)}
        return pa.schema([field.with_type(known.get(field.name, field.type)) for field in found])

    def spark_options(self) -> dict[str, str]:
        return {"mode": "FAILFAST"}

    def spark_types(self, types: Types) -> Types:
        return in_64_bits(types)


def _is_told(kind: pa.DataType) -> bool:
    """Return True if pyarrow needs an explicit type, and can read it from JSON."""
    if is_inferred(kind):
        return False
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_uint64(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)
    return bool(is_text or is_number or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind))
