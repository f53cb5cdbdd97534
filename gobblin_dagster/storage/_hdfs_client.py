"""The HDFS client of a process, its errors as OSError, and how long it waits for the NameNode."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gobblin_dagster.core.utils.in_time import in_time
from gobblin_dagster.core.utils.optional_packages import optional_package

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader

T = TypeVar("T")

_ANSWER_S = 180.0
"""How long a question waits for its answer. hdfs-native has no such limit: a NameNode that is frozen, or only seems to
be there, would be waited for as long as it lasts. Longer than its attempts to reach one that is away, two minutes."""
_NEXT_ANSWER_S = 30.0
"""The same while the last question had no answer: other datasets and jobs of the run must get their turn."""
_QUESTIONS = frozenset({"get_file_info", "list_status", "read"})
"""Calls that change nothing: one that is given up can do no harm when it is carried out later."""
_SAFE_MODE_WAIT_S = 60.0
"""How long calls wait for the end of the NameNode's safe mode, which by default lasts 30 s after its start."""
_SAFE_MODE_PAUSE_S = 1.0
_REPORT_WAIT_S = 30
_REPORT_PAUSE_S = 0.01
_CODES = {
    "is not a file": errno.EISDIR,
    "is not a directory": errno.ENOTDIR,
    "must both be directories": errno.EEXIST,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "AccessControlException": errno.EACCES,
    "QuotaExceededException": errno.EDQUOT,
    "InvalidPathException": errno.EINVAL,
}
"""Error numbers by words of the NameNode's message, for errors that hdfs-native raises as RuntimeError; the first match
counts."""


def _os_error(error: Exception, path: str, target: str | None) -> OSError:
    """Return the OSError that a local file would raise, without the server's stack trace."""
    if isinstance(error, OSError) and error.errno is not None:  # our own
        return error if error.filename else OSError(error.errno, error.strerror, path, None, target)
    text = str(error)
    code = next((code for mark, code in _CODES.items() if mark in text), None)
    if code is None:
        by_class = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST, PermissionError: errno.EACCES}
        code = next((code for cls, code in by_class.items() if isinstance(error, cls)), None)
    words = os.strerror(code) if code else text.replace("\\n", "\n").partition("\n")[0][:300]
    return OSError(code or errno.EIO, words, path, None, target)


@contextmanager
def hdfs_errors(path: str, target: str | None = None) -> Iterator[None]:
    """Turn errors of hdfs-native into the OSErrors that a local file would raise."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise _os_error(error, path, target) from error


class PatientClient:
    """A client whose calls wait while the NameNode is in safe mode, in which each NameNode starts.

    A call that safe mode refuses has done nothing, so it is safe to repeat. Without this, a restart of the NameNode
    would end all runs that are in the middle of something: hdfs-native waits for its return, and no longer. Calls that
    change nothing wait three minutes for an answer, and no longer.

    Args:
        client: the client of hdfs-native.
        clock: returns seconds that only grow.
        sleep: waits for so many seconds.
        answer_s: how many seconds a question waits, and how many while the last one had no answer.
    """

    def __init__(
        self,
        client: object,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        answer_s: tuple[float, float] = (_ANSWER_S, _NEXT_ANSWER_S),
    ) -> None:
        self._client, self._clock, self._sleep = client, clock, sleep
        self._first = self._last = -_SAFE_MODE_WAIT_S - 1
        """When safe mode was seen first and last; all calls share the wait, as someone may have entered it to stay."""
        self._answer_s, self._is_silent = answer_s, False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if name == "list_status":
            call = partial(_with_first, call)

        def patient(*arguments: Any, **options: Any) -> Any:
            made = partial(call, *arguments, **options)
            while True:
                try:
                    return self._answer(made) if name in _QUESTIONS else made()
                except (OSError, RuntimeError) as error:
                    if "SafeModeException" not in str(error) or not self._may_wait():
                        raise
                self._sleep(_SAFE_MODE_PAUSE_S)

        return patient

    def _answer(self, question: Callable[[], T]) -> T:
        seconds, self._is_silent = self._answer_s[self._is_silent], False
        try:
            return in_time(question, seconds)
        except TimeoutError as error:
            self._is_silent = True
            raise OSError(errno.ETIMEDOUT, f"the NameNode takes calls, but gives {error}") from None

    def _may_wait(self) -> bool:
        now = self._clock()
        if now - self._last > _SAFE_MODE_WAIT_S:
            self._first = now
        self._last = now
        return now - self._first <= _SAFE_MODE_WAIT_S


def _with_first(listed: Callable[..., Iterable[T]], *arguments: Any, **options: Any) -> Iterator[T]:
    """Return what a call lists, which asks the NameNode only when the first entry is taken: here."""
    entries = iter(listed(*arguments, **options))
    return chain(list(islice(entries, 1)), entries)


@cache
def hdfs_client(authority: str, process: int) -> Client:
    """Return the connection of this process; a forked process must not use the connection of its parent.

    Raises:
        EnvironmentFaultError: hdfs-native is not installed.
    """
    with optional_package("hdfs_native"):
        from hdfs_native import Client  # noqa: PLC0415  # an optional package, imported only if a job uses it
    return cast("Client", PatientClient(Client(f"hdfs://{authority}" if authority else None)))


def open_whole(client: Client, name: str, path: str) -> FileReader:
    """Open a closed file once its last block is readable; raises OSError if that takes too long.

    A cluster may allow closing a file before a DataNode has reported its last block
    (`dfs.namenode.file.close.num-committed-allowed`). For a moment the file is shorter then, without any error.
    """
    deadline = time.monotonic() + _REPORT_WAIT_S
    while True:
        file = client.read(name)
        expected = client.get_file_info(name).length
        if len(file) >= expected:
            return file
        if time.monotonic() > deadline:
            problem = f"{len(file)} of {expected} bytes can be read; no DataNode has reported the rest"
            raise OSError(errno.EIO, problem, path)
        time.sleep(_REPORT_PAUSE_S)
