"""Fault points: every call to a storage or a state store is counted, and a fault can be injected at the k-th call.

Wrap the storage and store of a scenario with `counted_storage` and `counted_store`. Run it once without a fault to
learn the trace, then once per call and action. A crash is `os._exit` in a forked child, so that no `finally` and no
buffer is handled. A halt is the same without a process: from that call on, nothing that the run tries reaches storage
or store. It is many times faster, and the only way if the storage or its client lives in this process.
"""

from __future__ import annotations

import errno
import functools
import gc
import os
import posixpath
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

from gobblin_dagster.core.errors import CommitStateUnknownError, TransientError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage.local import TEMP_PREFIX

CRASHED = 137
"""Exit status of a child that a fault killed, as a shell reports SIGKILL."""

Call: TypeAlias = Callable[[], Any]
Action: TypeAlias = Callable[[str, Call], Any]
"""Gets the name of the fault point and the call; makes the call or not, and returns or raises."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An action, and the number of the call at which it happens, from 1."""

    at: int
    action: Action
    name: str = ""
    """Only calls of this name are counted, such as `store.commit`; empty counts all."""
    calls: int = 1
    """Number of consecutive calls at which it happens, whatever their names."""


class Halted(BaseException):
    """Ends a run as if its process had ended: no error handler catches it, and no clean-up reaches storage or store."""


class FaultPoints:
    """Counts calls, records their names, and injects faults; thread-safe.

    Args:
        faults: each is injected once; if empty, calls are only counted.
        watch: called before every call with its number and name, for checks at each moment.
    """

    def __init__(self, *faults: Fault, watch: Callable[[int, str], None] | None = None) -> None:
        self.trace: list[str] = []
        """Names of the calls so far, in order."""
        self.is_struck = False
        """True if a fault was injected."""
        self._faults = {(fault.name, fault.at): fault for fault in faults}
        self._counts: Counter[str] = Counter()
        self._striking: Fault | None = None
        self._left = 0
        self._watch = watch
        self._lock = threading.Lock()
        self._is_halted = False

    def pass_through(self, name: str, call: Call) -> Any:
        """Count a call and make it, unless a fault is due; raises Halted if a fault has ended the run."""
        with self._lock:
            if self._is_halted:
                raise Halted
            self.trace.append(name)
            number = len(self.trace)
            fault = self._fault_at(number, name)
        if self._watch is not None:
            self._watch(number, name)
        try:
            return call() if fault is None else fault.action(name, call)
        except Halted:
            self._is_halted = True
            raise

    def _fault_at(self, number: int, name: str) -> Fault | None:
        self._counts[name] += 1
        begins = self._faults.get(("", number)) or self._faults.get((name, self._counts[name]))
        if begins is not None:
            self._striking, self._left, self.is_struck = begins, begins.calls, True
        if not self._left:
            return None
        self._left -= 1
        return self._striking


class _Counted:
    """Wraps an object and counts the calls of its methods."""

    def __init__(self, inner: Any, kind: str, points: FaultPoints) -> None:
        self._inner = inner
        # Set as attributes, because runtime-checkable protocols look only for attributes.
        for name in dir(inner):
            if not name.startswith("_") and callable(method := getattr(inner, name)):
                setattr(self, name, _counted(method, f"{kind}.{name}", points))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _counted(method: Callable[..., Any], name: str, points: FaultPoints) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = points.pass_through(name, functools.partial(method, *args, **kwargs))
        # A file being written is an object with fault points of its own.
        return _Counted(result, "sink", points) if name.endswith(".open_new") else result

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


def halt_before(name: str, call: Call) -> NoReturn:
    """End the run; the call is not made."""
    raise Halted


def halt_after(name: str, call: Call) -> NoReturn:
    """Make the call, then end the run before its result is seen."""
    call()
    raise Halted


_LOOKS = frozenset(
    f"{kind}.{name}"
    for kind in ("storage", "log")
    for name in (
        "size",
        "sha256",
        "read",
        "list_names",
        "walk_files",
        "real_path",
        "folds_case",
        "has_permissions",
        "sync_dir",
    )
) | {"store.list_jobs", "store.close"}
"""Calls that change no file; after a `sync_dir` only a power loss leaves others."""


def is_look(name: str) -> bool:
    """Tell whether a call changes nothing: whether a run ends before or after it makes no difference."""
    return name in _LOOKS or name.startswith("store.load_")


def kills(trace: Sequence[str]) -> Iterator[tuple[int, Action]]:
    """Yield where to kill a process so that each state of storage and store that a kill can leave is left once.

    That is before the first call and after each call that changes something: what lies on disk after a call lies there
    before the next one, and a call that only looks changes nothing.

    Args:
        trace: the calls of an undisturbed run (`FaultPoints.trace`).

    Example:
        >>> [number for number, _ in kills(["store.load_leases", "store.prepare", "storage.size", "storage.move"])]
        [1, 2, 4]
    """
    yield 1, crash_before
    for number, name in enumerate(trace, start=1):
        if not is_look(name):
            yield number, crash_after


def fail_with(code: int) -> Action:
    """Return an action that raises instead of the call: OSError with that code, or TransientError for a store."""

    def fail(name: str, call: Call) -> NoReturn:
        if name.startswith("store."):
            raise TransientError(problem=f"{name} was made to fail: {os.strerror(code)}.")
        raise OSError(code, os.strerror(code), name)

    return fail


def lose_answer(name: str, call: Call) -> NoReturn:
    """Make the call, then fail as if its answer was lost: the caller cannot know that it was done."""
    call()
    if name in ("store.commit", "store.commit_all"):
        raise CommitStateUnknownError(dataset_urn="", sequence_id="", problem="the answer was lost")
    if name.startswith("store."):
        raise TransientError(problem=f"{name}: the answer was lost.")
    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), name)


def tear(share: float, then: Action) -> Action:
    """Return an action that writes the first `share` (0-1) of the bytes of a write or put, and then does `then`."""

    def torn(name: str, call: Call) -> Any:
        if name.endswith((".write", ".put_if_absent")):
            written = cast("Any", call)
            sink, data = written.func.__self__, written.args[-1]
            part = data[: min(int(len(data) * share), len(data) - 1)]
            if name.endswith(".put_if_absent"):
                # A complete file appears at once or not at all, so only the temporary file before it can be torn.
                folder = posixpath.dirname(written.args[0])
                sink = sink.open_new(posixpath.join(folder, f"{TEMP_PREFIX}torn-{len(part)}"))
            sink.write(part)
            sink.finish()
        return then(name, call)

    return torn


def freeze_while(others: Callable[[], object]) -> Action:
    """Return an action that runs `others` to their end before the call: a runner that was frozen for a long time."""

    def freeze(name: str, call: Call) -> Any:
        others()
        return call()

    return freeze


def run_in_child(work: Callable[[], object]) -> int:
    """Run work in a forked child and return its exit status: 0, `CRASHED` if a fault killed it, 1 if it raised."""
    pid = os.fork()
    if pid == 0:
        gc.freeze()  # whose end waits for threads of the parent, such as Kafka producers, must not be taken apart here
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must end here, whatever happens; the parent sees its status
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
