"""order_definitions: what a Dagster instance needs so that services elsewhere can order jobs from it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.spec.load import load_project


def order_definitions(project: Project | Path | str, *, runner: TaskRunner | None = None) -> dg.Definitions:
    """Return the Dagster job `gobblin_order`, which runs what an executor of the type `dagster` is ordered to.

    Merge it into the definitions of an instance that services may order jobs from. What jobs may touch is what `allow`
    in the project's `gobblin.yaml` says, whatever an order says. Who may launch runs of the instance can order jobs.

    Args:
        project: a project or its folder; its state store keeps the watermarks.
        runner: runs work units; default: the project's Spark.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded, or a package declares a construct with a fault.
    """
    # Loads the service, which other definitions do not need: each run is a process that imports this package again.
    from gobblin_dagster.orchestration.order_job import order_job  # noqa: PLC0415

    opened = project if isinstance(project, Project) else Project(Path(project).resolve(), load_project(Path(project)))
    return dg.Definitions(jobs=[order_job(opened, runner)])
