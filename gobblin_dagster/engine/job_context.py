"""JobContext: a job with everything that is opened for it. Planning, recovery and runs begin with one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

from gobblin_dagster.constructs.extras import require_extras
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import WAITING
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, EnvironmentFaultError, StorageError, UsageError
from gobblin_dagster.core.ids import check_run_id, new_run_id
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.in_time import in_time
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.commit.listener import CommitListener
from gobblin_dagster.engine.commit.step_distribution import StepExecutor
from gobblin_dagster.engine.commit.steps import check_permissions
from gobblin_dagster.engine.commit.steps.permissions import permissions_of
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.engine.plan.lost_output import lost_outputs
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, with_notes_of_idle
from gobblin_dagster.engine.plan.moved_in import moved_in
from gobblin_dagster.engine.plan.own_output import own_output, own_tables
from gobblin_dagster.engine.plan.planner import make_plan
from gobblin_dagster.engine.plan.targets import shared_folders, unfit_targets
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import branch_homes, load_step_types, make_publishers
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.task.runner import SessionRunner, TaskRunner
from gobblin_dagster.engine.validation import require_positions
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

CLUSTER_CORES = 8
"""Number of cores assumed for packing if the Spark master does not say how many there are."""
_PATIENCE_S = 10.0
"""Seconds that a plan without anything new waits for a remote output."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """A checked job with its source, its output storage and the state store."""

    project: Project
    job: JobSpec
    store: StateStore
    selection: Selection
    run_id: str
    started_at: datetime
    context: RunContext
    storage: Storage
    source: Source

    @classmethod
    def of(
        cls,
        project: Project,
        job: JobSpec,
        store: StateStore,
        selection: Selection | None = None,
        *,
        runner: TaskRunner | SessionRunner | None = None,
        run_id: str | None = None,
    ) -> Self:
        """Open a job.

        Args:
            project: the project.
            job: one of its jobs.
            store: the state store; the caller closes it.
            selection: the datasets to work on; default: all.
            runner: gives a Spark session to a source that plans or counts with Spark; other sources do not use it.
            run_id: default: a new one. The caller must not use an id twice; `require_new_run_id` checks that.

        Raises:
            UsageError, InvalidSpecError: the source, its options, the steps, the permissions or the run id do not fit.
            EnvironmentFaultError: a package that a part of the job needs is not installed.
        """
        if run_id is not None:
            check_run_id(run_id)
        require_extras(job)
        now = project.clock.now()
        context = project.run_context(job, run_id if run_id is not None else new_run_id(now))
        storage = project.storage(job)
        session = runner.open_session if isinstance(runner, SessionRunner) else None
        source: Source = registry.create(
            ConstructKind.SOURCE, job.source, dataclasses.replace(context.construct_context(job), spark=session)
        )
        require_positions(job, source)
        load_step_types(job)  # sequences that an earlier run stored need them too
        check_permissions(storage, context.output_root, permissions_of(job))
        return cls(project, job, store, selection or Selection(), context.run_id, now, context, storage, source)

    @property
    def output_root(self) -> str:
        """Absolute root of the job's output."""
        return self.context.output_root

    def plan(
        self,
        runner: TaskRunner | None = None,
        startpoints: Mapping[str, Startpoint] | None = None,
        *,
        is_poll: bool = False,
    ) -> JobPlan:
        """Plan a run; changes nothing.

        Args:
            runner: begins to start as soon as there is work.
            startpoints: as `make_plan` takes them.
            is_poll: whether nobody is told what was lost; then a remote output is asked only if there is something new.

        Raises as `make_plan`.
        """
        unseen: list[str] = []
        cores = (runner.cores if runner else self.project.spec.spark.local_cores) or CLUSTER_CORES
        plan = make_plan(
            self.job,
            self.source,
            self.store,
            run_id=self.run_id,
            selection=self.selection,
            clock=self.project.clock,
            packs=cores * self.job.execution.tasks_per_core,
            on_work=runner.start_early if runner else None,
            startpoints=startpoints,
            unfit=self._unfit,
            lost=partial(self._lost, unseen, is_poll),
            homes=self._homes,
            base_dir=self.context.base_dir,
        )
        return with_notes_of_idle(plan, unseen) if unseen else plan

    def _homes(self, dataset_urn: str) -> Mapping[str, Mapping[str, str]]:
        """Return what holds the rows of each branch, and where."""
        return branch_homes(self.job, self.context, make_publishers(self.job, self.context, dataset_urn))

    def _lost(
        self, unseen: list[str], is_poll: bool, datasets: Sequence[DatasetPlan], states: Mapping[str, DatasetState]
    ) -> dict[str, str]:
        """Say why datasets must not go on from their states: the output has lost what was published, or is another's.

        `unseen` takes why nobody knows, if the output cannot be asked; a run that publishes is refused then.
        """
        root, store, job = self.context.output_root, self.store, self.job.job
        is_idle_far_away = "://" in root and not any(one.is_moving for one in datasets)
        if is_poll and is_idle_far_away:  # it comes every few seconds, and the storage would have to be opened first
            return {}
        known = {one.dataset_urn: states[one.dataset_urn] for one in datasets if one.dataset_urn in states}
        problem: Exception
        try:
            look = partial(lost_outputs, self.storage, store, root, job, known)
            # HDFS's client waits minutes for a server that is away; what has nothing to publish need not.
            lost = in_time(look, _PATIENCE_S) if is_idle_far_away else look()
            urns = [one.dataset_urn for one in datasets if one.is_moving and not one.startpoints]
            return self.moved_in({urn: known[urn] for urn in urns if urn in known}) | lost
        except OSError as error:
            problem = StorageError.of(error, "look for manifests in", root)
        except EnvironmentFaultError as error:
            problem = error
        unseen.append(f"it is not known whether the output still holds what was published: {problem}")
        return {}

    def moved_in(self, known: Mapping[str, DatasetState]) -> dict[str, str]:
        """Say which datasets would go on in the place of another job; those to publish, without a startpoint."""
        if not known or self.job.extract.reads_everything:
            return {}
        is_of_flow = self.project.has_elsewhere is not None and self.job.job not in self.project.lines
        command = self.project.startpoint_command(is_of_flow=is_of_flow)
        return moved_in(self.store, known, self._homes(next(iter(known))), command, self.context.base_dir)

    def _unfit(self, datasets: Sequence[DatasetPlan]) -> dict[str, str]:
        """Say why datasets cannot be read or published."""
        urns = [dataset.dataset_urn for dataset in datasets]

        def committed() -> Iterable[str]:
            states, damaged = self.store.load_readable_states(self.job.job)
            return [*states, *damaged]

        output_root = self.context.output_root
        shared = shared_folders(self.storage, output_root, urns, committed)

        def has_committed(commit_id: str) -> bool:
            with suppress(CorruptRecordError):  # nobody knows whose it was
                stored = self.store.load_sequence(commit_id)
                return stored is not None and stored.job == self.job.job
            return False

        own = own_output(self.job, self.context, datasets, has_committed)
        unfit = shared | unfit_targets(self.job, self.context, urns) | own
        to_read = [one.dataset_urn for one in datasets if one.has_work and one.dataset_urn not in unfit]
        return unfit | own_tables(self.job, self.context, self.source, to_read, urns)

    def require_new_run_id(self) -> None:
        """Refuse a run id that the job has used before, because the second run would replace the record of the first.

        A run that had nothing to do left no trace, so its id can be used again. Two runs that begin at the same moment
        with one id are not detected: the caller that chooses the ids must not give an id twice.

        Raises:
            UsageError: the history, a lease, a commit sequence or a staging folder of the output has the id.
            StorageError: nobody can look into the output.
        """
        store, job, run_id = self.store, self.job.job, self.run_id
        if any(run.run_id == run_id for run in store.find_runs(job, [run_id])):
            trace = "the job's history holds it"
        elif any(lease.owner.run_id == run_id for lease in store.load_leases(job).values()):
            trace = "it holds datasets"
        elif any(sequence.run_id == run_id for sequence in store.load_sequences(job, WAITING)):
            trace = "it left a commit sequence"
        elif run_id in self._staged_runs():
            trace = "it left staged files"
        else:
            return
        raise UsageError(
            problem=f"Job {job!r} has run as {run_id!r} already: {trace}.",
            hint="Choose another run id, or leave it out.",
        )

    def _staged_runs(self) -> list[str]:
        folder = staging_dir(self.context.output_root)
        try:
            return self.storage.list_names(folder)
        except OSError as error:
            raise StorageError.of(error, "look for staged files in", folder) from error

    def lease_keeper(self) -> LeaseKeeper:
        """Return the keeper of the leases of datasets; use it as a context manager."""
        return self.project.lease_keeper(self.job, self.store, self.run_id)

    def committer(self, listener: CommitListener | None = None, runner: TaskRunner | None = None) -> Committer:
        """Return a committer of the job's datasets; if `runner` is a StepExecutor, it moves the files of large ones."""
        executor = runner if isinstance(runner, StepExecutor) else None
        return Committer.of(self.job.commit, self.store, self.storage, listener=listener, executor=executor)
