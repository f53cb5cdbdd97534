"""PythonSource: one function of the user yields the rows of a work unit, another says where datasets end."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.options.targets import Target
from gobblin_dagster.constructs.records import load_object, prints_aside
from gobblin_dagster.constructs.sources.python.rows import MisfitError, as_batch
from gobblin_dagster.constructs.sources.startpoints import position_before
from gobblin_dagster.constructs.sources.work_units import open_units, state_problem
from gobblin_dagster.constructs.types.shapes import Shape, arrow_shape
from gobblin_dagster.core.constructs import Chunk, ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.errors import ExtractError, GobblinDagsterError, SourceError, StartpointError, TransientError
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import SpecModel

_NAME = "source 'python'"
_BATCH_ROWS = 5_000
_BATCH_S = 1.0
"""Seconds after which rows before a `ReadUpTo` are passed on, because limits are checked after each batch."""
_END = object()
_NO_ROWS = (str, bytes, Mapping, pa.RecordBatch, pa.Table)
"""Types that can be iterated, but not over rows."""


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """The range that a user's function must read: positions from `low` (inclusive) to `high` (exclusive)."""

    dataset: str
    """The dataset.urn."""
    low: Any
    """A whole number or an aware datetime, as `datasets` returns them."""
    high: Any


@dataclass(frozen=True, slots=True)
class ReadUpTo:
    """A mark that a user's function yields between rows: all rows before it are below `position`, all later ones not.

    With it, a part of a work unit can be published if the function fails (`commit.policy: partial`) or at a limit.
    """

    position: Any
    """A whole number or an aware datetime, as `ReadUnit.low`."""


class PythonSource:
    """Call `read(unit) -> Iterator[dict | pa.RecordBatch]` for each work unit, in its Spark task.

    When planning, `datasets() -> Mapping[str, int | datetime]` returns the present end (exclusive) of each dataset.
    Without it there is one dataset, `<namespace>.<table>`, whose positions are times: each run reads from the end of
    the last one to now. The function must yield the same rows for the same range: a failed work unit is read again.

    Source: gobblin-api `Source` and `Extractor`, as plain functions.
    """

    full_extract = "start_over"

    class Options(SpecModel):
        """Options of the source `python`."""

        read: Target
        """`module:function` that yields rows; it may be in the project folder."""
        datasets: Target | None = None
        """`module:function` that returns the end of each dataset. Default: one dataset, up to now."""
        columns: dict[str, Shape] | None = Field(default=None, min_length=1)
        """Shapes of the columns; default: those of the first rows of each work unit. Declare them if rows differ, or if
        a work unit may have no rows."""
        start: int | datetime | None = None
        """Where datasets begin (inclusive); default: 0, or 1970-01-01 UTC."""
        positions_per_work_unit: int | None = Field(default=None, ge=1)
        """Most positions of one work unit, for whole numbers only; default: one work unit for all."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        ends = self._ends(context)
        for urn in sorted(ends):
            if context.is_selected(urn):
                try:
                    yield self._offer(urn, ends[urn], context)
                except ValueError as error:
                    yield DatasetOffer(urn, None, None, problem=f"{self._options.datasets}: {error}.")

    def extractor(self, unit: WorkUnit) -> PythonExtractor:
        function = load_object(self._options.read, _NAME)
        limit = self._context.limit_rows
        return PythonExtractor(unit, function, self._options.read, self._options.columns, limit)

    def declared_schema(self) -> pa.Schema | None:
        """Return the columns of `columns`; None without it."""
        shapes = self._options.columns
        return pa.schema([(name, arrow_shape(shape)) for name, shape in shapes.items()]) if shapes else None

    def tells_positions(self) -> bool:
        """Return True: whether the function yields `ReadUpTo` is known only when it runs.

        Without `ReadUpTo`, limits do not end a work unit early.
        """
        return True

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> None:
        """Return None: counting would need reading."""

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        ends = self._ends(context)
        try:
            end = _mark(ends[dataset_urn]) if dataset_urn in ends else None
        except ValueError as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error
        return position_before(end, dataset_urn, position)

    def _ends(self, context: SourceContext) -> Mapping[str, Any]:
        """Return the present end of each dataset, as the user's function returns it."""
        if self._options.datasets is None:
            return {f"{context.extract.namespace}.{context.extract.table}": context.clock.now()}
        return self._called(load_object(self._options.datasets, _NAME))

    def _called(self, function: Callable[[], Any]) -> Mapping[str, Any]:
        try:
            with prints_aside():
                ends = function()
        except GobblinDagsterError:
            raise
        except Exception as error:
            problem = f"{self._options.datasets} raised {type(error).__name__}: {error}{_where(error)}."
            raise SourceError(job=self._context.job, problem=problem) from error
        if not isinstance(ends, Mapping) or not all(isinstance(urn, str) for urn in ends):
            problem = f"{self._options.datasets} returned {str(ends)[:80]!r}."
            raise SourceError(job=self._context.job, problem=problem, hint="Return ends by dataset.urn: {'name': 42}.")
        return ends

    def _offer(self, urn: str, end: Any, context: SourceContext) -> DatasetOffer:
        high, start = _mark(end), self._options.start
        default = 0 if isinstance(high, LongWatermark) else datetime(1970, 1, 1, tzinfo=UTC)
        low = _mark(default if start is None else start)
        if type(low) is not type(high):
            raise ValueError(f"`start` is {start!r}, of another type than the end {end!r}")
        state = context.states.get(urn)
        problem = state_problem(state, type(high), "python")
        if problem:
            return DatasetOffer(urn, None, None, problem=problem)
        size = self._options.positions_per_work_unit if isinstance(high, LongWatermark) else None
        units = open_units(urn, state, low, high, read={}, unit_size=size)
        mark = state.watermark if state is not None else None
        if not units:
            return DatasetOffer(urn, mark, mark)
        return DatasetOffer(urn, mark or low, units[-1].expected_high, units)


class PythonExtractor:
    """Make batches of the rows that a user's function yields.

    Shape: the declared columns, or those of the first rows; `Chunk.rows` is the number of the row in the work unit.
    """

    def __init__(
        self,
        unit: WorkUnit,
        function: Callable[[ReadUnit], Any],
        name: str,
        columns: Mapping[str, Shape] | None,
        limit_rows: int | None = None,
    ) -> None:
        self.bytes_read = 0
        self._urn, self._name = unit.dataset_urn, name
        self._rows = 0
        shapes = [(column, arrow_shape(shape)) for column, shape in columns.items()] if columns else None
        self._declared: pa.Schema | None = pa.schema(shapes) if shapes else None
        with self._translated():
            low, high = (mark.components()[""] for mark in (unit.low, unit.expected_high))
            found = function(ReadUnit(unit.dataset_urn, low, high))
            if found is None or isinstance(found, _NO_ROWS):
                raise self._error(f"returned {type(found).__name__}, expected an iterator: `yield` the rows.", None)
            self._yielded = iter(found)
        self._low = unit.low
        self._enough = math.inf if limit_rows is None else limit_rows
        self._reached: Watermark | None = unit.low
        self._batches = self._in_batches()
        self._first = next(self._batches, None)
        schema = self._first.schema if self._first is not None else self._declared
        if not schema:
            raise self._error("yielded no field, so its columns are not known. Declare `columns`.", None)
        self.schema: pa.Schema = schema

    def chunks(self) -> Iterator[Chunk]:
        batch = self._first
        while batch is not None:
            self.bytes_read += batch.nbytes
            rows = np.arange(self._rows + 1, self._rows + 1 + batch.num_rows, dtype=np.int64)
            self._rows += batch.num_rows
            yield Chunk(batch, self._name, pa.array(rows))
            batch = next(self._batches, None)

    def position(self) -> Watermark | None:
        """Return the position of the last `ReadUpTo`; None if rows behind it were passed on."""
        return self._reached

    def close(self) -> None:
        """Close the generator, so that its `finally` and `with` blocks run."""
        close = getattr(self._yielded, "close", None)
        if close is not None:
            close()

    def _in_batches(self) -> Iterator[pa.RecordBatch]:
        """Collect rows into batches; a batch ends at the last `ReadUpTo`, if there was one since the batch before."""
        schema, waiting, before = self._declared, list[dict[str, Any]](), 0
        settled, mark = 0, self._low
        due = time.monotonic() + _BATCH_S
        while True:
            item, fault = self._next()
            if isinstance(item, ReadUpTo):
                settled, mark = len(waiting), self._marked(item)
                if not waiting:
                    self._reached = mark
                    if schema is not None:
                        yield pa.RecordBatch.from_pylist(
                            [], schema=schema
                        )  # an empty chunk, so that the caller asks for the position
                # Without a schema, the first rows wait for others that may have more fields.
                is_early = schema is None or time.monotonic() < due
                if not waiting or (is_early and before + settled < self._enough):
                    continue
            if isinstance(item, dict):
                waiting.append(item)
            is_done = not isinstance(item, dict)
            if waiting and (is_done or len(waiting) >= _BATCH_ROWS):
                # Rows behind the last position wait for the next batch if possible; if the function failed, they are
                # dropped.
                count = settled if fault is not None or (settled and not is_done) else len(waiting)
                if count:
                    batch = self._fitted(waiting[:count], schema, before)
                    schema, before, waiting = batch.schema, before + count, waiting[count:]
                    self._reached, settled = (mark if count == settled else None), 0
                    yield batch
                    due = time.monotonic() + _BATCH_S
            if fault is not None:
                raise fault
            if item is _END:
                return
            if isinstance(item, pa.RecordBatch):
                batch = self._fitted(item, schema, before)
                schema, before = batch.schema, before + batch.num_rows
                self._reached = None
                yield batch
            elif is_done and not isinstance(item, ReadUpTo):
                raise self._error(f"yielded {type(item).__name__}, expected a dict or a RecordBatch.", before + 1)

    def _next(self) -> tuple[Any, GobblinDagsterError | None]:
        """Return the next item of the function; at its end `_END`, with the error if it failed."""
        try:
            with self._translated():
                return next(self._yielded, _END), None
        except GobblinDagsterError as error:
            return _END, error

    def _marked(self, said: ReadUpTo) -> Watermark:
        try:
            mark = _mark(said.position)
        except ValueError as error:
            raise self._error(f"yielded {said}: {error}.", None) from error
        if type(mark) is not type(self._low):
            raise self._error(f"yielded {said}, a position of another type than {self._low}.", None)
        return mark

    def _fitted(
        self, rows: list[dict[str, Any]] | pa.RecordBatch, schema: pa.Schema | None, before: int
    ) -> pa.RecordBatch:
        """Return rows as a batch, of the schema if there is one; raises ExtractError for a field that it lacks."""
        try:
            return as_batch(rows, schema)
        except MisfitError as error:
            hint = " Declare `columns`." if self._declared is None and error.is_solvable else ""
            raise self._error(f"{error.problem}.{hint}", before + error.index + 1) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (GobblinDagsterError, MemoryError):
            raise
        except (ConnectionError, TimeoutError) as error:
            raise TransientError(
                problem=f"Dataset {self._urn!r}, {self._name}: {type(error).__name__}: {error}."
            ) from error
        except Exception as error:
            raise self._error(f"raised {type(error).__name__}: {error}{_where(error)}.", None) from error

    def _error(self, problem: str, row: int | None) -> ExtractError:
        return ExtractError(dataset_urn=self._urn, file=self._name, row=row, problem=problem)


def _mark(position: Any) -> Watermark:
    """Return a position as a watermark; raises ValueError."""
    if isinstance(position, datetime) and position.tzinfo is not None:
        return TimestampWatermark(position)
    if isinstance(position, int) and not isinstance(position, bool):
        return LongWatermark(position)
    raise ValueError(f"expected a whole number or a datetime with a time zone, got {position!r}")


def _where(error: Exception) -> str:
    """Return file and line of the user's code that raised the error, in brackets; empty if unknown."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
