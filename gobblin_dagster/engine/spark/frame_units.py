"""Run work units that Spark reads (`FrameSource`): one Spark job each, several at a time, a task part per partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.sources.spark.errors import read_error
from gobblin_dagster.core.constructs import FrameSource
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.serialization import to_json
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.utils.parallel import as_they_end
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import unrun
from gobblin_dagster.engine.task.partition_merge import merge_parts
from gobblin_dagster.engine.task.retry import run_with_retries
from gobblin_dagster.engine.task.spark_partition import PART_COLUMNS, part_of_row, run_part_in_arrow, run_partition
from gobblin_dagster.spec.job import JobSpec

JOBS_AT_ONCE = 4
"""Number of Spark jobs that run at the same time, so that small ones do not wait for each other."""


class FrameRun:
    """Runs the work units of one run, each as a Spark job."""

    def __init__(
        self, session: Any, runner: RunContext, source: FrameSource, arrow_schema: Callable[[Any], pa.Schema]
    ) -> None:
        self._session = session
        self._runner = runner
        self._context_json = to_json(runner)
        self._spec: JobSpec = runner.spec
        self._source = source
        self._arrow_schema = arrow_schema

    def run(
        self, tasks: Sequence[TaskInput], on_result: Callable[[TaskState], None], stop: threading.Event
    ) -> list[TaskState]:
        """Run all work units and return the TaskStates in order; see `engine.task.runner.TaskRunner.run`."""
        states: dict[str, TaskState] = {}
        for _, state in as_they_end(lambda task: self._run_unit(task, stop), tasks, JOBS_AT_ONCE):
            states[state.work_unit_id] = state
            on_result(state)
        return [states[task.unit.id] for task in tasks]

    def _run_unit(self, task: TaskInput, stop: threading.Event) -> TaskState:
        if stop.is_set():
            return unrun(task, WorkingState.CANCELLED, None)
        return run_with_retries(partial(self._attempt, task), self._spec.execution.retries, stop.is_set)

    def _attempt(self, task: TaskInput) -> TaskState:
        started = time.monotonic()
        try:
            frame = self._source.frame(self._session, task.unit)
            schema = stable_schema(self._arrow_schema(frame.schema))
            function = partial(run_part_in_arrow, self._context_json, to_json(task), schema.serialize().to_pybytes())
            rows = frame.mapInArrow(function, PART_COLUMNS).collect()
            # A work unit without rows has no partitions, but its schema must pass the converters and policies too.
            parts = [part_of_row(*row) for row in rows] or [run_partition(self._runner, self._spec, task, schema, ())]
            return merge_parts(self._runner, self._spec, task, parts, time.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - an error of Spark in a work unit is the failure of that unit
            ours = error if isinstance(error, GobblinDagsterError) else read_error(error, task.unit.dataset_urn)
            return unrun(task, WorkingState.FAILED, describe_failure(ours))


def stable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all columns nullable.

    Whether Spark marks a column as not nullable depends on how the query is written, not on the data.
    """
    return pa.schema([field.with_nullable(True) for field in schema])
