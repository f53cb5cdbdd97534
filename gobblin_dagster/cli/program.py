"""The program `gobblin`: hands its command to the project's warm worker, or runs it here, and ends.

It imports what runs commands only if it runs one: a command in the worker begins without. Next to nothing is imported
before Ctrl-C and SIGTERM are taken care of.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

COLLECTOR_THRESHOLD = 50_000
"""New objects after which Python looks for cycles; its default is 700. Importing makes many objects that stay, and
searching them took up to an eighth of the CPU time of a short command."""

_ENDS = (signal.SIGINT, signal.SIGTERM)


def program() -> NoReturn:
    """Run the command of this process, and end the process."""
    _use_utf8_for_names()
    gc.set_threshold(COLLECTOR_THRESHOLD)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from gobblin_dagster.cli.standard_streams import open_closed_streams  # noqa: PLC0415 - as said above

        open_closed_streams()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # not if who called us ignores it
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from gobblin_dagster.cli.import_interrupt import interrupt_between_imports  # noqa: PLC0415 - as said above

        interrupt_between_imports()
        from gobblin_dagster.core.utils.standard_error import unfailing_stderr  # noqa: PLC0415 - as said above

        sys.stderr = unfailing_stderr()
        from gobblin_dagster.constructs.sql.stuck import let_process_end  # noqa: PLC0415 - as said above

        # Plans, checks and merges evaluate SQL here; neither Ctrl-C nor SIGTERM would end a statement that is stuck.
        let_process_end()
        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:  # before the handler was set, or the second one, while the first is told
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)
        from gobblin_dagster.core.exit_codes import ExitCode  # noqa: PLC0415 - as said above

        sys.stderr.write("interrupted\n")
        code = ExitCode.INTERRUPTED
    for number in _ENDS:  # nothing is left to interrupt: one that comes now ends the process
        signal.signal(number, signal.SIG_DFL)
    from gobblin_dagster.cli.ending import end_process  # noqa: PLC0415 - as said above

    end_process(code)


def _use_utf8_for_names() -> None:
    """Begin again in Python's UTF-8 mode if the locale would have names of files in another encoding.

    A dataset's urn may be the name of a folder: it would be another one in each locale, and its data be read again.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1" or not sys.executable:
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})  # noqa: S606 - this very command


def run_command(arguments: Sequence[str]) -> int:
    """Run a command, in the project's warm worker or in this process, and return its exit code."""
    from gobblin_dagster.cli.import_interrupt import raise_interrupt_of_import  # noqa: PLC0415 - as said above
    from gobblin_dagster.cli.warm import hand_over  # noqa: PLC0415 - as said above

    try:
        code, error = hand_over(arguments), None
    except BaseException as raised:  # noqa: BLE001 - it is told as that of any command
        code, error = None, raised
    if code is not None:
        return code
    from gobblin_dagster.cli.main import run_here, told  # noqa: PLC0415 - as said above

    try:
        raise_interrupt_of_import()
    except KeyboardInterrupt as raised:
        error = raised
    return run_here(arguments) if error is None else told(error, arguments)
