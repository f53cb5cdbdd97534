"""Errors of commands: `error[<code>]: <message>` on stderr and an exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from typing import TextIO

import typer

from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.log_lines import LogLine
from gobblin_dagster.core.memory import out_of_memory
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.utils.optional_packages import missing_package

_UsageError = typer.BadParameter.__base__ or typer.BadParameter
"""The error for wrong options and arguments; typer does not export the class itself."""


def fail(error: BaseException) -> int:
    """Report an error on stderr and return the exit code of the process."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("interrupted", style="yellow")
        return ExitCode.INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.FAILED
    if isinstance(error, BrokenPipeError):
        _drop_output()  # its reader has ended (`| head`), so nothing more can be printed
        return ExitCode.FAILED
    report(error)
    if isinstance(error, OSError) and _is_unwritten(sys.stdout):
        _drop_output()  # Python would fail with it once more at its end, with a text and a code of its own
    return ExitCode.USAGE if isinstance(error, _UsageError) else ExitCode.of_error(error)


def report(error: BaseException) -> None:
    """Print an error on stderr, with its stack trace if GOBBLIN_DEBUG=1.

    Nothing is said if the reader of our output has ended (`| head`): it wants no more.
    """
    if isinstance(error, BrokenPipeError) and _is_unwritten(sys.stdout):
        return
    if os.environ.get("GOBBLIN_DEBUG") == "1":
        _say(hidden("".join(traceback.format_exception(error))), end="")
    code, text = describe(error)
    _say(f"error[{code}]: ", style="red", end="")
    _say(text)


def hide_in_warnings() -> None:
    """Treat what is logged on standard error as what is printed there; texts of drivers are in it."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogLine())


def describe(error: BaseException) -> tuple[str, str]:
    """Return code and message of any error, without values of environment variables."""
    code, text = _described(error)
    return code, hidden(text)


def _described(error: BaseException) -> tuple[str, str]:
    if isinstance(error, MemoryError):
        error = out_of_memory(error, "This command")
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        error = EnvironmentFaultError(
            problem="This command gets no more threads.",
            hint="Raise its limit on processes (`ulimit -u`, `pids` of a container) or on memory (`ulimit -v`).",
        )
    known = error if isinstance(error, GobblinDagsterError) else missing_package(error)
    if known is not None:
        return known.code, str(known)
    if isinstance(error, _UsageError):
        return "usage", _usage_text(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", "The command was interrupted."
    name = type(error).__name__
    if isinstance(error, OSError) and not error.filename and _is_unwritten(sys.stdout):
        return "system", (
            f"Standard output cannot be written: {error.strerror or error}. What the command did until then stays; "
            "`gobblin state runs` shows the runs."
        )
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return "system", f"{error.strerror or error}{where} ({name})."
    return "internal", f"{name}: {error}. This is a bug; set GOBBLIN_DEBUG=1 to see where it happened."


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_unwritten(stream: TextIO) -> bool:
    """Return whether a stream holds what it could not write, or takes nothing (without a buffer, nothing is held)."""
    try:
        stream.flush()
        os.write(stream.fileno(), b"")
    except io.UnsupportedOperation:  # a stream in memory, which takes everything
        return False
    except (OSError, ValueError):
        return True
    return False


def _usage_text(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    stop = "" if message.endswith((".", "?", "!")) else "."
    if getattr(error, "option_name", "")[1:].isdecimal():
        stop += " Write `--` before a negative number, behind all options."
    return f"{message}{stop}{hint}"


def _say(text: str, *, style: str | None = None, end: str = "\n") -> None:
    """Print on stderr by the console of all commands, which knows when colours are wanted."""
    from gobblin_dagster.cli.render.console import console  # noqa: PLC0415 - `--help` needs no rich

    console(sys.stderr).print(text, style=style, end=end, soft_wrap=True)
