"""Listeners of a commit: calls after its steps, and a crash on demand for demonstrations."""

from __future__ import annotations

import os
import signal
import threading
from typing import Protocol

from gobblin_dagster.core.commit import CommitSequence, CommitStep


class CommitListener(Protocol):
    """Called while a commit goes on, from several threads. Must be quick and must not raise.

    Called by `Committer`: `prepared` after the write-ahead record is durable, `step_done` after each executed step (not
    for a step that was found done), `committed` right after the commit transaction.
    """

    def prepared(self, sequence: CommitSequence) -> None:
        """The sequence is stored."""

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        """A step was executed, the `number`-th of its sequence, from 1."""

    def committed(self, sequence: CommitSequence) -> None:
        """The sequence is committed."""


class SilentListener:
    """Ignores all events; base of listeners that need only some of them."""

    def prepared(self, sequence: CommitSequence) -> None:
        """Ignore it."""

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        """Ignore it."""

    def committed(self, sequence: CommitSequence) -> None:
        """Ignore it."""


class FanOutListener:
    """Calls several listeners, in order."""

    def __init__(self, *listeners: CommitListener) -> None:
        self._listeners = listeners

    def prepared(self, sequence: CommitSequence) -> None:
        for listener in self._listeners:
            listener.prepared(sequence)

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        for listener in self._listeners:
            listener.step_done(sequence, step, number)

    def committed(self, sequence: CommitSequence) -> None:
        for listener in self._listeners:
            listener.committed(sequence)


class CrashListener(SilentListener):
    """Kills its own process with SIGKILL right after the n-th executed step of the whole run, over all datasets."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._executed = 0
        self._lock = threading.Lock()

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        with self._lock:
            self._executed += 1
            if self._executed == self._n:
                # Inside the lock, so that no other thread reports a further step before the process ends.
                os.kill(os.getpid(), signal.SIGKILL)


def crash_at(n: int) -> CommitListener:
    """Return a listener that kills this process after `n` executed commit steps (`gobblin run --crash-at commit:n`).

    Raises:
        ValueError: n is below 1.
    """
    if n < 1:
        raise ValueError(f"steps are counted from 1, got {n}")
    return CrashListener(n)
