"""The executor `dagster` under contract: a daemon that is killed with the service, and runs that go on without both.

Runs are rows of a real Dagster instance; the jobs in them are notes, as in the other worlds.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from dagster._core.instance import InstanceType
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.run_coordinator import DefaultRunCoordinator
from dagster._core.storage.event_log import InMemoryEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._core.storage.runs import InMemoryRunStorage

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.orchestration.flow_runs import FlowRuns
from gobblin_dagster.service.executors.base import SpecExecutor, job_key
from gobblin_dagster.service.executors.embedded import QueuedExecutor
from gobblin_dagster.service.executors.remote_dagster import KEY_TAG
from gobblin_dagster.service.model import JobKey
from gobblin_dagster.service.store.job_rows import open_jobs
from gobblin_dagster.state import open_store
from tests.contract.executor_worlds import World

_RUN_KEY = "dagster/run_key"


class EndingLauncher(SyncInMemoryRunLauncher):
    """Ends runs when they are asked to; the world begins them."""

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        assert run is not None
        self._instance.report_run_canceling(run)
        return True


class DagsterWorld(World):
    """Orders wait in the outbox; a sensor turns them into runs."""

    queue = "dagster"
    stride = 2

    def __init__(self, url: str, folder: Path) -> None:
        self._instance = dg.DagsterInstance(  # an ephemeral one, whose runs can be ended
            instance_type=InstanceType.EPHEMERAL,
            local_artifact_storage=LocalArtifactStorage(str(folder)),
            run_storage=InMemoryRunStorage(),
            event_storage=InMemoryEventLogStorage(),
            compute_log_manager=NoOpComputeLogManager(),
            run_coordinator=DefaultRunCoordinator(),
            run_launcher=EndingLauncher(),
        )
        self._state = open_store(f"files:{folder}/state", folder)
        super().__init__(url, folder)

    def start(self) -> None:
        self._runs = FlowRuns(self.store, self.orchestrator, self._state, self._instance)

    def worker_pass(self) -> None:
        """Tick the sensor, launch what it asks for, and let all runs go to their ends."""
        with self.store.read() as transaction:
            keys = {str(key): key for key in (job_key(*one) for one in open_jobs(transaction, self.queue))}
        for request in self._runs.take_orders({f"{key.job}_job" for key in keys.values()}).requests:
            self._launch(request)
        for run in self._instance.get_runs(dg.RunsFilter(statuses=[*_GOING])):
            self._go_on(run, keys.get(run.tags[KEY_TAG]))
        self._runs.watch()

    def executor(self) -> SpecExecutor:
        return QueuedExecutor(self.queue, self.store)

    def close(self) -> None:
        super().close()
        self._state.close()
        self._instance.dispose()

    def _launch(self, request: dg.RunRequest) -> None:
        """Make a run, unless there is one of the same run key, as Dagster's daemon does."""
        tags = {**request.tags, _RUN_KEY: str(request.run_key)}
        if self._instance.get_runs(dg.RunsFilter(tags={_RUN_KEY: str(request.run_key)})):
            return
        job = dg.JobDefinition(name=str(request.job_name), graph_def=_NOTHING)
        self._instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
        self.kills.point()

    def _go_on(self, run: dg.DagsterRun, key: JobKey | None) -> None:
        if run.status is dg.DagsterRunStatus.CANCELING or key is None:
            self._instance.report_run_canceled(run)
            return
        self.begun.append(key)
        self.published.add(key)
        now = SystemClock().now()
        dataset = DatasetRunRecord(DatasetOutcome.COMMITTED, rows=7)
        self._state.save_run(RunRecord(run.run_id, key.job, now, RunStatus.SUCCEEDED, now, {"a": dataset}))
        self._instance.report_run_failed(run)  # Dagster's word on a run does not count
        self.kills.point()


_GOING = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_NOTHING = dg.GraphDefinition(name="nothing")
