"""`python -m gobblin_dagster.demo`: add days to a demo project, or make a project with all flights of 2013."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.demo.full import write_full_demo
from gobblin_dagster.demo.project import add_day

app = typer.Typer(help="Data for the demo.", add_completion=False, no_args_is_help=True)

Target = Annotated[Path, typer.Argument(help="The project folder.")]


@app.command("add-day")
def add_day_command(target: Target) -> None:
    """Add the files of the next day."""
    files = add_day(target)
    typer.echo(f"{len(files)} files of {files[0].stem} arrived in {target / 'data'}.")


@app.command("full")
def full_command(
    target: Target,
    cache: Annotated[Path, typer.Option(help="Folder that keeps the downloaded archive.")] = Path(".work"),
) -> None:
    """Make a project folder with all flights of 2013."""
    files = write_full_demo(target, cache)
    typer.echo(f"{len(files)} files written to {target}.")


def main() -> None:
    """Run a command; our own errors are printed as one message with an exit code, without a stack trace."""
    try:
        app()
    except GobblinDagsterError as error:
        typer.echo(str(error), err=True)
        sys.exit(ExitCode.of_error(error))


if __name__ == "__main__":
    main()
