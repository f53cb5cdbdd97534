"""Run the work units of a plan and decide what to commit; publishes nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.lease import DamagedLease, Lease
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.engine.commit.all_or_none import blocked_by, held_back, hold_back
from gobblin_dagster.engine.commit.leases import busy_error
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
from gobblin_dagster.engine.results import DatasetCommit, DatasetResult
from gobblin_dagster.engine.run.commit_planner import plan_commit, without_commit
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import unrun
from gobblin_dagster.engine.task.runner import TaskRunner, is_in_spark


def execute_plan(
    opened: JobContext,
    plan: JobPlan,
    busy: Mapping[str, Lease],
    runner: TaskRunner,
    listener: RunListener,
    stop: threading.Event,
) -> list[DatasetCommit]:
    """Return what to commit for each dataset. `busy` gives the leases of datasets that other runs hold."""
    job, store = opened.job, opened.store
    left_out = {d.dataset_urn: _busy(d, busy[d.dataset_urn]) for d in plan.datasets if d.dataset_urn in busy}
    faulty = [without_commit(d, DatasetOutcome.FAILED, d.code, d.problem) for d in plan.datasets if d.problem]
    # If one dataset already keeps the whole job from being published, reading would be useless.
    blocked = blocked_by(job, [*faulty, *left_out.values()])
    states = [] if blocked else _run_units(plan, runner, opened.context, listener, stop)
    listener.extracted()
    by_dataset: dict[str, list[TaskState]] = {}
    for state in states:
        by_dataset.setdefault(state.dataset_urn, []).append(state)
    moving = [dataset.dataset_urn for dataset in plan.datasets if dataset.is_moving]
    before = store.load_dataset_states(job.job, moving) if moving else {}
    decided = []
    for dataset in plan.datasets:
        urn = dataset.dataset_urn
        if urn in left_out:
            decided.append(DatasetCommit(left_out[urn]))
        elif blocked and dataset.has_work:
            unread = DatasetResult(
                urn,
                DatasetOutcome.FAILED,
                low=dataset.low,
                expected_high=dataset.expected_high,
                notes=dataset.notes,
            )
            decided.append(DatasetCommit(held_back(unread, blocked)))
        else:
            decided.append(_decide(opened, dataset, by_dataset.get(urn, []), before.get(urn)))
    return hold_back(job, decided)


def _decide(
    opened: JobContext, dataset: DatasetPlan, tasks: list[TaskState], before: DatasetState | None
) -> DatasetCommit:
    try:
        return plan_commit(
            opened.job,
            dataset,
            tasks,
            before,
            context=opened.context,
            now=opened.project.clock.now(),
            load_snapshot=opened.store.load_snapshot,
            storage=opened.storage,
        )
    except CorruptRecordError as error:  # its snapshot's file list is damaged: the other datasets go on
        return DatasetCommit(without_commit(dataset, DatasetOutcome.FAILED, error.code, str(error)))


def _busy(dataset: DatasetPlan, lease: Lease) -> DatasetResult:
    error = busy_error(lease)
    outcome = DatasetOutcome.QUARANTINED if isinstance(lease, DamagedLease) else DatasetOutcome.BUSY
    return without_commit(dataset, outcome, error.code, str(error))


def _run_units(
    plan: JobPlan, runner: TaskRunner, context: RunContext, listener: RunListener, stop: threading.Event
) -> list[TaskState]:
    tasks = {
        unit.id: TaskInput(unit, dataset.commit_id, dataset.previous_schemas)
        for dataset in plan.datasets
        for unit in dataset.work_units
    }
    # A unit without rows and positions is committed without a task.
    empty = [unrun(task, WorkingState.SUCCESSFUL, None) for task in tasks.values() if task.unit.is_empty]
    for state in empty:
        del tasks[state.work_unit_id]
    packs = [[tasks[unit_id] for unit_id in pack if unit_id in tasks] for pack in plan.packs]
    packs = [pack for pack in packs if pack]
    if not packs:
        return empty
    if is_in_spark(plan.place):
        listener.spark_starting()
    else:
        listener.processes_starting()
    runner.start_early()
    done = 0

    def on_result(state: TaskState) -> None:
        nonlocal done
        done += 1
        listener.task_done(state, done, len(tasks))

    return [*empty, *runner.run(_paced(context, len(packs), runner.cores), packs, on_result, stop)]


def _paced(context: RunContext, packs: int, cores: int | None) -> RunContext:
    """Give each work unit the part of the run's rate that its pack has; packs run their units one after the other."""
    job = context.spec
    rate, limit = job.execution.rate, job.execution.limit
    # A unit of Spark's is read in as many partitions as there are cores, each with the limits of the unit.
    at_once = cores or packs if job.source.type == "spark" else min(packs, cores or packs)
    parts = {name: min(value / at_once, getattr(limit, name) or value) for name, value in rate if value is not None}
    if not parts:
        return context
    execution = job.execution.model_copy(update={"limit": limit.model_copy(update=parts)})
    return replace(context, job_json=job.model_copy(update={"execution": execution}).model_dump_json())
