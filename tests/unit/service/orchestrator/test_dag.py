"""The DAG engine: all DAGs of up to three jobs, under all orders of events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.service.model import Dag, DagJob, ExecutionStatus, FailureOption
from gobblin_dagster.service.orchestrator.dag import (
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

S = ExecutionStatus


def job(name: str, *parents: str, max_attempts: int = 1) -> DagJob:
    return DagJob(name, "embedded", "{}", parents, max_attempts)


def all_dags(size: int) -> Iterator[Dag]:
    """Yield every DAG of jobs a, b, c... in which a job's parents come before it."""
    names = "abcd"[:size]
    choices = []
    for position in range(size):
        before = names[:position]
        choices.append([parents for count in range(position + 1) for parents in combinations(before, count)])
    for parents in product(*choices):
        yield Dag(tuple(job(name, *before) for name, before in zip(names, parents, strict=True)))


def play(
    dag: Dag, step: Step, outcomes: dict[str, ExecutionStatus], picks: list[int]
) -> tuple[FlowProgress, list[str]]:
    """End running jobs in the order that `picks` says, each with its outcome; return the end, and what was started."""
    running = [action for action in step.actions if isinstance(action, Start)]
    started = [action.job for action in running]
    progress = step.progress
    while running:
        action = running.pop((picks.pop() if picks else 0) % len(running))
        step = on_event(
            dag, progress, JobEvent(action.job, action.generation, action.attempt, outcomes.get(action.job, S.COMPLETE))
        )
        progress = step.progress
        more = [one for one in step.actions if isinstance(one, Start)]
        running += more
        started += [one.job for one in more]
    return progress, started


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_dag_ends_whatever_fails_and_whichever_ends_first(size: int) -> None:
    for dag in all_dags(size):
        names = [one.name for one in dag.jobs]
        for failed in (set(found) for count in range(size + 1) for found in combinations(names, count)):
            outcomes = dict.fromkeys(failed, S.FAILED)
            for picks in ([0] * 8, [1, 0, 1, 0, 1, 0, 1, 0], [2, 1, 2, 1, 2, 1, 2, 1]):
                progress, started = play(dag, begin(dag), outcomes, list(picks))
                assert is_over(progress)
                assert len(started) == len(set(started)), "no job is started twice"
                done = {name for name, one in progress.jobs.items() if one.status is S.COMPLETE}
                for one in dag.jobs:
                    assert (one.name in started) == done.issuperset(one.parents), (
                        "a job starts when its parents are done"
                    )
                expected = S.COMPLETE if done == set(names) else S.FAILED
                assert flow_status(progress) is expected


def test_job_is_tried_again_while_it_has_attempts_left() -> None:
    dag = Dag((job("a", max_attempts=3), job("b", "a")))
    step = begin(dag)
    for attempt in (1, 2):
        step = on_event(dag, step.progress, JobEvent("a", 1, attempt, S.FAILED))
        assert step.progress.jobs["a"].status is S.PENDING_RETRY
        assert step.actions == (Start("a", 1, attempt + 1),)
    step = on_event(dag, step.progress, JobEvent("a", 1, 3, S.FAILED))
    assert step.actions == ()
    assert flow_status(step.progress) is S.FAILED


def test_failure_that_no_attempt_mends_is_not_tried_again() -> None:
    dag = Dag((job("a", max_attempts=3),))
    step = on_event(dag, begin(dag).progress, JobEvent("a", 1, 1, S.FAILED, may_retry=False))
    assert step.actions == ()
    assert is_over(step.progress)


def test_late_double_and_foreign_events_change_nothing() -> None:
    dag = Dag((job("a", max_attempts=2), job("b", "a")))
    progress = on_event(dag, begin(dag).progress, JobEvent("a", 1, 1, S.FAILED)).progress
    for event in (
        JobEvent("a", 1, 1, S.COMPLETE),
        JobEvent("a", 0, 2, S.COMPLETE),
        JobEvent("a", 2, 2, S.COMPLETE),
        JobEvent("nope", 1, 1, S.COMPLETE),
    ):
        assert on_event(dag, progress, event) == Step(progress)
    running = on_event(dag, progress, JobEvent("a", 1, 2, S.RUNNING)).progress
    assert on_event(dag, running, JobEvent("a", 1, 2, S.ORCHESTRATED)) == Step(running)
    done = on_event(dag, running, JobEvent("a", 1, 2, S.COMPLETE)).progress
    for status in S:
        assert on_event(dag, done, JobEvent("a", 1, 2, status)) == Step(done)


def test_kill_cancels_what_waits_and_stops_what_runs_once() -> None:
    dag = Dag((job("a"), job("b", "a")))
    step = kill(dag, begin(dag).progress)
    assert step.actions == (Stop("a", 1, 1),)
    assert step.progress.jobs["b"].status is S.CANCELLED
    assert kill(dag, step.progress) == Step(step.progress)
    ended = on_event(dag, step.progress, JobEvent("a", 1, 1, S.CANCELLED))
    assert ended.actions == ()
    assert flow_status(ended.progress) is S.CANCELLED


def test_killed_job_is_not_tried_again() -> None:
    dag = Dag((job("a", max_attempts=5),))
    progress = kill(dag, begin(dag).progress).progress
    assert on_event(dag, progress, JobEvent("a", 1, 1, S.FAILED)).actions == ()


def test_resume_runs_again_only_what_is_not_complete() -> None:
    dag = Dag((job("a"), job("b", "a"), job("c", "b"), job("d", "a")))
    progress, _ = play(dag, begin(dag), {"b": S.FAILED}, [])
    step = resume(dag, progress)
    assert step.actions == (Start("b", 2, 1),)
    assert [step.progress.jobs[name].generation for name in "abcd"] == [1, 2, 2, 1]
    ended, started = play(dag, step, {}, [])
    assert started == ["b", "c"]
    assert flow_status(ended) is S.COMPLETE


def test_only_what_failed_can_be_resumed() -> None:
    dag = Dag((job("a"),))
    with pytest.raises(ValueError, match="can be resumed"):
        resume(dag, begin(dag).progress)
    complete, _ = play(dag, begin(dag), {}, [])
    with pytest.raises(ValueError, match="can be resumed"):
        resume(dag, complete)


def test_dag_refuses_jobs_before_their_parents_and_double_names() -> None:
    with pytest.raises(ValueError, match="before one of its parents"):
        Dag((job("a", "b"), job("b")))
    with pytest.raises(ValueError, match="two jobs"):
        Dag((job("a"), job("a")))


_EVENTS = st.builds(
    JobEvent, st.sampled_from("abc"), st.integers(1, 2), st.integers(1, 3), st.sampled_from(S), st.booleans()
)


@given(st.lists(_EVENTS, max_size=40))
def test_statuses_never_go_back_within_an_attempt(events: list[JobEvent]) -> None:
    dag = Dag((job("a", max_attempts=2), job("b", "a"), job("c", max_attempts=3)))
    progress = begin(dag).progress
    for event in events:
        after = on_event(dag, progress, event).progress
        for name, old in progress.jobs.items():
            new = after.jobs[name]
            assert (new.generation, new.attempt) >= (old.generation, old.attempt)
            if new.attempt == old.attempt:
                assert new.status.rank >= old.status.rank
        progress = after


def test_job_that_does_not_start_in_time_is_tried_again_and_then_cancelled() -> None:
    dag = Dag((job("a", max_attempts=2), job("b", "a")))
    first = give_up_start(dag, begin(dag).progress, "a")
    assert first.actions == (Stop("a", 1, 1), Start("a", 1, 2))
    assert first.progress.jobs["a"].status is S.PENDING_RETRY
    handed_over = on_event(dag, first.progress, JobEvent("a", 1, 2, S.ORCHESTRATED)).progress
    second = give_up_start(dag, handed_over, "a")
    assert second.actions == (Stop("a", 1, 2),)
    assert is_over(second.progress)
    assert flow_status(second.progress) is S.CANCELLED
    late = on_event(dag, second.progress, JobEvent("a", 1, 2, S.COMPLETE))
    assert late.progress == second.progress, "what the executor says afterwards changes nothing"


def test_job_that_runs_has_no_start_to_give_up() -> None:
    dag = Dag((job("a"), job("b", "a")))
    running = on_event(dag, begin(dag).progress, JobEvent("a", 1, 1, S.RUNNING)).progress
    for name in ("a", "b", "unknown"):
        assert give_up_start(dag, running, name) == Step(running)


def test_finish_running_lets_running_jobs_end_and_starts_no_other() -> None:
    jobs = (job("a"), job("b", max_attempts=2), job("c", "b"))
    for option, then in ((FailureOption.FINISH_RUNNING, S.CANCELLED), (FailureOption.FINISH_ALL_POSSIBLE, S.PENDING)):
        dag = Dag(jobs, option)
        progress = on_event(dag, begin(dag).progress, JobEvent("a", 1, 1, S.FAILED)).progress
        retried = on_event(dag, progress, JobEvent("b", 1, 1, S.FAILED))
        assert retried.actions == (Start("b", 1, 2),), "a job that runs has all its attempts"
        done = on_event(dag, retried.progress, JobEvent("b", 1, 2, S.COMPLETE)).progress
        assert done.jobs["c"].status is then
        assert done.jobs["b"].status is S.COMPLETE


def test_killed_job_takes_those_after_it_along_and_leaves_the_others() -> None:
    dag = Dag((job("a", max_attempts=3), job("b", "a"), job("c")))
    step = kill_job(dag, begin(dag).progress, "a")
    assert step.actions == (Stop("a", 1, 1),)
    assert kill_job(dag, step.progress, "a") == Step(step.progress), "killing twice is killing once"
    ended = on_event(dag, step.progress, JobEvent("a", 1, 1, S.FAILED))
    assert ended.actions == (), "it is not tried again"
    assert [ended.progress.jobs[name].status for name in "abc"] == [S.FAILED, S.CANCELLED, S.PENDING]
    assert kill(dag, step.progress).actions == (Stop("c", 1, 1),), "a was asked to stop already"


def test_job_that_was_not_started_is_killed_at_once() -> None:
    dag = Dag((job("a"), job("b", "a"), job("c", "b")))
    step = kill_job(dag, begin(dag).progress, "b")
    assert step.actions == ()
    assert [step.progress.jobs[name].status for name in "abc"] == [S.PENDING, S.CANCELLED, S.CANCELLED]
    done = on_event(dag, step.progress, JobEvent("a", 1, 1, S.COMPLETE)).progress
    assert flow_status(done) is S.CANCELLED
    assert resume(dag, done).actions == (Start("b", 2, 1),), "a resumed flow forgets that a job was killed"
    assert kill_job(dag, done, "a") == kill_job(dag, done, "unknown") == Step(done)
