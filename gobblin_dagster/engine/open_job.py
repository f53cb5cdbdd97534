"""OpenJob: a job with all that is opened for it. Planning, recovery and runs begin with one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.commit.listener import CommitListener
from gobblin_dagster.engine.commit.spread import Spread, StepExecutor
from gobblin_dagster.engine.commit.steps import check_permissions
from gobblin_dagster.engine.decide import permissions_of
from gobblin_dagster.engine.lane.context import LaneContext
from gobblin_dagster.engine.lane.protocol import Lane, SessionLane
from gobblin_dagster.engine.lane.reading import require_positions
from gobblin_dagster.engine.plan import make_plan
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import load_step_types
from gobblin_dagster.engine.results import JobPlan
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

CLUSTER_CORES = 8
"""Cores assumed for packing where the master does not tell."""


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job whose parts are known to fit, with its source, its output and the state store."""

    project: Project
    job: JobSpec
    store: StateStore
    selection: Selection
    run_id: str
    started_at: datetime
    context: LaneContext
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
        lane: Lane | SessionLane | None = None,
        run_id: str | None = None,
    ) -> Self:
        """Open a job.

        Args:
            project: the project.
            job: one of its jobs.
            store: the state store; stays the caller's to close.
            selection: the datasets that count; default: all.
            lane: asked for a Spark session by a source that plans or counts with Spark, and by no other.
            run_id: default: a new one.

        Raises:
            UsageError, InvalidSpecError: the source, its options, the steps or the permissions do not fit.
        """
        now = project.clock.now()
        context = project.lane_context(job, run_id or new_run_id(now))
        storage = project.storage(job)
        session = lane.open_session if isinstance(lane, SessionLane) else None
        source: Source = registry.create(
            ConstructKind.SOURCE, job.source, dataclasses.replace(context.construct_context(job), spark=session)
        )
        require_positions(job, source)
        load_step_types(job)  # also for sequences that an earlier run stored
        check_permissions(storage, context.output_root, permissions_of(job))
        return cls(project, job, store, selection or Selection(), context.run_id, now, context, storage, source)

    def plan(self, lane: Lane | None = None, startpoints: Mapping[str, Startpoint] | None = None) -> JobPlan:
        """Plan a run, for a lane that starts as soon as there is work; changes nothing. Raises as `make_plan`."""
        cores = (lane.cores if lane else self.project.spec.spark.local_cores) or CLUSTER_CORES
        return make_plan(
            self.job,
            self.source,
            self.store,
            run_id=self.run_id,
            selection=self.selection,
            clock=self.project.clock,
            packs=cores * self.job.execution.tasks_per_core,
            on_work=lane.start_early if lane else None,
            startpoints=startpoints,
        )

    def lease_keeper(self) -> LeaseKeeper:
        """Return what holds the leases of datasets; use it as a context manager."""
        return self.project.lease_keeper(self.job, self.store, self.run_id)

    def committer(self, listener: CommitListener | None = None, lane: Lane | None = None) -> Committer:
        """Return what commits the job's datasets; a `lane` that can, moves the files of very large sequences."""
        commit = self.job.commit
        return Committer(
            self.store,
            self.storage,
            redo_limit=commit.redo_limit,
            parallelism=commit.parallelism,
            delivery=commit.delivery,
            listener=listener,
            spread=Spread(lane, commit.spark_threshold) if isinstance(lane, StepExecutor) else None,
        )
