"""In-run retries of a work unit: for transient failures only, each from the very beginning."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterator

from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState, advance
from gobblin_dagster.spec.job import RetrySpec

_NAP_S = 0.5
"""How often a waiting attempt looks whether it should stop."""


def run_with_retries(
    attempt: Callable[[], TaskState],
    retries: RetrySpec,
    is_stopped: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> TaskState:
    """Run attempts until one succeeds, fails for good, or the retries are used up; return the last one's TaskState.

    Each attempt makes its extractor, constructs and staging anew, so rows read before a fault are neither lost nor
    doubled. Failures of earlier attempts stay visible in the notes.

    Args:
        attempt: runs the work unit once, whole.
        retries: how often, and how long to wait.
        is_stopped: whether the run was told to stop; no attempt begins then.
        sleep: waits; seconds.

    Source: gobblin-runtime `Task` and `TaskExecutor` (`task.maxretries`, `task.retry.intervalinsec`). Differs: an attempt
    shares nothing with the one before it (the original keeps the open extractor and loses the rows before the fault);
    only transient failures are tried again, judged by type.
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
        # Work units that failed together must not all come back together, nor later than was said.
        longest = min(delay * (1 + retries.jitter), retries.max_backoff_s)
        yield random.uniform(delay * (1 - retries.jitter), longest)  # noqa: S311 - no secret


def wait(delay: float, is_stopped: Callable[[], bool], sleep: Callable[[float], None]) -> bool:
    """Wait some seconds; False where the run was stopped meanwhile."""
    while delay > 0:
        if is_stopped():
            return False
        sleep(min(delay, _NAP_S))
        delay -= _NAP_S
    return not is_stopped()


def _note(number: int, failures: tuple[TaskFailure, ...]) -> str:
    said = "; ".join(failure.message for failure in failures)
    return f"attempt {number} failed and was repeated: {said[:300]}"
