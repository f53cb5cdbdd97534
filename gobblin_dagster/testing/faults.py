"""Fault points: every call to a storage or a state store is counted, and one fault may strike at the k-th.

Wrap what a scenario uses with `counted_storage` and `counted_store`; run it once with no fault to learn the trace, then
once per k and action. A crash is `os._exit` in a forked child, so that no `finally` and no buffer softens it.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

from gobblin_dagster.core.errors import CommitStateUnknownError, TransientError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.state.store import StateStore

CRASHED = 137
"""Exit status of a child that a fault killed, as a shell reports SIGKILL."""

Call: TypeAlias = Callable[[], Any]
Action: TypeAlias = Callable[[str, Call], Any]
"""Takes the name of the point and the call itself; does both in whatever way, or does not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at which call, counted from 1."""

    at: int
    action: Action


class FaultPoints:
    """Counts calls, keeps their names, and lets faults strike; thread-safe.

    Args:
        faults: each strikes once; none only counts.
        watch: called before every call with its number and name, for checks at each instant.
    """

    def __init__(self, *faults: Fault, watch: Callable[[int, str], None] | None = None) -> None:
        self.trace: list[str] = []
        """Names of the calls so far, in order."""
        self._actions = {fault.at: fault.action for fault in faults}
        self._watch = watch
        self._lock = threading.Lock()

    def pass_through(self, name: str, call: Call) -> Any:
        """Count a call and do it, unless a fault strikes it."""
        with self._lock:
            self.trace.append(name)
            number = len(self.trace)
        if self._watch is not None:
            self._watch(number, name)
        action = self._actions.get(number)
        return call() if action is None else action(name, call)


class _Counted:
    """Stands for an object and counts the calls of its methods."""

    def __init__(self, inner: Any, kind: str, points: FaultPoints) -> None:
        self._inner = inner
        self._kind = kind
        self._points = points

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        @functools.wraps(value)
        def counted(*args: Any, **kwargs: Any) -> Any:
            result = self._points.pass_through(f"{self._kind}.{name}", functools.partial(value, *args, **kwargs))
            # A file being written is itself an object with fault points.
            return _Counted(result, "sink", self._points) if name == "open_new" else result

        return counted


def counted_storage(inner: Storage, points: FaultPoints, kind: str = "storage") -> Storage:
    """Return a storage whose calls, and those of its sinks, are fault points named `storage.move` and so on."""
    return cast("Storage", _Counted(inner, kind, points))


def counted_store(inner: StateStore, points: FaultPoints) -> StateStore:
    """Return a state store whose calls are fault points named `store.commit` and so on."""
    return cast("StateStore", _Counted(inner, "store", points))


# -- actions -----------------------------------------------------------------------------------------------------------
def crash_before(name: str, call: Call) -> NoReturn:
    """End the process; the call is not made."""
    os._exit(CRASHED)


def crash_after(name: str, call: Call) -> NoReturn:
    """Make the call, then end the process before its result is seen."""
    call()
    os._exit(CRASHED)


def fail_with(code: int) -> Action:
    """Return an action that fails in place of the call: OSError of that code, or TransientError of a store."""

    def fail(name: str, call: Call) -> NoReturn:
        if name.startswith("store."):
            raise TransientError(problem=f"{name} was made to fail: {os.strerror(code)}.")
        raise OSError(code, os.strerror(code), name)

    return fail


def lose_answer(name: str, call: Call) -> NoReturn:
    """Make the call, then fail as if its answer was lost: the caller cannot know that it was done."""
    call()
    if name == "store.commit":
        raise CommitStateUnknownError(dataset_urn="", sequence_id="", problem="the answer was lost")
    if name.startswith("store."):
        raise TransientError(problem=f"{name}: the answer was lost.")
    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), name)


def freeze_while(others: Callable[[], object]) -> Action:
    """Return an action that lets others run to their end before the call is made: a runner frozen for a long time."""

    def freeze(name: str, call: Call) -> Any:
        others()
        return call()

    return freeze


def run_in_child(work: Callable[[], object]) -> int:
    """Run work in a forked child and return its exit status: 0, `CRASHED` where a fault killed it, 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must end here, whatever happens; the parent sees its status
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
