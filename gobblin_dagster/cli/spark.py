"""Spark for commands: it starts only if something needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import KeptSparkRunner, LazySparkRunner


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
