"""The program `gobblin`: hands its command to the project's warm worker, or runs it here, and ends.

It imports what runs commands only if it runs one: a command in the worker begins without.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from gobblin_dagster.cli.ending import end_process
from gobblin_dagster.cli.warm import hand_over

COLLECTOR_THRESHOLD = 50_000
"""New objects after which Python looks for cycles; its default is 700. Importing makes many objects that stay, and
searching them took up to an eighth of the CPU time of a short command."""


def program() -> NoReturn:
    """Run the command of this process, and end the process."""
    gc.set_threshold(COLLECTOR_THRESHOLD)
    given, error = sys.argv[1:], None
    try:
        code = hand_over(given)
    except BaseException as raised:  # noqa: BLE001 - it is told as that of any command
        code, error = None, raised
    if code is None:
        from gobblin_dagster.cli.main import run_here, told  # noqa: PLC0415 - see the module's docstring

        code = run_here(given) if error is None else told(error, given)
    end_process(code)
