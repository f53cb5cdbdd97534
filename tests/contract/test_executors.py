"""One suite over all executors: orders and reports that come twice, late or after a kill change nothing.

G13 to G16 of the service's failure table: a job is ordered at least once and takes effect once, wherever service and
worker are killed around produce, mark and acknowledge.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.order_rows import list_orders
from gobblin_dagster.service.store.store import ServiceStore
from tests.contract.dagster_world import DagsterWorld
from tests.contract.executor_worlds import (
    EmbeddedWorld,
    GobblinKafkaWorld,
    KafkaWorld,
    Killed,
    PostgresStoreWorld,
    RemoteDagsterWorld,
    RemoteWorld,
    RestWorld,
    StoreWorld,
    World,
)
from tests.services.postgres import PostgresServer

S = ExecutionStatus

WORLDS = [
    pytest.param((EmbeddedWorld, "sqlite"), id="embedded"),
    pytest.param((StoreWorld, "sqlite"), id="store"),
    pytest.param((KafkaWorld, "sqlite"), id="kafka"),
    pytest.param((GobblinKafkaWorld, "sqlite"), id="kafka-gobblin"),
    pytest.param((DagsterWorld, "sqlite"), id="dagster"),
    pytest.param((RestWorld, "sqlite"), id="rest"),
    pytest.param((RemoteDagsterWorld, "sqlite"), id="dagster-remote"),
    pytest.param((PostgresStoreWorld, "postgres"), id="store-postgres", marks=pytest.mark.postgres),
]


@pytest.fixture(scope="module")
def empty_service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    folder = tmp_path_factory.mktemp("empty-service")
    ServiceStore(f"sqlite:///{folder}/service.db", SystemClock()).close()
    return folder / "service.db"


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    make, database = request.param
    shutil.copy(request.getfixturevalue("empty_service"), tmp_path / "empty.db")
    if database == "sqlite":
        shutil.copy(tmp_path / "empty.db", tmp_path / "service.db")
        url = f"sqlite:///{tmp_path}/service.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.new_database())
    made: World = make(url, tmp_path)
    yield made
    made.close()


def key(world: World, execution: ExecutionId) -> JobKey:
    job = world.job(execution)
    return JobKey.of(execution, job.job.name, job.generation, job.attempt)


def until_killed(world: World, steps: Callable[[], object]) -> bool:
    """Do steps; if a kill comes, start again with what is durable and return True."""
    try:
        steps()
    except Killed:
        world.start()
        return True
    return False


def test_job_that_is_ordered_runs_once_and_is_reported(world: World) -> None:
    execution = world.order()
    assert world.passes(execution)
    job = world.job(execution)
    assert (job.status, job.attempt, job.processed_count) == (S.COMPLETE, 1, 7)
    assert job.run_id
    assert job.started_at is not None
    assert world.begun == [key(world, execution)]
    assert world.executor().list() == []


def test_kill_at_any_step_loses_no_job_and_runs_none_that_was_reported(world: World) -> None:
    """G14, G15: kills around produce, mark, acknowledge, before the effect and after it."""
    at = 1 - world.stride
    while True:
        at += world.stride
        execution = world.order()
        before = len(world.begun)
        world.kills.arm(at)
        was_killed = until_killed(world, partial(world.passes, execution))
        world.kills.arm(0)
        assert world.passes(execution), f"killed at step {at}: the execution does not end"
        job = world.job(execution)
        assert (job.status, job.attempt) == (S.COMPLETE, 1), f"killed at step {at}: {job.message}"
        assert key(world, execution) in world.published
        assert 1 <= len(world.begun) - before <= 1 + was_killed, f"killed at step {at}"
        if not was_killed:
            break
    assert at > 4, "there are steps to be killed at"


def test_kill_while_a_flow_is_killed_ends_it_in_one_status(world: World) -> None:
    """A stop that meets a kill ends the job once, as cancelled or, if it was faster, as complete."""
    at = 1 - world.stride
    while True:
        at += world.stride
        execution = world.order()

        def ended(execution: ExecutionId = execution) -> None:
            world.service_pass()
            world.orchestrator.kill(execution)
            world.passes(execution)

        world.kills.arm(at)
        was_killed = until_killed(world, ended)
        world.kills.arm(0)
        if not world.is_over(execution) and not is_kill_asked(world, execution):
            world.orchestrator.kill(execution)
        assert world.passes(execution), f"killed at step {at}: the execution does not end"
        job = world.job(execution)
        assert job.status in (S.CANCELLED, S.COMPLETE)
        assert (job.status is S.CANCELLED) == (key(world, execution) not in world.published) or was_killed
        if not was_killed:
            break
    assert at > 2


def is_kill_asked(world: World, execution: ExecutionId) -> bool:
    from gobblin_dagster.service.store.execution_rows import load_execution

    with world.store.read() as transaction:
        found = load_execution(transaction, execution)
    assert found is not None
    return found.is_kill_requested


def test_order_that_comes_again_begins_nothing(world: World) -> None:
    execution = world.order()
    world.service_pass()
    order = RunOrder(key(world, execution), "", world.job(execution).job.body)
    world.executor().add(order)
    world.worker_pass()
    world.executor().add(order)
    assert world.passes(execution)
    world.executor().add(order)
    for _ in range(3):
        world.service_pass()
        world.worker_pass()
    assert world.begun == [order.key]
    assert world.job(execution).status is S.COMPLETE


def test_stop_before_the_beginning_cancels_and_nothing_begins_later(world: World) -> None:
    execution = world.order()
    world.service_pass()
    one = key(world, execution)
    world.executor().delete(one)
    world.executor().delete(one)
    assert world.passes(execution)
    assert world.job(execution).status is S.CANCELLED
    world.executor().add(RunOrder(one, "", world.body))
    world.service_pass()
    world.worker_pass()
    assert world.begun == []


def test_late_reports_of_an_older_attempt_change_nothing(world: World) -> None:
    execution = world.order(attempts=2)
    first = key(world, execution)
    failed = JobReport(execution, first.job, 1, 1, S.FAILED, "lost")
    world.orchestrator.report(failed)
    assert world.job(execution).attempt == 2
    assert world.passes(execution)
    job = world.job(execution)
    assert (job.status, job.attempt) == (S.COMPLETE, 2)
    world.orchestrator.report(failed)
    assert world.job(execution).status is S.COMPLETE


def test_job_that_has_not_begun_takes_another_body(world: World) -> None:
    execution = world.order()
    world.service_pass()
    world.executor().update(RunOrder(key(world, execution), "", '{"n": 2}'))
    assert world.passes(execution)
    world.executor().update(RunOrder(key(world, execution), "", '{"n": 3}'))
    assert world.job(execution).status is S.COMPLETE


def test_executor_tells_where_it_is_and_why_jobs_would_wait(world: World) -> None:
    executor = world.executor()
    assert executor.name == world.queue
    assert executor.uri.partition(":")[0]
    world.lose_it()
    assert executor.health()


@pytest.mark.parametrize("make", [StoreWorld, KafkaWorld, RestWorld], ids=["store", "kafka", "rest"])
def test_job_is_left_to_a_worker_that_has_what_it_needs(
    make: Callable[[str, Path], RemoteWorld], empty_service: Path, tmp_path: Path
) -> None:
    for name in ("service", "empty"):
        shutil.copy(empty_service, tmp_path / f"{name}.db")
    world = make(f"sqlite:///{tmp_path}/service.db", tmp_path)
    world.about = {"constructs": ["source.files"], "extras": [], "modules": None}
    world.start()
    world.body = '{"source": {"type": "kafka"}}'
    execution = world.order()
    assert not world.passes(execution, 1)
    world.body = '{"source": {"type": "files"}}'
    assert world.passes(world.order()), "a job that comes later and that the worker can run does not wait"
    world.about = {"constructs": ["source.kafka"], "extras": ["kafka"], "modules": None}
    world.start()
    assert world.passes(execution)
    world.close()


@pytest.fixture
def embedded(empty_service: Path, tmp_path: Path) -> Iterator[EmbeddedWorld]:
    shutil.copy(empty_service, tmp_path / "service.db")
    made = EmbeddedWorld(f"sqlite:///{tmp_path}/service.db", tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("has_begun", [False, True])
def test_stop_whose_answer_is_lost_is_taken_again(embedded: EmbeddedWorld, has_begun: bool) -> None:
    execution = embedded.order()
    if has_begun:
        embedded.monitor.step()
    embedded.orchestrator.kill(execution)
    assert [one.is_stop for one in embedded.inlet.take(2)] == [True]
    assert embedded.passes(execution)
    assert (embedded.job(execution).status, embedded.begun) == (S.CANCELLED, [])
    embedded.monitor.step()
    with embedded.store.read() as transaction:
        assert list_orders(transaction, "embedded") == [], "a stop stays until the job is over, and no longer"


def test_job_that_is_to_stop_is_not_begun_again_by_the_next_node(embedded: EmbeddedWorld) -> None:
    execution = embedded.order()
    embedded.monitor.step()
    embedded.orchestrator.kill(execution)
    embedded.monitor.step()
    embedded.start()  # killed while the job ends
    assert embedded.passes(execution)
    assert (embedded.job(execution).status, embedded.begun) == (S.CANCELLED, [])


def test_attempt_whose_taking_was_never_answered_begins_though_one_before_it_had_a_run(
    embedded: EmbeddedWorld,
) -> None:
    execution = embedded.order(attempts=2)
    embedded.monitor.step()
    first = key(embedded, execution)
    assert embedded.job(execution).run_id
    embedded.orchestrator.report(JobReport(execution, first.job, 1, 1, S.FAILED, "lost"))
    assert embedded.job(execution).run_id == "", "the second attempt has no run yet"
    embedded.worker.forget()
    assert [one.key.attempt for one in embedded.inlet.take(2)] == [2]
    assert embedded.passes(execution)
    assert [one.attempt for one in embedded.begun] == [2]


def test_more_jobs_than_an_executor_may_have_wait_in_order(empty_service: Path, tmp_path: Path) -> None:
    shutil.copy(empty_service, tmp_path / "service.db")
    world = StoreWorld(f"sqlite:///{tmp_path}/service.db", tmp_path)
    executor = world.dispatcher.executor
    executions = [world.order() for _ in range(4)]

    def restarted() -> None:
        world.start()
        world.dispatcher = Dispatcher(world.store, executor, world.orchestrator.report, jobs_at_once=2)
        world.dispatcher.step()

    restarted()
    restarted()  # counts are in the database
    first = [key(world, one) for one in executions[:2]]
    assert sorted(executor.list()) == sorted(first)
    world.orchestrator.kill(executions[3])
    world.dispatcher.step()
    assert sorted(executor.list()) == sorted(first), "what waits is killed without a place"
    world.dispatcher.step()
    assert sorted(executor.list()) == sorted(first), "nor does its order leave a place to others"
    assert world.job(executions[3]).status is S.CANCELLED
    assert all(world.passes(one) for one in executions[:3])
    assert [world.job(one).status for one in executions] == [S.COMPLETE] * 3 + [S.CANCELLED]
    world.close()
