"""Shared by all commands: the global options, the project that they point to, and common options."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gobblin_dagster.cli.complete import job_names
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import find_modules_in

if TYPE_CHECKING:
    from gobblin_dagster.engine.project import Project
    from gobblin_dagster.spec.job import JobSpec
    from gobblin_dagster.state.store import StateStore


@dataclass(slots=True)
class Globals:
    """Facts of a call: options before the command, and the jobs that it names."""

    project: Path | None = None
    jobs: tuple[str, ...] = ()
    """As given; used for the error of a command that cannot begin."""


class Output(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


def remember_jobs(ctx: typer.Context, given: str | list[str] | None) -> str | list[str] | None:
    """Keep the jobs that a command names; a job may be named by its file."""
    if isinstance(given, list):
        given = [_job_of_file(ctx, name) for name in given]
    if (call := ctx.find_object(Globals)) is not None:
        call.jobs = (given,) if isinstance(given, str) else tuple(given or ())
    return given


def _job_of_file(ctx: typer.Context, name: str) -> str:
    """Return the name of the job in a file such as `jobs/orders.yaml`; other names as they are.

    Raises:
        UsageError: there is no such file, or it is no job file of the project.
        InvalidSpecError: the file has faults.
    """
    if not name.lower().endswith((".yaml", ".yml", ".pull", ".job", ".conf")):
        return name
    from gobblin_dagster.spec.load import load_jobs, load_project  # noqa: PLC0415 - `--help` needs no pydantic

    root = project_root(ctx)
    loaded, errors = load_jobs(root, load_project(root))
    path = _existing(name, root)
    for job in loaded:
        if job.path.resolve() == path:
            return job.spec.job
    for error in errors:
        if _existing(error.file, root) == path:
            raise error
    raise UsageError(
        problem=f"{name} is no job file of the project.", hint=f"Its job files are in {root / load_project(root).jobs}."
    )


def _existing(name: str, root: Path) -> Path:
    """Return the absolute path of a file that is named from the current folder or from the project."""
    found = next((path for path in (Path(name), root / name) if path.is_file()), None)
    if found is None:
        raise UsageError(problem=f"There is no file {name}.", hint="Name jobs, or files of the jobs folder.")
    return found.resolve()


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="`json` prints one document on stdout.")]
JobsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB",
        help="Names of jobs, or their files; default: all.",
        show_default=False,
        callback=remember_jobs,
        autocompletion=job_names,
    ),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", "-s", metavar="GLOB", help="Only datasets that match; may be repeated."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", metavar="GLOB", help="Leave out datasets that match; may be repeated."),
]


def examples(*lines: str) -> str:
    """Return an epilog that click prints line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def project_root(ctx: typer.Context) -> Path:
    """Return the project folder of a command; raises UsageError if there is none."""
    from gobblin_dagster.spec.load import find_project  # noqa: PLC0415 - `--help` needs no pydantic

    given = ctx.find_object(Globals)
    start = given.project if given and given.project else Path()
    if not start.is_dir():
        raise UsageError(problem=f"No such folder: {start}.", hint="Make a project with `gobblin init NAME`.")
    return find_project(start)


def open_here(ctx: typer.Context, jobs: Collection[str] | None = None) -> Project:
    """Open the project; errors of unnamed jobs are ignored. Its folder may hold the user's own constructs."""
    # `init` and `--help` need no engine.
    from gobblin_dagster.core.utils.pandas_when_used import import_pandas_when_used  # noqa: PLC0415
    from gobblin_dagster.engine.project import open_project  # noqa: PLC0415
    from gobblin_dagster.service.known_jobs import with_flows  # noqa: PLC0415

    import_pandas_when_used()
    return with_flows(open_project(importable(project_root(ctx)), jobs or ()))


def open_store_here(ctx: typer.Context) -> StateStore:
    """Open only the project's state store, which can be read even if job files are faulty."""
    from gobblin_dagster.spec.load import load_project  # noqa: PLC0415 - `--help` needs no pydantic
    from gobblin_dagster.state import open_store  # noqa: PLC0415 - `init` and `--help` need no store

    root = importable(project_root(ctx))
    return open_store(load_project(root).state, root)


def importable(root: Path) -> Path:
    """Make classes `module:Class` of the project folder importable: constructs of jobs, watermarks in the store."""
    find_modules_in(root)
    return root


def jobs_of(project: Project, names: list[str] | None) -> list[JobSpec]:
    """Return the named jobs, or all; raises UsageError if there is none."""
    if not names and not project.jobs:
        raise UsageError(
            problem=f"There is no job file (*.yaml, *.pull, *.job, *.conf) in {project.root / project.spec.jobs}.",
            hint="Write one, or set `jobs:` in gobblin.yaml; `gobblin init demo` makes an example.",
        )
    return [project.job(name) for name in dict.fromkeys(names)] if names else list(project.jobs)
