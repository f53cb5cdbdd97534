"""Observer: how a run tells those who watch it. The engine prints nothing."""

from __future__ import annotations

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.results import DatasetResult, JobPlan, RecoveredDataset, RunResult


class Observer:
    """Does nothing; subclass and override what you want to see.

    Called on the driver, in this order; `step_done` and `dataset_done` come from several threads at once.
    """

    def recovered(self, dataset: RecoveredDataset) -> None:
        """A sequence of an earlier run was dealt with."""

    def planned(self, plan: JobPlan) -> None:
        """The plan is made and will now be run."""

    def spark_starting(self) -> None:
        """Spark is needed and starts."""

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
