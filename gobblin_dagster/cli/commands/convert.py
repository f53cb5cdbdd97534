"""`gobblin convert`: print a Gobblin job file as an equivalent YAML job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples, project_root
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.core.utils.text import visible
from gobblin_dagster.engine.validation import check_construct
from gobblin_dagster.spec.load import GOBBLIN_SUFFIXES, GobblinFiles, load_job, load_project, shown_path

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin convert jobs/orders.pull > jobs/orders.yaml", "then: rm jobs/orders.pull"))
def convert(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Gobblin's .pull, .job, .conf or .json file.")],
) -> None:
    """Print a job file of Gobblin's as YAML.

    The YAML job does the same. Settings without an equivalent are listed on stderr, with the reason. References to
    variables stay references.
    """
    if file.suffix.lower() not in GOBBLIN_SUFFIXES | {".json"}:
        known = ", ".join(sorted(GOBBLIN_SUFFIXES | {".json"}))
        raise UsageError(problem=f"{shown_path(file)} is not a job file of Gobblin's.", hint=f"Those end in {known}.")
    files = _files_of(ctx, file)
    find_modules_in(files.root.parent)
    for warning in load_job(file, check_construct, gobblin=files).warnings:
        typer.echo(visible(warning.text(shown_path(file))), err=True)
    typer.echo(files.read(file, os.environ).yaml, nl=False)


def _files_of(ctx: typer.Context, file: Path) -> GobblinFiles:
    """Return the files that the job file depends on; outside of a project, those of its own folder."""
    try:
        root = project_root(ctx)
    except UsageError:
        return GobblinFiles(file.resolve().parent)
    project = load_project(root)
    return GobblinFiles(root / project.jobs, project.classes, project.allow.lists, root)
