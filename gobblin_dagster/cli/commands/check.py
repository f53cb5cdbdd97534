"""`gobblin check`: every fault of every file, without reading any data."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from gobblin_dagster.cli.context import Output, OutputOption, examples, project_root
from gobblin_dagster.cli.render.console import print_status
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.constructs.extras import missing_extras
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.engine.allowed import faults_of
from gobblin_dagster.engine.validation import check_construct, check_parts
from gobblin_dagster.spec.load import LoadedJob, load_jobs, load_project, shown_path
from gobblin_dagster.spec.project import PROJECT_FILE, ProjectSpec

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin check", "gobblin -C demo check --output json"))
def check(ctx: typer.Context, output: OutputOption = Output.TEXT) -> None:
    """Check gobblin.yaml and all job files.

    Shows every fault of every file with its line, SQL that cannot be parsed and packages that are not installed among them;
    reads no data. Exits with 2 where there is a fault.
    """
    root = project_root(ctx)
    sys.path.insert(0, str(root))  # constructs of the user's own lie in the project folder
    jobs: list[LoadedJob] = []
    errors: list[InvalidSpecError] = []
    try:
        project = load_project(root)
        loaded, errors = load_jobs(root, project, check_construct)
        for job in loaded:
            if faults := _faults(job, root, project):
                errors.append(InvalidSpecError(file=shown_path(job.path), faults=faults))
            else:
                jobs.append(job)
    except InvalidSpecError as error:
        errors = [error]  # without a project it is not known where the jobs are
    if not jobs and not errors:
        raise UsageError(
            problem="There is no job file (*.yaml, *.pull, *.job, *.conf) in the jobs folder.",
            hint=f"See {root / PROJECT_FILE}.",
        )
    if output is Output.JSON:
        _print_json(jobs, errors)
    else:
        for job in jobs:
            print_status(True, f"{shown_path(job.path)}: job {job.spec.job}")
            for warning in job.warnings:
                typer.echo(f"note  {warning.text(shown_path(job.path))}")
        for fault in errors:
            print_status(False, fault.message())
    if errors:
        raise typer.Exit(ExitCode.USAGE)


def _faults(job: LoadedJob, root: Path, project: ProjectSpec) -> tuple[SpecFault, ...]:
    """Return what is wrong with a job whose file is without fault: with its parts, this machine, or what it may touch."""
    if forbidden := faults_of(job.spec, str(root.resolve()), project.allow.lists):
        return forbidden
    try:
        check_parts(job.spec, root)
    except UsageError as error:
        return (SpecFault("", error.message()),)
    return tuple(SpecFault(place, problem) for place, problem in missing_extras(job.spec))


def _print_json(jobs: list[LoadedJob], errors: list[InvalidSpecError]) -> None:
    good = [
        {"file": shown_path(job.path), "job": job.spec.job, "faults": [], "notes": list(map(_fault_view, job.warnings))}
        for job in jobs
    ]
    bad = [
        {"file": error.file, "job": None, "faults": list(map(_fault_view, error.faults)), "notes": []}
        for error in errors
    ]
    print_json(valid=not errors, files=good + bad)


def _fault_view(fault: SpecFault) -> dict[str, object]:
    where = {"in": fault.file} if fault.file else {}
    return {"line": fault.line, "path": fault.path, "problem": fault.problem, **where}
