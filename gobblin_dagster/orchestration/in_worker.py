"""What the warm worker runs for Dagster: one run of a code location; see `warm.process.CommandRunner`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence

from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.launcher import _internal
from gobblin_dagster.launcher.run_launcher import PROJECT_MODULE
from gobblin_dagster.orchestration.resources import kept_runners

log = logging.getLogger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Execute the run whose order stands in standard input; the arguments only name it."""
    del arguments
    order = sys.stdin.read()
    # The definitions of `gobblin dev` are made of files, and of flows in a database, as they are when the run begins.
    sys.modules.pop(PROJECT_MODULE, None)
    try:
        _internal.execute(order)
    except BaseException as error:
        log.exception("a run was not executed")
        _internal.report_unended(order, f"The warm worker could not execute the run: {type(error).__name__}: {error}")
        return ExitCode.FAILED
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Dagster has set it to what SIGINT does
        for runner in kept_runners():
            runner.close()
    return ExitCode.SUCCEEDED


def unfit() -> str:
    """Return why no further run can use this process's Spark; empty if each can."""
    return next(filter(None, (runner.unfit() for runner in kept_runners())), "")


def end() -> None:
    """Stop Spark, without waiting for its end."""
    for runner in kept_runners():
        runner.end()
