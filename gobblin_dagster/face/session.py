"""Shared by all methods of an opened project: the project, the state store, and Spark, which starts if needed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.engine.task.runner import SessionRunner, TaskRunner
from gobblin_dagster.service.known_jobs import with_flows
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.lookup import find_state
from gobblin_dagster.state.store import StateStore

MOST = 1_000_000_000
"""Entries that a method returns at most: more than any store holds, and what every database takes as a limit."""


class Session:
    """A project with the store and the runner that its methods use."""

    def __init__(self, root: Path, names: Sequence[str], store: StateStore | None, runner: TaskRunner | None) -> None:
        find_modules_in(root)
        self.project: Project = with_flows(open_project(root, names))
        self._names = tuple(names)
        self._store = store
        self._given = runner
        self._spark: weakref.finalize[[], Session] | None = None
        self._own: LazySparkRunner | None = None

    def use_store(self) -> AbstractContextManager[StateStore]:
        """Yield the store that was given, which stays open, or one that is closed at the end."""
        return self.project.use_store(self._store)

    def runner(self) -> TaskRunner:
        """Return the runner that was given, or the session's own: it starts Spark with the first work and keeps it."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = LazySparkRunner(self.project.spec.spark, self.project.root / SPARK_LOG)
            # Also if nobody closes the project: when it is forgotten, or Python ends.
            self._spark = weakref.finalize(self, self._own.close)
        return self._own

    def spark(self) -> SessionRunner | None:
        """Return the runner for sources that plan with Spark; None if the runner that was given has no Spark."""
        runner = self.runner()
        return runner if isinstance(runner, SessionRunner) else None

    def close(self) -> None:
        """End the session's own Spark; the next method that needs Spark starts another."""
        if self._spark is not None:
            self._spark()
        self._spark = self._own = None

    def now(self) -> datetime:
        """Return the project's time."""
        return self.project.clock.now()

    def job(self, name: str | None) -> JobSpec:
        """Return a job by its name, which may be left out if one job is meant, or the project has one (UsageError)."""
        if name is None and len(self._names) == 1:
            (name,) = self._names
        if name is not None:
            return self.project.job(name)
        jobs = self.project.jobs
        if len(jobs) == 1:
            return jobs[0]
        known = ", ".join(one.job for one in jobs)
        raise UsageError(
            problem=f"The project has several jobs: {known}."
            if jobs
            else f"There is no job file in {self.project.root}.",
            hint="Name one: job=..." if jobs else "Write one into its jobs folder.",
        )

    def job_of(self, dataset: str, name: str | None) -> JobSpec:
        """Return the job of a published dataset; the name may be left out if only one job has it (UsageError)."""
        if name is not None or len(self.project.jobs) == 1:
            return self.job(name)
        with self.use_store() as store:
            return self.project.job(find_state(store, dataset, None).job)


def selected(select: str | Sequence[str], exclude: str | Sequence[str]) -> Selection:
    """Return the selection of one glob or several."""
    return replace(Selection(), select=_several(select), exclude=_several(exclude))


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def several(given: str | Sequence[str] | None) -> list[str] | None:
    """Return names as a list; a single name may stand alone, and None stays None."""
    return None if given is None else list(_several(given))


def limited(limit: int) -> int:
    """Return a limit on entries that every store can take; raises UsageError if it is below 1."""
    if limit < 1:
        raise UsageError(problem=f"`limit` must be 1 or more, got {limit}.")
    return min(limit, MOST)


def required(why: str) -> str:
    """Return a reason without blanks around it; raises UsageError if there is none."""
    if not why.strip():
        raise UsageError(problem="The reason is empty: why=''.", hint="Say what others will ask for later.")
    return why.strip()
