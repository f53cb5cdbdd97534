from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_dagster.constructs.clients import sql
from gobblin_dagster.core.errors import StorageError, TransientError, UsageError
from gobblin_dagster.core.utils import cut_off
from gobblin_dagster.database import engine as sql_engine
from gobblin_dagster.database.engine import WRITE, errors_of, make_engine, parse_url, shown_url
from tests.services.postgres import PostgresServer


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    engine = make_engine(make_url(f"sqlite:///{tmp_path}/state.db"))
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_engine(postgres_server: PostgresServer) -> Iterator[Engine]:
    name = postgres_server.new_database()
    postgres_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    engine = make_engine(parse_url(postgres_server.url(name)))
    yield engine
    engine.dispose()


def run(engine: Engine, *statements: str) -> None:
    """Run statements in one writing transaction, as the store does."""
    with errors_of("shown"), engine.execution_options(**{WRITE: True}).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def setting(connection: Connection, statement: str) -> object:
    return connection.execute(text(statement)).scalar_one()


def test_every_sqlite_connection_is_durable_and_waits_for_locks(sqlite_engine: Engine) -> None:
    with sqlite_engine.connect() as one, sqlite_engine.connect() as two:
        for connection in (one, two):
            assert setting(connection, "PRAGMA journal_mode") == "wal"
            assert setting(connection, "PRAGMA synchronous") == 2  # FULL
            assert setting(connection, "PRAGMA busy_timeout") == 30_000


def test_a_writing_transaction_holds_the_lock_from_its_first_moment(tmp_path: Path, sqlite_engine: Engine) -> None:
    stranger = sqlite3.connect(tmp_path / "state.db", timeout=0, isolation_level=None)

    with sqlite_engine.execution_options(**{WRITE: True}).begin() as connection:
        assert setting(connection, "SELECT 1") == 1
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            stranger.execute("BEGIN IMMEDIATE")
    with sqlite_engine.begin() as connection:
        assert setting(connection, "SELECT 1") == 1
        stranger.execute("BEGIN IMMEDIATE")
    stranger.close()


def test_an_interrupt_inside_of_a_statement_gives_the_lock_back_while_its_error_is_still_held(
    tmp_path: Path, sqlite_engine: Engine
) -> None:
    run(sqlite_engine, "CREATE TABLE rows (id)", "INSERT INTO rows VALUES (1), (2)")
    stranger = sqlite3.connect(tmp_path / "state.db", timeout=0, isolation_level=None)

    @event.listens_for(sqlite_engine, "after_cursor_execute")
    def interrupt(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):  # its rows are not read yet, so SQLite has not ended it
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(sqlite_engine, "INSERT INTO rows VALUES (3)", "SELECT id FROM rows")
    stranger.execute("BEGIN IMMEDIATE")
    assert stranger.execute("SELECT id FROM rows").fetchall() == [(1,), (2,)]
    stranger.close()
    assert caught.value is not None


def test_interrupt_ends_the_wait_for_another_writer_and_its_end_is_recorded_in_time(
    tmp_path: Path, sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = sqlite_engine.execution_options(**{WRITE: True})
    run(writer, "CREATE TABLE rows (id)")
    stranger = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            run(writer, "SELECT 1")
    finally:
        signal.signal(signal.SIGINT, former)
    monkeypatch.setattr(cut_off, "RECORD_S", 0.1)
    cut_off.cut_off_all()
    try:
        with pytest.raises(TransientError, match="locked"):
            run(writer, "SELECT 1")
    finally:
        assert cut_off.was_cut_off()
    assert time.monotonic() - began < 15
    stranger.close()
    run(writer, "SELECT 1")


def test_schema_changes_are_rolled_back_with_their_transaction(sqlite_engine: Engine) -> None:
    with sqlite_engine.execution_options(**{WRITE: True}).connect() as connection:
        transaction = connection.begin()
        connection.execute(text("CREATE TABLE t (a)"))
        transaction.rollback()

    with sqlite_engine.begin() as connection:
        assert setting(connection, "SELECT count(*) FROM sqlite_master") == 0


def test_sentence_of_the_database_ends_once() -> None:
    said = OperationalError("SELECT 1", {}, Exception("it ended\n\twhile processing the request.\n"))
    with pytest.raises(TransientError, match=r"while processing the request\.$"), errors_of("shown"):
        raise said


def test_a_lock_that_is_never_given_back_is_worth_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_engine, "LOCK_WAIT_S", 0)
    engine = make_engine(make_url(f"sqlite:///{tmp_path}/state.db"))
    stranger = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")

    with pytest.raises(TransientError, match="State store shown cannot be used now: database is locked"):
        run(engine, "SELECT 1")

    stranger.close()


def test_a_new_file_that_another_program_sets_up_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SQLite does not always wait by itself when the mode of a file changes; here it never does.
    monkeypatch.setattr(sql_engine, "LOCK_WAIT_S", 0)
    engine = make_engine(make_url(f"sqlite:///{tmp_path}/state.db"))
    monkeypatch.setattr(sql_engine, "LOCK_WAIT_S", 30)
    stranger = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")
    # The engine's alone: threads of earlier tests sleep too.
    own = SimpleNamespace(sleep=lambda _seconds: stranger.close(), monotonic=time.monotonic)
    monkeypatch.setattr(sql_engine, "time", own)

    run(engine, "SELECT 1")

    engine.dispose()


def test_a_full_disk_is_no_matter_of_retrying(sqlite_engine: Engine) -> None:
    with pytest.raises(
        StorageError, match="cannot use the state store shown: database or disk is full; its folder must be writable"
    ):
        run(
            sqlite_engine,
            "PRAGMA max_page_count = 2",
            "CREATE TABLE t (a)",
            "INSERT INTO t VALUES (zeroblob(100000))",
        )


def test_a_pool_without_a_free_connection_is_worth_a_retry() -> None:
    with pytest.raises(TransientError, match="all connections are in use"), errors_of("shown"):
        raise PoolTimeoutError


def test_driver_errors_without_a_name_are_no_matter_of_retrying() -> None:
    error = DBAPIError("statement", None, sqlite3.ProgrammingError("closed"))

    with pytest.raises(StorageError, match="closed"), errors_of("shown"):
        raise error


def test_new_folders_are_synced_into_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", record)

    make_engine(make_url(f"sqlite:///{tmp_path}/a/b/state.db"))

    assert synced == [str(tmp_path.parent), str(tmp_path), str(tmp_path / "a")]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:word@h:5/db", "postgresql+psycopg2://me:***@h:5/db"),
        ("postgresql://me@h/db?password=word&sslmode=require", "postgresql+psycopg2://me@h/db"),
        ("postgresql+psycopg2://me:w%40rd@h/db", "postgresql+psycopg2://me:***@h/db"),
        ("sqlite:////lake/state.db", "sqlite:////lake/state.db"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(parse_url(url)) == shown


def test_password_with_an_at_sign_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="Write %40 for an `@` in a password") as caught:
        parse_url("postgresql://me:wo@rd@db/state")
    assert "rd" not in str(caught.value).replace("password", "")


def test_port_that_no_server_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="names port 99999; ports end at 65535"):
        parse_url("postgresql://me:word@db:99999/state")


@pytest.mark.postgres
def test_every_postgres_transaction_is_durable_and_cannot_stall_others(postgres_engine: Engine) -> None:
    with postgres_engine.connect() as one, postgres_engine.connect() as two:
        for connection in (one, two):
            assert setting(connection, "SHOW synchronous_commit") == "on"
            assert setting(connection, "SHOW lock_timeout") == "30s"
            assert setting(connection, "SHOW idle_in_transaction_session_timeout") == "1min"


@pytest.mark.postgres
def test_a_session_is_handed_on_as_it_was(postgres_engine: Engine) -> None:
    """As PgBouncer does after each transaction."""
    run(postgres_engine, "SELECT 1")
    with postgres_engine.raw_connection().cursor() as cursor:  # type: ignore[attr-defined]  # the driver has no types
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.postgres
def test_a_synchronous_commit_that_is_not_off_is_left_alone(postgres_server: PostgresServer) -> None:
    name = postgres_server.new_database()
    postgres_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_write")
    engine = make_engine(parse_url(postgres_server.url(name)))

    with engine.connect() as connection:
        assert setting(connection, "SHOW synchronous_commit") == "remote_write"
    engine.dispose()


@pytest.mark.postgres
def test_an_ended_session_is_worth_a_retry_and_the_retry_works(postgres_engine: Engine) -> None:
    with pytest.raises(TransientError, match="terminat"):
        run(postgres_engine, "SELECT pg_terminate_backend(pg_backend_pid())")

    run(postgres_engine, "SELECT 1")


@pytest.mark.postgres
def test_a_statement_that_the_server_refuses_is_no_matter_of_retrying(postgres_engine: Engine) -> None:
    with pytest.raises(StorageError, match='relation "nothing" does not exist'):
        run(postgres_engine, "SELECT * FROM nothing")


@pytest.mark.postgres
def test_a_row_that_stays_locked_is_worth_a_retry(postgres_engine: Engine) -> None:
    run(postgres_engine, "CREATE TABLE t AS SELECT 1 AS a")
    with postgres_engine.begin() as holder:
        holder.execute(text("SELECT a FROM t FOR UPDATE"))

        with pytest.raises(TransientError, match="lock timeout") as caught:
            run(postgres_engine, "SET LOCAL lock_timeout = '10ms'", "SELECT a FROM t FOR UPDATE")

    assert isinstance(caught.value.__cause__, OperationalError)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            'connection to server at "h", port 5432 failed: FATAL:  password authentication failed for user "u"',
            StorageError,
        ),
        ("connection to server failed: fe_sendauth: no password supplied", StorageError),
        ('connection to server failed: FATAL:  database "x" does not exist', StorageError),
        ("connection to server failed: Connection refused", TransientError),
        ("connection to server failed: FATAL:  the database system is starting up", TransientError),
    ],
)
def test_login_that_is_refused_is_not_tried_again(said: str, expected: type[Exception]) -> None:
    import psycopg2

    with pytest.raises(expected, match=re.escape(said[-12:])), errors_of("shown"):
        raise OperationalError("connect", {}, psycopg2.OperationalError(said))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    cut_off.cut_off_all()


@pytest.mark.postgres
def test_stopped_command_ends_the_store_s_calls_and_records_its_end_in_time(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_off, "RECORD_S", 60.0)
    run(postgres_engine, "SELECT 1")
    try:
        threading.Timer(0.1, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run(postgres_engine, "SELECT pg_sleep(20)")
        run(postgres_engine, "SELECT 1")
        postgres_engine.dispose()
        monkeypatch.setattr(cut_off, "RECORD_S", 60.5 - (cut_off.time_for_records() or 0))
        with pytest.raises(TransientError, match="cannot be used now"):
            run(postgres_engine, "SELECT pg_sleep(20)")
        with pytest.raises(TransientError, match="does not answer, and the command was stopped"):
            run(postgres_engine, "SELECT 1")
    finally:
        assert cut_off.was_cut_off()
    run(postgres_engine, "SELECT 1")


@pytest.mark.postgres
def test_interrupt_of_a_target_s_statement_is_not_hidden_by_its_rollback(postgres_server: PostgresServer) -> None:
    engine = sql.make_engine(sql.parse_url(postgres_server.url("postgres"), ""), "of a test")
    try:
        with pytest.raises(KeyboardInterrupt), engine.connect() as connection:  # noqa: PT012 - it begins in the block
            connection.execute(text("SELECT 1"))
            threading.Timer(0.1, interrupt).start()
            connection.connection.cursor().execute("SELECT pg_sleep(20)")  # past SQLAlchemy, as COPY is
    finally:
        assert cut_off.was_cut_off()


def test_interrupt_does_not_wait_for_a_server_that_takes_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/db"
        for engine in (make_engine(parse_url(url)), sql.make_engine(sql.parse_url(url, ""), "of a test")):
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                engine.connect()
            assert time.monotonic() - begun < 5
