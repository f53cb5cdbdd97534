"""Rows of Parquet files in the plain form: other programs, and earlier versions of this one, write dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from gobblin_dagster.constructs.types.arrow import has_part
from gobblin_dagster.constructs.types.plain import PlainForm


def plain_batches(
    file: parquet.ParquetFile, rows: int, columns: Sequence[str] | None = None, *, use_threads: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches of at most `rows`, in the types of `plain_schema`.

    Args:
        file: an open file.
        rows: the most rows of a batch.
        columns: names of the columns to read; default: all.
        use_threads: whether columns are read side by side.
    """
    form = PlainForm()
    # Arrow cannot join dictionaries of several row groups inside of lists.
    nested = [kind for kind in file.schema_arrow.types if pa.types.is_nested(kind)]
    is_joined = not any(has_part(kind, pa.types.is_dictionary) for kind in nested)
    for groups in [None] if is_joined else [[number] for number in range(file.metadata.num_row_groups)]:
        for batch in file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=use_threads):
            yield form.rows(batch)
