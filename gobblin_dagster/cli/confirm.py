"""Asking before something is changed, and why it is changed."""

from __future__ import annotations

import sys

import typer

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode


def readable(given: str) -> str:
    """Refuse a text that no store can hold: bytes of a command line that are no UTF-8 (BadParameter)."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("it is no UTF-8 text") from error
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
