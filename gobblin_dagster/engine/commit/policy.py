"""Which work units of a dataset may be published. Decides from task states alone; touches nothing."""

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
    """What of one dataset is published, and what failed."""

    publish: tuple[TaskState, ...]
    failed: tuple[TaskState, ...]
    gives_up: bool = False
    """Whether the ranges of the failed ones are not read again."""


def choose_publishable(policy: CommitPolicyName, states: Sequence[TaskState]) -> Decision:
    """Choose the work units to publish.

    `full` publishes all or nothing; `successful` publishes what succeeded; `partial` also the part that a failed unit left
    (`TaskState.is_part`), which stays among the failed ones. Cancelled and skipped units are never
    published and never count as failures. A unit that neither ended well nor was cancelled (also one that never came
    back) failed.

    Args:
        policy: `full`, `successful` or `partial`.
        states: the states of all work units of one dataset.

    Source: gobblin-api `JobCommitPolicy` (COMMIT_ON_FULL_SUCCESS, COMMIT_SUCCESSFUL_TASKS,
    COMMIT_ON_PARTIAL_SUCCESS). Differs: judged per dataset; a part is published only up to a position that its extractor
    vouches for, and the rest is a gap that is planned again alone.
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
    """Tell whether the next run reads the ranges of failed work units again, beside what was published of their dataset.

    Source: gobblin-core `AbstractSource.getPreviousWorkUnitsForRetry`, `WorkUnitRetryPolicy`. Differs: a failed range is a
    gap that is planned or not; the original also lowers the watermark and so reads the range twice.
    """
    return rule == "always" or rule == {"full": "onfull", "partial": "onpartial"}.get(policy)
