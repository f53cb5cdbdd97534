"""Executions from acceptance to their end, with all that is known in the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_dagster.core.errors import FlowChangedError, FlowNotFoundError, StorageError, TransientError
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, DagJob, ExecutionId, ExecutionStatus, FlowId, JobReport, Trigger
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import Execution, list_executions, load_execution
from gobblin_dagster.service.store.flow_rows import load_flow, save_flow
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.order_rows import list_orders
from gobblin_dagster.service.store.store import ServiceStore, Transaction

from ..conftest import Create, OwnClock, compile_flow, flow

S = ExecutionStatus
FLOW = FlowId("g", "n")


def orders(store: ServiceStore) -> list[tuple[str, int, int, bool]]:
    with store.read() as transaction:
        return [(one.job, one.generation, one.attempt, one.is_stop) for one in list_orders(transaction, "embedded")]


def report(
    orchestrator: Orchestrator,
    number: int,
    job: str,
    status: ExecutionStatus,
    attempt: int = 1,
    generation: int = 1,
    rows: int = 0,
) -> None:
    orchestrator.report(
        JobReport(ExecutionId(FLOW, number), job, generation, attempt, status, f"{job} {status}", "run", rows, "1", "2")
    )


def execution(store: ServiceStore, number: int) -> Execution:
    with store.read() as transaction:
        found = load_execution(transaction, ExecutionId(FLOW, number))
    assert found is not None
    return found


def test_long_text_of_a_report_is_cut(store: ServiceStore, orchestrator: Orchestrator, create: Create) -> None:
    number = create(flow(templates="FS:///a"))
    orchestrator.start_accepted()
    long = "x" * 100_000
    orchestrator.report(JobReport(ExecutionId(FLOW, number), "a", 1, 1, S.FAILED, long, "", 0, long, long))
    cut = "x" * 65_536 + "... (34,464 more characters)"
    with store.read() as transaction:
        [job] = load_jobs(transaction, ExecutionId(FLOW, number))
        events = list_events(transaction, ExecutionId(FLOW, number))
    assert (job.message, job.low_watermark, job.high_watermark) == (cut, cut, cut)
    assert max(len(one.message) for one in events) < 70_000


def test_report_whose_text_the_database_refuses_ends_its_job_all_the_same(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a"))
    orchestrator.start_accepted()
    refuse = (
        "CREATE TRIGGER no_such_text BEFORE INSERT ON gobblin_events WHEN NEW.message = 'a COMPLETE' "
        "BEGIN SELECT RAISE(FAIL, 'no_such_text'); END"
        if store.is_sqlite
        else "ALTER TABLE gobblin_events ADD CONSTRAINT no_such_text CHECK (message <> 'a COMPLETE')"
    )
    with store.write() as transaction:
        transaction.execute(text(refuse))
    report(orchestrator, number, "a", S.COMPLETE, rows=5)
    if not store.is_sqlite:  # other tests use the same tables
        with store.write() as transaction:
            transaction.execute(text("ALTER TABLE gobblin_events DROP CONSTRAINT no_such_text"))
    with store.read() as transaction:
        [job] = load_jobs(transaction, ExecutionId(FLOW, number))
    assert (job.status, job.processed_count, job.low_watermark) == (S.COMPLETE, 5, "")
    assert "no_such_text" in job.message
    assert execution(store, number).is_over


def test_jobs_run_one_after_the_other_and_the_flow_leaves_the_catalog(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b"))
    assert orchestrator.start_accepted() == 1
    assert orders(store) == [("a", 1, 1, False)]
    report(orchestrator, number, "a", S.RUNNING)
    report(orchestrator, number, "a", S.COMPLETE, rows=5)
    assert orders(store) == [("a", 1, 1, False), ("b", 1, 1, False)]
    report(orchestrator, number, "b", S.COMPLETE, rows=7)
    done = execution(store, number)
    assert (done.status, done.message, done.is_over) == (S.COMPLETE, "12 rows in 2 jobs", True)
    with store.read() as transaction:
        assert load_flow(transaction, FLOW) is None, "a flow without a schedule has run"
        jobs = load_jobs(transaction, ExecutionId(FLOW, number))
        told = [(one.job, one.status) for one in list_events(transaction, ExecutionId(FLOW, number))]
    assert [(one.processed_count, one.low_watermark, one.high_watermark) for one in jobs] == [
        (5, "1", "2"),
        (7, "1", "2"),
    ]
    assert told == [
        ("", S.PENDING),
        ("", S.COMPILED),
        ("", S.RUNNING),
        ("a", S.RUNNING),
        ("a", S.COMPLETE),
        ("b", S.COMPLETE),
        ("", S.COMPLETE),
    ]


def test_failed_job_is_told_and_what_follows_is_not_started(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b", properties={"job.maxAttempts": "2"}))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.FAILED)
    assert orders(store)[-1] == ("a", 1, 2, False)
    report(orchestrator, number, "a", S.FAILED, attempt=1)  # the first report again
    assert not execution(store, number).is_over
    report(orchestrator, number, "a", S.FAILED, attempt=2)
    done = execution(store, number)
    assert (done.status, done.message) == (S.FAILED, "a: a FAILED")
    with store.read() as transaction:
        assert [one.status for one in load_jobs(transaction, done.id)] == [S.FAILED, S.CANCELLED]


def test_resume_runs_what_is_left_under_a_new_generation(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b"))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.COMPLETE, rows=1)
    report(orchestrator, number, "b", S.FAILED)
    orchestrator.resume(ExecutionId(FLOW, number))
    assert orders(store)[-1] == ("b", 2, 1, False)
    report(orchestrator, number, "b", S.COMPLETE, generation=1)
    assert not execution(store, number).is_over, "a report of the old generation counts no more"
    report(orchestrator, number, "b", S.COMPLETE, generation=2, rows=2)
    assert execution(store, number).status is S.COMPLETE
    with pytest.raises(FlowChangedError, match="only one that failed"):
        orchestrator.resume(ExecutionId(FLOW, number))


@pytest.mark.parametrize("body", ["{}", '{"output": {"path": "other"}}'], ids=["same", "another"])
def test_job_is_resumed_only_if_no_other_definition_of_it_ran_since(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, body: str
) -> None:
    # The former definition would publish what is new to its own place alone.
    number = create(flow())
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.FAILED)
    later = create(flow(properties={"body": body}))
    orchestrator.start_accepted()
    report(orchestrator, later, "a", S.COMPLETE)
    if body == "{}":
        orchestrator.resume(ExecutionId(FLOW, number))
        assert not execution(store, number).is_over
    else:
        with pytest.raises(FlowChangedError, match=f"Job a was changed after .*, and ran in execution {later} of"):
            orchestrator.resume(ExecutionId(FLOW, number))
        assert execution(store, number).is_over


def test_kill_stops_what_runs_and_cannot_be_asked_for_twice(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b"))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.RUNNING)
    orchestrator.kill(ExecutionId(FLOW, number))
    assert orders(store)[-1] == ("a", 1, 1, True)
    with pytest.raises(FlowChangedError, match="is being killed already"):
        orchestrator.kill(ExecutionId(FLOW, number))
    report(orchestrator, number, "a", S.CANCELLED)
    assert execution(store, number).status is S.CANCELLED
    with pytest.raises(FlowChangedError, match="is over"):
        orchestrator.kill(ExecutionId(FLOW, number))


def test_kill_of_what_was_not_started_ends_it_at_once(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow())
    orchestrator.kill(ExecutionId(FLOW, number))
    assert execution(store, number).status is S.CANCELLED
    assert orchestrator.start_accepted() == 0


def test_flow_that_compiles_no_more_fails_with_the_reason_and_others_go_on(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    bad = create(flow(cron="0 0 * ? * *"))
    assert bad == -1
    with store.write() as transaction:
        spec = load_flow(transaction, FLOW)
        assert spec is not None
        spec.config.properties["broken"] = "yes"  # type: ignore[index]  # a template that was changed since
        save_flow(transaction, spec, None)
        changed = load_flow(transaction, FLOW)
        assert changed is not None
        from gobblin_dagster.service.model import Trigger

        orchestrator.accept(transaction, [(changed, 1)], Trigger.RUN_NOW, clock.now())
    good = create(flow("other"))
    assert orchestrator.start_accepted() == 2
    assert execution(store, 1).message == "Flow g/n cannot be compiled: it is broken."
    with store.read() as transaction:
        (other,) = list_executions(transaction, FlowId("g", "other"))
    assert (other.id.number, other.status) == (good, S.RUNNING)


@pytest.mark.parametrize(("concurrency", "second"), [("allow", S.RUNNING), ("queue", S.PENDING), ("refuse", S.FAILED)])
def test_second_execution_follows_the_flows_rule(
    store: ServiceStore, orchestrator: Orchestrator, manager: FlowManager, create: Create, concurrency: str, second: S
) -> None:
    create(flow(cron="0 0 * ? * *", properties={"flow.concurrency": concurrency}))
    with store.write() as transaction:
        first_id, second_id = (manager.run_now(transaction, FLOW) for _ in range(2))
    assert second_id == first_id + 1, "the next free millisecond"
    orchestrator.start_accepted()
    assert execution(store, second_id).status is second
    report(orchestrator, first_id, "a", S.COMPLETE)
    orchestrator.start_accepted()
    assert execution(store, second_id).status in (S.RUNNING, S.FAILED)


def test_execution_keeps_the_version_with_which_it_began(
    store: ServiceStore, orchestrator: Orchestrator, manager: FlowManager, create: Create
) -> None:
    create(flow(cron="0 0 * ? * *"))
    with store.write() as transaction:
        number = manager.run_now(transaction, FLOW)
        manager.update(transaction, flow(templates="FS:///z", cron="0 0 * ? * *"), "tester")
    orchestrator.start_accepted()
    assert orders(store) == [("a", 1, 1, False)]
    assert execution(store, number).version == 1


def test_unknown_executions_are_not_found(orchestrator: Orchestrator, store: ServiceStore) -> None:
    missing = ExecutionId(FLOW, 5)
    for call in (orchestrator.kill, orchestrator.resume):
        with pytest.raises(FlowNotFoundError, match="No flow execution found"):
            call(missing)
    orchestrator.report(JobReport(missing, "a", 1, 1, S.COMPLETE))


def jobs_of(store: ServiceStore, number: int) -> dict[str, tuple[ExecutionStatus, str]]:
    with store.read() as transaction:
        return {one.job.name: (one.status, one.message) for one in load_jobs(transaction, ExecutionId(FLOW, number))}


def test_killed_job_is_not_tried_again_and_what_follows_says_why_it_did_not_run(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b,FS:///c", properties={"job.maxAttempts": "3"}))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.RUNNING)
    orchestrator.kill_job(ExecutionId(FLOW, number), "a")
    assert orders(store)[-1] == ("a", 1, 1, True)
    with pytest.raises(FlowChangedError, match=r"Job a .* is being killed already"):
        orchestrator.kill_job(ExecutionId(FLOW, number), "a")
    report(orchestrator, number, "a", S.FAILED)
    assert execution(store, number).status is S.FAILED
    assert jobs_of(store, number) == {
        "a": (S.FAILED, "a FAILED"),
        "b": (S.CANCELLED, "not started: job a before it is FAILED"),
        "c": (S.CANCELLED, "not started: job b before it is CANCELLED"),
    }
    with pytest.raises(FlowChangedError, match=r"Job a .* is over"):
        orchestrator.kill_job(ExecutionId(FLOW, number), "a")
    with pytest.raises(FlowNotFoundError, match="has no job 'z'; it has: a, b, c"):
        orchestrator.kill_job(ExecutionId(FLOW, number), "z")
    orchestrator.resume(ExecutionId(FLOW, number))
    report(orchestrator, number, "a", S.FAILED, generation=2)
    assert orders(store)[-1] == ("a", 2, 2, False), "a resumed job has all its attempts again"


def test_job_that_waits_is_killed_before_it_started(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow(templates="FS:///a,FS:///b"))
    orchestrator.start_accepted()
    orchestrator.kill_job(ExecutionId(FLOW, number), "b")
    assert jobs_of(store, number)["b"] == (S.CANCELLED, "killed before it started")
    report(orchestrator, number, "a", S.COMPLETE)
    assert execution(store, number).status is S.CANCELLED


def test_jobs_of_a_killed_flow_say_so(store: ServiceStore, orchestrator: Orchestrator, create: Create) -> None:
    number = create(flow(templates="FS:///a,FS:///b"))
    orchestrator.start_accepted()
    orchestrator.kill(ExecutionId(FLOW, number))
    assert jobs_of(store, number)["b"] == (S.CANCELLED, "not started: the flow was killed")


@pytest.mark.parametrize(("option", "ends_as"), [(None, S.PENDING), ("FINISH_RUNNING", S.CANCELLED)])
def test_failure_option_of_the_flow_holds_until_its_execution_is_over(
    store: ServiceStore, clock: OwnClock, option: str | None, ends_as: ExecutionStatus
) -> None:
    dag = Dag((DagJob("a", "x", "{}"), DagJob("b", "x", "{}"), DagJob("c", "x", "{}", ("b",))))
    first = Orchestrator(store, lambda _: dag)
    properties = {} if option is None else {"flow.failureOption": option}
    with store.write() as transaction:
        number = (
            FlowManager(store, lambda _: dag, first).create(transaction, flow(properties=properties), "me").execution
        )
    first.start_accepted()
    again = Orchestrator(store, lambda _: dag)  # another process
    report(again, number, "a", S.FAILED)
    report(again, number, "b", S.COMPLETE)
    status, message = jobs_of(store, number)["c"]
    assert status is ends_as
    assert message == (
        "" if option is None else "not started: another job did not complete, and flow.failureOption is FINISH_RUNNING"
    )


def accept(store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, *numbers: int) -> None:
    with store.write() as transaction:
        spec = manager.require(transaction, FLOW)
        wanted = [(spec, number) for number in numbers]
        orchestrator.accept(transaction, wanted, Trigger.SCHEDULE, store.now(transaction))


def test_execution_waits_for_the_one_that_runs_however_many_are_behind_it(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create
) -> None:
    create(flow(cron="0 0 * ? * *"))
    accept(store, manager, orchestrator, *range(1, 1_003))
    assert orchestrator.start_accepted() == 1
    assert orchestrator.start_accepted() == 0
    assert execution(store, 2).status is S.PENDING


@pytest.mark.parametrize(("concurrency", "earlier"), [("queue", S.PENDING), ("refuse", S.FAILED), ("allow", S.RUNNING)])
def test_fire_time_that_is_claimed_late_heeds_an_execution_with_a_later_number(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create, concurrency: str, earlier: S
) -> None:
    create(flow(cron="0 0 * ? * *", properties={"flow.concurrency": concurrency}))
    accept(store, manager, orchestrator, 5)
    orchestrator.start_accepted()
    accept(store, manager, orchestrator, 3)
    orchestrator.start_accepted()
    assert (execution(store, 5).status, execution(store, 3).status) == (S.RUNNING, earlier)
    report(orchestrator, 5, "a", S.COMPLETE)
    orchestrator.start_accepted()
    assert execution(store, 3).status in (S.RUNNING, S.FAILED)


def test_report_whose_text_no_database_holds_is_taken_in(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow())
    orchestrator.start_accepted()
    told = "cell 'a\0b' of \udce4.csv"
    orchestrator.report(JobReport(ExecutionId(FLOW, number), "a", 1, 1, S.FAILED, told, "run", 0, "\0", "\udce4"))
    assert execution(store, number).message == "a: cell 'ab' of \\udce4.csv"


def test_change_whose_audit_row_cannot_be_left_does_not_happen(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    def away(_: Transaction) -> None:
        raise TransientError(problem="away")

    number = create(flow())
    one = ExecutionId(FLOW, number)
    orchestrator.start_accepted()
    with pytest.raises(TransientError):
        orchestrator.kill(one, away)
    with pytest.raises(TransientError):
        orchestrator.kill_job(one, "a", away)
    assert orders(store) == [("a", 1, 1, False)]
    report(orchestrator, number, "a", S.FAILED)
    with pytest.raises(TransientError):
        orchestrator.resume(one, away)
    assert execution(store, number).is_over


def two_failed(store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, concurrency: str) -> list[int]:
    """Let one execution fail and another one run; return their ids."""
    with store.write() as transaction:
        manager.create(transaction, flow(cron="0 0 * ? * *", properties={"flow.concurrency": concurrency}), "me")
        first = manager.run_now(transaction, FLOW)
    orchestrator.start_accepted()
    report(orchestrator, first, "a", S.FAILED)
    with store.write() as transaction:
        second = manager.run_now(transaction, FLOW)
    orchestrator.start_accepted()
    assert execution(store, second).status is S.RUNNING
    return [first, second]


def test_resume_waits_for_the_execution_that_runs(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator
) -> None:
    first, second = two_failed(store, manager, orchestrator, "queue")
    orchestrator.resume(ExecutionId(FLOW, first))
    waiting = execution(store, first)
    assert (waiting.status, waiting.is_over, waiting.generation) == (S.PENDING_RESUME, False, 1)
    assert waiting.message == f"waits for execution {second}"
    assert orchestrator.start_accepted() == 0
    report(orchestrator, second, "a", S.COMPLETE)
    assert orchestrator.start_accepted() == 1
    assert orders(store)[-1] == ("a", 2, 1, False)
    report(orchestrator, first, "a", S.COMPLETE, generation=2)
    assert execution(store, first).status is S.COMPLETE
    assert execution(store, first).finish_by is not None


def test_resume_that_waits_can_be_killed(store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator) -> None:
    first, second = two_failed(store, manager, orchestrator, "queue")
    orchestrator.resume(ExecutionId(FLOW, first))
    orchestrator.kill(ExecutionId(FLOW, first))
    ended = execution(store, first)
    assert (ended.status, ended.message, ended.is_over) == (S.CANCELLED, "killed before it went on", True)
    report(orchestrator, second, "a", S.COMPLETE)
    assert orchestrator.start_accepted() == 0
    orchestrator.resume(ExecutionId(FLOW, first))
    assert execution(store, first).status is S.RUNNING


def test_resume_beside_another_execution_follows_the_flow(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator
) -> None:
    first, second = two_failed(store, manager, orchestrator, "refuse")
    with pytest.raises(FlowChangedError, match=f"Execution {second} of flow g/n still runs"):
        orchestrator.resume(ExecutionId(FLOW, first))
    with store.write() as transaction:
        manager.delete(transaction, FLOW, "me")
    report(orchestrator, second, "a", S.COMPLETE)
    first, second = two_failed(store, manager, orchestrator, "allow")
    orchestrator.resume(ExecutionId(FLOW, first))
    assert {execution(store, one).status for one in (first, second)} == {S.RUNNING}


def test_report_that_comes_again_does_not_end_an_execution_that_waits_to_go_on(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator
) -> None:
    first, second = two_failed(store, manager, orchestrator, "queue")
    orchestrator.resume(ExecutionId(FLOW, first))
    report(orchestrator, first, "a", S.FAILED)
    assert execution(store, first).status is S.PENDING_RESUME
    report(orchestrator, second, "a", S.COMPLETE)
    assert orchestrator.start_accepted() == 1
    assert execution(store, first).status is S.RUNNING


def test_execution_that_waits_to_go_on_ends_with_its_flow(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator
) -> None:
    first, second = two_failed(store, manager, orchestrator, "queue")
    orchestrator.resume(ExecutionId(FLOW, first))
    with store.write() as transaction:
        manager.delete(transaction, FLOW, "me")
    ended = execution(store, first)
    told = "the flow was deleted while this execution waited"
    assert (ended.status, ended.is_over, ended.message) == (S.CANCELLED, True, told)
    report(orchestrator, second, "a", S.COMPLETE)
    assert orchestrator.start_accepted() == 0


class FullStore(ServiceStore):
    """A store whose disk may be full for one transaction."""

    is_full = False

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        if self.is_full:
            self.is_full = False
            raise StorageError(operation="use the state store", path=self.url, problem="database or disk is full")
        with super().write() as transaction:
            yield transaction


def test_report_that_comes_while_the_disk_is_full_loses_nothing_of_what_it_says(
    tmp_path: Path, clock: OwnClock
) -> None:
    with FullStore(f"sqlite:///{tmp_path}/service.db", clock) as store:
        orchestrator = Orchestrator(store, compile_flow)
        with store.write() as transaction:
            number = FlowManager(store, compile_flow, orchestrator).create(transaction, flow(), "me").execution
        orchestrator.start_accepted()
        store.is_full = True
        with pytest.raises(StorageError, match="disk is full"):
            report(orchestrator, number, "a", S.COMPLETE)
        report(orchestrator, number, "a", S.COMPLETE)
        with store.read() as transaction:
            [job] = load_jobs(transaction, ExecutionId(FLOW, number))
        assert (job.message, job.high_watermark) == ("a COMPLETE", "2")
