"""The DAG engine on every DAG of up to four jobs, in every state that any order of events can lead to.

The engine is a function of state and event, so to visit all states with all events is to try all orders of events. Of
DAGs that differ in names only, one is tried. Two searches:

- `visit` goes through all states. Three and four jobs have so many that it takes minutes: `make dags`
  (GOBBLIN_ALL_DAGS=1) tries them, and retries of four jobs.
- `follow` goes through those states in which at most one job has come further with its executor than to its start, of
  all DAGs of up to four jobs, in seconds. No other state shows more, because a step of one job does not depend on how
  far others are with their executors, only on whether they are over: this is checked at each step of up to three jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from types import MappingProxyType

import pytest

from gobblin_dagster.service.model import Dag, DagJob, ExecutionStatus, FailureOption
from gobblin_dagster.service.orchestrator.dag import (
    Action,
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
    on_event,
    resume,
)

S = ExecutionStatus
ENDS = (S.COMPLETE, S.FAILED, S.CANCELLED)
NOT_DONE = (S.FAILED, S.CANCELLED)


def dags(size: int, attempts: int, on_failure: FailureOption) -> Iterator[Dag]:
    """Yield one DAG of each shape."""
    names = "abcd"[:size]
    pairs = list(combinations(range(size), 2))
    seen: set[frozenset[tuple[int, int]]] = set()
    for count in range(len(pairs) + 1):
        for edges in combinations(pairs, count):
            shape = frozenset(edges)
            if shape in seen:
                continue
            seen |= {frozenset((to[a], to[b]) for a, b in edges) for to in permutations(range(size))}
            jobs = (
                DagJob(name, "x", "{}", tuple(names[a] for a, b in edges if b == at), attempts)
                for at, name in enumerate(names)
            )
            yield Dag(tuple(jobs), on_failure)


@dataclass(frozen=True)
class Reach:
    """What may happen in a search through all states."""

    events: tuple[ExecutionStatus, ...]
    """What executors say before the end of a job."""
    kills_jobs: bool
    """Whether persons end single jobs, and deadlines of starts pass."""


Key = tuple[bool, tuple[tuple[object, ...], ...]]


def key(progress: FlowProgress) -> Key:
    return progress.is_killed, tuple(map(key_of, progress.jobs.values()))


def key_of(job: JobProgress) -> tuple[object, ...]:
    return job.status, job.generation, job.attempt, job.is_killed


@dataclass(frozen=True)
class Move:
    """Something that can happen."""

    job: str
    """The job that it happens to; empty: the flow."""
    what: str
    event: JobEvent | None = None

    def of(self, dag: Dag, progress: FlowProgress) -> Step:
        """Return what follows."""
        if self.event is not None:
            return on_event(dag, progress, self.event)
        if self.what == "flow is killed":
            return kill(dag, progress)
        return (kill_job if self.what == "is killed" else give_up_start)(dag, progress, self.job)

    def __str__(self) -> str:
        return f"{self.job} {self.what}"


def job_of(action: Action) -> str:
    assert isinstance(action, Start | Stop)
    return action.job


def is_open(job: JobProgress) -> bool:
    """Tell whether a job is with an executor."""
    return job.status is not S.COMPILED and not job.status.is_final


def moves(progress: FlowProgress, reach: Reach, only: str = "") -> Iterator[Move]:
    """Yield all that can happen in a state: reports of executors, wishes of persons, deadlines.

    Args:
        progress: the state.
        reach: what may happen.
        only: the one job with an executor that anything happens to; empty: all of them.
    """
    for name, job in progress.jobs.items():
        if is_open(job) and only in ("", name):
            for status in (*reach.events, *ENDS):
                for may_retry in (True, False) if status is S.FAILED else (True,):
                    event = JobEvent(name, job.generation, job.attempt, status, may_retry)
                    yield Move(name, f"is {status}", event)
            if reach.kills_jobs:
                yield Move(name, "is given up")
        if reach.kills_jobs and not job.status.is_final and (not is_open(job) or only in ("", name)):
            yield Move(name, "is killed")
    if not is_over(progress):
        yield Move("", "flow is killed")


def visit(dag: Dag, reach: Reach) -> int:
    """Check every transition of every state that can be reached; return how many states there are."""
    first = begin(dag)
    check(dag, first.progress, first, "begin")
    seen = {key(first.progress)}
    todo = [first.progress]
    while todo:
        before = todo.pop()
        if is_over(before):
            check_end(dag, before)
            continue
        check_goes_on(before)
        for move in moves(before, reach):
            step = move.of(dag, before)
            check(dag, before, step, move)
            if move.event is not None:
                assert move.of(dag, step.progress) == Step(step.progress), f"{move} comes twice"
            found = key(step.progress)
            if found not in seen:
                seen.add(found)
                todo.append(step.progress)
    return len(seen)


def follow(dag: Dag, reach: Reach) -> int:
    """Check the transitions of one job after the other while others are at their start; return how many there are."""
    children = {job.name: tuple(one.name for one in dag.jobs if job.name in one.parents) for job in dag.jobs}
    kinds = {job.name: (job.parents, children[job.name]) for job in dag.jobs}
    """Jobs of one kind may change places."""
    met: set[Key] = set()
    seen: set[tuple[object, ...]] = set()
    todo: list[tuple[str, FlowProgress]] = []
    transitions = 0
    is_checked = len(dag.jobs) < 4
    """Whether others are tried in another state too."""

    def add(progress: FlowProgress) -> None:
        if key(progress) in met:
            return
        met.add(key(progress))
        if is_over(progress):
            check_end(dag, progress)
            return
        check_goes_on(progress)
        for name, job in progress.jobs.items():
            if is_open(job):
                state = with_others(progress, name, JobProgress(S.PENDING))
                jobs = sorted((kinds[one], *key_of(known), one == name) for one, known in state.jobs.items())
                if (state.is_killed, *jobs) not in seen:
                    seen.add((state.is_killed, *jobs))
                    todo.append((name, state))

    first = begin(dag)
    check(dag, first.progress, first, "begin")
    add(first.progress)
    while todo:
        name, before = todo.pop()
        others = [one for one, job in before.jobs.items() if is_open(job) and one != name]
        elsewhere = with_others(before, name, FAR)
        for move in moves(before, reach, name):
            step = move.of(dag, before)
            transitions += 1
            if is_checked and others:
                far = move.of(dag, elsewhere)
                assert with_others(step.progress, name, FAR, others) == far.progress, f"{move}: others are further"
                own = [[one for one in each.actions if job_of(one) not in others] for each in (step, far)]
                assert own[0] == own[1], f"{move}: others are further"
            if step.progress is not before:
                check(dag, before, step, move)
                add(step.progress)
            assert step.progress is not before or not step.actions, move
    return transitions


FAR = JobProgress(S.RUNNING, 1, 2, is_killed=True)
"""A job that has come further with its executor than to its start."""


def with_others(progress: FlowProgress, name: str, job: JobProgress, others: list[str] | None = None) -> FlowProgress:
    """Put what executors have, but for one job, into another state.

    Args:
        progress: the state of the flow.
        name: the job that stays as it is.
        job: the state of the others; of those that are over the status stays, and how they came there does not matter.
        others: jobs that are put there whatever they are; None: all that executors have.
    """
    jobs = dict(progress.jobs)
    for one, known in progress.jobs.items():
        if others is not None:
            jobs[one] = job if one in others else known
        elif one != name and known.status is not S.COMPILED:
            jobs[one] = JobProgress(known.status) if known.status.is_final else job
    return FlowProgress(MappingProxyType(jobs), progress.is_killed)


def check_goes_on(progress: FlowProgress) -> None:
    """Check that a flow which is not over does not stand still."""
    assert any(map(is_open, progress.jobs.values())), "some job is with an executor"


def check(dag: Dag, before: FlowProgress, step: Step, what: object) -> None:
    """Check what holds for each transition."""
    after = step.progress
    parents = {job.name: job.parents for job in dag.jobs}
    most = {job.name: job.max_attempts for job in dag.jobs}
    starts = [action for action in step.actions if isinstance(action, Start)]
    assert len({action.job for action in starts}) == len(starts), what
    for name, old in before.jobs.items():
        new = after.jobs[name]
        assert new == old or not old.status.is_final, f"{what}: what is over stays as it is"
        assert new.attempt <= most[name], what
        assert (new.generation, new.attempt, new.status.rank) >= (old.generation, old.attempt, old.status.rank) or (
            new.attempt > old.attempt
        ), what
        is_started = any(action.job == name for action in starts)
        if what != "begin":
            begins = old.status is S.COMPILED and new.status is S.PENDING
            assert is_started == (begins or new.attempt > old.attempt), what
        if is_started:
            assert all(after.jobs[parent].status is S.COMPLETE for parent in parents[name]), what
            assert not any((after.is_killed, new.is_killed)), what
            assert Start(name, new.generation, new.attempt) in starts, what
            if dag.on_failure is FailureOption.FINISH_RUNNING and new.attempt == 1:
                assert not any(job.status in NOT_DONE for job in after.jobs.values()), what
    stops: list[Action] = [action for action in step.actions if isinstance(action, Stop)]
    for action in stops:
        assert isinstance(action, Stop)
        assert before.jobs[action.job].attempt == action.attempt, what
        assert not before.jobs[action.job].status.is_final, what


def check_end(dag: Dag, end: FlowProgress) -> None:
    """Check what holds when a flow is over, and that it can be resumed if it is not complete."""
    statuses = {name: job.status for name, job in end.jobs.items()}
    done = all(status is S.COMPLETE for status in statuses.values())
    assert (flow_status(end) is S.COMPLETE) == done
    if not end.is_killed and S.FAILED in statuses.values():
        assert flow_status(end) is S.FAILED
    for job in dag.jobs:
        if any(statuses[parent] is not S.COMPLETE for parent in job.parents):
            assert statuses[job.name] is S.CANCELLED, "it was never started"
    if done:
        with pytest.raises(ValueError, match="can be resumed"):
            resume(dag, end)
        return
    step = resume(dag, end)
    for name, old in end.jobs.items():
        new = step.progress.jobs[name]
        assert (new == old) if old.status is S.COMPLETE else (new.generation, new.attempt) == (old.generation + 1, 1)
        assert old.status is S.COMPLETE or not new.is_killed
    starts = {action.job for action in step.actions if isinstance(action, Start)}
    ready = {
        job.name
        for job in dag.jobs
        if statuses[job.name] is not S.COMPLETE and all(statuses[parent] is S.COMPLETE for parent in job.parents)
    }
    assert starts == ready
    assert ready


OPTIONS = pytest.mark.parametrize("on_failure", FailureOption)
EVERYTHING = Reach((S.ORCHESTRATED, S.RUNNING), kills_jobs=True)
IN_FULL = "GOBBLIN_ALL_DAGS" in os.environ


def test_there_are_as_many_shapes_as_mathematics_says() -> None:
    counts = [len(list(dags(size, 1, FailureOption.FINISH_RUNNING))) for size in (1, 2, 3, 4)]
    assert counts == [1, 2, 6, 31]


@OPTIONS
@pytest.mark.parametrize("size", [1, 2, 3, 4] if IN_FULL else [1, 2])
def test_all_states_keep_all_promises(size: int, on_failure: FailureOption) -> None:
    for dag in dags(size, 3 if size < 3 else 2, on_failure):
        assert visit(dag, EVERYTHING if size < 4 else Reach((), kills_jobs=True)) > 10


@OPTIONS
@pytest.mark.parametrize("size", [3, 4])
def test_dags_of_more_jobs_keep_all_promises_in_all_orders_of_all_events(size: int, on_failure: FailureOption) -> None:
    for dag in dags(size, 1 if size == 4 and not IN_FULL else 2, on_failure):
        assert follow(dag, EVERYTHING) > 100
