"""Spark for commands: it starts only if something needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import KeptSparkRunner, LazySparkRunner
from gobblin_dagster.engine.task.runner import TaskRunner


class Kept:
    """The runner of a process that runs several commands (`gobblin worker`); None in others."""

    runner: ClassVar[KeptSparkRunner | None] = None


def lazy_spark(project: Project) -> LazySparkRunner:
    """Return a task runner on the project's Spark."""
    return Kept.runner or LazySparkRunner(project.spec.spark, project.root / SPARK_LOG)


@contextmanager
def plan_only_spark(project: Project) -> Iterator[LazySparkRunner]:
    """Yield Spark for sources that plan with it, and stop it if one used it."""
    runner = lazy_spark(project)
    try:
        yield runner
    finally:
        runner.close()


def spark_note(project: Project, runner: TaskRunner) -> Callable[[], str]:
    """Return a function to call after a run: what people should know if it started Spark; mostly empty.

    The first run of a project says how the next ones become faster; the run that started a worker says that it stays.
    """
    is_first = not (project.root / SPARK_LOG).exists()
    was_started = _is_started(runner)

    def note() -> str:
        if was_started or not _is_started(runner):
            return ""
        if Kept.runner is not None:
            keep = project.spec.spark.keep_warm
            return f"A worker keeps Spark warm for {keep} after the last run; `gobblin worker stop` ends it at once."
        if is_first:
            return "Spark ended with this run; `spark: {keep_warm: 15m}` in gobblin.yaml keeps it for the next ones."
        return ""

    return note


def _is_started(runner: TaskRunner) -> bool:
    return getattr(runner, "is_started", False)  # runners of tests have no Spark
