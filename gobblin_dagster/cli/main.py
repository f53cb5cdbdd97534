"""Runs commands: finds the command, maps errors to exit codes, never shows a stack trace unless GOBBLIN_DEBUG=1.

`core.exit_codes` lists the exit codes.
"""

from __future__ import annotations

import codecs
import locale
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from gobblin_dagster import __version__
from gobblin_dagster.cli.answer import begin, print_refusal, wants_json
from gobblin_dagster.cli.context import Globals
from gobblin_dagster.cli.errors import fail, hide_in_warnings
from gobblin_dagster.cli.interrupt import waits_end_on_interrupt
from gobblin_dagster.cli.lazy import LazyCommand, app_of, lazy_group, load_lazy
from gobblin_dagster.core.exit_codes import ExitCode

COMMANDS = {
    "init": "Make a project folder that runs at once.",
    "check": "Check gobblin.yaml and all job files.",
    "convert": "Print a job file of Gobblin's as YAML.",
    "schema": "Print the JSON schema of job files, for editors.",
    "plan": "Show what a run would do; changes nothing.",
    "run": "Read what is new, check it, and publish it.",
    "state": "See and change watermarks of datasets.",
    "startpoint": "Say where the next run of a dataset begins.",
    "commit": "See commit sequences, finish unfinished ones, tell Dagster.",
    "show": "Show what is published of a dataset, and its snapshots.",
    "rollback": "Go back to an older snapshot of a dataset, data and watermark.",
    "compact": "Merge small files of a job's datasets, folder by folder.",
    "quarantine": "Count, show and replay rows that policies rejected.",
    "report": "Write one HTML page about a run: datasets, rows, times, lag.",
    "verify": "Compare published files and manifests with the state store.",
    "clean": "Delete what killed runs left, and what has expired.",
    "doctor": "Check Java, Spark, folders, state store, clock and service.",
    "serve": "Start the service, which runs flows made of templates.",
    "flow": "Create, run, watch and change flows of the service.",
    "topology": "Check and show data nodes, edges and executors of the service.",
    "worker": "See and end the worker that keeps Spark warm for `gobblin run`.",
    "dev": "Open the project in Dagster's UI.",
    "version": "Show versions of everything that matters.",
}
"""Help of each command, by name; its module in this package has the same name and is imported when it is called."""


_LAZY = {name: LazyCommand(text, app_of(name)) for name, text in COMMANDS.items()}


def load_command(name: str) -> Any:
    """Import a command by name."""
    return load_lazy(_LAZY, name)


app = typer.Typer(
    cls=lazy_group(_LAZY),
    rich_markup_mode=None,  # plain help: starts faster, and reads the same in a pipe
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: gobblin init demo --template demo && cd demo && gobblin run",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gobblin {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    ctx: typer.Context,
    project: Annotated[
        Path | None,
        typer.Option(
            "-C",
            "--project",
            metavar="DIR",
            envvar="GOBBLIN_PROJECT",
            help="Project folder; default: the current one or one above.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Apache Gobblin's ingestion: declared in files, run on Spark, seen in Dagster."""
    ctx.obj = ctx.obj or Globals()
    ctx.obj.project = project
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _use_utf8() -> None:
    """Read and write UTF-8 in pipes and files, whatever the locale: JSON and exports are UTF-8. Not on terminals.

    Python's UTF-8 mode, in which `program` begins, does not know the terminal's encoding.
    """
    of_terminal = codecs.lookup(locale.getencoding()).name
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not isinstance(stream, TextIOWrapper):
            continue
        now = codecs.lookup(stream.encoding).name
        if not stream.isatty():
            if now != "utf-8":
                stream.reconfigure(encoding="utf-8")
        elif (now, of_terminal) not in {("utf-8", "utf-8"), ("utf-8", "ascii")}:
            stream.reconfigure(encoding=of_terminal if now == "utf-8" else now, errors="backslashreplace")


def run_here(arguments: Sequence[str]) -> int:
    """Run a command in this process and return its exit code."""
    _use_utf8()
    hide_in_warnings()
    call, given = Globals(), list(arguments)
    begin()
    try:
        with waits_end_on_interrupt():
            code = app(args=given, prog_name="gobblin", standalone_mode=False, obj=call)
        if code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
    except BaseException as error:  # noqa: BLE001 - the last stop: every error becomes a message and an exit code
        return _told(error, given, call)
    code = code if isinstance(code, int) else 0
    if code and wants_json(given):
        print_refusal(None, code, call.jobs)
    return code


def told(error: BaseException, arguments: Sequence[str]) -> int:
    """Tell the error of a command that was not run, and return its exit code."""
    _use_utf8()
    begin()
    return _told(error, list(arguments), Globals())


def _told(error: BaseException, given: list[str], call: Globals) -> int:
    code = fail(error)
    if wants_json(given) and not isinstance(error, SystemExit | BrokenPipeError):
        try:
            print_refusal(error, code, call.jobs)
        except OSError as unwritten:  # a full disk, or the reader of our output has ended
            fail(unwritten)
    return code
