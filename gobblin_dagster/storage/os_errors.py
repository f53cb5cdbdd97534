"""Errors of file systems' libraries as OSErrors, and which of them may pass."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_PASSING = ("NETWORK_CONNECTION", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "THROTTLING", "timed out")
"""Words of errors of Arrow's clients after which a retry may succeed."""


def is_passing(error: OSError) -> bool:
    """Return whether a retry may succeed after this error."""
    return isinstance(error, ConnectionError | TimeoutError) or any(mark in str(error) for mark in _PASSING)


def raise_if_passing(error: Exception) -> None:
    """Raise an error that may not come again; return if it is the file's own, so that each reader will meet it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and is_passing(error)):
        raise error


def as_os_error(error: Exception) -> OSError | None:
    """Return an error of a file system's library as an OSError; None for any other error."""
    if isinstance(error, OSError):
        return error
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    # Compare names: asyncssh may not be installed, and importing it to check another library's error would be slow.
    if "asyncssh.misc.Error" not in kinds:
        return None
    if kinds & {"asyncssh.misc.ConnectionLost", "asyncssh.sftp.SFTPConnectionLost", "asyncssh.sftp.SFTPNoConnection"}:
        return ConnectionError(errno.ECONNRESET, str(error))
    return OSError(errno.EIO, str(error))


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise errors of a file system's library as OSErrors."""
    try:
        yield
    except Exception as error:
        # Each library has its own errors; errors that are not of a file system are raised unchanged.
        known = as_os_error(error)
        if known is None or known is error:
            raise
        raise known from error
