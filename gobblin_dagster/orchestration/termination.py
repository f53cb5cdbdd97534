"""Runs that Dagster terminates end also while a library in C waits for a database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from gobblin_dagster.core.utils.signals import Signals


@contextmanager
def waits_end_on_termination() -> Iterator[None]:
    """Raise DagsterExecutionInterruptedError also while a library waits; for the body of an op or of an IO manager.

    Dagster's handlers of SIGINT and SIGTERM raise it there, in the main thread; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with Signals(lambda _: True, dg.DagsterExecutionInterruptedError):
            yield
    except KeyboardInterrupt:  # of Spark's handler, or in place of what DuckDB dropped
        raise dg.DagsterExecutionInterruptedError from None
