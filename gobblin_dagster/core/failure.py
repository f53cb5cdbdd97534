"""Turn exceptions into data (`TaskFailure`), for the result of a failed work unit or branch."""

from __future__ import annotations

import errno
import traceback

from gobblin_dagster.core.errors import GobblinDagsterError, StorageError, TransientError
from gobblin_dagster.core.memory import out_of_memory
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.task_state import TaskFailure
from gobblin_dagster.core.utils.optional_packages import missing_package

MAX_MESSAGE = 2000
"""Characters of a message that are kept."""
_DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Errors that always come from a disk: it is full, over its quota, or read-only."""


def refused_by_storage(error: Exception, path: str = "") -> StorageError | None:
    """Return a StorageError for an OSError that came from a disk; None for other errors.

    Args:
        error: any exception.
        path: pass it if the error is known to come from a storage: every OSError counts then. The message names this
            path if the error names no file.
    """
    if not isinstance(error, OSError) or not (path or error.errno in _DISK_FAULTS):
        return None
    return StorageError.of(error, "write to", path or "a file")


def describe_failure(error: Exception, branch: str | None = None) -> TaskFailure:
    """Return an exception as a TaskFailure.

    An exception that is not a GobblinDagsterError gets the code `unexpected`, and its message names function, file and
    line.
    """
    if isinstance(error, MemoryError):
        error = out_of_memory(error, "A step of the run")
    error = missing_package(error) or refused_by_storage(error) or error
    if isinstance(error, GobblinDagsterError):
        code, message = error.code, str(error)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = (
            f" (at {frames[-1].name}, {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
        )
        code, message = "unexpected", f"{type(error).__name__}: {error}{where}"
    return TaskFailure(code, hidden(message)[:MAX_MESSAGE], branch, isinstance(error, TransientError))
