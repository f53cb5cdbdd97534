"""Choose the work units of a dataset that may be published, from task states alone; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gobblin_dagster.core.task_state import TaskState, WorkingState

CommitPolicyName: TypeAlias = Literal["full", "successful", "partial"]
RetryFailed: TypeAlias = Literal["always", "never", "onfull", "onpartial"]
_NO_FAULT_OF_ITS_OWN = frozenset({WorkingState.CANCELLED, WorkingState.SKIPPED})


@dataclass(frozen=True, slots=True)
class Decision:
    """The task states of one dataset: those to publish, and those that failed."""

    publish: tuple[TaskState, ...]
    failed: tuple[TaskState, ...]
    gives_up: bool = False
    """True if the ranges of the failed work units are not read again."""


def choose_publishable(policy: CommitPolicyName, states: Sequence[TaskState]) -> Decision:
    """Choose the work units to publish.

    `full` publishes all or nothing. `successful` publishes the successful units. `partial` also publishes the complete
    part of a failed unit (`TaskState.is_part`), which is still listed as failed. Cancelled and skipped units are never
    published and never count as failures. Every other unit failed, also one without a result.

    Args:
        policy: `full`, `successful` or `partial`.
        states: the states of all work units of one dataset.

    Source: gobblin-api `JobCommitPolicy` (COMMIT_ON_FULL_SUCCESS, COMMIT_SUCCESSFUL_TASKS, COMMIT_ON_PARTIAL_SUCCESS).
    Differs: applied per dataset; a part is published only up to a position that its extractor confirms, and the rest is
    a gap that is planned again alone.
    """
    succeeded = tuple(state for state in states if state.state is WorkingState.SUCCESSFUL)
    failed = tuple(
        state
        for state in states
        if state.state is not WorkingState.SUCCESSFUL and state.state not in _NO_FAULT_OF_ITS_OWN
    )
    if policy == "full" and len(succeeded) < len(states):
        return Decision(publish=(), failed=failed)
    parts = tuple(state for state in failed if state.is_part) if policy == "partial" else ()
    return Decision(publish=(*succeeded, *parts), failed=failed)


def is_retried(rule: RetryFailed, policy: str) -> bool:
    """True if the next run reads the ranges of failed work units again; the rest of the dataset was published.

    Source: gobblin-core `AbstractSource.getPreviousWorkUnitsForRetry`, `WorkUnitRetryPolicy`. Differs: a failed range
    is a gap that is planned or not; the original also lowers the watermark and so reads the range twice.
    """
    return rule == "always" or rule == {"full": "onfull", "partial": "onpartial"}.get(policy)
