"""Say which step of a work unit ran out of memory, which limit it reached, and who sets that limit.

Python and Arrow raise a bare `MemoryError` for all of them. A process that the kernel kills raises nothing: see
`WorkerDiedError`.
"""

from __future__ import annotations

import os
import resource
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gobblin_dagster.core.errors import OutOfMemoryError
from gobblin_dagster.core.utils.text import first_line

_LIMITS = (
    (resource.RLIMIT_AS, 0, "`ulimit -v`, or `spark.executor.pyspark.memory` of Spark"),
    (resource.RLIMIT_DATA, 5, "`ulimit -d`"),
)
"""Limits whose excess is a MemoryError, the place in `/proc/self/statm` of what counts for each, and who sets it."""
_lowered: dict[int, str] = {}
"""Why this program itself has set a limit, by the bytes of its newest limits: other threads may run into them."""
_MOST_LOWERED = 256


class AddressSpace:
    """The limit on this process's address space that this program sets for a while; use the one of the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = resource.RLIM_INFINITY
        self._limit = 0
        """The limit that is to hold; 0 if none is."""
        self._starting = 0
        """Number of threads that start a program."""

    @property
    def outer_limit(self) -> int:
        """Bytes of the limit that others have set; RLIM_INFINITY (-1) if there is none."""
        return self._before if self._limit else resource.getrlimit(resource.RLIMIT_AS)[0]

    def lower(self, limit_bytes: int, why: str) -> None:
        """Set the limit; a further call changes it. `why` is for people."""
        _lowered[limit_bytes] = why
        while len(_lowered) > _MOST_LOWERED:
            _lowered.pop(next(iter(_lowered)), None)
        with self._lock:
            self._before, self._limit = self.outer_limit, limit_bytes
            if not self._starting:
                _set(limit_bytes)

    def restore(self) -> None:
        """Set the limit of before."""
        with self._lock:
            if self._limit:
                _set(self._before)
                self._limit = 0

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let a program that is started in the block get the limit of before: it would keep ours for its whole life.

        What this process itself takes meanwhile has no limit.
        """
        with self._lock:
            self._starting += 1
            if self._limit:
                _set(self._before)
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
                if self._limit and not self._starting:
                    _set(self._limit)

    def forget(self) -> None:
        """Restore in a forked process: other threads do not exist there."""
        self._lock, self._starting = threading.Lock(), 0
        self.restore()


def _set(limit_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


address_space = AddressSpace()


@contextmanager
def memory_of(step: str, dataset_urn: str) -> Iterator[None]:
    """Raise a MemoryError of the block as OutOfMemoryError, which names the step.

    Args:
        step: what runs, as the job file names it: `converter 'flatten'`.
        dataset_urn: the dataset whose rows it works on.
    """
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(error, step, dataset_urn) from error


def out_of_memory(error: MemoryError, step: str, dataset_urn: str = "") -> OutOfMemoryError:
    """Return the error of a step that ran out of memory, with the limit that this process has."""
    said = [first_line(error)] if str(error).strip() else []
    if frames := traceback.extract_tb(error.__traceback__):  # a function of a user's, mostly
        said.append(f"at {frames[-1].name}, {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}")
    return OutOfMemoryError(dataset_urn=dataset_urn, step=step, problem=", ".join(said), limit=limit_in_force())


def limit_in_force() -> str:
    """Return the limit on this process's memory for people, with what it uses of it and who sets it.

    Example:
        >>> limit_in_force().startswith("Its process")
        True
    """
    reached = [(limit, place, who) for kind, place, who in _LIMITS if (limit := resource.getrlimit(kind)[0]) >= 0]
    if not reached:
        all_bytes = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
        return f"Its process has no limit of its own; the machine has {_megabytes(all_bytes)}."
    limit, place, who = min(reached)
    who = _lowered.get(limit, who)
    return f"Its process may use {_megabytes(limit)}, set by {who}{_used(place)}."


def _used(place: int) -> str:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[place])
    except OSError:  # systems other than Linux
        return ""
    return f"; {_megabytes(pages * resource.getpagesize())} of it are in use"


def _megabytes(count: int) -> str:
    return f"{count >> 20:,} MB"
