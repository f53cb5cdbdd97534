"""The parts of one work unit, made one: sums, all files, all failures; then the policies that judge the whole."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import BranchView
from gobblin_dagster.core.task_state import BranchCounts, PolicyOutcome, TaskFailure, TaskState, WorkingState, added
from gobblin_dagster.engine.lane.context import LaneContext, LaneTask
from gobblin_dagster.engine.lane.frame import Part, is_observer
from gobblin_dagster.engine.lane.judge import judge
from gobblin_dagster.spec.job import JobSpec

MAX_FAILURES = 5
"""Failures of parts that are kept; a fault in the data meets most of them in the same way."""


def merge_parts(lane: LaneContext, spec: JobSpec, task: LaneTask, parts: Sequence[Part], seconds: float) -> TaskState:
    """Return what came of a work unit from what came of its parts, at least one; one part that failed fails it.

    Task-level policies that need not see rows are judged here, over all parts together.
    """
    unit, states = task.unit, [part.state for part in parts]
    failures = list(dict.fromkeys(failure for state in states for failure in state.failures))[:MAX_FAILURES]
    merged = TaskState(
        work_unit_id=unit.id,
        dataset_urn=unit.dataset_urn,
        state=WorkingState.SUCCESSFUL,
        attempt=secrets.token_hex(6),
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.expected_high,
        rows_read=sum(state.rows_read for state in states),
        bytes_read=sum(state.bytes_read for state in states),
        rows_filtered=sum(state.rows_filtered for state in states),
        rows_rejected=added(state.rows_rejected for state in states),
        rows_quarantined=sum(state.rows_quarantined for state in states),
        rows_untaken=sum(state.rows_untaken for state in states),
        branches=_branches(states),
        files=tuple(file for state in states for file in state.files),
        policies=tuple(outcome for state in states for outcome in state.policies),
        schemas=dict(pair for state in states for pair in state.schemas.items()),
        notes=tuple(dict.fromkeys(note for state in states for note in state.notes)),
        seconds=round(seconds, 3),
    )
    if not failures:
        outcomes, failures = _judged(lane, spec, task, parts, merged)
        merged = dataclasses.replace(merged, policies=(*merged.policies, *outcomes))
    if failures:
        return dataclasses.replace(
            merged, state=WorkingState.FAILED, actual_high=unit.low, files=(), failures=tuple(failures)
        )
    return merged


def _judged(
    lane: LaneContext, spec: JobSpec, task: LaneTask, parts: Sequence[Part], merged: TaskState
) -> tuple[list[PolicyOutcome], list[TaskFailure]]:
    schemas = dict(pair for part in parts for pair in part.schemas.items())
    outcomes: list[PolicyOutcome] = []
    failures: list[TaskFailure] = []
    for branch in spec.fork.branches:
        if branch.name not in schemas:
            continue  # the fork left it out
        context = lane.construct_context(spec, task.unit.dataset_urn, branch.name)
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
        said, failure = judge(view, policies)
        outcomes += said
        failures += [failure] if failure is not None else []
    return outcomes, failures


def _branches(states: Sequence[TaskState]) -> dict[str, BranchCounts]:
    names = dict.fromkeys(name for state in states for name in state.branches)
    fields = [field.name for field in dataclasses.fields(BranchCounts)]
    return {
        name: BranchCounts(
            **{field: sum(getattr(s.branches[name], field) for s in states if name in s.branches) for field in fields}
        )
        for name in names
    }
