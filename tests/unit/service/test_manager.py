"""Changes of one flow at the same moment: each sees what the one before it left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from gobblin_dagster.core.errors import FlowChangedError, FlowExistsError, FlowNotFoundError, GobblinDagsterError
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport, Schedule
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes

from .conftest import Create, flow

CRON = "0 0 * ? * *"
OURS, THEIRS = "FS:///ours", "FS:///theirs"
Call = Callable[[Transaction], object]

postgres = pytest.mark.parametrize("store_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def raced(store: ServiceStore, first: Call, second: Call) -> GobblinDagsterError | None:
    """Let the second call begin before the first one's transaction ends; return what the second one raises."""
    raised: list[GobblinDagsterError | None] = []

    def run() -> None:
        try:
            with store.write() as transaction:
                second(transaction)
            raised.append(None)
        except GobblinDagsterError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    with store.write() as transaction:
        first(transaction)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        until(lambda: bool(transaction.execute(waiting).scalar_one()))
    thread.join()
    return raised[0]


@postgres
def test_change_for_a_version_that_another_change_replaces_is_refused(
    store: ServiceStore, manager: FlowManager, create: Create
) -> None:
    create(flow(cron=CRON))
    ours, theirs = flow(templates=OURS, cron=CRON), flow(templates=THEIRS, cron=CRON)
    error = raced(
        store,
        lambda transaction: manager.update(transaction, ours, "we", version=1),
        lambda transaction: manager.update(transaction, theirs, "they", version=1),
    )
    assert isinstance(error, FlowChangedError)
    assert "has version 2, not 1" in str(error)
    error = raced(
        store,
        lambda transaction: manager.update(transaction, ours, "we", version=2),
        lambda transaction: manager.delete(transaction, ours.id, "they", version=2),
    )
    assert isinstance(error, FlowChangedError)
    (page,) = manager.history(ours.id)
    assert [spec.config.template_uris for spec in page.specs] == ["FS:///a", OURS, OURS]


@postgres
def test_change_of_a_flow_that_is_deleted_at_the_same_moment_does_not_bring_it_back(
    store: ServiceStore, manager: FlowManager, create: Create
) -> None:
    key = FlowId("g", "n")
    later: dict[str, Call] = {
        "update": lambda transaction: manager.update(transaction, flow(templates=OURS, cron=CRON), "we"),
        "pause": lambda transaction: manager.pause(transaction, key, "we", paused=True),
        "delete": lambda transaction: manager.delete(transaction, key, "we"),
    }
    for name, call in later.items():
        create(flow(cron=CRON))
        error = raced(store, lambda transaction: manager.delete(transaction, key, "they"), call)
        assert isinstance(error, FlowNotFoundError), name
        with pytest.raises(FlowNotFoundError):
            manager.get(key)


@postgres
def test_pause_keeps_an_update_of_the_same_moment(store: ServiceStore, manager: FlowManager, create: Create) -> None:
    create(flow(cron=CRON))
    ours = flow(templates=OURS, cron=CRON)
    error = raced(
        store,
        lambda transaction: manager.update(transaction, ours, "we"),
        lambda transaction: manager.pause(transaction, ours.id, "they", paused=True),
    )
    spec = manager.get(ours.id)
    assert (error, spec.config.template_uris, spec.is_paused, spec.version) == (None, OURS, True, 3)


@postgres
def test_of_two_creates_at_once_one_is_refused_and_others_wait_for_no_compiler(
    store: ServiceStore, manager: FlowManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raced(
        store,
        lambda transaction: manager.create(transaction, flow(cron=CRON), "we"),
        lambda transaction: manager.create(transaction, flow(templates=THEIRS, cron=CRON), "they"),
    )
    assert isinstance(error, FlowExistsError)
    compiled: list[Any] = []
    compile_flow = manager._compile

    def slow(config: Any) -> Any:
        if config.id.name == "slow":
            # Another flow is created and durable while this one is compiled.
            with store.write() as transaction:
                manager.create(transaction, replace(flow(cron=CRON), id=FlowId("g", "quick")), "they")
        compiled.append(config)
        return compile_flow(config)

    monkeypatch.setattr(manager, "_compile", slow)
    with store.write() as transaction:
        manager.create(transaction, flow("slow", cron=CRON), "we")
    assert [config.id.name for config in compiled] == ["quick", "slow"]


@postgres
def test_end_of_a_flow_that_runs_once_keeps_an_update_of_the_same_moment(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow())
    orchestrator.start_accepted()
    ours = flow(templates=OURS, cron=CRON)
    done = JobReport(ExecutionId(ours.id, number), "a", 1, 1, ExecutionStatus.COMPLETE)
    raced(store, lambda transaction: manager.update(transaction, ours, "we"), lambda _: orchestrator.report(done))
    spec = manager.get(ours.id)
    assert (spec.config.template_uris, spec.version) == (OURS, 2)


@postgres
def test_run_now_and_an_update_that_runs_do_not_wait_for_each_other(
    store: ServiceStore, manager: FlowManager, create: Create
) -> None:
    """Both write an execution of the same millisecond, and both leave an audit row."""
    create(flow(cron=CRON))
    now = flow(templates=OURS, schedule=Schedule(CRON, run_immediately=True))
    numbers: list[int] = []

    def run(transaction: Transaction) -> None:
        numbers.append(manager.run_now(transaction, now.id))
        serialize_changes(transaction)  # as the audit row does

    def change(transaction: Transaction) -> None:
        numbers.append(manager.update(transaction, now, "they").execution)

    assert raced(store, run, change) is None
    assert raced(store, change, run) is None
    assert len({*numbers}) == 4


@postgres
def test_kill_waits_for_the_catalog_before_it_locks_the_execution(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create
) -> None:
    """The audit row of a kill needs the catalog's lock; a delete has it, and cancels executions that wait."""
    create(flow(cron=CRON))
    with store.write() as transaction:
        number = manager.run_now(transaction, FlowId("g", "n"))
    refused: list[str] = []

    def kill() -> None:
        try:
            orchestrator.kill(ExecutionId(FlowId("g", "n"), number), serialize_changes)
        except FlowChangedError as error:
            refused.append(str(error))

    thread = threading.Thread(target=kill)
    with store.write() as transaction:
        serialize_changes(transaction)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        until(lambda: bool(transaction.execute(waiting).scalar_one()))
        manager.delete(transaction, FlowId("g", "n"), "they")
    thread.join()
    assert len(refused) == 1
    assert "is over" in refused[0]


def test_executions_that_wait_end_with_their_flow_and_those_that_run_go_on(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create
) -> None:
    create(flow(cron=CRON))
    key = FlowId("g", "n")
    with store.write() as transaction:
        runs, waits = (manager.run_now(transaction, key) for _ in range(2))
    orchestrator.start_accepted()
    with store.write() as transaction:
        manager.delete(transaction, key, "we")
    orchestrator.report(JobReport(ExecutionId(key, runs), "a", 1, 1, ExecutionStatus.COMPLETE))
    assert orchestrator.start_accepted() == 0
    with store.read() as transaction:
        later, first = list_executions(transaction, key)
        [_, told] = list_events(transaction, later.id)
    assert (later.id.number, later.status, first.status) == (waits, ExecutionStatus.CANCELLED, ExecutionStatus.COMPLETE)
    assert later.message == told.message == "the flow was deleted while this execution waited"
    assert later.ended_at is not None


def test_rollback_keeps_the_pause_and_the_folder(store: ServiceStore, manager: FlowManager, create: Create) -> None:
    create(flow(cron=CRON))
    key = FlowId("g", "n")
    with store.write() as transaction:
        manager.update(transaction, flow(templates=OURS, cron=CRON), "we", managed_by="folder")
        manager.pause(transaction, key, "we", paused=True)
    first = manager.check(manager.in_version(key, 1))
    with pytest.raises(FlowChangedError, match="has version 3, not 2"), store.write() as transaction:
        manager.roll_back(transaction, first, "we", version=2)
    with store.write() as transaction:
        manager.roll_back(transaction, first, "we", version=3)
    spec = manager.get(key)
    assert (spec.config.template_uris, spec.is_paused, spec.managed_by) == ("FS:///a", True, "folder")
    with store.write() as transaction:
        manager.delete(transaction, key, "we")
    with store.write() as transaction:
        manager.roll_back(transaction, first, "we")
    assert not manager.get(key).is_paused, "a flow that comes back is new"
    with pytest.raises(FlowNotFoundError, match="no version 9"):
        manager.in_version(key, 9)
