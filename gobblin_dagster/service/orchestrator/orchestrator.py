"""Orchestrator: compiles executions that were accepted, gives their jobs to executors, and takes in what these report.

All it knows is in the store: each method is one transaction, and a new process goes on where the last one was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

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
from gobblin_dagster.service.compiler.kept_way import compile_keeping_way, former_way, save_ways
from gobblin_dagster.service.executors.job_body import job_target
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import (
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
    JobEvent,
    begin,
    give_up_start,
    kill,
    kill_job,
    move,
    on_event,
    resume,
)
from gobblin_dagster.service.orchestrator.quotas import Quotas
from gobblin_dagster.service.orchestrator.step_rows import (
    dag_of,
    end_execution,
    locked_execution,
    orders_of,
    progress_of,
    save_report,
    save_step,
)
from gobblin_dagster.service.store.event_rows import Event, add_event, add_events
from gobblin_dagster.service.store.execution_rows import (
    Execution,
    add_executions,
    first_accepted,
    first_in_the_way,
    load_execution,
    overdue_executions,
    update_execution,
)
from gobblin_dagster.service.store.flow_rows import load_version
from gobblin_dagster.service.store.job_rows import (
    add_jobs,
    load_job,
    load_jobs,
    open_jobs,
    other_definition_ran,
    overdue_jobs,
    update_job,
)
from gobblin_dagster.service.store.order_rows import add_orders
from gobblin_dagster.service.store.place_rows import Target, refresh_places
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes
from gobblin_dagster.service.topology.graph import FlowGraph

log = logging.getLogger(__name__)

Note = Callable[[Transaction], None]
"""Leaves a row of the audit trail in the transaction of a change."""


def _require_same_definition(transaction: Transaction, execution: ExecutionId, job: DagJob) -> None:
    """Refuse to run a job as it was once: it would go on where its newest run ended, and publish as it did before."""
    if later := other_definition_ran(transaction, execution, job):
        raise FlowChangedError(
            problem=f"Job {job.name} was changed after execution {execution}, and ran in execution {later.number} of "
            f"flow {later.flow} since: resumed, it would read what is new and publish it by its former definition, "
            "maybe to another place. `gobblin flow run` runs the flow as it is now."
        )


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
                    for one in first_accepted(transaction, *full)
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
        execution = locked_execution(transaction, execution_id)
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
            before = progress_of(execution, jobs)
            step = move(before, name)
            if job.job.executor != lost or other is None or other.executor in all_lost or step.progress == before:
                continue
            message = f"executor {lost} is lost; the job goes to {other.executor}"
            log.warning("job %s: %s", name, message)
            add_orders(transaction, orders_of(execution_id, {name: lost}, replace(step, actions=step.actions[:1])))
            given = {"executor": other.executor, "body": other.body, "message": message, "holder": ""}
            update_job(transaction, execution_id, name, given)
            add_event(transaction, Event(execution_id, now, ExecutionStatus.PENDING, name, message))
            jobs[position] = replace(job, job=replace(job.job, executor=other.executor, body=other.body))
            save_step(transaction, execution, jobs, before, replace(step, actions=step.actions[1:]), now)
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
            before = progress_of(execution, jobs)
            known = before.jobs[name]
            cancelled = JobEvent(name, known.generation, known.attempt, ExecutionStatus.CANCELLED)
            message = f"killed while executor {lost} is lost; it is told to end its copy when it is back"
            log.warning("job %s: %s", name, message)
            update_job(transaction, execution.id, name, {"message": message, "ended_at": now})
            add_event(transaction, Event(execution.id, now, ExecutionStatus.CANCELLED, name, message))
            step = on_event(dag_of(execution, jobs), before, cancelled)
            save_step(transaction, execution, jobs, before, step, now)
        return bool(names)

    def report(self, report: JobReport) -> None:
        """Take in what an executor says; what comes twice or too late changes nothing."""
        # A text that the database refuses, out of somebody's data, must not keep the reports after it waiting.
        report = replace(
            report,
            message=_kept(report.message),
            low_watermark=_kept(report.low_watermark),
            high_watermark=_kept(report.high_watermark),
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
            execution = locked_execution(transaction, report.execution, may_end=report.status.is_final)
            if execution is None or execution.is_over:
                return
            jobs = load_jobs(transaction, report.execution)
            before = progress_of(execution, jobs)
            event = JobEvent(report.job, report.generation, report.attempt, report.status, report.may_retry)
            step = on_event(dag_of(execution, jobs), before, event)
            if step.progress == before:
                # An execution that waits to go on has jobs that are all over, and is not over.
                return
            now = self._store.now(transaction)
            save_report(transaction, report, now)
            save_step(transaction, execution, jobs, before, step, now)

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
            before = progress_of(execution, jobs)
            if name not in before.jobs:
                known = ", ".join(before.jobs) or "none"
                raise FlowNotFoundError(problem=f"Execution {execution_id} has no job {name[:80]!r}; it has: {known}.")
            step = kill_job(dag_of(execution, jobs), before, name)
            if step.progress == before:
                state = "is over" if before.jobs[name].status.is_final else "is being killed already"
                raise FlowChangedError(problem=f"Job {name} of execution {execution_id} {state}.")
            now = self._store.now(transaction)
            if step.actions:
                add_event(transaction, Event(execution_id, now, before.jobs[name].status, name, "asked to end"))
            save_step(transaction, execution, jobs, before, step, now)
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
                which refuses two at once; or a job that is left ran since, with another definition.
        """
        with self._store.write() as transaction:
            execution = self._require(transaction, execution_id)
            jobs = load_jobs(transaction, execution_id)
            if not execution.is_over or execution.status is ExecutionStatus.COMPLETE or not jobs:
                raise FlowChangedError(
                    problem=f"Execution {execution_id} is {execution.status}; only one that failed or was cancelled "
                    "after it was compiled can be resumed."
                )
            for left in jobs:
                if left.status is not ExecutionStatus.COMPLETE:
                    _require_same_definition(transaction, execution_id, left.job)
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
        before = progress_of(execution, jobs)
        save_step(transaction, execution, jobs, before, resume(dag_of(execution, jobs), before), now)

    def _kill(self, transaction: Transaction, execution: Execution, now: datetime) -> None:
        update_execution(transaction, execution.id, is_kill_requested=True)
        jobs = load_jobs(transaction, execution.id)
        waits_again = execution.status is ExecutionStatus.PENDING_RESUME
        if not jobs or waits_again:
            message = "killed before it went on" if waits_again else "killed before it started"
            end_execution(transaction, execution.id, ExecutionStatus.CANCELLED, message, now)
            return
        before = progress_of(execution, jobs)
        save_step(transaction, execution, jobs, before, kill(dag_of(execution, jobs), before), now)

    def _expire_finish(self, transaction: Transaction, execution_id: ExecutionId) -> None:
        execution = locked_execution(transaction, execution_id)
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
        execution = locked_execution(transaction, execution_id)
        job = load_job(transaction, execution_id, name)
        now = self._store.now(transaction)
        if execution is None or job is None or job.start_by is None or job.start_by > now:
            return
        update_job(transaction, execution_id, name, {"start_by": None})
        jobs = load_jobs(transaction, execution_id)
        before = progress_of(execution, jobs)
        step = give_up_start(dag_of(execution, jobs), before, name)
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
        save_step(transaction, execution, jobs, before, step, now)

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
                execution = locked_execution(transaction, execution_id)
                # Somebody may have killed it since.
                if execution is not None and execution.status in _WAITS and not execution.is_over:
                    now = self._store.now(transaction)
                    end_execution(transaction, execution_id, ExecutionStatus.FAILED, message, now)
            return True

    def _require(self, transaction: Transaction, execution_id: ExecutionId) -> Execution:
        serialize_changes(transaction)  # before the execution's row: the audit row of the change needs the lock too
        execution = load_execution(transaction, execution_id, for_update=True)
        if execution is None:
            raise FlowNotFoundError(problem=f"No flow execution found for {execution_id}.")
        return execution

    def _start(self, transaction: Transaction, execution_id: ExecutionId) -> bool:
        """Compile an execution and start its first jobs, or let it go on; return False if it has to wait."""
        execution = locked_execution(transaction, execution_id)
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
            end_execution(transaction, execution_id, ExecutionStatus.FAILED, message, now)
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
            former = former_way(transaction, config.id, execution_id.number)
            dag = compile_keeping_way(config, former, self._compile)
        except FlowCompileError as error:
            if error.is_without_way and settings.waits_for_way:
                self._without_way[execution_id] = topology
                message = f"waits for a way: {'; '.join(error.reasons)}"
                if message != execution.message:
                    log.info("execution %s %s", execution_id, message)
                    update_execution(transaction, execution_id, message=message)
                    add_event(transaction, Event(execution_id, now, ExecutionStatus.PENDING, message=message))
                return False
            end_execution(transaction, execution_id, ExecutionStatus.FAILED, str(error), now)
            return True
        if self._without_way.pop(execution_id, None) is not None:
            update_execution(transaction, execution_id, message="")
            execution = replace(execution, message="")
        finish_by = None if settings.finish_within is None else now + settings.finish_within
        update_execution(transaction, execution_id, finish_by=finish_by, on_failure=settings.on_failure.value)
        log.info("execution %s begins: %d job(s), version %d", execution_id, len(dag.jobs), execution.version)
        add_jobs(transaction, execution_id, dag)
        save_ways(transaction, config, dag)
        _note_places(transaction, execution, dag)
        add_event(transaction, Event(execution_id, now, ExecutionStatus.COMPILED, message=count(len(dag.jobs), "job")))
        jobs = load_jobs(transaction, execution_id)
        save_step(transaction, execution, jobs, progress_of(execution, jobs), begin(dag), now)
        return True


def _note_places(transaction: Transaction, execution: Execution, dag: Dag) -> None:
    """Keep where jobs of a flow and its children publish, and what: a template or the topology may have changed."""
    begun: dict[tuple[FlowId, int], dict[str, Target]] = {}
    for job in dag.jobs:
        of_flow = begun.setdefault(job.child or (execution.id.flow, execution.version), {})
        of_flow[job.name] = job_target(job)
    refresh_places(transaction, begun)


_WAITS = (ExecutionStatus.PENDING, ExecutionStatus.PENDING_RESUME)
"""Statuses of executions that wait for their start, or to go on."""


_MOST_OF_A_TEXT = 1 << 16
"""Characters of a text in a report that are kept: whoever lists executions gets them, whatever a worker sends."""


def _kept(text: str) -> str:
    sound = storable(text)
    more = len(sound) - _MOST_OF_A_TEXT
    return sound if more <= 0 else f"{sound[:_MOST_OF_A_TEXT]}... ({count(more, 'more character')})"


def _shown(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
