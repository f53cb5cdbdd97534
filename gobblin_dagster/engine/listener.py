"""RunListener: the calls by which a run reports its progress. The engine prints nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import DatasetResult, RecoveredDataset, RunResult

log = logging.getLogger(__name__)


class RunListener:
    """Does nothing; subclass it and override the events that you want.

    Called on the driver, in this order; `step_done` and `dataset_done` come from several threads at once. Must be
    quick, because the run waits. An error that a listener raises does not harm the run: the first error of each
    listener is logged.
    """

    def begun(self, run_id: str, started_at: datetime) -> None:
        """The run began: from now on the history gets a record of it if an error or an interrupt ends it."""

    def recovered(self, dataset: RecoveredDataset) -> None:
        """A sequence of an earlier run was finished, undone or set aside."""

    def planned(self, plan: JobPlan) -> None:
        """The plan is made and will now be run."""

    def spark_starting(self) -> None:
        """Spark is needed and starts."""

    def processes_starting(self) -> None:
        """Processes of this machine run the work units; Spark is not needed."""

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        """A work unit ended, `done` of `total` in the run."""

    def extracted(self) -> None:
        """All work units ended; publishing begins."""

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        """A commit step was executed, the `number`-th of its sequence (from 1)."""

    def dataset_done(self, result: DatasetResult) -> None:
        """A dataset is committed, failed, or set aside."""

    def finished(self, result: RunResult) -> None:
        """The run ended."""


class FanOutRunListener(RunListener):
    """Calls several listeners in order; if one raises an error, the others and the run go on."""

    def __init__(self, listeners: Sequence[RunListener]) -> None:
        self._listeners = tuple(listeners)
        self._failed: set[int] = set()
        """Numbers of listeners with an error that was logged."""
        self._lock = threading.Lock()

    def begun(self, run_id: str, started_at: datetime) -> None:
        self._call(lambda one: one.begun(run_id, started_at))

    def recovered(self, dataset: RecoveredDataset) -> None:
        self._call(lambda one: one.recovered(dataset))

    def planned(self, plan: JobPlan) -> None:
        self._call(lambda one: one.planned(plan))

    def spark_starting(self) -> None:
        self._call(lambda one: one.spark_starting())

    def processes_starting(self) -> None:
        self._call(lambda one: one.processes_starting())

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self._call(lambda one: one.task_done(state, done, total))

    def extracted(self) -> None:
        self._call(lambda one: one.extracted())

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self._call(lambda one: one.step_done(sequence, step, number))

    def dataset_done(self, result: DatasetResult) -> None:
        self._call(lambda one: one.dataset_done(result))

    def finished(self, result: RunResult) -> None:
        self._call(lambda one: one.finished(result))

    def _call(self, event: Callable[[RunListener], None]) -> None:
        for number, listener in enumerate(self._listeners):
            try:
                event(listener)
            except Exception as error:  # an error of a listener must not cost data that is already read and checked
                with self._lock:
                    is_first = number not in self._failed
                    self._failed.add(number)
                if is_first:
                    name = f"{type(listener).__module__}.{type(listener).__qualname__}"
                    told = "Listener %s raised an error; the run goes on, further ones are not logged: %s"
                    # Where it was raised says nothing more of a disk that is full.
                    log.error(told, name, error, exc_info=not isinstance(error, OSError))
