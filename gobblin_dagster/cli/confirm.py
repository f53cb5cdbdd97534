"""Ask before something is changed, and check the reason that is given."""

from __future__ import annotations

import sys

import typer

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode


def readable(given: str) -> str:
    """Raise BadParameter for a text that no store can hold: bytes of a command line that are not UTF-8."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("it is not UTF-8 text") from error
    return given.strip()


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal unless `yes`; ends the command with 1 for a no, raises UsageError if nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            problem="This changes the state, and there is no terminal to ask on.", hint="Repeat with --yes."
        )
    if not typer.confirm(question, err=True):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(ExitCode.FAILED)
