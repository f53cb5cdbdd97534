"""SparkSource: read whatever Spark reads: a format, a table, a query, or the snapshots of an Iceberg or Delta table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from gobblin_dagster.constructs.clients.sql import make_engine, server_tables
from gobblin_dagster.constructs.sources.incremental.options import held_back
from gobblin_dagster.constructs.sources.incremental.ranges import committed_steps
from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin
from gobblin_dagster.constructs.sources.spark.column import column_of
from gobblin_dagster.constructs.sources.spark.column_planner import ColumnPlanner
from gobblin_dagster.constructs.sources.spark.errors import spark_gone, spark_problem
from gobblin_dagster.constructs.sources.spark.frames import Frames
from gobblin_dagster.constructs.sources.spark.options import SparkOptions
from gobblin_dagster.constructs.sources.spark.places import jdbc_table, would_load
from gobblin_dagster.constructs.sources.spark.startpoints import column_start, snapshot_start
from gobblin_dagster.constructs.sources.spark.table_history import (
    DeltaHistory,
    IcebergHistory,
    SnapshotPlanner,
    TableHistory,
)
from gobblin_dagster.constructs.sources.work_units import require_replacement, state_problem
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    EnvironmentFaultError,
    GobblinDagsterError,
    SourceError,
    StartpointError,
    UsageError,
)
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.core.watermark import TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

_PLANS_AT_ONCE = 4


class SparkSource:
    """Plan and read with Spark; the only source that starts Spark to find new rows.

    Each work unit is a Spark job of its own; its partitions run through the same tasks as other work units. Uses the
    DataFrame API only, so that it works on Spark Connect too.

    Source: none; Gobblin has no Spark source. The watermark column is that of its `QueryBasedSource`.
    """

    Options = SparkOptions

    def __init__(self, options: SparkOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._frames = Frames(options, context.base_dir, context.job, context.allow)

    identity = ("format", "path", "table", "options", "query", "views")

    @property
    def full_extract(self) -> str:
        """How jobs that read everything are planned, see `Source`.

        A table with snapshots is read only if it changed.
        """
        return "start_over" if self._options.watermark is not None and self._options.watermark.column else "own"

    @property
    def holds_back(self) -> str:
        """Why rows that exist may not be read."""
        mark = self._options.watermark
        return held_back(mark.column) if mark is not None and mark.column else ""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        self.check_extract(context.extract)
        if self._context.spark is None:
            raise SourceError(
                job=self._context.job,
                problem="planning with source `spark` needs Spark, which is not available here.",
                hint="`gobblin plan`, `gobblin run` and Dagster's sensor start it; `plan_job` takes it as `spark=`.",
            )
        session = self._context.spark()
        now = context.clock.now()

        def offer(urn: str) -> DatasetOffer:
            return self._isolated(session, urn, context.states.get(urn), now, context.extract.is_full)

        urns = [urn for urn in self._urns(session, context.extract) if context.is_selected(urn)]
        yield from in_parallel(offer, urns, _PLANS_AT_ONCE)

    def would_read(self, path: str) -> bool:
        # A `query` may compare what is new with what is published, so its tables and views are its own affair.
        names = {*self._options.datasets, "dataset"}
        return any(would_load(self._options, path, self._context.base_dir, name) for name in names)

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        base_dir, found = self._context.base_dir, dict[str, Collection[str]]()
        for urn in datasets:
            if (table := jdbc_table(self._options, base_dir, self._dataset(urn))) is None:
                continue
            url, name = table
            with suppress(SQLAlchemyError, EnvironmentFaultError), make_engine(url, "of Spark").connect() as connection:
                found |= server_tables(connection, {urn: name}, is_read=True)
        return found

    def named_datasets(self) -> Sequence[str]:
        return ()

    def check_extract(self, extract: Extract) -> None:
        if self._options.watermark is None:
            require_replacement(self._context.job, "watermark", extract)

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        if isinstance(position, Oldest):
            return None
        try:
            history = self._history()
            if history is not None and isinstance(position, Watermark):
                return position  # has an id beside the number; planning reports a snapshot that does not exist
            if self._context.spark is None or self._options.watermark is None:
                raise ValueError("it needs Spark and a `watermark`")
            session, dataset = self._context.spark(), self._dataset(dataset_urn)
            self._frames.refresh(session, dataset)
            if history is not None and not isinstance(position, Watermark):
                return snapshot_start(session, dataset, history, position, context.states.get(dataset_urn))
            return column_start(self._frames.whole(session, dataset), self._options, position, context.clock.now())
        except ValueError as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error
        except Exception as error:
            if (gone := spark_gone(error)) is not None:
                raise gone from error
            problem = spark_problem(error).rstrip(".")
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=problem) from error

    def extractor(self, unit: WorkUnit) -> Extractor:
        raise UsageError(
            problem=f"Work units of source 'spark' ({unit.dataset_urn!r}) are read by Spark itself.",
            hint="Run the job with Spark, not with an InlineRunner.",
        )

    def frame(self, session: Any, unit: WorkUnit) -> Any:
        """Return the rows of a work unit as a DataFrame; see `FrameSource`."""
        dataset = self._dataset(unit.dataset_urn)
        history = self._history()
        if history is not None:
            low = history.beginning() if unit.read.get("whole") else unit.low
            frame = history.frame(session, dataset, low, unit.expected_high)
        else:
            frame = self._frames.whole(session, dataset)
            if self._options.watermark is not None:
                column = column_of(frame, self._options.watermark.column, self._options.cursor)
                steps = [(column.cursor.step(low), column.cursor.step(high)) for _, low, high in unit.interval.pairs()]
                frame = frame.where(column.condition(steps, nulls=bool(unit.read.get("nulls"))))
        return self._frames.converted(session, frame)

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        parts = ranges.ranges.get("", ())
        if self._context.spark is None or self._options.watermark is None or not self._options.is_plain or not parts:
            return None
        dataset, history = self._dataset(dataset_urn), self._history()
        if ranges.watermark_type is not self._watermark_type() or self._options.nulls == "include":
            return None
        session = self._context.spark()
        self._frames.refresh(session, dataset)
        if history is not None:
            beginning = history.beginning()
            if len(parts) > 1 or parts[0][0] != beginning.components()[""]:
                return None  # the table's rows are not the rows that were read
            return int(history.frame(session, dataset, beginning, ranges.high).count())
        frame = self._frames.whole(session, dataset)
        column = column_of(frame, self._options.watermark.column, self._options.cursor)
        return sum(column.counts(frame, committed_steps(ranges, column.cursor)))

    def _isolated(
        self, session: Any, urn: str, state: DatasetState | None, now: datetime, is_full: bool
    ) -> DatasetOffer:
        """Offer one dataset; if Spark refuses something, only this dataset fails."""
        problem = state_problem(state, self._watermark_type(), "spark")
        if problem:
            return self._failed(urn, problem)
        try:
            return self._offer(session, urn, state, now, is_full)
        except GobblinDagsterError as error:
            return DatasetOffer(urn, None, None, problem=str(error))
        except ValueError as error:
            return self._failed(urn, f"{urn}: {error}.")
        except Exception as error:
            # Spark and py4j raise what they like. It concerns this dataset only, unless Spark itself has ended.
            if (gone := spark_gone(error)) is not None:
                raise gone from error
            return self._failed(urn, f"{urn}: {spark_problem(error)}")

    def _offer(self, session: Any, urn: str, state: DatasetState | None, now: datetime, is_full: bool) -> DatasetOffer:
        dataset, history = self._dataset(urn), self._history()
        self._frames.refresh(session, dataset)
        if history is not None:
            return SnapshotPlanner(self._options, history, is_full).offer(session, dataset, urn, state)
        offer = self._offer_rows(self._frames.whole(session, dataset), urn, state, now)
        left_out = self._frames.left_out(session, dataset) if offer.work_units else ()
        return replace(offer, notes=[*offer.notes, *left_out])

    def _offer_rows(self, frame: Any, urn: str, state: DatasetState | None, now: datetime) -> DatasetOffer:
        if self._options.watermark is not None:
            return ColumnPlanner(self._options, now).offer(frame, urn, state)
        # Everything is read in each run; the position is only the time of the plan.
        low = (state.watermark if state is not None else None) or TimestampWatermark(datetime(1970, 1, 1, tzinfo=UTC))
        high = TimestampWatermark(now)
        units = [WorkUnit("0", urn, low, high)] if low <= high != low else []
        return DatasetOffer(urn, low, high, units, origin=column_origin(""))

    def _urns(self, session: Any, extract: Extract) -> list[str]:
        if not self._options.datasets:
            return [f"{extract.namespace}.{extract.table}"]
        try:
            return self._frames.names(session)
        except Exception as error:
            raise spark_gone(error) or SourceError(job=self._context.job, problem=spark_problem(error)) from error

    def _dataset(self, urn: str) -> str:
        return urn if self._options.datasets else ""

    def _history(self) -> TableHistory | None:
        match self._options.watermark.snapshot if self._options.watermark is not None else None:
            case "iceberg":
                return IcebergHistory(self._frames)
            case "delta":
                return DeltaHistory(self._frames)
            case _:
                return None

    def _watermark_type(self) -> type[Watermark]:
        history = self._history()
        if history is not None:
            return history.watermark_type
        return self._options.cursor.watermark_type if self._options.watermark is not None else TimestampWatermark

    def _failed(self, urn: str, problem: str) -> DatasetOffer:
        return DatasetOffer(urn, None, None, problem=str(SourceError(job=self._context.job, problem=problem)))
