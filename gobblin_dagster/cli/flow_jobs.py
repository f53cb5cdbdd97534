"""`--flow GROUP/NAME`: the jobs of a flow of the project's service, for commands that work on states.

The service need not run: flows are read from its database, and their jobs are made of the project's templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gobblin_dagster.cli.context import importable, open_here, project_root
from gobblin_dagster.core.errors import UsageError

if TYPE_CHECKING:
    from gobblin_dagster.engine.project import Project
    from gobblin_dagster.service.model import DagJob
    from gobblin_dagster.state.store import StateStore

FlowOption = Annotated[
    str | None,
    typer.Option("--flow", metavar="GROUP/NAME", help="Only datasets of this flow of the project's service."),
]


def group_and_name(flow: str) -> tuple[str, str]:
    """Part `GROUP/NAME`; raises UsageError."""
    group, slash, name = flow.partition("/")
    if not (group and slash and name):
        raise UsageError(problem=f"{flow[:80]!r} names no flow.", hint="Write GROUP/NAME.")
    return group, name


def open_with_flow(ctx: typer.Context, flow: str | None, jobs: list[str] | None = None) -> Project:
    """Open the project; with a flow, its jobs are those of the flow, in place of those of the jobs folder.

    Raises:
        SpecError: a job has faults today, such as one of an earlier version of the flow; `jobs` leaves it out.
    """
    if flow is None:
        return open_here(ctx, jobs)
    # `--help` and commands without `--flow` need no service.
    from gobblin_dagster.engine.project import Project  # noqa: PLC0415
    from gobblin_dagster.service.executors.job_body import read_job_body  # noqa: PLC0415
    from gobblin_dagster.spec.load import load_project  # noqa: PLC0415

    root = importable(project_root(ctx)).resolve()
    spec = load_project(root)
    found = _jobs(ctx, flow)
    wanted = [job for job in found if not jobs or job.name in jobs]
    return Project(root, spec, tuple(read_job_body(job.name, job.body, root, spec) for job in wanted))


def jobs_with_flow(ctx: typer.Context, store: StateStore, flow: str | None, jobs: list[str] | None) -> list[str]:
    """Return the jobs that a command is about, of those that the store knows.

    Raises:
        UsageError: the store does not know a job that was named, or the flow does not have it.
    """
    from gobblin_dagster.state.lookup import known_jobs  # noqa: PLC0415 - `--help` needs no store

    if flow is None:
        return known_jobs(store, jobs)
    names = _names(ctx, flow, jobs)
    known = store.list_jobs()
    return [name for name in names if name in known]


def job_with_flow(ctx: typer.Context, store: StateStore, flow: str | None, job: str | None, dataset: str) -> str | None:
    """Return the job whose dataset a command is about; without a flow, the one that was named.

    Raises:
        UsageError: the flow has no such job, or several of its jobs have the dataset.
    """
    if flow is None:
        return job
    names = _names(ctx, flow, [job] if job else None)
    having = [name for name in names if any(store.load_readable_states(name, [dataset]))]
    candidates = having or names
    if len(candidates) == 1:
        return candidates[0]
    raise UsageError(
        problem=f"Which job's dataset {dataset!r} of flow {flow} is meant is not clear: "
        f"{', '.join(candidates) or 'it has no job'}.",
        hint="Name one with --job.",
    )


def _names(ctx: typer.Context, flow: str, jobs: list[str] | None) -> list[str]:
    names = [job.name for job in _jobs(ctx, flow)]
    for job in jobs or ():
        if job not in names:
            raise UsageError(problem=f"Flow {flow} has no job {job!r}.", hint=f"It has {', '.join(names) or 'none'}.")
    return jobs or names


def _jobs(ctx: typer.Context, flow: str) -> list[DagJob]:
    # Only commands with `--flow` need the service.
    from gobblin_dagster.core.clock import SystemClock  # noqa: PLC0415
    from gobblin_dagster.database.engine import parse_url  # noqa: PLC0415
    from gobblin_dagster.service.flow_compiler import open_flow_compiler  # noqa: PLC0415
    from gobblin_dagster.service.flow_jobs import flow_jobs  # noqa: PLC0415
    from gobblin_dagster.service.model import FlowId  # noqa: PLC0415
    from gobblin_dagster.service.store.store import ServiceStore  # noqa: PLC0415
    from gobblin_dagster.spec.load import load_project  # noqa: PLC0415

    root = importable(project_root(ctx))
    spec = load_project(root)
    with ServiceStore(parse_url(spec.service.store, root), SystemClock()) as store:
        compiler = open_flow_compiler(root, spec.service, spec.allow.lists, store)
        return flow_jobs(store, compiler.compile, FlowId(*group_and_name(flow)))
