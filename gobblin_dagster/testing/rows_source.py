"""A source of made-up rows, with options that make it fail; for tests of jobs and of other constructs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.core.constructs import Chunk, ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.errors import ExtractError, StartpointError
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import LongWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import SpecModel

SCHEMA = pa.schema([("id", pa.int64()), ("dataset", pa.string()), ("value", pa.string())])


class RowsDataset(SpecModel):
    """One dataset of a RowsSource."""

    rows: int = Field(ge=0)
    """Rows that exist: ids 0, 1, ... rows - 1; the watermark is the next id."""
    unit_rows: int = Field(default=1_000_000, ge=1)
    """Rows of one work unit."""
    fail_at: int | None = None
    """Id at which reading raises ExtractError."""
    kill_at: int | None = None
    """Id at which reading ends the process, as a native crash or the out-of-memory killer would."""
    problem: str = ""
    """Makes planning fail for this dataset."""
    note: str = ""
    """A note of the plan for this dataset."""


class RowsSource:
    """Makes rows `(id, dataset, value)`; `value` is null for every tenth id."""

    full_extract = "start_over"
    identity = ("type",)

    class Options(SpecModel):
        """The datasets and the size of batches."""

        datasets: dict[str, RowsDataset]
        """Datasets by urn."""
        batch_rows: int = Field(default=100, ge=1)
        """Rows of a batch."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Offer the ids that are not committed: gaps first, each alone, then new ids."""
        for urn, dataset in self._options.datasets.items():
            if not context.is_selected(urn):
                continue
            if dataset.problem:
                yield DatasetOffer(urn, None, None, problem=dataset.problem)
                continue
            state = context.states.get(urn)
            committed = state.committed if state else CommittedRanges(LongWatermark, {})
            high = committed.high
            ranges = [*committed.gaps(), (high.value if isinstance(high, LongWatermark) else 0, dataset.rows)]
            units = [unit for low, end in ranges for unit in _cut(urn, dataset, int(str(low)), int(str(end)))]
            low = committed.watermark or LongWatermark(0)
            notes = [dataset.note] if dataset.note else []
            yield DatasetOffer(urn, low, units[-1].expected_high if units else low, units, notes=notes)

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        """Resolve a position; a time cannot be resolved, because ids have no times."""
        match position:
            case Watermark():
                return position
            case Oldest():
                return None
            case Upcoming():
                return LongWatermark(self._options.datasets[dataset_urn].rows)
            case Timestamp():
                raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem="ids know no times")

    def tells_positions(self) -> bool:
        """Rows come in order of their ids."""
        return True

    def extractor(self, unit: WorkUnit) -> RowsExtractor:
        """Open a work unit."""
        return RowsExtractor(unit, self._options.datasets[unit.dataset_urn], self._options.batch_rows)

    def preview_schema(self, unit: WorkUnit) -> pa.Schema:
        """Return the schema, which is the same for all work units."""
        return SCHEMA

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int:
        """Count the ids in committed ranges."""
        return sum(int(str(high)) - int(str(low)) for low, high in ranges.ranges.get("", ()))


def _cut(urn: str, dataset: RowsDataset, low: int, high: int) -> Iterator[WorkUnit]:
    bounds = [*range(low, high, dataset.unit_rows), high]
    for start, end in pairwise(bounds):
        yield WorkUnit(f"{urn}-{start}", urn, LongWatermark(start), LongWatermark(end), rows=end - start)


class RowsExtractor:
    """Reads one work unit of a RowsSource."""

    schema = SCHEMA

    def __init__(self, unit: WorkUnit, dataset: RowsDataset, batch_rows: int) -> None:
        self.bytes_read = 0
        self._unit = unit
        self._dataset = dataset
        self._batch_rows = batch_rows
        self._next = int(str(unit.low))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the unit's rows."""
        low, high = int(str(self._unit.low)), int(str(self._unit.expected_high))
        for start in range(low, high, self._batch_rows):
            ids = range(start, min(start + self._batch_rows, high))
            self._fail(ids)
            urn = self._unit.dataset_urn
            columns = [
                pa.array(ids, pa.int64()),
                pa.array([urn] * len(ids), pa.string()),
                pa.array([None if i % 10 == 0 else f"v{i}" for i in ids], pa.string()),
            ]
            self.bytes_read += 8 * len(ids)
            rows = pa.array([i - low + 1 for i in ids], pa.int64())
            self._next = ids.stop
            yield Chunk(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), f"{urn}.rows", rows)

    def position(self) -> Watermark:
        """Return the id after the last one that was read."""
        return LongWatermark(self._next)

    def close(self) -> None:
        """Nothing to release."""

    def _fail(self, ids: range) -> None:
        if self._dataset.kill_at is not None and self._dataset.kill_at in ids:
            os.write(2, b"told to die\n")
            os._exit(9)
        if self._dataset.fail_at is not None and self._dataset.fail_at in ids:
            urn = self._unit.dataset_urn
            raise ExtractError(
                dataset_urn=urn, file=f"{urn}.rows", row=self._dataset.fail_at, problem="is told to fail."
            )
