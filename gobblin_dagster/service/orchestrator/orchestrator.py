"""Orchestrator: compiles executions that were accepted, gives their jobs to executors, and takes in what these report.

All it knows is in the store: each method is one transaction, and a new process goes on where the last one was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from gobblin_dagster.core.errors import (
    FlowChangedError,
    FlowCompileError,
    FlowNotFoundError,
    StorageError,
    TransientError,
)
from gobblin_dagster.core.utils.text import count, storable
from gobblin_dagster.database.engine import refuses_values
from gobblin_dagster.service.catalog.flow_config import Concurrency, FlowSettings
from gobblin_dagster.service.compiler.routed_flow import is_routed, read_routed_flow
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import (
    Change,
    Dag,
    DagJob,
    ExecutionId,
    ExecutionStatus,
    FlowConfig,
    FlowId,
    FlowSpec,
    JobReport,
    Trigger,
)
from gobblin_dagster.service.orchestrator.dag import (
    WAITING,
    FlowProgress,
    JobEvent,
    JobProgress,
    Start,
    Step,
    Stop,
    begin,
    flow_status,
    give_up_start,
    is_over,
    kill,
    kill_job,
    move,
    on_event,
    resume,
)
from gobblin_dagster.service.orchestrator.quotas import Quotas
from gobblin_dagster.service.store.execution_rows import (
    Event,
    Execution,
    JobExecution,
    Order,
    add_event,
    add_events,
    add_executions,
    add_jobs,
    add_orders,
    first_accepted,
    first_in_the_way,
    last_with_jobs,
    load_execution,
    load_job,
    load_jobs,
    open_jobs,
    overdue_executions,
    overdue_jobs,
    update_execution,
    update_job,
)
from gobblin_dagster.service.store.flow_rows import is_last_run, load_flow, load_version, save_flow
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes
from gobblin_dagster.service.topology.graph import FlowGraph

log = logging.getLogger(__name__)

SERVICE = "service"
"""The name under which the service itself changes flows."""

Note = Callable[[Transaction], None]
"""Leaves a row of the audit trail in the transaction of a change."""


def _no_note(_: Transaction) -> None:
    """Leave none."""


class Orchestrator:
    """Runs executions.

    Args:
        store: the service's store.
        compile_flow: as `FlowCompiler.compile`.
        per_group: executions of one flow group that run side by side; None: as many as there are.
        per_user: executions of one user that run side by side.
        per_owner: executions of flows of one owning group that run side by side.

    Source: gobblin-service `Orchestrator`, `DagManager`, `DagProcessingEngine`. Differs: there is no state in memory.
    """

    def __init__(
        self,
        store: ServiceStore,
        compile_flow: Callable[..., Dag],
        per_group: int | None = None,
        per_user: int | None = None,
        per_owner: int | None = None,
    ) -> None:
        self._store = store
        self._quotas = Quotas(per_group, per_user, per_owner)
        self._compile = compile_flow
        self._topologies = 0
        """How often the topology has changed."""
        self._without_way: dict[ExecutionId, int] = {}
        """Executions that wait for a way, and the number of the topology that has none for them."""

    def accept(
        self, transaction: Transaction, wanted: Sequence[tuple[FlowSpec, int]], trigger: Trigger, now: datetime
    ) -> int:
        """Store executions, to be compiled and started by `start_accepted`.

        Args:
            transaction: open for writing.
            wanted: flows, each in the version that will run, with the execution's id in epoch ms.
            trigger: why they run.
            now: the store's instant.

        Returns:
            How many were stored; the others were there already.
        """
        new = [
            Execution(
                ExecutionId(spec.id, number),
                spec.version,
                trigger,
                ExecutionStatus.PENDING,
                now,
                user=spec.user,
                owner=spec.config.owning_group or "",
            )
            for spec, number in wanted
        ]
        added = add_executions(transaction, new)
        told = f"asked for: {trigger}"
        add_events(transaction, [Event(one.id, now, ExecutionStatus.PENDING, message=told) for one in added])
        return len(added)

    def require_room(self, transaction: Transaction, spec: FlowSpec) -> None:
        """Raise QuotaExceededError if another execution of a flow would have to wait for others, of other flows too."""
        self._quotas.require_room(transaction, spec)

    def start_accepted(self, limit: int = 100) -> int:
        """Compile and start executions that were accepted; return how many of them left the queue.

        A flow that does not compile any more ends as FAILED, with the reasons as its message; the others go on.
        """
        started = 0
        waits: set[FlowId] = set()
        """Flows whose first execution must wait; so must those after it."""
        while started < limit:
            with self._store.read() as transaction:
                topology = self._topologies
                full = self._quotas.full(transaction)
                first = [
                    one
                    for one in first_accepted(transaction, 10_000, *full)
                    if one.flow not in waits and self._without_way.get(one) != topology
                ]
            if not first:
                break
            for execution_id in first[: limit - started]:
                with about(execution_id):
                    is_started = self._start_one(execution_id)
                if is_started:
                    started += 1
                else:
                    waits.add(execution_id.flow)
        return started

    def topology_changed(self, old: FlowGraph, new: FlowGraph) -> None:
        """Let `start_accepted` look for ways again, for the executions that wait for one and for no others."""
        self._topologies += 1

    def flow_changed(self, spec: FlowSpec) -> None:
        """Let `start_accepted` look again for the executions that wait: the flow may be a child of theirs."""
        if self._without_way:
            self._topologies += 1

    def expire_deadlines(self, limit: int = 100) -> int:
        """Kill executions that took too long, give up jobs that did not start in time; return how many there were.

        Each breach is one event, also if the service is killed in between. What runs ends as after `kill`.
        """
        with self._store.read() as transaction:
            now = self._store.now(transaction)
            late = overdue_executions(transaction, now, limit)
            unstarted = overdue_jobs(transaction, now, limit)
        for execution_id in late:
            with about(execution_id), self._store.write() as transaction:
                self._expire_finish(transaction, execution_id)
        for execution_id, job in unstarted:
            with about(execution_id, job), self._store.write() as transaction:
                self._expire_start(transaction, execution_id, job)
        return len(late) + len(unstarted)

    def move_jobs(self, lost: str, all_lost: Collection[str] = ()) -> int:
        """Give the jobs of an executor that was lost to others that can run the same edges; return how many.

        Each begins again in a new generation: what the lost executor reports of it counts no more, and when it is back
        it is told to drop its copy. Executors of one edge keep watermarks in one state store, so that no row comes
        twice. Jobs that were to end count as ended: nobody else says so while the executor is lost.

        Args:
            lost: the executor; a compiler that is asked again has others for its edges, if there are any.
            all_lost: executors to which no job moves, as they are lost too.
        """
        with self._store.read() as transaction:
            there = dict.fromkeys(execution for execution, _ in open_jobs(transaction, lost))
        moved = 0
        for execution_id in there:
            with about(execution_id), self._store.write() as transaction:
                moved += self._move(transaction, execution_id, lost, {lost, *all_lost})
        return moved

    def _move(self, transaction: Transaction, execution_id: ExecutionId, lost: str, all_lost: Collection[str]) -> int:
        execution = _locked(transaction, execution_id)
        spec = None if execution is None else load_version(transaction, execution_id.flow, execution.version)
        if execution is None or spec is None or execution.is_over:
            return 0
        if self._end_killed(transaction, execution, lost):
            execution = load_execution(transaction, execution_id) or execution
        if execution.is_over:
            return 0
        jobs = load_jobs(transaction, execution_id)
        try:
            others = {job.name: job for job in self._compile(spec.config, {job.job.name for job in jobs}).jobs}
        except FlowCompileError as error:
            log.debug("its jobs stay with executor %s: %s", lost, error)
            return 0
        now = self._store.now(transaction)
        moved = 0
        for position, job in enumerate(jobs):
            name, other = job.job.name, others.get(job.job.name)
            before = _progress(execution, jobs)
            step = move(before, name)
            if job.job.executor != lost or other is None or other.executor in all_lost or step.progress == before:
                continue
            message = f"executor {lost} is lost; the job goes to {other.executor}"
            log.warning("job %s: %s", name, message)
            add_orders(transaction, _orders(execution_id, {name: lost}, replace(step, actions=step.actions[:1])))
            given = {"executor": other.executor, "body": other.body, "message": message, "holder": ""}
            update_job(transaction, execution_id, name, given)
            add_event(transaction, Event(execution_id, now, ExecutionStatus.PENDING, name, message))
            jobs[position] = replace(job, job=replace(job.job, executor=other.executor, body=other.body))
            self._save(transaction, execution, jobs, before, replace(step, actions=step.actions[1:]), now)
            jobs = load_jobs(transaction, execution_id)
            moved += 1
        return moved

    def _end_killed(self, transaction: Transaction, execution: Execution, lost: str) -> bool:
        """Cancel the jobs of a lost executor that were asked to end; return whether there was one.

        The order to end them waits for the executor. What it reports of them when it is back counts no more.
        """
        jobs = load_jobs(transaction, execution.id)
        names = [
            one.job.name
            for one in jobs
            if one.job.executor == lost
            and one.status in (*WAITING, ExecutionStatus.RUNNING)
            and (one.is_kill_requested or execution.is_kill_requested)
        ]
        now = self._store.now(transaction)
        for name in names:
            jobs = load_jobs(transaction, execution.id)
            before = _progress(execution, jobs)
            known = before.jobs[name]
            cancelled = JobEvent(name, known.generation, known.attempt, ExecutionStatus.CANCELLED)
            message = f"killed while executor {lost} is lost; it is told to end its copy when it is back"
            log.warning("job %s: %s", name, message)
            update_job(transaction, execution.id, name, {"message": message, "ended_at": now})
            add_event(transaction, Event(execution.id, now, ExecutionStatus.CANCELLED, name, message))
            step = on_event(_dag(execution, jobs), before, cancelled)
            self._save(transaction, execution, jobs, before, step, now)
        return bool(names)

    def report(self, report: JobReport) -> None:
        """Take in what an executor says; what comes twice or too late changes nothing."""
        # A text that the database refuses, out of somebody's data, must not keep the reports after it waiting.
        report = replace(
            report,
            message=storable(report.message),
            low_watermark=storable(report.low_watermark),
            high_watermark=storable(report.high_watermark),
        )
        with about(report.execution, report.job):
            try:
                self._take_in(report)
            except StorageError as error:
                if not refuses_values(error):
                    raise  # a full disk is such a reason: the report comes again, with all that it says
                # The same report would fail each time, and keep those after it waiting.
                told = f"{report.status}; what was said of it cannot be stored: {error}"
                self._take_in(replace(report, message=told[:1000], low_watermark="", high_watermark=""))

    def _take_in(self, report: JobReport) -> None:
        with self._store.write() as transaction:
            execution = _locked(transaction, report.execution, may_end=report.status.is_final)
            if execution is None or execution.is_over:
                return
            jobs = load_jobs(transaction, report.execution)
            before = _progress(execution, jobs)
            event = JobEvent(report.job, report.generation, report.attempt, report.status, report.may_retry)
            step = on_event(_dag(execution, jobs), before, event)
            if step.progress == before:
                # An execution that waits to go on has jobs that are all over, and is not over.
                return
            now = self._store.now(transaction)
            self._save_report(transaction, report, now)
            self._save(transaction, execution, jobs, before, step, now)

    def kill(self, execution_id: ExecutionId, note: Note = _no_note) -> None:
        """End an execution: what waits is cancelled, what runs is asked to stop and commits what is whole.

        Args:
            execution_id: the execution.
            note: called in the transaction of the change.

        Raises:
            FlowNotFoundError: there is no such execution.
            FlowChangedError: it is over, or a kill was asked for already.
        """
        with about(execution_id), self._store.write() as transaction:
            execution = self._require(transaction, execution_id)
            if execution.is_over or execution.is_kill_requested:
                state = "is over" if execution.is_over else "is being killed already"
                raise FlowChangedError(problem=f"Execution {execution_id} {state}.")
            self._kill(transaction, execution, self._store.now(transaction))
            note(transaction)

    def kill_job(self, execution_id: ExecutionId, name: str, note: Note = _no_note) -> None:
        """End one job, which is not tried again; jobs after it are not started, the others go on.

        Args:
            execution_id: the execution.
            name: of the job.
            note: called in the transaction of the change.

        Raises:
            FlowNotFoundError: there is no such execution, or it has no such job.
            FlowChangedError: the job is over, or a kill was asked for already.
        """
        with about(execution_id, name), self._store.write() as transaction:
            execution = self._require(transaction, execution_id)
            jobs = load_jobs(transaction, execution_id)
            before = _progress(execution, jobs)
            if name not in before.jobs:
                known = ", ".join(before.jobs) or "none"
                raise FlowNotFoundError(problem=f"Execution {execution_id} has no job {name[:80]!r}; it has: {known}.")
            step = kill_job(_dag(execution, jobs), before, name)
            if step.progress == before:
                state = "is over" if before.jobs[name].status.is_final else "is being killed already"
                raise FlowChangedError(problem=f"Job {name} of execution {execution_id} {state}.")
            now = self._store.now(transaction)
            if step.actions:
                add_event(transaction, Event(execution_id, now, before.jobs[name].status, name, "asked to end"))
            self._save(transaction, execution, jobs, before, step, now)
            note(transaction)

    def resume(self, execution_id: ExecutionId, note: Note = _no_note) -> None:
        """Run again what failed, was cancelled or did not run.

        It waits as a new execution does: for the others of its flow, and while its group, or its user, has as many as
        may run.

        Args:
            execution_id: the execution.
            note: called in the transaction of the change.

        Raises:
            FlowNotFoundError: there is no such execution.
            FlowChangedError: it is not over, or complete, or was never compiled; or another one of the flow runs,
                which refuses two at once.
        """
        with self._store.write() as transaction:
            execution = self._require(transaction, execution_id)
            jobs = load_jobs(transaction, execution_id)
            if not execution.is_over or execution.status is ExecutionStatus.COMPLETE or not jobs:
                raise FlowChangedError(
                    problem=f"Execution {execution_id} is {execution.status}; only one that failed or was cancelled "
                    "after it was compiled can be resumed."
                )
            settings = self._settings(transaction, execution)
            other = first_in_the_way(transaction, execution_id)
            if other is not None and settings.concurrency is Concurrency.REFUSE:
                problem = f"Execution {other.number} of flow {other.flow} still runs, and flow.concurrency is refuse."
                raise FlowChangedError(problem=problem)
            why = ""
            if other is not None and settings.concurrency is Concurrency.QUEUE:
                why = f"waits for execution {other.number}"
            elif full := self._quotas.problem(transaction, execution):
                why = f"waits: {full}"
            now = self._store.now(transaction)
            update_execution(
                transaction,
                execution_id,
                is_kill_requested=False,
                is_over=False,
                ended_at=None,
                status=ExecutionStatus.PENDING_RESUME.value,
                message=why,
                finish_by=None,
            )
            add_event(transaction, Event(execution_id, now, ExecutionStatus.PENDING_RESUME, message=why))
            if not why:
                self._go_on(transaction, execution, settings, now)
            note(transaction)

    def _go_on(self, transaction: Transaction, execution: Execution, settings: FlowSettings, now: datetime) -> None:
        """Start what is left of an execution that was resumed, under a new generation."""
        finish_by = None if settings.finish_within is None else now + settings.finish_within
        generation = execution.generation + 1
        update_execution(transaction, execution.id, generation=generation, message="", finish_by=finish_by)
        execution = replace(
            execution, status=ExecutionStatus.PENDING_RESUME, is_kill_requested=False, message="", generation=generation
        )
        jobs = load_jobs(transaction, execution.id)
        before = _progress(execution, jobs)
        self._save(transaction, execution, jobs, before, resume(_dag(execution, jobs), before), now)

    def _kill(self, transaction: Transaction, execution: Execution, now: datetime) -> None:
        update_execution(transaction, execution.id, is_kill_requested=True)
        jobs = load_jobs(transaction, execution.id)
        waits_again = execution.status is ExecutionStatus.PENDING_RESUME
        if not jobs or waits_again:
            message = "killed before it went on" if waits_again else "killed before it started"
            self._end(transaction, execution.id, ExecutionStatus.CANCELLED, message, now)
            return
        before = _progress(execution, jobs)
        self._save(transaction, execution, jobs, before, kill(_dag(execution, jobs), before), now)

    def _expire_finish(self, transaction: Transaction, execution_id: ExecutionId) -> None:
        execution = _locked(transaction, execution_id)
        now = self._store.now(transaction)
        if execution is None or execution.is_over or execution.is_kill_requested:
            return
        if execution.finish_by is None or execution.finish_by > now:
            return
        message = f"finish deadline exceeded: it was to end by {_shown(execution.finish_by)} (gobblin.flow.sla.time)"
        log.warning("%s", message)
        update_execution(transaction, execution_id, message=message)
        add_event(transaction, Event(execution_id, now, execution.status, message=message))
        self._kill(transaction, replace(execution, message=message), now)

    def _expire_start(self, transaction: Transaction, execution_id: ExecutionId, name: str) -> None:
        execution = _locked(transaction, execution_id)
        job = load_job(transaction, execution_id, name)
        now = self._store.now(transaction)
        if execution is None or job is None or job.start_by is None or job.start_by > now:
            return
        update_job(transaction, execution_id, name, {"start_by": None})
        jobs = load_jobs(transaction, execution_id)
        before = _progress(execution, jobs)
        step = give_up_start(_dag(execution, jobs), before, name)
        if execution.is_over or step.progress == before:
            return
        message = f"start deadline exceeded: it was to start by {_shown(job.start_by)} (gobblin.job.start.sla.time)"
        log.warning("job %s: %s", name, message)
        status = step.progress.jobs[name].status
        update_job(transaction, execution_id, name, {"message": message, "ended_at": now if status.is_final else None})
        add_event(transaction, Event(execution_id, now, status, name, message))
        if status.is_final:
            execution = replace(execution, message=f"{name}: {message}")
            update_execution(transaction, execution_id, message=execution.message)
        self._save(transaction, execution, jobs, before, step, now)

    def _settings(self, transaction: Transaction, execution: Execution) -> FlowSettings:
        spec = load_version(transaction, execution.id.flow, execution.version)
        return FlowSettings.stored({} if spec is None else spec.config.properties)

    def _start_one(self, execution_id: ExecutionId) -> bool:
        """Start an execution as `_start`; one that cannot be started for a fault of ours ends, and stops no other."""
        try:
            with self._store.write() as transaction:
                return self._start(transaction, execution_id)
        except (TransientError, StorageError):
            raise
        except Exception as error:
            log.exception("execution %s cannot be started", execution_id)
            message = storable(f"it could not be started: {type(error).__name__}: {error}")
            with self._store.write() as transaction:
                execution = _locked(transaction, execution_id)
                # Somebody may have killed it since.
                if execution is not None and execution.status in _WAITS and not execution.is_over:
                    self._end(transaction, execution_id, ExecutionStatus.FAILED, message, self._store.now(transaction))
            return True

    def _require(self, transaction: Transaction, execution_id: ExecutionId) -> Execution:
        serialize_changes(transaction)  # before the execution's row: the audit row of the change needs the lock too
        execution = load_execution(transaction, execution_id, for_update=True)
        if execution is None:
            raise FlowNotFoundError(problem=f"No flow execution found for {execution_id}.")
        return execution

    def _start(self, transaction: Transaction, execution_id: ExecutionId) -> bool:
        """Compile an execution and start its first jobs, or let it go on; return False if it has to wait."""
        execution = _locked(transaction, execution_id)
        if execution is None or execution.status not in _WAITS or execution.is_over:
            return False
        spec = load_version(transaction, execution_id.flow, execution.version)
        if spec is None:
            raise FlowNotFoundError(problem=f"Version {execution.version} of flow {execution_id.flow} is gone.")
        now = self._store.now(transaction)
        settings = FlowSettings.stored(spec.config.properties)
        in_the_way = first_in_the_way(transaction, execution_id)
        is_resumed = execution.status is ExecutionStatus.PENDING_RESUME
        if in_the_way is not None and settings.concurrency is Concurrency.REFUSE and not is_resumed:
            message = f"refused: execution {in_the_way.number} still runs, and flow.concurrency is refuse"
            self._end(transaction, execution_id, ExecutionStatus.FAILED, message, now)
            return True
        must_wait = in_the_way is not None and settings.concurrency is not Concurrency.ALLOW
        if must_wait or self._quotas.problem(transaction, execution):
            return False
        if is_resumed:
            self._go_on(transaction, execution, settings, now)
            return True
        return self._begin(transaction, execution, spec.config, settings, now)

    def _begin(
        self,
        transaction: Transaction,
        execution: Execution,
        config: FlowConfig,
        settings: FlowSettings,
        now: datetime,
    ) -> bool:
        """Compile an execution whose turn has come and start its first jobs; return False if it waits for a way."""
        execution_id = execution.id
        topology = self._topologies
        try:
            dag = self._compile_further(transaction, execution, config, settings)
        except FlowCompileError as error:
            if error.is_without_way and settings.waits_for_way:
                self._without_way[execution_id] = topology
                message = f"waits for a way: {'; '.join(error.reasons)}"
                if message != execution.message:
                    log.info("execution %s %s", execution_id, message)
                    update_execution(transaction, execution_id, message=message)
                    add_event(transaction, Event(execution_id, now, ExecutionStatus.PENDING, message=message))
                return False
            self._end(transaction, execution_id, ExecutionStatus.FAILED, str(error), now)
            return True
        if self._without_way.pop(execution_id, None) is not None:
            update_execution(transaction, execution_id, message="")
            execution = replace(execution, message="")
        finish_by = None if settings.finish_within is None else now + settings.finish_within
        update_execution(transaction, execution_id, finish_by=finish_by, on_failure=settings.on_failure.value)
        log.info("execution %s begins: %d job(s), version %d", execution_id, len(dag.jobs), execution.version)
        add_jobs(transaction, execution_id, dag)
        add_event(transaction, Event(execution_id, now, ExecutionStatus.COMPILED, message=count(len(dag.jobs), "job")))
        jobs = load_jobs(transaction, execution_id)
        self._save(transaction, execution, jobs, _progress(execution, jobs), begin(dag), now)
        return True

    def _compile_further(
        self, transaction: Transaction, execution: Execution, config: FlowConfig, settings: FlowSettings
    ) -> Dag:
        """Compile a flow so that it goes on where its last execution ended.

        A way through other edges has jobs with watermarks of their own, which would publish rows again that the former
        ones have brought. So a flow keeps its way as long as there is one, and takes another one only if it says so,
        or if it was changed to lead elsewhere.
        """
        former = (
            self._former_jobs(transaction, execution) if is_routed(config.properties, config.template_uris) else None
        )
        if former is None:
            return self._compile(config)
        before, names = former
        dag = self._compile(config, names)
        new = [job.name for job in dag.jobs if job.name not in names]
        is_same = read_routed_flow(before.properties)[0] == read_routed_flow(config.properties)[0]
        if new and is_same and not settings.may_change_edges:
            reason = (
                f"its way is gone, and the next one has other jobs ({', '.join(new)}), whose watermarks begin again: "
                "rows that are there already may come again. Say where they begin (`gobblin flow startpoint`) and set "
                "flow.mayChangeEdges=true, or bring the way back"
            )
            raise FlowCompileError(flow=str(config.id), reasons=(reason,), is_without_way=True)
        return dag

    def _former_jobs(self, transaction: Transaction, execution: Execution) -> tuple[FlowConfig, set[str]] | None:
        """Return the flow as it was in the last execution that had jobs, and the names of these jobs."""
        last = last_with_jobs(transaction, execution.id)
        spec = None if last is None else load_version(transaction, execution.id.flow, last.version)
        if last is None or spec is None:
            return None
        return spec.config, {one.job.name for one in load_jobs(transaction, last.id)}

    def _save_report(self, transaction: Transaction, report: JobReport, now: datetime) -> None:
        values: dict[str, Any] = {"message": report.message}
        if report.run_id:
            values["run_id"] = report.run_id
        if report.status is ExecutionStatus.RUNNING:
            values["started_at"] = now
        if report.status.is_final:
            values["ended_at"] = now
            values["processed_count"] = report.processed_count
            values["low_watermark"] = report.low_watermark
            values["high_watermark"] = report.high_watermark
        log.info("job %s is %s%s", report.job, report.status, f": {report.message}" if report.message else "")
        update_job(transaction, report.execution, report.job, values)
        add_event(transaction, Event(report.execution, now, report.status, report.job, report.message))

    def _save(
        self,
        transaction: Transaction,
        execution: Execution,
        jobs: list[JobExecution],
        before: FlowProgress,
        step: Step,
        now: datetime,
    ) -> None:
        """Store what a step changed: statuses of jobs and of the flow, and orders to executors."""
        dag_jobs = {job.job.name: job.job for job in jobs}
        begun = {action.job for action in step.actions if isinstance(action, Start)}
        for name, progress in step.progress.jobs.items():
            old = before.jobs[name]
            if progress != old:
                values: dict[str, Any] = {
                    "status": progress.status.value,
                    "generation": progress.generation,
                    "attempt": progress.attempt,
                    "is_kill_requested": progress.is_killed,
                }
                if progress.status is ExecutionStatus.PENDING_RETRY or progress.generation > old.generation:
                    values |= {"ended_at": None, "started_at": None, "run_id": ""}
                if name in begun:
                    values["start_by"] = _start_by(dag_jobs[name], now)
                elif progress.status not in WAITING:
                    values["start_by"] = None
                update_job(transaction, execution.id, name, values)
                if progress.status is ExecutionStatus.CANCELLED and old.status is ExecutionStatus.COMPILED:
                    message = _why_skipped(execution, dag_jobs[name], step.progress)
                    update_job(transaction, execution.id, name, {"message": message, "ended_at": now})
                    event = Event(execution.id, now, ExecutionStatus.CANCELLED, name, message)
                    add_event(transaction, event)
        executors = {name: job.executor for name, job in dag_jobs.items()}
        add_orders(transaction, _orders(execution.id, executors, step))
        status = flow_status(step.progress)
        if is_over(step.progress):
            told = _end_message(transaction, execution.id)
            # What was said before the end is the reason for it: a deadline that passed.
            self._end(transaction, execution.id, status, f"{execution.message}; {told}".removeprefix("; "), now)
        elif status is not execution.status:
            update_execution(transaction, execution.id, status=status.value)
            add_event(transaction, Event(execution.id, now, status))

    def _end(
        self, transaction: Transaction, execution_id: ExecutionId, status: ExecutionStatus, message: str, now: datetime
    ) -> None:
        # Written before the transaction ends: if it fails after all, a line with the error follows.
        log.info("execution %s is %s: %s", execution_id, status, message)
        update_execution(transaction, execution_id, status=status.value, message=message, is_over=True, ended_at=now)
        add_event(transaction, Event(execution_id, now, status, message=message))
        spec = load_flow(transaction, execution_id.flow) if is_last_run(transaction, execution_id) else None
        if spec is not None:
            # As in Gobblin, a flow without a schedule leaves the catalog once it has run.
            done = FlowSpec(spec.config, 0, Change.FINISHED, now, SERVICE, managed_by=spec.managed_by)
            save_flow(transaction, done, None)


_WAITS = (ExecutionStatus.PENDING, ExecutionStatus.PENDING_RESUME)
"""Statuses of executions that wait for their start, or to go on."""


def _locked(transaction: Transaction, execution_id: ExecutionId, *, may_end: bool = True) -> Execution | None:
    """Return an execution, and keep others from changing it until the transaction ends.

    If its flow leaves the catalog with the end of it, the catalog's lock is taken first, as by all who take both. A
    flow that was changed since can never be the one that ran again.
    """
    if may_end and transaction.dialect.name == "postgresql" and is_last_run(transaction, execution_id):
        serialize_changes(transaction)
    return load_execution(transaction, execution_id, for_update=True)


def _start_by(job: DagJob, now: datetime) -> datetime | None:
    return None if job.start_within_s is None else now + timedelta(seconds=job.start_within_s)


def _shown(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def _dag(execution: Execution, jobs: Iterable[JobExecution]) -> Dag:
    return Dag(tuple(job.job for job in jobs), execution.on_failure)


def _progress(execution: Execution, jobs: Iterable[JobExecution]) -> FlowProgress:
    known = {job.job.name: JobProgress(job.status, job.generation, job.attempt, job.is_kill_requested) for job in jobs}
    return FlowProgress(MappingProxyType(known), execution.is_kill_requested)


def _orders(execution: ExecutionId, executors: dict[str, str], step: Step) -> list[Order]:
    return [
        Order(executors[action.job], execution, action.job, action.generation, action.attempt, isinstance(action, Stop))
        for action in step.actions
        if isinstance(action, Start | Stop)
    ]


def _why_skipped(execution: Execution, job: DagJob, progress: FlowProgress) -> str:
    """Return why a job is over that was never given to an executor."""
    if progress.jobs[job.name].is_killed:
        return "killed before it started"
    if progress.is_killed:
        return "not started: the flow was killed"
    for parent in job.parents:
        status = progress.jobs[parent].status
        if status.is_final and status is not ExecutionStatus.COMPLETE:
            return f"not started: job {parent} before it is {status}"
    return f"not started: another job did not complete, and flow.failureOption is {execution.on_failure}"


def _end_message(transaction: Transaction, execution: ExecutionId) -> str:
    """Return what people read of an execution that is over: messages of failed jobs, or the rows that were read."""
    jobs = load_jobs(transaction, execution)
    failed = [f"{job.job.name}: {job.message}" for job in jobs if job.status is ExecutionStatus.FAILED]
    if failed:
        return "; ".join(failed)
    rows = sum(job.processed_count for job in jobs)
    return f"{rows:,} rows in {len(jobs)} job{'s' if len(jobs) != 1 else ''}"
