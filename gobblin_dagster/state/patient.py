"""PatientStore: a state store that waits while the real one is away, so that what a run has read is not thrown away.

A database that is restarted is away for seconds. What is asked of it meanwhile is asked again until it answers or the
patience of the run is over; the patience is that of a lease, since nobody else can take one while the store is away.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from gobblin_dagster.core.commit import StoredSequence
from gobblin_dagster.core.errors import TransientError, UnfinishedSequenceError
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_REPEATABLE = frozenset(
    {
        "load_dataset_states",
        "load_readable_states",
        "load_sequence",
        "load_sequences",
        "load_snapshot",
        "load_history",
        "load_leases",
        "load_startpoints",
        "load_runs",
        "acquire_leases",
        "leave_leases",
        "pin_startpoint",
        "delete_startpoint",
        "commit",
        "start_abort",
        "finish_abort",
        "save_run",
        "prune_runs",
        "mark_reported",
    }
)
"""Methods that change nothing when they are done a second time. A `commit` whose answer was lost is not among what is
repeated here: it raises CommitStateUnknownError, and the committer looks before it tries again."""


class _Patience:
    """Counts the time for which the store has been away, whoever asks."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._away_since: float | None = None
        self._lock = threading.Lock()

    def has_answered(self) -> None:
        with self._lock:
            self._away_since = None

    def is_over(self) -> bool:
        """Note that the store is away; tell whether it has been for too long."""
        with self._lock:
            now = self._now()
            if self._away_since is None:
                self._away_since = now
                log.warning("The state store is away; it is asked again for %.0f s.", self._seconds)
            return now - self._away_since >= self._seconds


class _Patient:
    """Stands for a store; as attributes are looked up once, a method costs one call more."""

    def __init__(self, store: StateStore, patience: _Patience, wait: Callable[[float], None]) -> None:
        self._store = store
        self._patience = patience
        self._wait = wait
        for name in _REPEATABLE:
            method = getattr(store, name)
            setattr(self, name, functools.wraps(method)(functools.partial(self._until_answered, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        """Store a sequence; one whose answer was lost is found stored, and was stored by us."""
        is_first = True

        def prepare() -> None:
            nonlocal is_first
            was_first, is_first = is_first, False
            try:
                self._store.prepare(sequence, epoch)
            except UnfinishedSequenceError as error:
                if was_first or error.sequence_id != sequence.id:
                    raise

        self._until_answered(prepare)

    def _until_answered(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pause = _FIRST_WAIT_S
        while True:
            try:
                result = method(*args, **kwargs)
            except TransientError:
                if self._patience.is_over():
                    raise
            else:
                self._patience.has_answered()
                return result
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_WAIT_S)


def patient(
    store: StateStore,
    seconds: float,
    *,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> StateStore:
    """Return the store as one whose calls are repeated while it cannot be reached.

    Args:
        store: the store.
        seconds: for how long in one go; afterwards each call fails at its first try, until the store answers once.
        wait: called with the seconds between two tries.
        now: a clock that only goes forward.

    Raises (its methods): as those of the store; TransientError only once the time is over. Giving leases back and renewing
    them is tried once: leases that are not given back expire.
    """
    return cast("StateStore", _Patient(store, _Patience(seconds, now), wait))
