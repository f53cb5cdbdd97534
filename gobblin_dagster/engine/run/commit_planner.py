"""Plan the commit of one dataset from its task states: a result for people and a commit sequence for the store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from gobblin_dagster.core.commit import CommitSequence, PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import GobblinDagsterError, UsageError, WatermarkMovedError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import QueueStats, TaskFailure, TaskState, TaskSums
from gobblin_dagster.engine.commit.branch_publishers import (
    Publishers,
    deletes_missing,
    needs_all_units,
    reads_current,
    replaces_all,
)
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.policy import Decision, choose_publishable, is_retried
from gobblin_dagster.engine.commit.steps import plan_own_steps
from gobblin_dagster.engine.commit.steps.permissions import permissions_of
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.plan.startpoints import begin_at
from gobblin_dagster.engine.publishers import branch_homes, branch_writers, dataset_folders, make_publishers
from gobblin_dagster.engine.results import DatasetCommit, DatasetResult
from gobblin_dagster.engine.run.agreement import require_agreement
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec

LoadSnapshot: TypeAlias = Callable[[str, str, int | None], Sequence[PublishedFile]]
"""Takes job, dataset.urn and snapshot number, and returns the snapshot's files: `StateStore.load_snapshot`."""


def plan_commit(
    job: JobSpec,
    plan: DatasetPlan,
    states: Sequence[TaskState],
    before: DatasetState | None,
    *,
    context: RunContext,
    now: datetime,
    load_snapshot: LoadSnapshot,
    storage: Storage,
) -> DatasetCommit:
    """Choose by the commit policy what is published of a dataset; its errors are in the result.

    Changes nothing that readers see; publishers that write published files again stage these on `storage`.
    `load_snapshot` is called only if a publisher must know the current files of its branch.
    """
    if plan.quarantined:
        return DatasetCommit(without_commit(plan, DatasetOutcome.QUARANTINED, plan.code, plan.problem))
    if plan.problem:
        return DatasetCommit(without_commit(plan, DatasetOutcome.FAILED, plan.code, plan.problem))
    if not states:
        return _unread(job, plan, before, context, now)
    # If all units are only noted as read, there is no new data, and a publisher that replaces would leave readers
    # nothing.
    is_noted = all(unit.is_noted for unit in plan.work_units)
    publishers = {} if is_noted else make_publishers(job, context, plan.dataset_urn)
    # A part of a snapshot must not replace a whole one.
    is_whole = needs_all_units(publishers.values()) or bool(plan.replaces)
    policy = "full" if is_whole else job.commit.policy
    is_again = is_retried(job.execution.retry_failed, job.commit.policy)
    chosen = choose_publishable(policy, states)
    # Results come in the order of packs; of two rows with one key, the one that the source put last counts.
    place = {unit.id: number for number, unit in enumerate(plan.work_units)}
    in_order = sorted(chosen.publish, key=lambda state: place.get(state.work_unit_id, len(place)))
    decision = dataclasses.replace(chosen, publish=tuple(in_order), gives_up=not is_again)
    summed = _sum(plan, states, decision)
    if not decision.publish:
        outcome = DatasetOutcome.FAILED if decision.failed else DatasetOutcome.CANCELLED
        return DatasetCommit(dataclasses.replace(summed, outcome=outcome, actual_high=plan.low))
    try:
        found = before.version if before else 0
        if found != plan.version_read:
            # Another run took our lease while Spark worked, so the state that we read from is outdated.
            raise WatermarkMovedError(dataset_urn=plan.dataset_urn, expected=plan.version_read, found=found)
        if plan.begin is not None:
            before = begin_at(before, job.job, plan.dataset_urn, plan.begin, now, plan.startpoints)
        if is_whole:
            _require_whole_units(plan, decision)
        require_agreement(job, decision.publish, context)
        # The commit demands this version, so the files are those of the state that it replaces.
        is_renewed = job.extract.reads_everything and replaces_all(publishers.values())
        is_read = is_renewed or reads_current(publishers.values())
        current = load_snapshot(job.job, plan.dataset_urn, before.snapshot) if before and is_read else []
        folders = dataset_folders(job, plan.dataset_urn)
        new_writer = branch_writers(job, context, storage, plan.dataset_urn, plan.commit_id)
        homes = branch_homes(job, context, publishers)
        # What earlier extracts rejected is read and rejected again: a replay would publish it more than once.
        rejected = [file.path for file in current if is_renewed and file.branch == QUARANTINE_BRANCH]
        publishing = Publishers(publishers, current, (*plan.replaces, *rejected), folders, new_writer, homes)
        return _publication(job, plan, decision, before, summed, context, now, publishing)
    except GobblinDagsterError as error:
        failures = (*summed.failures, describe_failure(error))
        failed = dataclasses.replace(summed, outcome=DatasetOutcome.FAILED, actual_high=plan.low, failures=failures)
        return DatasetCommit(failed)


def _require_whole_units(plan: DatasetPlan, decision: Decision) -> None:
    for unit in decision.publish:
        if unit.actual_high != unit.expected_high:
            raise UsageError(
                problem=f"Dataset {plan.dataset_urn!r}: work unit {unit.work_unit_id} ended at {unit.actual_high}, "
                f"before its expected {unit.expected_high}, and its publisher would replace all published data by a "
                "part of it.",
                hint="Take the limit away, or publish with `append`.",
            )


def without_commit(plan: DatasetPlan, outcome: DatasetOutcome, code: str, message: str) -> DatasetResult:
    """Return the result of a dataset that is not committed."""
    return DatasetResult(
        dataset_urn=plan.dataset_urn,
        outcome=outcome,
        low=plan.low,
        expected_high=plan.expected_high,
        actual_high=plan.low,
        failures=(TaskFailure(code, message),),
        notes=plan.notes,
    )


def _publication(
    job: JobSpec,
    plan: DatasetPlan,
    decision: Decision,
    before: DatasetState | None,
    summed: DatasetResult,
    context: RunContext,
    now: datetime,
    publishers: Publishers,
) -> DatasetCommit:
    sequence = build_sequence(
        commit_id=plan.commit_id,
        job=job.job,
        run_id=context.run_id,
        dataset_urn=plan.dataset_urn,
        before=before,
        decision=decision,
        planned_low=plan.low,
        output_root=context.output_root,
        staging_dirs=(context.staging_dir(plan.commit_id),),
        now=now,
        permissions=permissions_of(job),
        extract=job.to_extract(),
        publishers=publishers,
        origin=plan.origin,
        inferred=plan.inferred,
    )
    sequence = dataclasses.replace(sequence, steps=(*sequence.steps, *plan_own_steps(job.commit.steps, sequence)))
    left_out = summed.rows_quarantined if deletes_missing(publishers.by_branch.values()) else 0
    notes = [f"{left_out:,} row(s) were put into the quarantine, so no missing row was deleted."] if left_out else []
    gone = decision.failed if decision.gives_up else ()
    given_up = (f"gave up [{s.actual_high}, {s.expected_high}): it is not read again." for s in gone)
    return _commit(plan, dataclasses.replace(summed, notes=(*summed.notes, *notes, *given_up)), sequence)


def _unread(
    job: JobSpec, plan: DatasetPlan, before: DatasetState | None, context: RunContext, now: datetime
) -> DatasetCommit:
    """Return no commit, or the commit of a startpoint with no data after it: it was applied, so it is consumed."""
    if plan.begin is None or plan.has_work:
        idle = DatasetResult(
            plan.dataset_urn, DatasetOutcome.IDLE, low=plan.low, actual_high=plan.low, notes=plan.notes
        )
        return DatasetCommit(idle)
    begun = begin_at(before, job.job, plan.dataset_urn, plan.begin, now, plan.startpoints)
    after = dataclasses.replace(
        begun,
        version=plan.version_read + 1,
        run_id=context.run_id,
        updated_at=now if before is None else before.later(now),
        origin={**begun.origin, **plan.origin},
    )
    sequence = CommitSequence.to(after, commit_id=plan.commit_id, output_root=context.output_root)
    result = DatasetResult(plan.dataset_urn, DatasetOutcome.COMMITTED, low=begun.watermark, notes=plan.notes)
    return _commit(plan, result, sequence)


def _commit(plan: DatasetPlan, result: DatasetResult, sequence: CommitSequence) -> DatasetCommit:
    """Store the result in the sequence; consume the startpoints of the plan, which the history then shows."""
    result = dataclasses.replace(result.committed_by(sequence), startpoint=plan.startpoint)
    sequence = dataclasses.replace(sequence, report=result.to_report())
    if plan.startpoints:
        after = dataclasses.replace(sequence.after, applied_startpoints=plan.applied_startpoints)
        sequence = dataclasses.replace(sequence, after=after, startpoints=tuple(one.id for one in plan.startpoints))
    return DatasetCommit(result, sequence)


def _cut_note(published: Sequence[TaskState]) -> tuple[str, ...]:
    cut = [state for state in published if not state.is_part and state.actual_high != state.expected_high]
    return (f"{len(cut)} work unit(s) ended at their limit; the next run goes on from there.",) if cut else ()


def _queues(states: Sequence[TaskState]) -> dict[str, QueueStats]:
    """Sum the use of the branches' queues, including work units that are not published, because they took time too."""
    used: dict[str, QueueStats] = {}
    for state in states:
        for branch, queue in state.queues.items():
            used[branch] = used[branch].plus(queue) if branch in used else queue
    return used


def _sum(plan: DatasetPlan, states: Sequence[TaskState], decision: Decision) -> DatasetResult:
    """Sum the counts of the published work units, and list the policies and failures of all work units."""
    sums, everything = TaskSums.of(decision.publish), TaskSums.of(states)
    return DatasetResult(
        dataset_urn=plan.dataset_urn,
        outcome=DatasetOutcome.FAILED,
        low=plan.low,
        expected_high=plan.expected_high,
        rows_read=sums.rows_read,
        rows_filtered=sums.rows_filtered,
        rows_untaken=sums.rows_untaken,
        rows_by_branch=sums.rows_written,
        rejected=sums.rows_rejected,
        rows_quarantined=sums.rows_quarantined,
        files=len(sums.files),
        bytes_written=sum(file.size_bytes for file in sums.files),
        policies=everything.policies,
        failures=tuple(failure for state in decision.failed for failure in state.failures),
        failed_ranges=tuple(f"[{state.actual_high}, {state.expected_high})" for state in decision.failed),
        notes=(*plan.notes, *_cut_note(decision.publish), *everything.notes),
        seconds=round(everything.seconds, 3),
        queues=_queues(states),
    )
