"""Run one job: recover, plan, run on Spark, commit, report. Data flows in this one direction.

`run_job` does all of it. The Dagster layer calls the same four methods of `JobRun`, with the commit inside its IO
manager.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.crash_cleanup import committed_datasets
from gobblin_dagster.engine.commit.listener import CommitListener, FanOutListener, SilentListener
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.listener import FanOutRunListener, RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.plan.schema_preview import with_schema_notes
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import CommitPlan, DatasetResult, RecoveredDataset, RunResult
from gobblin_dagster.engine.run.acquire import acquire_datasets
from gobblin_dagster.engine.run.execute import execute_plan
from gobblin_dagster.engine.run.publish import publish_datasets
from gobblin_dagster.engine.run.record import run_record, run_status
from gobblin_dagster.engine.run.recovery import recover
from gobblin_dagster.engine.run.store_check import with_lost_store
from gobblin_dagster.engine.task.runner import PlacingRunner, SessionRunner, TaskRunner
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.patient import patient
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)


def plan_job(
    project: Project,
    job: JobSpec,
    selection: Selection | None = None,
    spark: SessionRunner | None = None,
    startpoints: Mapping[str, Startpoint] | None = None,
    *,
    store: StateStore | None = None,
) -> JobPlan:
    """Plan a run for people, without running it; reads metadata only.

    The plan also says which columns change, and what a run would refuse because the state store was lost. Only sources
    that plan with Spark ask `spark` for a session. `startpoints` are used as `make_plan` says. A given `store`
    stays open; default: open one and close it. Raises as `JobContext.of` and `JobContext.plan`.
    """
    with project.use_store(store) as open_store:
        opened = JobContext.of(project, job, open_store, selection, runner=spark)
        plan = with_lost_store(opened, opened.plan(startpoints=startpoints))
        return _placed(with_schema_notes(job, opened.source, opened.context, plan), job, spark)


def _placed(plan: JobPlan, job: JobSpec, runner: object) -> JobPlan:
    """Return the plan with the place where `runner` will run its work units, if that is not always the same."""
    units = [unit for dataset in plan.datasets for unit in dataset.work_units if not unit.is_empty]
    if not units or not isinstance(runner, PlacingRunner):
        return plan
    return dataclasses.replace(plan, place=runner.place(job, units))


def run_job(
    project: Project,
    job: JobSpec,
    *,
    runner: TaskRunner,
    selection: Selection | None = None,
    listeners: Sequence[RunListener] = (),
    commit_listener: CommitListener | None = None,
    stop: threading.Event | None = None,
    run_id: str | None = None,
    store: StateStore | None = None,
) -> RunResult:
    """Run a job once: finish what an earlier run left, plan, run, commit.

    Args:
        project: the project.
        job: one of its jobs.
        runner: runs the work units.
        selection: the datasets to run; default: all.
        listeners: called while the run goes on, in this order. An error that one raises is logged, and the run goes on.
        commit_listener: called between the steps of a commit. An error that it raises ends that commit, as a crash
            would.
        stop: set it to end the run early: running work units finish, and complete ones are committed.
        run_id: id of the run in the state store, in Dagster's metadata and in the staging folder; default: a new one.
        store: an open state store, which stays open; default: open one and close it.

    Raises:
        SourceError, UsageError, TransientError: the whole job cannot run; errors of one dataset are in its
            DatasetResult. UsageError also if `run_id` is no valid id, or the job has used it before.

    Source: gobblin-runtime `AbstractJobLauncher.launchJob`. Differs: recovery fails single datasets, never the job.
    """
    with project.use_store(store) as open_store:
        opened = JobContext.of(project, job, open_store, selection, runner=runner, run_id=run_id)
        if run_id is not None:
            opened.require_new_run_id()
        with JobRun(opened, runner, listeners, commit_listener, stop) as run:
            recovered = run.recover()
            return run.publish(run.extract(run.plan()), recovered)


class JobRun:
    """One run of one job; use as a context manager, call its methods in the order recover, plan, extract, publish.

    The history holds every run that has work or ends with an error: as `running` from the moment when it takes leases.
    If an error ends the run, the record says so; the record of a killed run is ended by the next run.
    """

    def __init__(
        self,
        opened: JobContext,
        runner: TaskRunner,
        listeners: Sequence[RunListener] = (),
        commit_listener: CommitListener | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        # A restart of the database must not cost the rows that were read.
        opened = dataclasses.replace(opened, store=patient(opened.store, opened.project.spec.lease_ttl_s))
        self._opened = opened
        self._runner = runner
        self._listener = FanOutRunListener(listeners)
        self._commit_listener = commit_listener or SilentListener()
        self._stop = stop or threading.Event()
        self._leases = opened.lease_keeper()
        self._is_begun = self._is_ended = False

    def __enter__(self) -> Self:
        self._leases.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._is_ended:
            self._record_error(RunStatus.FAILED if issubclass(kind, Exception) else RunStatus.INTERRUPTED)
        if self._is_ended:
            # The run came to its end, and nothing is left undone: what is raised afterwards only tells of failed
            # datasets.
            self._leases.__exit__(None, None, None)
        else:
            self._leases.__exit__(kind, error, trace)

    def recover(self) -> tuple[RecoveredDataset, ...]:
        """Finish or undo the stored sequences of selected datasets; an error of one does not stop the others."""
        self._listener.begun(self._opened.run_id, self._opened.started_at)
        recovered = recover(self._opened, self._leases, self._committer())
        for dataset in recovered:
            self._listener.recovered(dataset)
        return recovered

    def plan(self) -> JobPlan:
        """Plan the run; changes nothing. Raises as `make_plan`."""
        return self._opened.plan(self._runner)

    def extract(self, plan: JobPlan) -> CommitPlan:
        """Run the plan's work units and decide what to commit; publishes nothing."""
        opened = self._opened
        plan, busy = acquire_datasets(opened, self._leases, plan, self._runner)
        plan = _placed(plan, opened.job, self._runner)
        if plan.is_moving:
            self._is_begun = True
            opened.store.save_run(RunRecord(opened.run_id, plan.job, opened.started_at, RunStatus.RUNNING))
        self._listener.planned(plan)
        decided = execute_plan(opened, plan, busy, self._runner, self._listener, self._stop)
        return CommitPlan(plan.job, opened.run_id, opened.started_at, tuple(decided), self._stop.is_set())

    def publish(self, commit: CommitPlan, recovered: Sequence[RecoveredDataset] = ()) -> RunResult:
        """Commit each dataset on its own, delete the staging, and record the run."""
        for one in commit.datasets:
            if one.sequence is None and one.result.outcome is not DatasetOutcome.IDLE:
                self._listener.dataset_done(one.result)
        committer = self._committer({one.result.dataset_urn: one.result for one in commit.datasets})
        datasets = publish_datasets(self._opened, self._leases, committer, commit.datasets)
        for one, result in zip(commit.datasets, datasets, strict=True):
            if result is not one.result:  # what was told at the commit, if anything was, is not the end of it
                self._listener.dataset_done(result)
        return self._report(commit, datasets, tuple(recovered))

    def _report(
        self, commit: CommitPlan, datasets: tuple[DatasetResult, ...], recovered: tuple[RecoveredDataset, ...]
    ) -> RunResult:
        opened, is_strict = self._opened, self._opened.job.commit.failed_units_fail_run
        result = RunResult(
            job=commit.job,
            run_id=commit.run_id,
            status=run_status(datasets, recovered, interrupted=commit.interrupted, is_strict=is_strict),
            started_at=commit.started_at,
            ended_at=opened.project.clock.now(),
            datasets=datasets,
            recovered=recovered,
        )
        # A stored sequence may still need its staged files; if it was not stored after all, the next run deletes them.
        unended = [
            one.dataset_urn for one in datasets if one.sequence_id and one.outcome is not DatasetOutcome.COMMITTED
        ]
        self._leases.leave(unended)
        if not unended and any(one.outcome is not DatasetOutcome.IDLE for one in datasets):
            self._delete_staging()
        record = run_record(result)
        if record.datasets or recovered or self._is_begun:
            self._record(record)
        self._is_ended = True
        self._listener.finished(result)
        return result

    def _delete_staging(self) -> None:
        try:
            self._opened.storage.delete_tree(self._opened.context.staging_root)
        except OSError as error:
            # The results are final all the same, and must be reported.
            log.warning("The staging of run %s is left to `gobblin clean`: %s", self._opened.run_id, error)

    def _record_error(self, status: RunStatus) -> None:
        opened = self._opened
        now = opened.project.clock.now()
        datasets: dict[str, DatasetRunRecord] = {}
        with suppress(GobblinDagsterError):  # the store cannot be asked, which `_record` will say
            urns = self._leases.epochs()
            datasets = committed_datasets(opened.run_id, urns, job=opened.job.job, store=opened.store)
        self._record(RunRecord(opened.run_id, opened.job.job, opened.started_at, status, now, datasets))

    def _record(self, record: RunRecord) -> None:
        opened = self._opened
        try:
            opened.store.save_run(record)
            opened.store.prune_runs(record.job, opened.project.spec.history_runs)
        except GobblinDagsterError as error:
            # The results of the run, or the error that ended it, must not be hidden by this error.
            log.warning("The end of run %s could not be recorded: %s", record.run_id, error)
            self._leases.leave_all()  # the record still says that the run goes on: the next run ends it

    def _committer(self, planned: Mapping[str, DatasetResult] | None = None) -> Committer:
        announcer = _Announcer(self._listener, planned or {})
        return self._opened.committer(FanOutListener(announcer, self._commit_listener), self._runner)


class _Announcer(SilentListener):
    """Passes the events of a commit to the run's listeners."""

    def __init__(self, listener: RunListener, planned: Mapping[str, DatasetResult]) -> None:
        self._listener = listener
        self._planned = planned

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self._listener.step_done(sequence, step, number)

    def committed(self, sequence: CommitSequence) -> None:
        if sequence.dataset_urn in self._planned:
            self._listener.dataset_done(self._planned[sequence.dataset_urn])
