"""Exceptions as data: what a failed work unit or branch says of itself."""

from __future__ import annotations

import traceback

from gobblin_dagster.core.errors import GobblinDagsterError, TransientError
from gobblin_dagster.core.task_state import TaskFailure

MAX_MESSAGE = 2000


def describe_failure(error: Exception, branch: str | None = None) -> TaskFailure:
    """Return an exception as a TaskFailure; what is none of our errors names the place where it was raised."""
    if isinstance(error, GobblinDagsterError):
        code, message = error.code, str(error)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = (
            f" (at {frames[-1].name}, {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
        )
        code, message = "unexpected", f"{type(error).__name__}: {error}{where}"
    return TaskFailure(code, message[:MAX_MESSAGE], branch, isinstance(error, TransientError))
