"""What follows from an event of a flow's jobs: pure functions, without a store and without a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gobblin_dagster.service.model import Dag, ExecutionStatus, FailureOption


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is."""

    status: ExecutionStatus = ExecutionStatus.COMPILED
    generation: int = 1
    """Grows with each resume of the flow."""
    attempt: int = 1
    """Grows with each retry; begins at 1 in each generation."""
    is_killed: bool = False
    """Whether a person ended this job; it is not tried again."""


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """How far an execution is."""

    jobs: Mapping[str, JobProgress]
    is_killed: bool = False


class Action:
    """What an executor is asked to do."""


@dataclass(frozen=True, slots=True)
class Start(Action):
    """Run a job."""

    job: str
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop(Action):
    """End a job that runs."""

    job: str
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What an executor says of a job. Events may come late, twice, and out of order."""

    job: str
    generation: int
    attempt: int
    status: ExecutionStatus
    may_retry: bool = True
    """False if the job failed for a reason that another attempt does not mend."""


WAITING = (ExecutionStatus.PENDING, ExecutionStatus.PENDING_RETRY, ExecutionStatus.ORCHESTRATED)
"""Statuses of jobs that could run and have not started."""


@dataclass(frozen=True, slots=True)
class Step:
    """What follows: the new progress, and what executors are to do."""

    progress: FlowProgress
    actions: tuple[Action, ...] = ()


def begin(dag: Dag) -> Step:
    """Start the jobs that have no parents."""
    progress = FlowProgress(MappingProxyType({job.name: JobProgress() for job in dag.jobs}))
    return _start_ready(dag, progress)


def on_event(dag: Dag, progress: FlowProgress, event: JobEvent) -> Step:
    """Take in an event of a job.

    An event of an older generation or attempt changes nothing, nor does one that is behind what is known already; so an
    event that comes twice is harmless. A job that failed is started again while it has attempts left.

    Source: gobblin-service `KafkaJobStatusMonitor`, `ReevaluateDagProc`.
    """
    job = progress.jobs.get(event.job)
    if job is None or (event.generation, event.attempt) != (job.generation, job.attempt):
        return Step(progress)
    if job.status.is_final or event.status.rank <= job.status.rank:
        return Step(progress)
    status = event.status
    if status is ExecutionStatus.FAILED and event.may_retry and _has_attempts(dag, progress, event.job):
        again = replace(job, status=ExecutionStatus.PENDING_RETRY, attempt=job.attempt + 1)
        return Step(_with(progress, event.job, again), (Start(event.job, again.generation, again.attempt),))
    return _start_ready(dag, _with(progress, event.job, replace(job, status=status)))


def kill(dag: Dag, progress: FlowProgress) -> Step:
    """End an execution: jobs that were not handed to an executor are cancelled, the others are asked to stop.

    Killing twice is killing once.
    """
    jobs = dict(progress.jobs)
    actions: list[Action] = []
    for job in dag.jobs:
        known = jobs[job.name]
        if known.status is ExecutionStatus.COMPILED:
            jobs[job.name] = replace(known, status=ExecutionStatus.CANCELLED)
        elif not (known.status.is_final or known.is_killed or progress.is_killed):
            actions.append(Stop(job.name, known.generation, known.attempt))
    return Step(FlowProgress(MappingProxyType(jobs), is_killed=True), tuple(actions))


def kill_job(dag: Dag, progress: FlowProgress, name: str) -> Step:
    """End one job; the jobs after it are cancelled, the others go on as `dag.on_failure` says.

    Killing twice is killing once; a job that is over stays as it is.

    Source: gobblin-service `KillDagProc` of one node.
    """
    job = progress.jobs.get(name)
    if job is None or job.status.is_final or job.is_killed:
        return Step(progress)
    killed = replace(job, is_killed=True)
    if job.status is ExecutionStatus.COMPILED:
        return _start_ready(dag, _with(progress, name, replace(killed, status=ExecutionStatus.CANCELLED)))
    stop = () if progress.is_killed else (Stop(name, job.generation, job.attempt),)
    return Step(_with(progress, name, killed), stop)


def give_up_start(dag: Dag, progress: FlowProgress, name: str) -> Step:
    """Give up a job that waits for its start: another attempt begins if it has any left; else it is cancelled.

    Nothing changes if the job runs or is over. The executor is asked to forget the attempt.

    Source: gobblin-service `EnforceJobStartDeadlineDagProc`.
    """
    job = progress.jobs.get(name)
    if job is None or job.status not in WAITING:
        return Step(progress)
    stop = Stop(name, job.generation, job.attempt)
    if _has_attempts(dag, progress, name):
        again = replace(job, status=ExecutionStatus.PENDING_RETRY, attempt=job.attempt + 1)
        return Step(_with(progress, name, again), (stop, Start(name, again.generation, again.attempt)))
    step = _start_ready(dag, _with(progress, name, replace(job, status=ExecutionStatus.CANCELLED)))
    return Step(step.progress, (stop, *step.actions))


def move(progress: FlowProgress, name: str) -> Step:
    """Begin a job again, in a new generation, whose executor was lost; the former one is asked to drop its copy.

    Nothing changes if the job was given to no executor, is over or was killed.
    """
    job = progress.jobs.get(name)
    if job is None or job.status not in (*WAITING, ExecutionStatus.RUNNING) or job.is_killed or progress.is_killed:
        return Step(progress)
    again = JobProgress(ExecutionStatus.PENDING, job.generation + 1)
    stop = Stop(name, job.generation, job.attempt)
    return Step(_with(progress, name, again), (stop, Start(name, again.generation, again.attempt)))


def resume(dag: Dag, progress: FlowProgress) -> Step:
    """Run again what failed, was cancelled or did not run; what is complete stays complete.

    Raises:
        ValueError: the execution is not over, or all its jobs are complete.
    """
    if not is_over(progress) or flow_status(progress) is ExecutionStatus.COMPLETE:
        raise ValueError("only an execution that failed or was cancelled can be resumed")
    jobs = {
        name: job
        if job.status is ExecutionStatus.COMPLETE
        else JobProgress(ExecutionStatus.COMPILED, job.generation + 1, 1)
        for name, job in progress.jobs.items()
    }
    return _start_ready(dag, FlowProgress(MappingProxyType(jobs)))


def is_over(progress: FlowProgress) -> bool:
    """Tell whether no job of the execution can run any more."""
    return all(job.status.is_final for job in progress.jobs.values())


def flow_status(progress: FlowProgress) -> ExecutionStatus:
    """Return the flow's status: that of its jobs taken together.

    A flow runs as soon as one job was handed to an executor; it is over when all its jobs are. Then a failure counts
    more than a cancellation, unless the flow was killed.
    """
    statuses = {job.status for job in progress.jobs.values()}
    if not is_over(progress):
        return ExecutionStatus.COMPILED if statuses == {ExecutionStatus.COMPILED} else ExecutionStatus.RUNNING
    if statuses == {ExecutionStatus.COMPLETE}:
        return ExecutionStatus.COMPLETE
    if progress.is_killed and ExecutionStatus.CANCELLED in statuses:
        return ExecutionStatus.CANCELLED
    return ExecutionStatus.FAILED if ExecutionStatus.FAILED in statuses else ExecutionStatus.CANCELLED


def _start_ready(dag: Dag, progress: FlowProgress) -> Step:
    """Start jobs whose parents are complete; cancel those that can never start. Jobs stand after their parents."""
    jobs = dict(progress.jobs)
    stops_all = progress.is_killed or (
        dag.on_failure is FailureOption.FINISH_RUNNING and any(job.status in _NOT_DONE for job in jobs.values())
    )
    actions: list[Action] = []
    for job in dag.jobs:
        known = jobs[job.name]
        if known.status is not ExecutionStatus.COMPILED:
            continue
        parents = [jobs[parent].status for parent in job.parents]
        if stops_all or any(status in _NOT_DONE for status in parents):
            jobs[job.name] = replace(known, status=ExecutionStatus.CANCELLED)
        elif all(status is ExecutionStatus.COMPLETE for status in parents):
            jobs[job.name] = replace(known, status=ExecutionStatus.PENDING)
            actions.append(Start(job.name, known.generation, known.attempt))
    return Step(replace(progress, jobs=MappingProxyType(jobs)), tuple(actions))


_NOT_DONE = (ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
"""Statuses of jobs that ended and are not complete."""


def _has_attempts(dag: Dag, progress: FlowProgress, name: str) -> bool:
    """Tell whether another attempt of a job may begin."""
    job = progress.jobs[name]
    most = next(one.max_attempts for one in dag.jobs if one.name == name)
    return job.attempt < most and not job.is_killed and not progress.is_killed


def _with(progress: FlowProgress, name: str, job: JobProgress) -> FlowProgress:
    return replace(progress, jobs=MappingProxyType({**progress.jobs, name: job}))
