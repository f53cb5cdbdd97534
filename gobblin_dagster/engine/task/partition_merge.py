"""Merge the parts of one work unit: sums, all files, all failures; then apply the policies that see the whole unit."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import BranchView
from gobblin_dagster.core.task_state import PolicyOutcome, TaskFailure, TaskState, TaskSums, WorkingState
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.policy_checker import evaluate_policies
from gobblin_dagster.engine.task.spark_partition import Part, is_observer
from gobblin_dagster.spec.job import JobSpec

MAX_FAILURES = 5
"""Number of failures that are kept; an error in the data usually fails most parts in the same way."""


def merge_parts(
    run_context: RunContext, spec: JobSpec, task: TaskInput, parts: Sequence[Part], seconds: float
) -> TaskState:
    """Merge the states of a work unit's parts, at least one, into its TaskState; it fails if any part failed.

    Task-level policies that need not see rows are applied here, to all parts together.
    """
    unit, states = task.unit, [part.state for part in parts]
    failures = list(dict.fromkeys(failure for state in states for failure in state.failures))[:MAX_FAILURES]
    sums = TaskSums.of(states)
    merged = TaskState(
        work_unit_id=unit.id,
        dataset_urn=unit.dataset_urn,
        state=WorkingState.SUCCESSFUL,
        attempt=secrets.token_hex(6),
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.expected_high,
        rows_read=sums.rows_read,
        bytes_read=sums.bytes_read,
        rows_filtered=sums.rows_filtered,
        rows_rejected=sums.rows_rejected,
        rows_quarantined=sums.rows_quarantined,
        rows_untaken=sums.rows_untaken,
        branches=sums.branches,
        files=sums.files,
        policies=sums.policies,
        schemas=dict(pair for state in states for pair in state.schemas.items()),
        notes=sums.notes,
        seconds=round(seconds, 3),
        extract_s=round(sums.extract_s, 3),
        convert_s=round(sums.convert_s, 3),
    )
    if not failures:
        outcomes, failures = _policy_outcomes(run_context, spec, task, parts, merged)
        merged = dataclasses.replace(merged, policies=(*merged.policies, *outcomes))
    if failures:
        return dataclasses.replace(
            merged, state=WorkingState.FAILED, actual_high=unit.low, files=(), failures=tuple(failures)
        )
    return merged


def _policy_outcomes(
    run_context: RunContext, spec: JobSpec, task: TaskInput, parts: Sequence[Part], merged: TaskState
) -> tuple[list[PolicyOutcome], list[TaskFailure]]:
    schemas = dict(pair for part in parts for pair in part.schemas.items())
    outcomes: list[PolicyOutcome] = []
    failures: list[TaskFailure] = []
    for branch in spec.fork.branches:
        if branch.name not in schemas:
            continue  # the fork gave the branch no rows
        context = run_context.construct_context(spec, task.unit.dataset_urn, branch.name)
        policies = [
            (policy, registry.create(ConstructKind.TASK_POLICY, policy, context))
            for policy in spec.task_policies_of(branch)
            if not is_observer(policy)
        ]
        view = BranchView(
            branch=branch.name,
            counts=merged.branches[branch.name],
            rows_read=merged.rows_read,
            rows_expected=task.unit.rows,
            schema=schemas[branch.name],
            previous_schema=task.previous_schemas.get(branch.name),
            files=tuple(file for file in merged.files if file.branch == branch.name),
        )
        said, failure = evaluate_policies(view, policies)
        outcomes += said
        failures += [failure] if failure is not None else []
    return outcomes, failures
