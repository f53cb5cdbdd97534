"""The DAG engine on every DAG of a few jobs, in every state that any order of events can lead to.

The engine is a function of state and event, so to visit all states with all events is to try all orders of events. Of
DAGs that differ in names only, one is tried. Three jobs with all reports of executors, and four jobs with retries and
kills of single jobs, take minutes: `make dags` (GOBBLIN_ALL_DAGS=1) tries them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import pytest

from gobblin_dagster.service.model import Dag, DagJob, ExecutionStatus, FailureOption
from gobblin_dagster.service.orchestrator.dag import (
    Action,
    FlowProgress,
    JobEvent,
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

IN_FULL = "GOBBLIN_ALL_DAGS" in os.environ
"""Whether three jobs are tried with all reports of executors, and four with retries and kills of single jobs."""

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
    jobs = ((one.status, one.generation, one.attempt, one.is_killed) for one in progress.jobs.values())
    return progress.is_killed, tuple(jobs)


def moves(dag: Dag, progress: FlowProgress, reach: Reach) -> Iterator[tuple[object, Step]]:
    """Yield all that can happen in a state, with what follows: reports of executors, wishes of persons, deadlines."""
    for name, job in progress.jobs.items():
        if job.status is not S.COMPILED and not job.status.is_final:
            for status in (*reach.events, *ENDS):
                for may_retry in (True, False) if status is S.FAILED else (True,):
                    event = JobEvent(name, job.generation, job.attempt, status, may_retry)
                    yield event, on_event(dag, progress, event)
            if reach.kills_jobs:
                yield f"start of {name} is given up", give_up_start(dag, progress, name)
        if reach.kills_jobs and not job.status.is_final:
            yield f"{name} is killed", kill_job(dag, progress, name)
    if not is_over(progress):
        yield "the flow is killed", kill(dag, progress)


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
        assert any(job.status is not S.COMPILED and not job.status.is_final for job in before.jobs.values()), (
            "some job is with an executor, so that the flow cannot stand still"
        )
        for what, step in moves(dag, before, reach):
            check(dag, before, step, what)
            if isinstance(what, JobEvent):
                assert on_event(dag, step.progress, what) == Step(step.progress), f"{what} comes twice"
            found = key(step.progress)
            if found not in seen:
                seen.add(found)
                todo.append(step.progress)
    return len(seen)


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


def test_there_are_as_many_shapes_as_mathematics_says() -> None:
    counts = [len(list(dags(size, 1, FailureOption.FINISH_RUNNING))) for size in (1, 2, 3, 4)]
    assert counts == [1, 2, 6, 31]


@OPTIONS
@pytest.mark.parametrize("size", [1, 2])
def test_small_dags_keep_all_promises_in_all_orders_of_all_events(size: int, on_failure: FailureOption) -> None:
    for dag in dags(size, 3, on_failure):
        assert visit(dag, EVERYTHING) > 10


@OPTIONS
def test_dags_of_three_jobs_keep_all_promises(on_failure: FailureOption) -> None:
    for dag in dags(3, 2, on_failure):
        visit(dag, EVERYTHING if IN_FULL else Reach((), kills_jobs=True))


@OPTIONS
def test_dags_of_four_jobs_keep_all_promises(on_failure: FailureOption) -> None:
    for dag in dags(4, 2 if IN_FULL else 1, on_failure):
        visit(dag, Reach((), kills_jobs=IN_FULL))
