"""Retry a work unit within the run: only after transient failures, and each time from its beginning."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterator

from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState, advance
from gobblin_dagster.spec.job import RetrySpec

_NAP_S = 0.5
"""Seconds between two looks of a waiting attempt at `is_stopped`."""


def run_with_retries(
    attempt: Callable[[], TaskState],
    retries: RetrySpec,
    is_stopped: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> TaskState:
    """Run attempts until one succeeds, fails for good, or the retries are used up; return the last one's TaskState.

    Each attempt makes a new extractor, new constructs and new staged files, so rows read before an error are neither
    lost nor doubled. Failures of earlier attempts stay visible in the notes.

    Args:
        attempt: runs the whole work unit once.
        retries: how often, and how long to wait.
        is_stopped: True after the run was asked to stop; then no attempt begins.
        sleep: waits; seconds.

    Source: gobblin-runtime `Task` and `TaskExecutor` (`task.maxretries`, `task.retry.intervalinsec`). Differs: an
    attempt shares nothing with the one before it (the original keeps the open extractor and loses the rows before the
    error); only transient failures are retried, and the type of the error decides that.
    """
    state = attempt()
    notes: list[str] = []
    for number, delay in enumerate(delays(retries), start=1):
        if not state.failures or not all(failure.transient for failure in state.failures):
            break
        if not wait(delay, is_stopped, sleep):
            break
        advance(state.state, WorkingState.RUNNING)
        notes.append(_note(number, state.failures))
        state = attempt()
    return dataclasses.replace(state, notes=(*notes, *state.notes)) if notes else state


def delays(retries: RetrySpec) -> Iterator[float]:
    """Yield the seconds to wait before each retry: doubled each time, with jitter, never more than the longest."""
    for number in range(retries.count):
        delay = min(retries.backoff_s * 2**number, retries.max_backoff_s)
        # Work units that failed together must not all retry at one moment, nor later than the longest delay.
        longest = min(delay * (1 + retries.jitter), retries.max_backoff_s)
        yield random.uniform(delay * (1 - retries.jitter), longest)  # noqa: S311 - no secret


def wait(delay: float, is_stopped: Callable[[], bool], sleep: Callable[[float], None]) -> bool:
    """Wait `delay` seconds; False if the run was asked to stop meanwhile."""
    while delay > 0:
        if is_stopped():
            return False
        sleep(min(delay, _NAP_S))
        delay -= _NAP_S
    return not is_stopped()


def _note(number: int, failures: tuple[TaskFailure, ...]) -> str:
    messages = "; ".join(failure.message for failure in failures)
    return f"attempt {number} failed and was repeated: {messages[:300]}"
