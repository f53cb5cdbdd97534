"""Spark as the commands use it: not started before something needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import LazySparkRunner


def lazy_spark(project: Project) -> LazySparkRunner:
    """Return a lane on the project's Spark."""
    return LazySparkRunner(project.spec.spark, project.root / SPARK_LOG)


@contextmanager
def plan_only_spark(project: Project) -> Iterator[LazySparkRunner]:
    """Give Spark to sources that plan with it, and end it if one did."""
    runner = lazy_spark(project)
    try:
        yield runner
    finally:
        runner.close()
