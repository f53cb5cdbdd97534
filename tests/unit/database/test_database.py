from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, inspect

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.database.database import Database
from gobblin_dagster.state.sql.schema import CHAIN


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/state.db", SystemClock(), CHAIN)
    yield database
    database.close()


def test_thread_that_waits_for_another_one_does_not_wait_inside_sqlite(database: Database) -> None:
    begun: list[str] = []
    event.listen(database._writer, "begin", lambda _: begun.append(threading.current_thread().name))
    is_waiting = threading.Event()

    def write() -> None:
        is_waiting.set()
        with database.write():
            pass

    other = threading.Thread(target=write, name="other")
    with database.write():
        other.start()
        is_waiting.wait(10)
        assert begun == [threading.current_thread().name]
    other.join(10)
    assert begun[1:] == ["other"]


def test_transaction_that_its_caller_does_not_commit_is_rolled_back(database: Database) -> None:
    statement = "INSERT INTO gobblin_former_bases VALUES ('/here')"
    with database.written() as transaction:
        transaction.connection.exec_driver_sql(statement)
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM gobblin_former_bases").all() == []
    with database.written() as transaction:
        transaction.connection.exec_driver_sql(statement)
        transaction.commit()
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM gobblin_former_bases").all() == [("/here",)]


def test_threads_may_make_new_stores_at_once(tmp_path: Path) -> None:
    at_once = threading.Barrier(4)

    def tables(name: str) -> int:
        at_once.wait(10)
        database = Database(f"sqlite:///{tmp_path}/{name}.db", SystemClock(), CHAIN)
        try:
            with database.read() as connection:
                return len(inspect(connection).get_table_names())
        finally:
            database.close()

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(tables, "abcd"))
    assert len(set(counts)) == 1
    assert counts[0] > 5
