"""Databases that fall silent in the middle of a load: given up, and long statements that are honest are not."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients import sql
from gobblin_dagster.constructs.clients.sql import make_engine, parse_url
from gobblin_dagster.constructs.publishers import sql_silence
from gobblin_dagster.constructs.publishers.sql_table import _Database
from gobblin_dagster.core.errors import StorageError


class Proxy:
    """Passes bytes on until it is told to be silent, as a tunnel that has lost the other end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.passes = threading.Event()
        self.passes.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.passes.set()
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                pair = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._port))
                self._sockets += pair
                for one, other in (pair, pair[::-1]):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                self.passes.wait()
                other.sendall(data)


@pytest.fixture(
    params=[pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("mariadb", marks=pytest.mark.mariadb)]
)
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> sa.URL:
    monkeypatch.setattr(sql_silence, "LOOK_S", 0.05)
    monkeypatch.setattr(sql_silence, "SILENT_S", 0.4)
    monkeypatch.setattr(sql_silence, "_ASK_S", 0.5)
    server = request.getfixturevalue(f"{request.param}_server")
    name = server.new_database()
    return sa.make_url(server.url(name) if request.param == "postgres" else server.url(name, "root", ""))


@pytest.fixture
def proxy(url: sa.URL) -> Iterator[Proxy]:
    made = Proxy(url.port or 0)
    yield made
    made.close()


def _text(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _sleeps(url: sa.URL, seconds: float) -> sa.TextClause:
    return sa.text(f"SELECT {'pg_sleep' if url.drivername == 'postgresql' else 'sleep'}({seconds})")


def _load(url: sa.URL, seconds: float, falls_silent: Callable[[], object] = bool) -> None:
    with _Database("", "WAREHOUSE_URL", "", "numbers").load("load", "a") as connection:
        falls_silent()
        connection.execute(_sleeps(url, seconds))


@pytest.fixture
def past_proxy(url: sa.URL, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the load go through the proxy, and the server be asked past it."""
    monkeypatch.setenv("WAREHOUSE_URL", _text(url.set(port=proxy.port)))
    straight, made = make_engine(parse_url(_text(url), ""), "numbers"), _Database._engine

    def engine(self: _Database, connect_args: Mapping[str, Any] | None = None) -> sa.Engine:
        return straight if connect_args else made(self)

    monkeypatch.setattr(_Database, "_engine", engine)


@pytest.mark.usefixtures("past_proxy")
def test_load_is_given_up_once_its_connection_is_lost(url: sa.URL, proxy: Proxy) -> None:
    with pytest.raises(StorageError, match="the database said nothing for"):
        _load(url, 0.01, proxy.passes.clear)


@pytest.mark.usefixtures("past_proxy")
@pytest.mark.parametrize("url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_rows_that_are_lost_in_copy_are_not_waited_for(proxy: Proxy) -> None:
    class Rows(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            proxy.passes.clear()
            return super().read(size)

    def copy() -> None:
        with _Database("", "WAREHOUSE_URL", "", "numbers").load("load", "a") as connection:
            connection.execute(sa.text("CREATE TEMPORARY TABLE numbers (id int)"))
            driver: Any = connection.connection
            try:
                driver.cursor().copy_expert("COPY numbers FROM STDIN", Rows(b"1\n" * 9))
            except psycopg2.Error as error:
                connection.invalidate()
                raise DBAPIError.instance(None, None, error, psycopg2.Error, dialect=connection.dialect) from error

    with pytest.raises(StorageError, match="the database said nothing for"):
        copy()


def test_load_is_given_up_if_nothing_answers(url: sa.URL, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_URL", _text(url.set(port=proxy.port)))
    monkeypatch.setattr(sql, "CONNECT_WAIT_S", 1)
    with pytest.raises(StorageError, match="the database said nothing for"):
        _load(url, 1, threading.Timer(0.2, proxy.passes.clear).start)


def test_statement_that_takes_long_is_not_given_up(url: sa.URL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_URL", _text(url))
    _load(url, 1.2)


def test_connection_that_was_closed_meanwhile_ends_its_watch(url: sa.URL, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(parse_url(_text(url), ""), "numbers")
    with engine.connect() as connection:
        watch = sql_silence.Watch(connection, engine)
        driver: Any = connection.connection.dbapi_connection
        driver.close()
        monkeypatch.setattr(watch, "_waits", lambda: True)  # as it did when it was looked at
        threading.Timer(0.2, watch.end).start()
        watch.run()
        connection.invalidate()
