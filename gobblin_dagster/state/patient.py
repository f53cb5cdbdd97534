"""Repeat calls of a state store while it cannot be reached, so that a run does not lose what it has read.

A database that restarts is away for some seconds. Calls are repeated until the database answers, or until the time of a
lease is over: until then, no other run can take our leases.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from gobblin_dagster.core.commit import CommitEffect, SequenceState, StoredSequence
from gobblin_dagster.core.errors import TransientError, UnfinishedSequenceError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.utils.cut_off import time_for_records
from gobblin_dagster.state.store import LeaseGrant, StateStore

log = logging.getLogger(__name__)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_REPEATABLE = frozenset(
    {
        "load_dataset_states",
        "load_readable_states",
        "load_sequence",
        "load_sequences",
        "misplaced",
        "load_snapshot",
        "load_history",
        "load_leases",
        "now",
        "load_startpoints",
        "list_startpoints",
        "load_startpoint_events",
        "load_runs",
        "find_runs",
        "list_jobs",
        "renew_leases",
        "leave_leases",
        "pin_startpoint",
        "fan_out_startpoint",
        "delete_startpoint",
        "commit",
        "start_abort",
        "finish_abort",
        "save_run",
        "prune_runs",
        "mark_reported",
        "prune_sequences",
    }
)
"""Methods that change nothing more if they are called a second time. A `commit` whose answer was lost is not repeated:
it raises CommitStateUnknownError, and the committer loads the sequence before it tries again."""


class _Patience:
    """Measures how long the store has been away; shared by all threads."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._away_since: float | None = None
        self._lock = threading.Lock()

    def has_answered(self) -> None:
        with self._lock:
            self._away_since = None

    def is_over(self) -> bool:
        """Record that the store is away; return whether it has been away for too long."""
        with self._lock:
            now = self._now()
            if self._away_since is None:
                self._away_since = now
                log.warning("The state store cannot be reached; trying again for %.0f s.", self._seconds)
            return now - self._away_since >= self._seconds


class _Patient:
    """A store that repeats calls of another one; its methods are made once, so a call costs one call more."""

    def __init__(self, store: StateStore, patience: _Patience, wait: Callable[[float], None]) -> None:
        self._store = store
        self._patience = patience
        self._wait = wait
        for name in _REPEATABLE:
            method = getattr(store, name)
            setattr(self, name, functools.wraps(method)(functools.partial(self._until_answered, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        """Acquire leases; after a repeated try all are inherited, as the lost answer may have said so."""
        tries = 0

        def acquire() -> LeaseGrant:
            nonlocal tries
            tries += 1
            return self._store.acquire_leases(job, urns, owner, ttl)

        grant: LeaseGrant = self._until_answered(acquire)
        return grant if tries == 1 else replace(grant, inherited=frozenset(grant.granted))

    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        """Store a sequence; if a repeated try finds it stored, the first try succeeded and its answer was lost."""
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

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        """Store a sequence as committed; a repeated try first asks whether the one before it has done that."""
        is_first = True

        def record() -> None:
            nonlocal is_first
            was_first, is_first = is_first, False
            stored = None if was_first else self._store.load_sequence(sequence.id)
            if stored is None or stored.state is not SequenceState.COMMITTED:
                self._store.record(sequence, epoch, effect)

        self._until_answered(record)

    def _until_answered(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pause = _FIRST_WAIT_S
        while True:
            try:
                result = method(*args, **kwargs)
            except TransientError:
                if time_for_records() is not None or self._patience.is_over():
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
    """Return a store that repeats calls of `store` while it cannot be reached.

    Its methods raise like those of `store`, but TransientError only when the time is over, or Ctrl-C ended the waits
    for databases. Releasing leases is tried once only: leases that are not released expire.

    Args:
        store: the store.
        seconds: how long calls are repeated without any answer. Afterwards each call fails at its first try, until the
            store has answered once.
        wait: called with the seconds to wait between two tries.
        now: a monotonic clock, in seconds.
    """
    return cast("StateStore", _Patient(store, _Patience(seconds, now), wait))
