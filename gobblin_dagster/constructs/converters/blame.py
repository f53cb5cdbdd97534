"""Finding the row that a converter stumbled over, once it has stumbled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError

T = TypeVar("T")


def on_rows(run: Callable[[pa.RecordBatch], T], chunk: Chunk) -> T:
    """Run a conversion over a chunk's batch; a ConvertError that one row causes is raised with file and row."""
    try:
        return run(chunk.batch)
    except ConvertError as error:
        if not chunk.batch.num_rows:
            raise
        position = first_failing_row(run, chunk.batch)
        try:
            run(chunk.batch.slice(position, 1))
        except ConvertError as precise:
            row = chunk.rows[position].as_py()
            where = "" if row is None else f"row {row}: "
            raise dataclasses.replace(precise, file=chunk.file, problem=where + precise.problem) from error
        raise dataclasses.replace(error, file=chunk.file) from error


def first_failing_row(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> int:
    """Return the position of the first row that makes `run` raise ConvertError, in log2(rows) runs."""
    good, bad = 0, batch.num_rows
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            run(batch.slice(good, middle - good))
            good = middle
        except ConvertError:
            bad = middle
    return good
