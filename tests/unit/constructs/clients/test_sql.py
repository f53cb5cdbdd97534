"""Connections to databases by URL."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from gobblin_dagster.constructs.clients import sql


def test_server_that_takes_a_connection_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "CONNECT_WAIT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = sql.parse_url(f"postgresql://app:word@127.0.0.1:{silent.getsockname()[1]}/shop", "")
        with pytest.raises(OperationalError, match="timeout expired"):
            sql.make_engine(url, "of table orders").connect()


def test_connection_that_is_lost_after_its_commit_is_closed_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sql.make_engine(sql.parse_url("sqlite:///shop.db", str(tmp_path)), "of table orders").connect() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        connection.commit()
        lost: Any = connection.connection.driver_connection
        lost.close()
    assert caplog.text == ""


@pytest.mark.parametrize("url", ["postgresql://me:wo@rd@db.example/shop", "mysql://me:wo@r/d@db.example/shop"])
def test_password_with_an_at_sign_is_refused_before_its_end_is_taken_for_a_host(url: str) -> None:
    with pytest.raises(ValueError, match="write %40 in a password") as caught:
        sql.parse_url(url, "")
    assert "rd@" not in str(caught.value)
    encoded = sql.parse_url("postgresql://me:wo%40rd@db.example/shop?application_name=a@b", "")
    assert (encoded.password, encoded.host) == ("wo@rd", "db.example")


@pytest.mark.parametrize("host", ["db..example", "x" * 64, "db.example:99999"])
def test_server_that_no_network_can_have_is_refused_before_anything_is_asked(host: str) -> None:
    with pytest.raises(ValueError, match="names no host and port that can be"):
        sql.parse_url(f"mysql://me:word@{host}/shop", "")


def test_home_folder_of_shells_is_no_folder_of_a_database() -> None:
    with pytest.raises(ValueError, match=r"write \$\{HOME\}/shop.db"):
        sql.parse_url("sqlite:///~/shop.db", "")
