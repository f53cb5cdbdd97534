"""Exceptions as data: what a failed work unit or branch says of itself."""

from __future__ import annotations

import errno
import traceback

from gobblin_dagster.core.errors import GobblinDagsterError, StorageError, TransientError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.task_state import TaskFailure
from gobblin_dagster.core.utils.optional_packages import missing_package

MAX_MESSAGE = 2000
_DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""What says the same of a disk, whoever meets it: it is full, or it can only be read."""


def refused_by_storage(error: Exception, path: str = "") -> StorageError | None:
    """Return an OSError that a disk is to blame for as a StorageError; None for other errors.

    With `path`, which counts where the error names none, every OSError is one: somebody knows that it came from a storage.
    """
    if not isinstance(error, OSError) or not (path or error.errno in _DISK_FAULTS):
        return None
    where = str(error.filename or path or "a file")
    return StorageError(operation="write to", path=where, problem=error.strerror or str(error))


def describe_failure(error: Exception, branch: str | None = None) -> TaskFailure:
    """Return an exception as a TaskFailure; what is none of our errors names the place where it was raised."""
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
