"""Connections on which nothing goes on are ended; those that work are not."""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from gobblin_dagster.service.api import rest_server
from gobblin_dagster.service.api.body import read_body
from gobblin_dagster.service.api.errors import TooLarge
from gobblin_dagster.service.api.rest_server import RestServer

BODY = b"x" * (16 << 20)


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["method"] == "POST":
        try:
            await read_body(scope, receive)
        except TooLarge as error:
            await send({"type": "http.response.start", "status": error.status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        return
    body = BODY if scope["path"] == "/large" else b"{}"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = RestServer(uvicorn.Config(application, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    server.force_exit = True
    thread.join()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(sent)
    return connection


def asked(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_connection_without_a_whole_request_is_ended(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_server, "IDLE_S", 0.3)
    working = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    waiting = [connected(port), connected(port, b"GET /vers"), connected(port, b"GET / HTTP/1.1\r\n\r\nGET /")]
    for connection in waiting:
        connection.settimeout(0.01)
    open_ones = list(waiting)
    deadline = time.monotonic() + 30
    while open_ones:  # one that sends requests goes on all the while
        assert asked(working) == 200
        assert time.monotonic() < deadline
        for connection in list(open_ones):
            try:
                if not connection.recv(1000):
                    open_ones.remove(connection)
            except TimeoutError:
                continue
        own = working.sock
    assert own is not None
    assert own is working.sock, "it never had to connect again"
    for connection in waiting:
        connection.close()
    working.close()


def test_answer_that_is_not_read_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_server, "UNREAD_S", 0.3)
    lazy = connected(port, b"GET /large HTTP/1.1\r\n\r\n")
    with connected(port) as other:
        other.settimeout(0.05)
        deadline = time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline
            try:
                lazy.sendall(b"\r\n")  # fails once the other end is gone
            except OSError:
                break
            with pytest.raises(TimeoutError):
                other.recv(1)
    lazy.close()


def test_connections_beyond_the_most_are_ended_and_new_ones_served(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_server, "MAX_CONNECTIONS", 5)
    idle = [connected(port) for _ in range(20)]
    ended: set[int] = set()
    deadline = time.monotonic() + 10  # less than what an idle connection may take
    while len(ended) < 15:
        assert time.monotonic() < deadline
        readable, _, _ = select.select([one for one in idle if one.fileno() not in ended], [], [], 0.1)
        ended |= {one.fileno() for one in readable if not one.recv(1)}
    assert asked(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) == 200
    for connection in idle:
        connection.close()


@pytest.mark.parametrize("is_told", [True, False])
def test_body_that_is_much_too_large_gets_its_answer(port: int, *, is_told: bool) -> None:
    length = f"Content-Length: {len(BODY)}" if is_told else "Transfer-Encoding: chunked"
    with connected(port, f"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{length}\r\n\r\n".encode()) as connection:
        connection.sendall(BODY if is_told else b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_client_that_asks_before_it_sends_a_body_is_told_at_once_that_it_is_too_large(port: int) -> None:
    head = f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len(BODY)}\r\nExpect: 100-continue\r\n\r\n"
    with connected(port, head.encode()) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")
