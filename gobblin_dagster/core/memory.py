"""Say which step of a work unit ran out of memory, which limit it reached, and who sets that limit.

Python and Arrow raise a bare `MemoryError` for all of them. A process that the kernel kills raises nothing: see
`WorkerDiedError`.
"""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gobblin_dagster.core.errors import OutOfMemoryError
from gobblin_dagster.core.utils.text import first_line

_LIMITS = (
    (resource.RLIMIT_AS, 0, "`ulimit -v`, or `spark.executor.pyspark.memory` of Spark"),
    (resource.RLIMIT_DATA, 5, "`ulimit -d`"),
)
"""Limits whose excess is a MemoryError, the place in `/proc/self/statm` of what counts for each, and who sets it."""
_lowered: dict[int, tuple[int, str]] = {}
"""The newest limits that this program itself has set, by their bytes: the limit before, and why."""
_MOST_LOWERED = 256
"""More than a program sets while it starts another one."""


def tell_lowered(limit_bytes: int, before_bytes: int, why: str) -> None:
    """Note that this program itself lowers the limit on the address space: other threads may run into it."""
    _lowered[limit_bytes] = before_bytes, why
    while len(_lowered) > _MOST_LOWERED:
        _lowered.pop(next(iter(_lowered)), None)


def lift_lowered(pid: int) -> None:
    """Undo the limit that a process got from this one at its start, if this program itself had set it.

    It was meant for a moment of this process, and would hold for all of that one's life.
    """
    if _lowered:  # on Linux only
        with suppress(OSError):  # it has ended
            soft, hard = resource.prlimit(pid, resource.RLIMIT_AS)
            if soft in _lowered:
                resource.prlimit(pid, resource.RLIMIT_AS, (_lowered[soft][0], hard))


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
    who = _lowered[limit][1] if limit in _lowered else who
    return f"Its process may use {_megabytes(limit)}, set by {who}{_used(place)}."


def _used(place: int) -> str:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[place])
    except OSError:  # systems other than Linux
        return ""
    return f"; {_megabytes(pages * resource.getpagesize())} of it are in use"


def _megabytes(count: int) -> str:
    return f"{count >> 20:,} MB"
