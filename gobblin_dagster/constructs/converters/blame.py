"""Find the row that makes a converter fail."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import pyarrow as pa

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError

T = TypeVar("T")
SEARCH_LIMIT_S = 20.0
"""Seconds after which no more parts of a batch are tried that took too much memory."""
_is_searched: ContextVar[bool] = ContextVar("is_searched", default=True)


@contextmanager
def unsearched() -> Iterator[None]:
    """Disable bad-row search inside this block; the caller bisects batches itself."""
    token = _is_searched.set(False)
    try:
        yield
    finally:
        _is_searched.reset(token)


def on_rows(run: Callable[[pa.RecordBatch], T], chunk: Chunk) -> T:
    """Run on a chunk's batch; a ConvertError gets the file and, if a single row causes it, the row's number.

    If it took too much memory, the search ends after SEARCH_LIMIT_S, and the error names the rows that are left.
    """
    try:
        return run(chunk.batch)
    except ConvertError as error:
        if chunk.batch.num_rows > 1 and not _is_searched.get():
            raise
        if not error.is_of_rows or not chunk.batch.num_rows or _fails_without_rows(run, chunk.batch):
            raise dataclasses.replace(error, file=chunk.file) from error
        found = _first_failing_rows(run, chunk.batch, SEARCH_LIMIT_S if error.is_of_memory else math.inf)
        if len(found) > 1:
            first, last = chunk.rows[found.start].as_py(), chunk.rows[found.stop - 1].as_py()
            where = "" if first is None or last is None else f"one of the rows {first} to {last}: "
            raise dataclasses.replace(error, file=chunk.file, problem=where + error.problem) from error
        try:
            run(chunk.batch.slice(found.start, 1))
        except ConvertError as precise:
            row = chunk.rows[found.start].as_py()
            where = "" if row is None else f"row {row}: "
            raise dataclasses.replace(precise, file=chunk.file, problem=where + precise.problem) from error
        raise dataclasses.replace(error, file=chunk.file) from error


def _fails_without_rows(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> bool:
    """Return True if the columns are at fault, so that no row is to blame."""
    try:
        run(batch.slice(0, 0))
    except ConvertError:
        return True
    except Exception:  # noqa: BLE001 - a user's code may not expect an empty batch; report its failure on rows
        return False
    return False


def first_failing_row(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> int:
    """Return the index of the first row that makes `run` raise ConvertError, in log2(rows) runs.

    Return 0 inside `unsearched`.
    """
    return _first_failing_rows(run, batch, math.inf).start


def _first_failing_rows(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch, limit_s: float) -> range:
    """Return the indexes of the rows that hold the first failing one: one row, or more after `limit_s`."""
    good, bad = 0, batch.num_rows if _is_searched.get() else 1
    due = time.monotonic() + limit_s
    while bad - good > 1 and time.monotonic() < due:
        middle = (good + bad) // 2
        try:
            run(batch.slice(good, middle - good))
            good = middle
        except ConvertError as error:
            if not error.is_of_rows:
                raise
            bad = middle
    return range(good, bad)
