from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import IntegrityError

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    SequenceChangedError,
    StaleEpochError,
    StorageError,
    TransientError,
    WatermarkMovedError,
)
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.database import watched
from gobblin_dagster.state import LeaseGrant, StateStore, open_store
from gobblin_dagster.state.sql import store as sql_store
from gobblin_dagster.testing.conformance.state_store import ManualClock
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    ME,
    OTHER,
    START,
    TTL,
    URN,
    files_of,
    publish,
    sequence,
    state,
    take,
)
from tests.services.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[StateStore]:
    store = open_store(url, Path(), clock)
    yield store
    store.close()


@pytest.fixture
def by_hand(url: str, store: StateStore) -> Iterator[Engine]:
    """The same database, for a person who edits it."""
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg2:")))
    yield engine
    engine.dispose()


def edit(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the statements that are sent meanwhile."""
    sent: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", record)


# -- what the database itself refuses ----------------------------------------------------------------------------------
@pytest.mark.parametrize("blocking", ["prepared", "aborting", "quarantined"])
def test_the_database_refuses_a_second_unfinished_sequence(store: StateStore, by_hand: Engine, blocking: str) -> None:
    publish(store, "one")
    store.prepare(sequence("two", 1), take(store).epoch)
    edit(by_hand, f"UPDATE gobblin_sequences SET state = '{blocking}' WHERE state = 'prepared'")

    with pytest.raises(IntegrityError):
        edit(by_hand, "UPDATE gobblin_sequences SET state = 'prepared' WHERE state = 'committed'")


def test_sequence_whose_state_is_damaged_keeps_its_dataset_from_going_on(store: StateStore, by_hand: Engine) -> None:
    publish(store, "one")
    seq, epoch = sequence("two", 1), take(store).epoch
    store.prepare(seq, epoch)
    edit(by_hand, "UPDATE gobblin_sequences SET state = 'x' WHERE state = 'prepared'")
    with pytest.raises(CorruptRecordError, match=f"{seq.id} of dataset .* it is 'x', .* write 'prepared' in its place"):
        store.prepare(sequence("three", 1), epoch)
    with pytest.raises(CorruptRecordError, match="'x' is not a valid SequenceState"):
        store.load_sequence(seq.id)
    edit(by_hand, "UPDATE gobblin_sequences SET state = 'prepared' WHERE state = 'x'")
    store.commit(seq.id, epoch, CommitEffect(state(2), files_of(seq, ["1"])))
    edit(by_hand, "UPDATE gobblin_sequences SET state = 'x'")  # of those that are over, nobody is kept from anything
    store.prepare(sequence("three", 2), epoch)


def test_a_commit_is_refused_whole_where_the_version_was_moved(store: StateStore, by_hand: Engine) -> None:
    publish(store, "one")
    seq = sequence("two", 1)
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    edit(by_hand, "UPDATE gobblin_dataset_states SET version = 7")

    with pytest.raises(WatermarkMovedError, match="planned from version 1, the store holds 7"):
        store.commit(seq.id, epoch, CommitEffect(state(2), files_of(seq)))

    assert store.load_sequence(seq.id) == seq
    edit(by_hand, "UPDATE gobblin_dataset_states SET version = 1")
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == files_of(sequence("one"))


def test_a_first_commit_is_refused_whole_where_a_state_appeared(store: StateStore, by_hand: Engine) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    body = serialization.to_json(state(3)).replace(":", r"\:")  # else SQLAlchemy takes what follows for a parameter
    edit(
        by_hand,
        f"INSERT INTO gobblin_dataset_states (job, dataset_urn, version, body) VALUES ('{JOB}', '{URN}', 3, '{body}')",
    )

    with pytest.raises(WatermarkMovedError, match="planned from version 0, the store holds 3"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert store.load_sequence(seq.id) == seq
    assert store.load_snapshot(JOB, URN) == []


def test_a_path_is_published_once(store: StateStore) -> None:
    first = publish(store, "one")
    seq = sequence("two", 1)
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    with pytest.raises(CorruptRecordError, match="a path that is already in a snapshot"):
        store.commit(seq.id, epoch, CommitEffect(state(2), [*files_of(seq), files_of(first)[0]]))

    assert store.load_sequence(seq.id) == seq
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == files_of(first)


@pytest.mark.parametrize(
    "after", [state(2), state(1, urn="another"), state(1, job="another")], ids=["version", "urn", "job"]
)
def test_a_state_that_does_not_follow_the_sequence_is_refused(store: StateStore, after: Any) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    with pytest.raises(CorruptRecordError, match="expected the state of"):
        store.commit(seq.id, epoch, CommitEffect(after))

    assert store.load_sequence(seq.id) == seq


def test_an_unreadable_state_is_named(store: StateStore, by_hand: Engine) -> None:
    publish(store, "one")
    edit(by_hand, "UPDATE gobblin_dataset_states SET body = '{}'")

    with pytest.raises(CorruptRecordError, match=f"The state of dataset '{URN}' of job '{JOB}'"):
        store.load_dataset_states(JOB)


# -- waiting for another run's transaction (SQLite has one writer at a time)
# ---------------------------------------------
def test_a_damaged_run_record_hides_no_other(
    store: StateStore, by_hand: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (RunRecord(run_id, JOB, START, RunStatus.RUNNING) for run_id in ("run-1", "run-2"))
    for record in (one, other):
        store.save_run(record)
    edit(by_hand, "UPDATE gobblin_runs SET body = '{' WHERE run_id = 'run-1'")
    assert store.load_runs() == store.load_runs(JOB) == store.find_runs(JOB, ["run-1", "run-2"]) == [other]
    assert caplog.text.count("The record of run run-1 is damaged, and left out: ") == 3


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(postgres_server.new_database())


def while_another_run(url: str, does: str, call: Callable[[], object]) -> object:
    """Let another run's transaction end only once `call` waits for it; return what `call` returns or raises."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg2"))
    waiting = text("SELECT count(*), pg_sleep(0.01) FROM pg_locks WHERE NOT granted")
    with ThreadPoolExecutor(1) as pool, engine.connect() as watcher:
        with engine.begin() as other:
            other.execute(text(does))
            outcome = pool.submit(call)
            while not watcher.execute(waiting).scalar_one():
                assert not outcome.done(), "it did not wait"
        error = outcome.exception()
    engine.dispose()
    return error if error is not None else outcome.result()


TAKE_OVER = "UPDATE gobblin_leases SET epoch = epoch + 1, run_id = 'run-thief', until = now() + interval '1 hour'"


@pytest.mark.postgres
@pytest.mark.parametrize("step", ["prepare", "commit", "start_abort"])
def test_a_takeover_under_way_is_waited_for_and_then_obeyed(postgres_url: str, tmp_path: Path, step: str) -> None:
    store = open_store(postgres_url, tmp_path)
    seq = sequence("one")
    epoch = take(store).epoch
    if step != "prepare":
        store.prepare(seq, epoch)
    before = store.load_sequence(seq.id)
    calls: dict[str, Callable[[], None]] = {
        "prepare": lambda: store.prepare(seq, epoch),
        "commit": lambda: store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq))),
        "start_abort": lambda: store.start_abort(seq.id, epoch, "gave up"),
    }

    assert isinstance(while_another_run(postgres_url, TAKE_OVER, calls[step]), StaleEpochError)

    assert store.load_sequence(seq.id) == before
    assert store.load_dataset_states(JOB) == {}
    store.close()


@pytest.mark.postgres
def test_a_takeover_under_way_makes_the_dataset_busy(postgres_url: str, tmp_path: Path) -> None:
    store = open_store(postgres_url, tmp_path)
    take(store, OTHER, ttl=-TTL)

    grant = while_another_run(postgres_url, TAKE_OVER, lambda: store.acquire_leases(JOB, [URN], ME, TTL))

    assert isinstance(grant, LeaseGrant)
    assert {urn: lease.owner.run_id for urn, lease in grant.busy.items()} == {URN: "run-thief"}
    store.close()


@pytest.mark.postgres
def test_a_takeover_under_way_is_neither_prolonged_nor_released(postgres_url: str, tmp_path: Path) -> None:
    store = open_store(postgres_url, tmp_path)
    ours = [take(store)]

    assert while_another_run(postgres_url, TAKE_OVER, lambda: store.renew_leases(JOB, ours, TTL)) == {}

    ours = [take(store, ME, "second"), *store.load_leases(JOB).values()]
    while_another_run(postgres_url, TAKE_OVER, lambda: store.release_leases(JOB, ours))

    assert {lease.owner.run_id for lease in store.load_leases(JOB).values()} == {"run-thief"}
    store.close()


@pytest.mark.postgres
def test_a_flip_under_way_is_waited_for_and_then_left_alone(postgres_url: str, tmp_path: Path) -> None:
    store = open_store(postgres_url, tmp_path)
    seq = sequence("one")
    store.prepare(seq, take(store).epoch)
    flip = "UPDATE gobblin_sequences SET state = 'committed'"

    refusal = while_another_run(postgres_url, flip, lambda: store.quarantine(seq.id, "gave up"))

    assert isinstance(refusal, SequenceChangedError)
    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.COMMITTED)
    store.close()


# -- lost answers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("obeyed", [True, False], ids=["after it was done", "before it was done"])
def test_a_lost_answer_to_commit_is_told_and_the_sequence_tells_the_truth(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, obeyed: bool
) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    def lose_the_answer(dialect: DefaultDialect, connection: Any) -> None:
        (connection.commit if obeyed else connection.rollback)()
        raise dialect.loaded_dbapi.OperationalError("the line\nwent dead")

    with monkeypatch.context() as patched:
        for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg2):
            patched.setattr(dialect, "do_commit", lose_the_answer)
        with pytest.raises(CommitStateUnknownError, match=r"the line went dead\.") as caught:
            store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert (caught.value.dataset_urn, caught.value.sequence_id) == (URN, seq.id)
    found = store.load_sequence(seq.id)
    assert found is not None
    assert found.state is (SequenceState.COMMITTED if obeyed else SequenceState.PREPARED)
    assert bool(store.load_dataset_states(JOB)) == obeyed
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == files_of(seq)


@pytest.mark.postgres
def test_a_server_process_killed_while_it_commits_leaves_the_fate_unknown(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = postgres_server.new_database()
    store = open_store(postgres_server.url(name), tmp_path)
    postgres_server.execute(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
        name,
    )
    postgres_server.execute(
        "CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON gobblin_dataset_states DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die()",
        name,
    )
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    with pytest.raises(CommitStateUnknownError, match="terminat"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert store.load_sequence(seq.id) == seq
    postgres_server.execute("DROP TRIGGER dies ON gobblin_dataset_states", name)
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    store.close()


@pytest.mark.postgres
def test_a_server_process_killed_before_it_commits_is_worth_a_retry(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = postgres_server.new_database()
    store = open_store(postgres_server.url(name), tmp_path)
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    postgres_server.execute(
        "CREATE RULE die AS ON INSERT TO gobblin_snapshot_files "
        "DO ALSO SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)",
        name,
    )

    with pytest.raises(TransientError, match="terminat"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert store.load_sequence(seq.id) == seq
    assert store.load_dataset_states(JOB) == {}
    store.close()


# -- clocks ------------------------------------------------------------------------------------------------------------
@pytest.mark.postgres
def test_a_server_that_falls_silent_is_given_up(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "LOOK_S", 0.02)
    monkeypatch.setattr(sql_store, "ANSWER_WITHIN_S", 0.3)
    with closing(open_store(postgres_url, tmp_path)) as store:
        silent = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg2"))
        with silent.begin() as connection:
            # As long as this transaction lasts, no other one gets an answer from the table.
            connection.execute(text("LOCK TABLE gobblin_leases IN ACCESS EXCLUSIVE MODE"))
            with pytest.raises(TransientError, match="cannot be used now"):
                store.load_leases(JOB)
        silent.dispose()
        assert not store.load_leases(JOB)


def test_in_sqlite_leases_expire_by_the_injected_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store("sqlite:///state.db", tmp_path, clock)

    lease = take(store, OTHER)
    assert lease.until == START + TTL
    clock.advance(TTL - timedelta(microseconds=1))
    assert set(store.acquire_leases(JOB, [URN], ME, TTL).busy) == {URN}
    clock.advance(timedelta(microseconds=1))

    taken = take(store)
    assert (taken.epoch, taken.until) == (lease.epoch + 1, START + 2 * TTL)
    assert store.renew_leases(JOB, [taken], 2 * TTL)[URN].until == START + 3 * TTL
    store.close()


@pytest.mark.postgres
def test_in_postgres_leases_expire_by_the_server_s_clock(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.url(postgres_server.new_database())
    ahead, behind = ManualClock(), ManualClock()
    ahead.advance(timedelta(days=3650))
    behind.advance(timedelta(days=-3650))

    take(open_store(url, tmp_path, behind), OTHER)

    assert set(open_store(url, tmp_path, ahead).acquire_leases(JOB, [URN], ME, TTL).busy) == {URN}


# -- few statements ----------------------------------------------------------------------------------------------------
def test_ten_thousand_datasets_cost_a_few_statements(store: StateStore) -> None:
    urns = [f"dataset/{n:05}" for n in range(10_000)]

    with statements() as acquiring:
        granted = list(store.acquire_leases(JOB, urns, ME, TTL).granted.values())
    with statements() as renewing:
        store.renew_leases(JOB, granted, TTL)
    with statements() as releasing:
        store.release_leases(JOB, granted)
    with statements() as loading:
        assert store.load_dataset_states(JOB, urns) == {}

    assert len(granted) == len(urns)
    reads = [sent for sent in loading if sent.startswith("SELECT") and "gobblin_dataset_states" in sent]
    assert len(reads) == 1
    assert all(len(sent) <= 6 for sent in (acquiring, renewing, releasing, loading))


def test_the_statements_of_a_commit_do_not_grow_with_its_files(store: StateStore) -> None:
    counts = []
    for version, files in ((0, 1), (1, 500)):
        seq = sequence(f"of {files}", version)
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        with statements() as sent:
            store.commit(seq.id, epoch, CommitEffect(state(version + 1), files_of(seq, [str(n) for n in range(files)])))
        counts.append(len(sent))

    assert counts[1] <= counts[0] + 1


# -- use after trouble -------------------------------------------------------------------------------------------------
def test_a_database_without_its_tables_says_so(store: StateStore, by_hand: Engine) -> None:
    edit(by_hand, "DROP TABLE gobblin_runs")

    with pytest.raises(StorageError, match="gobblin_runs"):
        store.load_runs()


def test_waiting_sequences_are_found_without_reading_all_others(tmp_path: Path) -> None:
    asked: list[tuple[str, Any]] = []

    def ask(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT") and "gobblin_sequences" in statement:
            asked.append((statement, parameters))

    store = open_store(f"sqlite:///{tmp_path}/state.db", tmp_path)
    try:
        epoch = take(store).epoch
        event.listen(Engine, "before_cursor_execute", ask)
        store.prepare(sequence("one"), epoch)
        assert [one.id for one in store.load_sequences(JOB)] == [sequence("one").id]
    finally:
        event.remove(Engine, "before_cursor_execute", ask)
        store.close()
    engine = create_engine(f"sqlite:///{tmp_path}/state.db")
    with engine.connect() as connection:
        plans = [
            " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters))
            for statement, parameters in asked
        ]
    engine.dispose()
    used = [re.findall(r"INDEX gobblin_sequences_(one_blocking|by_version)", plan) for plan in plans]
    assert used == [["one_blocking"], ["by_version"], ["one_blocking"], ["one_blocking"]], plans


def test_damaged_id_of_a_run_hides_no_other(tmp_path: Path) -> None:
    """It kept the job from running after a crash."""
    with closing(open_store(f"sqlite:///{tmp_path}/state.db", tmp_path)) as store:
        one, other = (RunRecord(run_id, JOB, START, RunStatus.RUNNING) for run_id in ("run-1", "run-2"))
        for record in (one, other):
            store.save_run(record)
        with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
            database.execute("UPDATE gobblin_runs SET run_id = x'ff00' WHERE run_id = 'run-1'")
        assert store.find_runs(JOB, ["run-1", "run-2"]) == [other]
