"""A source of DataFrames without Spark: lists of Arrow batches that know `mapInArrow`, and a runner for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.spark.frame_units import FrameRun
from gobblin_dagster.engine.task.context import RunContext, TaskInput

SOURCE = "tests.unit.engine.task.frames:PartitionedSource"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])


class ArrowFrame:
    """What the runner asks of a DataFrame."""

    def __init__(self, schema: pa.Schema, partitions: Sequence[Sequence[pa.RecordBatch]], runs: int) -> None:
        self.schema = schema
        self._partitions, self._runs = partitions, runs
        self._function: Callable[..., Iterator[pa.RecordBatch]] | None = None

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> ArrowFrame:
        assert schema == "state string, schemas map<string, binary>"
        self._function = function
        return self

    def collect(self) -> list[tuple[str, dict[str, bytes]]]:
        """Run each partition, some more than once as Spark's speculation does; the last run's rows come back."""
        assert self._function is not None
        rows: list[tuple[str, dict[str, bytes]]] = []
        for partition in self._partitions:
            results = [pa.Table.from_batches(self._function(iter(partition))).to_pylist() for _ in range(self._runs)]
            rows += [(row["state"], dict(row["schemas"])) for row in results[-1]]
        return rows


class PartitionedSource:
    """One dataset with ids 0, 1, ... in partitions of given sizes."""

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        sizes: tuple[int, ...]
        announced: int | None = None
        """Rows that the source says there are."""
        runs: int = 1
        """How often Spark runs each partition."""
        lose: int = 0
        """Attempts that Spark loses before one succeeds."""

    attempts: ClassVar[dict[str, int]] = {}
    """Attempts by work unit; a test clears it."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        state = context.states.get("d")
        low, high = LongWatermark(0), LongWatermark(max(sum(self._options.sizes), 1))
        if state is not None:
            yield DatasetOffer("d", state.watermark, state.watermark)
        else:
            yield DatasetOffer("d", low, high, [WorkUnit("0", "d", low, high, rows=self._options.announced)])

    def extractor(self, unit: WorkUnit) -> Any:
        raise AssertionError("Spark reads")

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> None:
        """Not counted."""

    def frame(self, session: Any, unit: WorkUnit) -> ArrowFrame:
        assert session == "session"
        made = self.attempts[unit.id] = self.attempts.get(unit.id, 0) + 1
        if made <= self._options.lose:
            raise RuntimeError("Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times")
        partitions, at = [], 0
        for size in self._options.sizes:
            ids = range(at, at + size)
            columns = [pa.array(ids, pa.int64()), pa.array([f"v{i}" for i in ids], pa.string())]
            partitions.append([pa.RecordBatch.from_arrays(columns, schema=SCHEMA)])
            at += size
        return ArrowFrame(SCHEMA, partitions, self._options.runs)


class FrameRunner:
    """A runner of work units as DataFrames, without Spark."""

    cores: int | None = 1

    def start_early(self) -> None:
        """Nothing to start."""

    def run(
        self,
        runner: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        spec = runner.spec
        source = registry.create(ConstructKind.SOURCE, spec.source, runner.construct_context(spec))
        tasks = [task for pack in packs for task in pack]
        return FrameRun("session", runner, source, lambda schema: schema).run(tasks, on_result, stop)

    def close(self) -> None:
        """Nothing to release."""
