"""Apply task-level policies to the output of one branch."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.core.constructs import BranchView, TaskLevelPolicy
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.task_state import PolicyOutcome, PolicyResult, TaskFailure
from gobblin_dagster.spec.job import TaskPolicySpec


def evaluate_policies(
    view: BranchView, policies: Sequence[tuple[TaskPolicySpec, TaskLevelPolicy]]
) -> tuple[list[PolicyOutcome], TaskFailure | None]:
    """Return the outcome of each policy, and the first failure of a policy that is enforced or raised an error."""
    outcomes: list[PolicyOutcome] = []
    failure: TaskFailure | None = None
    for spec, policy in policies:
        try:
            holds, detail = policy.evaluate(view)
        except Exception as error:  # noqa: BLE001 - a policy that breaks down fails its branch and nothing else
            failure = failure or describe_failure(error, view.branch)
            continue
        name = spec.name or spec.type
        result = PolicyResult.PASSED if holds else PolicyResult.FAILED
        outcomes.append(PolicyOutcome(name, view.branch, result, spec.enforce, detail))
        if not holds and spec.enforce:
            failure = failure or TaskFailure(
                "data-quality", f"Branch {view.branch!r}, policy {name!r}: {detail}", view.branch
            )
    return outcomes, failure
