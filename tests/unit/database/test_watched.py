"""A server of PostgreSQL that falls silent is given up."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from sqlalchemy import text

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.database import watched
from gobblin_dagster.database.engine import errors_of, make_engine, parse_url
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.postgres


def test_call_to_a_server_that_hangs_ends(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK_S", 0.02)
    engine = make_engine(parse_url(postgres_server.url(postgres_server.new_database())), answer_within_s=0.5)
    with engine.begin() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        # The ping before the transaction finds the connection dead, and takes another one.
        with engine.connect() as connection:
            assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() != pid
            with pytest.raises(TransientError), errors_of("shown"):
                connection.execute(text("SELECT pg_sleep(20)"))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < 30
    with engine.begin() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_commit_that_is_not_answered_ends(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK_S", 0.02)
    engine = make_engine(parse_url(postgres_server.url(postgres_server.new_database())), answer_within_s=0.5)
    connection = engine.connect()
    transaction = connection.begin()
    pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TransientError), errors_of("shown"):
            transaction.commit()
    finally:
        os.kill(pid, signal.SIGCONT)
    engine.dispose()


def test_calls_in_time_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK_S", 0.01)
    cut: list[int] = []
    seen = threading.Event()

    def cut_off(descriptor: int) -> None:
        cut.append(descriptor)
        seen.set()

    monkeypatch.setattr(watched, "cut_off", cut_off)
    watchdog = watched.Watchdog()
    with watchdog.watching(7, 60):
        with watchdog.watching(8, 0):
            assert seen.wait(30)
        assert {*cut} == {8}
