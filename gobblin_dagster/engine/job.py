"""One run of one job: recover, plan, run on Spark, commit, report. The way of the data, in one direction.

`run_job` does all of it. Dagster's layer calls the same four methods of `JobRun`, with the commit inside its IO manager.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import CommitSequence, CommitStep, SequenceState
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.errors import DatasetBusyError, GobblinDagsterError, GroupHeldBackError, StaleEpochError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState
from gobblin_dagster.engine.aftermath import tidy_up_after
from gobblin_dagster.engine.audit import audit_dataset
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.group import Bundle, GroupCommitter, bundles
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.commit.listener import CommitListener, FanOutListener, SilentListener
from gobblin_dagster.engine.commit.spread import Spread, StepExecutor
from gobblin_dagster.engine.commit.steps import check_permissions
from gobblin_dagster.engine.decide import (
    blocked_by,
    decide_dataset,
    hold_back,
    permissions_of,
    without_commit,
)
from gobblin_dagster.engine.ending import run_record, run_status
from gobblin_dagster.engine.foresee import with_schema_notes
from gobblin_dagster.engine.lane.context import LaneContext, LaneTask
from gobblin_dagster.engine.lane.failure import describe_failure
from gobblin_dagster.engine.lane.pack import unrun
from gobblin_dagster.engine.lane.reading import require_positions
from gobblin_dagster.engine.observer import Observer
from gobblin_dagster.engine.plan import make_plan
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import load_step_types
from gobblin_dagster.engine.results import (
    CommitPlan,
    DatasetCommit,
    DatasetResult,
    JobPlan,
    RecoveredDataset,
    RunResult,
)
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

CLUSTER_CORES = 8
"""Cores assumed for packing where the master does not tell."""


class Lane(Protocol):
    """What runs packs: Spark, or a plain loop in tests."""

    cores: int | None
    """Cores that work at once; None where it is not known."""

    def start_early(self) -> None:
        """Begin to start, without waiting: there is work. Called any number of times."""

    def run(
        self,
        lane: LaneContext,
        packs: Sequence[Sequence[LaneTask]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs and return one TaskState per work unit."""

    def close(self) -> None:
        """Release what was started."""


@runtime_checkable
class SessionLane(Protocol):
    """A lane that has a Spark session, for sources that plan and read with Spark."""

    def open_session(self) -> Any:
        """Start Spark where it is not started yet and return the session; raises EnvironmentFaultError."""


def plan_job(
    project: Project,
    job: JobSpec,
    selection: Selection | None = None,
    spark: SessionLane | None = None,
    startpoints: Mapping[str, Startpoint] | None = None,
) -> JobPlan:
    """Plan a run without running it; reads metadata only. Raises as `make_plan`.

    `spark` is asked for a session by sources that plan with Spark, and by no others. `startpoints` count instead of those
    that are stored.
    """
    with closing(project.open_store()) as store:
        return JobRun(project, job, store, lane=None, selection=selection, spark=spark).preview(startpoints)


def run_job(
    project: Project,
    job: JobSpec,
    *,
    lane: Lane,
    selection: Selection | None = None,
    observer: Observer | None = None,
    listener: CommitListener | None = None,
    stop: threading.Event | None = None,
) -> RunResult:
    """Run a job once: finish what an earlier run left, plan, run, commit.

    Faults of a dataset are in its DatasetResult; the call raises only for what concerns the whole job (SourceError,
    UsageError, the store).

    Source: gobblin-runtime `AbstractJobLauncher.launchJob`. Differs: recovery fails single datasets, never the job.
    """
    with (
        closing(project.open_store()) as store,
        JobRun(project, job, store, lane, selection, observer, listener, stop) as run,
    ):
        recovered = run.recover()
        return run.publish(run.extract(run.plan()), recovered)


class JobRun:
    """One run of one job; use as a context manager, call its methods in the order recover, plan, extract, publish."""

    def __init__(
        self,
        project: Project,
        job: JobSpec,
        store: StateStore,
        lane: Lane | None,
        selection: Selection | None = None,
        observer: Observer | None = None,
        listener: CommitListener | None = None,
        stop: threading.Event | None = None,
        run_id: str | None = None,
        spark: SessionLane | None = None,
    ) -> None:
        self.started_at: datetime = project.clock.now()
        self.run_id = run_id or new_run_id(self.started_at)
        self._project = project
        self._job = job
        self._store = store
        self._lane = lane
        self._selection = selection or Selection()
        self._observer = observer or Observer()
        self._stop = stop or threading.Event()
        self._results: dict[str, DatasetResult] = {}
        self._storage = project.storage(job)
        # Once, not for each dataset: it holds the whole job as JSON.
        self._context = LaneContext(
            job_json=job.model_dump_json(),
            run_id=self.run_id,
            base_dir=str(project.root),
            output_root=project.output_root(job),
        )
        sessions = [one.open_session for one in (lane, spark) if isinstance(one, SessionLane)]
        context = dataclasses.replace(self._context.construct_context(job), spark=sessions[0] if sessions else None)
        self._source: Source = registry.create(ConstructKind.SOURCE, job.source, context)
        require_positions(job, self._source)
        load_step_types(job)  # also for sequences that an earlier run stored
        check_permissions(self._storage, self._context.output_root, permissions_of(job))
        self._leases = LeaseKeeper(
            store, job.job, LeaseOwner.current(self.run_id), timedelta(seconds=project.spec.lease_ttl_s)
        )
        self._committer = Committer(
            store,
            self._storage,
            redo_limit=job.commit.redo_limit,
            parallelism=job.commit.parallelism,
            delivery=job.commit.delivery,
            spread=Spread(lane, job.commit.spark_threshold) if isinstance(lane, StepExecutor) else None,
            listener=FanOutListener(_Announcer(self, self._observer), *([listener] if listener else [])),
        )
        self._groups = GroupCommitter(self._committer, store, job.commit.parallelism)

    def __enter__(self) -> JobRun:
        self._leases.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases.__exit__(kind, error, trace)

    def recover(self) -> tuple[RecoveredDataset, ...]:
        """Finish or undo what earlier runs left of selected datasets; one that fails does not stop the others."""
        waiting = bundles(self._store.load_sequences(self._job.job), self._selection.matches)
        leases = self._store.load_leases(self._job.job)
        dead = [
            lease for urn, lease in leases.items() if self._selection.matches(urn) and lease.owner.is_provably_dead()
        ]
        if not waiting and not dead:
            return ()
        wanted = {urn for bundle in waiting for urn in bundle.leases}
        grant = self._leases.acquire(wanted | {lease.dataset_urn for lease in dead})
        recovered, free = [], []
        for bundle in waiting:
            if taken := sorted(bundle.leases & set(grant.busy)):
                reason = str(busy_error(grant.busy[taken[0]]))
                recovered += [RecoveredDataset(s.id, s.dataset_urn, s.state, reason=reason) for s in bundle.sequences]
            else:
                free.append(bundle)
        recovered += self._redo(free)
        tidy_up_after(
            [lease for lease in dead if lease.dataset_urn in grant.granted],
            job=self._job.job,
            store=self._store,
            storage=self._storage,
            output_root=self._context.output_root,
        )
        for dataset in recovered:
            self._observer.recovered(dataset)
        return tuple(recovered)

    def _redo(self, waiting: Sequence[Bundle]) -> list[RecoveredDataset]:
        redone = []
        leased = [[(s, self._leases.epoch(s.dataset_urn)) for s in bundle.sequences] for bundle in waiting]
        for done in self._groups.recover_all(leased):
            audit, reason = None, done.reason
            if done.outcome is SequenceState.COMMITTED:
                try:
                    audit = audit_dataset(self._job, self._source, self._store, done.dataset_urn)
                except Exception as error:  # noqa: BLE001 - it is committed, whoever can be asked for its rows now
                    reason = f"its rows could not be counted anew: {describe_failure(error).message}"
            redone.append(
                RecoveredDataset(
                    done.sequence_id,
                    done.dataset_urn,
                    done.outcome,
                    steps_found_done=done.steps_done,
                    steps_redone=done.steps_redone,
                    reason=reason,
                    audit=audit,
                )
            )
        return redone

    def plan(self, startpoints: Mapping[str, Startpoint] | None = None) -> JobPlan:
        """Plan the run; changes nothing. Raises as `make_plan`."""
        cores = (self._lane.cores if self._lane else self._project.spec.spark.local_cores) or CLUSTER_CORES
        return make_plan(
            self._job,
            self._source,
            self._store,
            run_id=self.run_id,
            selection=self._selection,
            clock=self._project.clock,
            packs=cores * self._job.execution.tasks_per_core,
            on_work=self._lane.start_early if self._lane else None,
            startpoints=startpoints,
        )

    def preview(self, startpoints: Mapping[str, Startpoint] | None = None) -> JobPlan:
        """Plan for people: with notes on schemas that change, where the source foresees them. Raises as `make_plan`."""
        return with_schema_notes(self._job, self._source, self._context, self.plan(startpoints))

    def extract(self, plan: JobPlan) -> CommitPlan:
        """Run the plan's work units and decide what is to be committed; publishes nothing."""
        busy: dict[str, Lease] = {}
        if plan.is_moving:
            plan, busy = self._lease(plan)
            self._pin(plan)
        self._forget_expired(plan)
        self._observer.planned(plan)
        blocked = self._blocked(plan, busy)
        states = [] if blocked else self._run_units(plan)
        self._observer.extracted()
        by_dataset: dict[str, list[TaskState]] = {}
        for state in states:
            by_dataset.setdefault(state.dataset_urn, []).append(state)
        moving = [dataset.dataset_urn for dataset in plan.datasets if dataset.is_moving]
        before = self._store.load_dataset_states(self._job.job, moving) if moving else {}
        decided = []
        for dataset in plan.datasets:
            urn = dataset.dataset_urn
            if urn in busy:
                error = busy_error(busy[urn])
                decided.append(DatasetCommit(without_commit(dataset, DatasetOutcome.BUSY, error.code, str(error))))
            elif blocked and dataset.has_work:
                held = GroupHeldBackError(dataset_urn=urn, because=blocked)
                decided.append(DatasetCommit(without_commit(dataset, DatasetOutcome.FAILED, held.code, str(held))))
            else:
                decided.append(
                    decide_dataset(
                        self._job,
                        dataset,
                        by_dataset.get(urn, []),
                        before.get(urn),
                        context=self._context,
                        now=self._project.clock.now(),
                        load_snapshot=self._store.load_snapshot,
                    )
                )
        decided = hold_back(self._job, decided)
        return CommitPlan(self._job.job, self.run_id, self.started_at, tuple(decided), self._stop.is_set())

    def _blocked(self, plan: JobPlan, busy: Mapping[str, Lease]) -> str:
        """Say why reading would be in vain: all datasets are one unit, and one of them can already not be published."""
        bad = [without_commit(d, DatasetOutcome.FAILED, "source", d.problem) for d in plan.datasets if d.problem]
        for urn, lease in busy.items():
            failure = TaskFailure(DatasetBusyError.code, str(busy_error(lease)))
            bad.append(DatasetResult(urn, DatasetOutcome.BUSY, failures=(failure,)))
        return blocked_by(self._job, bad)

    def publish(self, commit: CommitPlan, recovered: Sequence[RecoveredDataset] = ()) -> RunResult:
        """Commit each dataset on its own, delete the staging, and record the run."""
        for decided in commit.datasets:
            if decided.sequence is None and decided.result.outcome is not DatasetOutcome.IDLE:
                self._observer.dataset_done(decided.result)
        datasets = self._publish_datasets(commit.datasets)
        result = RunResult(
            job=commit.job,
            run_id=commit.run_id,
            status=run_status(
                datasets,
                recovered,
                interrupted=commit.interrupted,
                is_strict=self._job.commit.failed_units_fail_run,
            ),
            started_at=commit.started_at,
            ended_at=self._project.clock.now(),
            datasets=datasets,
            recovered=tuple(recovered),
        )
        self._delete_staging(datasets)
        self._record(result)
        self._observer.finished(result)
        return result

    def _publish_datasets(self, decided: Sequence[DatasetCommit]) -> tuple[DatasetResult, ...]:
        sequences = {d.sequence.dataset_urn: d.sequence for d in decided if d.sequence is not None}
        if not sequences:
            return tuple(d.result for d in decided)
        self._results = {d.result.dataset_urn: d.result for d in decided}
        free, kept_back = self._free(sequences)
        errors: dict[str, Exception | None] = {**kept_back, **self._publish_all(free, kept_back)}
        for urn, error in errors.items():
            if error is not None and not self._is_committed(sequences[urn]):
                self._results[urn] = _not_committed(self._results[urn], error)
                self._observer.dataset_done(self._results[urn])
        return tuple(self._results[d.result.dataset_urn] for d in decided)

    def _free(
        self, sequences: Mapping[str, CommitSequence]
    ) -> tuple[list[tuple[CommitSequence, int]], dict[str, GobblinDagsterError]]:
        """Return what may be published, with the epochs, and why the rest may not."""
        read_under = self._leases.epochs()
        grant = self._leases.acquire(list(sequences))
        kept_back: dict[str, GobblinDagsterError] = {urn: busy_error(lease) for urn, lease in grant.busy.items()}
        for urn, lease in grant.granted.items():
            if (ours := read_under.get(urn, lease.epoch)) != lease.epoch:
                # Whoever held it since may have deleted what we staged.
                kept_back[urn] = StaleEpochError(dataset_urn=urn, ours=ours, current=lease.epoch)
        free = [(one, grant.granted[urn].epoch) for urn, one in sequences.items() if urn not in kept_back]
        return free, kept_back

    def _publish_all(
        self, items: Sequence[tuple[CommitSequence, int]], kept_back: Mapping[str, Exception]
    ) -> dict[str, Exception | None]:
        if self._job.commit.scope == "dataset":
            return self._committer.publish_all(items)
        if kept_back:
            because = "; ".join(map(str, kept_back.values()))
            return {s.dataset_urn: GroupHeldBackError(dataset_urn=s.dataset_urn, because=because) for s, _ in items}
        return self._groups.publish_all(items)

    def _is_committed(self, sequence: CommitSequence) -> bool:
        """Look whether a publication that ended with an error became true all the same."""
        try:
            stored = self._store.load_sequence(sequence.id)
        except GobblinDagsterError:
            return False
        return stored is not None and stored.state is SequenceState.COMMITTED

    def announce(self, sequence: CommitSequence) -> None:
        """Tell the observer that a dataset is committed."""
        if sequence.dataset_urn in self._results:
            self._observer.dataset_done(self._results[sequence.dataset_urn])

    def _lease(self, plan: JobPlan) -> tuple[JobPlan, dict[str, Lease]]:
        """Take the leases of datasets with work; plan again where another run moved one before we had its lease."""
        grant = self._leases.acquire([dataset.dataset_urn for dataset in plan.datasets if dataset.is_moving])
        versions = {
            urn: state.version
            for urn, state in self._store.load_dataset_states(self._job.job, list(grant.granted)).items()
        }
        if any(
            versions.get(d.dataset_urn, 0) != d.version_read for d in plan.datasets if d.dataset_urn in grant.granted
        ):
            plan = self.plan()
        busy = dict(grant.busy)
        datasets = tuple(
            dataclasses.replace(dataset, work_units=(), startpoint=None, begin=None)
            if dataset.dataset_urn not in grant.granted
            else dataset
            for dataset in plan.datasets
        )
        return dataclasses.replace(plan, datasets=datasets), busy

    def _pin(self, plan: JobPlan) -> None:
        """Store where startpoints were resolved to, where a later run would find another position."""
        for dataset in plan.datasets:
            if dataset.startpoint is not None and dataset.startpoint.pinned is not None:
                self._store.pin_startpoint(dataset.startpoint)

    def _forget_expired(self, plan: JobPlan) -> None:
        """Delete startpoints that are not applied any more; by id, so that a newer one stays."""
        for dataset in plan.datasets:
            if dataset.expired is not None:
                self._store.delete_startpoint(dataset.expired)

    def _run_units(self, plan: JobPlan) -> list[TaskState]:
        tasks = {
            unit.id: LaneTask(unit, dataset.commit_id, dataset.previous_schemas)
            for dataset in plan.datasets
            for unit in dataset.work_units
        }
        # What holds no position is committed without a task: nobody has to look that nothing is there.
        empty = [unrun(task, WorkingState.SUCCESSFUL, None) for task in tasks.values() if task.unit.is_empty]
        for state in empty:
            del tasks[state.work_unit_id]
        packs = [[tasks[unit_id] for unit_id in pack if unit_id in tasks] for pack in plan.packs]
        packs = [pack for pack in packs if pack]
        if not packs or self._lane is None:
            return empty
        self._observer.spark_starting()
        self._lane.start_early()
        done = 0

        def on_result(state: TaskState) -> None:
            nonlocal done
            done += 1
            self._observer.task_done(state, done, len(tasks))

        return [*empty, *self._lane.run(self._context, packs, on_result, self._stop)]

    def _delete_staging(self, datasets: Sequence[DatasetResult]) -> None:
        """Delete the run's staging unless a stored sequence may still need it."""
        if any(dataset.sequence_id and dataset.outcome is not DatasetOutcome.COMMITTED for dataset in datasets):
            return
        if any(dataset.outcome is not DatasetOutcome.IDLE for dataset in datasets):
            self._storage.delete_tree(self._context.staging_root)

    def _record(self, result: RunResult) -> None:
        record = run_record(result)
        if record.datasets or result.recovered:
            self._store.save_run(record)
            self._store.prune_runs(result.job, self._project.spec.history_runs)


class _Announcer(SilentListener):
    """Passes on what a commit does to the observer."""

    def __init__(self, run: JobRun, observer: Observer) -> None:
        self._run = run
        self._observer = observer

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self._observer.step_done(sequence, step, number)

    def committed(self, sequence: CommitSequence) -> None:
        self._run.announce(sequence)


def _not_committed(planned: DatasetResult, error: Exception) -> DatasetResult:
    """Return the result of a dataset whose publication failed or was left for the next run."""
    return dataclasses.replace(
        planned,
        outcome=DatasetOutcome.FAILED,
        actual_high=planned.low,
        failures=(*planned.failures, describe_failure(error)),
    )
