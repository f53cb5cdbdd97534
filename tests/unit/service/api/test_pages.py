"""Dagster's pages behind the service's login: what is passed on, to whom, and what is refused."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from sqlalchemy import select
from starlette.types import Receive, Scope, Send
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from gobblin_dagster.service.security.access import OWNER, Access, Action, Principal
from gobblin_dagster.service.server import CoreServices, DagsterPrograms
from gobblin_dagster.service.store.tables import audit
from gobblin_dagster.spec.project import ServiceSpec
from gobblin_dagster.warm.address import WarmAddress
from tests.services.rest_service import answering

QUERY = {"query": "{ version }"}
CHANGE = {"operationName": "Launch", "query": "mutation Launch { launchRun { __typename } }"}
JSON = {"Content-Type": "application/json"}


@dataclass
class FakeDagster:
    """Stands in Dagster's place on its socket, and keeps what it was asked."""

    asked: list[tuple[str, bytes, dict[str, str], bytes]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept", "subprotocol": "graphql-ws"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"].upper()})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self.asked.append((scope["method"], target, headers, body))
        told = [(b"content-type", b"text/html"), (b"set-cookie", b"a=1"), (b"content-security-policy", b"its own")]
        await send({"type": "http.response.start", "status": 200, "headers": told})
        for part in (b"<p>", b"part" * 50_000, b"</p>"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def listening(path: Path, app: FakeDagster) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [WarmAddress(path).listen()]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Told:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Browser:
    """Asks the service, with a cookie if it has one."""

    host: str
    core: CoreServices
    dagster: FakeDagster
    cookie: str = ""

    def __call__(self, method: str, target: str, body: Any = None, **headers: str) -> Told:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        connection.request(method, target, data, sent)
        answer = connection.getresponse()
        told = Told(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        connection.close()
        return told

    def log_in(self) -> Told:
        told = self("GET", self.core.login_link())
        self.cookie = told.headers.get("set-cookie", "").partition(";")[0]
        return told

    def audited(self) -> list[tuple[str, str, str, str]]:
        with self.core.store.read() as transaction:
            rows = transaction.execute(select(audit.c.principal, audit.c.action, audit.c.outcome, audit.c.detail))
            return [(row.principal, row.action, row.outcome, row.detail) for row in rows]


@pytest.fixture
def spec() -> ServiceSpec:
    return ServiceSpec(port=0, store="sqlite:///service.db")


@pytest.fixture
def browser(tmp_path: Path, spec: ServiceSpec) -> Iterator[Browser]:
    path = tmp_path / "d.sock"
    core = CoreServices(tmp_path, spec, ["false"], dagster=DagsterPrograms(path, ["false"], ["false"]))
    dagster = FakeDagster()
    with listening(path, dagster), answering(core) as url:
        yield Browser(url.removeprefix("http://"), core, dagster)
    core.store.close()


def test_link_logs_in_once_and_the_cookie_opens_the_pages(browser: Browser) -> None:
    link = browser.core.login_link()
    told = browser("GET", link)
    assert (told.status, told.headers["location"]) == (303, "/dagster/")
    cookie = told.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", "Path=/dagster", "Max-Age=43200"))
    assert browser("GET", link).status == 401
    assert not browser.dagster.asked
    browser.cookie = cookie.partition(";")[0]
    page = browser("GET", "/dagster/runs?q=a%20b", Accept="text/html", Authorization="Bearer guess", X_Role="admin")
    assert (page.status, len(page.text), page.text[-4:]) == (200, 200_007, "</p>")
    assert (page.headers["content-security-policy"], page.headers["x-frame-options"]) == ("its own", "SAMEORIGIN")
    assert "set-cookie" not in page.headers
    [(method, target, headers, _)] = browser.dagster.asked
    assert (method, target) == ("GET", b"/dagster/runs?q=a%20b")
    assert set(headers) == {"accept", "accept-encoding", "connection", "host"}, "no cookie, no token"


def test_without_a_login_nothing_is_passed_on(browser: Browser) -> None:
    targets = ["/dagster", "/dagster/", "/dagster/graphql", "/dagster//graphql", "/dagster/logs/x", "/dagster/%2e%2e/"]
    for target in targets:
        told = browser("GET", target)
        assert (told.status, told.headers["www-authenticate"]) == (401, "Bearer"), target
        assert browser("POST", target, QUERY, **JSON, Authorization="Bearer guess").status == 401, target
    page = browser("GET", "/dagster/runs/1?a=b", Accept="text/html,*/*")
    assert (page.status, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert 'value="/dagster/runs/1?a=b"' in page.text
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{browser.host}/dagster/graphql", subprotocols=[Subprotocol("graphql-ws")])
    assert not browser.dagster.asked
    browser.cookie = "gobblin_session=1"
    assert browser("GET", "/flowconfigsV2").status == 401


def test_rest_takes_no_cookie(browser: Browser) -> None:
    browser.log_in()
    assert browser("GET", "/dagster/").status == 200
    assert browser("GET", "/flowconfigsV2").status == 401


LEADS_TO = [
    ("/dagster/runs?x=1", "/dagster/runs?x=1"),
    ("//evil.example/", "/dagster/"),
    ("/dagster//evil", "/dagster//evil"),
    ("https://evil.example/dagster/", "/dagster/"),
    ("/dagsterevil", "/dagster/"),
    ("/dagster/\r\nSet-Cookie: a=1", "/dagster/"),
    ("/dagster\\evil", "/dagster/"),
    ("/dagster/é", "/dagster/"),
]


def test_token_logs_in_and_leads_to_our_pages_only(browser: Browser) -> None:
    for target, leads_to in LEADS_TO:
        body = f"token={browser.core.token}&next={quote(target, safe='')}".encode()
        told = browser("POST", "/login", body, Origin=f"http://{browser.host}")
        assert (told.status, told.headers["location"]) == (303, leads_to), target


def test_wrong_token_and_foreign_login_are_refused(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    told = browser("POST", "/login", b"token=wrong&next=%22%3E%3Cscript%3E")
    assert (told.status, "set-cookie" in told.headers, "<script>" in told.text) == (401, False, False)
    good = f"token={browser.core.token}".encode()
    assert browser("POST", "/login", good, Origin="http://evil.example").status == 403
    assert browser("DELETE", "/login").status == 405
    assert browser("POST", "/login", b"a=b&" * 50_000).status == 400
    assert browser("GET", "/login").status == 200
    link = browser.core.login_link()
    assert browser("HEAD", link).status == 200
    assert browser("GET", link).status == 303, "who looks ahead does not use the link up"
    assert browser.core.token not in caplog.text


def test_changes_are_audited_before_they_are_passed_on(browser: Browser) -> None:
    browser.log_in()
    assert browser("POST", "/dagster/graphql?query=mutation", QUERY, **JSON).status == 200
    assert browser.audited() == []
    assert browser.dagster.asked[-1][1] == b"/dagster/graphql", "only the body says what is asked"
    assert json.loads(browser.dagster.asked[-1][3]) == QUERY
    twice = b'{"query": "{ version }", "query": "mut\\u0061tion { x }"}'
    for body in (CHANGE, [QUERY], {"query": None}, twice):
        assert browser("POST", "/dagster/%67raphql", body, **JSON).status == 200
    assert browser("POST", "/dagster/report_asset_materialization/a", {}, **JSON).status == 200
    names = ["Launch", "mutation", "mutation", "mutation", "/dagster/report_asset_materialization/a"]
    assert browser.audited() == [("owner", "operate", "allowed", name) for name in names]
    assert json.loads(browser.dagster.asked[-2][3]) == {"query": "mutation { x }"}


REFUSED: list[tuple[str, str, Any, dict[str, str], int]] = [
    ("POST", "/dagster/graphql", CHANGE, {**JSON, "Origin": "http://evil.example"}, 403),
    ("POST", "/dagster/graphql", CHANGE, {**JSON, "Origin": "null"}, 403),
    ("POST", "/dagster/graphql", CHANGE, {**JSON, "Sec_Fetch_Site": "cross-site"}, 403),
    ("POST", "/dagster/graphql", CHANGE, {**JSON, "Sec_Fetch_Site": "same-site"}, 403),
    ("POST", "/dagster/graphql", b"query=mutation", {"Content_Type": "application/x-www-form-urlencoded"}, 405),
    ("POST", "/dagster/graphql", CHANGE, {"Content_Type": "text/plain"}, 405),
    ("POST", "/dagster/graphql", b"mutation", {"Content_Type": "application/graphql"}, 405),
    ("GET", "/dagster/graphql?query=mutation%7Bx%7D", None, {}, 405),
    ("GET", "/dagster/%67raphql?query=mutation%7Bx%7D", None, {}, 405),
    ("GET", "/dagster/graphql/?query=mutation%7Bx%7D", None, {}, 405),
    ("PUT", "/dagster/graphql", CHANGE, JSON, 405),
    ("POST", "/dagster/graphql", b"{", JSON, 400),
    ("POST", "/dagster/graphql", b"[" * 100_000, JSON, 400),
    ("POST", "/dagster/graphql", b'"\xff"', JSON, 400),
    ("POST", "/dagster/graphql", b" " * (1 << 20) + b" ", JSON, 413),
    ("GET", "/dagster/../flowconfigs", None, {}, 400),
    ("GET", "/dagster/..%2fflowconfigs", None, {}, 400),
    ("GET", "/dagster/%2e%2e%2f", None, {}, 400),
    ("GET", "/dagster/..%5c", None, {}, 400),
    ("GET", "/dagster/a%00b", None, {}, 400),
    ("GET", "/dagster/a%0d%0aX:1", None, {}, 400),
    ("GET", "/dagsterx/", None, {}, 401),
    ("GET", "/%64agster/", None, {}, 401),
    ("GET", "//dagster/", None, {}, 401),
]


def test_what_is_refused_reaches_dagster_never(browser: Browser) -> None:
    browser.log_in()
    for method, target, body, headers, status in REFUSED:
        assert browser(method, target, body, **headers).status == status, (method, target, headers)
    assert not browser.dagster.asked


def test_websocket_passes_messages_both_ways(browser: Browser) -> None:
    browser.log_in()
    url, protocol = f"ws://{browser.host}/dagster/graphql", [Subprotocol("graphql-ws")]
    headers = {"Cookie": browser.cookie}
    own = Origin(f"http://{browser.host}")
    with connect(url, subprotocols=protocol, additional_headers=headers, origin=own) as connection:
        assert connection.subprotocol == "graphql-ws"
        connection.send("abc")
        assert connection.recv(10) == "ABC"
        connection.send("x" * (1 << 20) + "x")
        with pytest.raises(ConnectionClosed):
            connection.recv(10)
    for origin in (Origin("http://evil.example"), Origin("null")):
        with pytest.raises(InvalidStatus, match="403"):
            connect(url, subprotocols=protocol, additional_headers=headers, origin=origin)
    with pytest.raises(InvalidStatus, match="403"):
        connect(url, additional_headers=headers)
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{browser.host}/dagster/other", subprotocols=protocol, additional_headers=headers)


def test_dagster_that_is_not_there_is_a_clear_503(tmp_path: Path, spec: ServiceSpec) -> None:
    path = tmp_path / "d.sock"
    core = CoreServices(tmp_path, spec, ["false"], dagster=DagsterPrograms(path, ["false"], ["false"]))
    with answering(core) as url:
        browser = Browser(url.removeprefix("http://"), core, FakeDagster())
        browser.log_in()
        told = browser("GET", "/dagster/")
        assert (told.status, told.headers["retry-after"]) == (503, "5")
        assert "Dagster's pages do not answer now" in told.text
        # One that ends in the middle of its answer: before its head 503, after it the connection breaks off.
        listener = WarmAddress(path).listen()
        for said, status in [
            (b"", 503),
            (b"SSH-2.0-x\r\n", 503),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 0),
        ]:
            thread = threading.Thread(target=_say, args=(listener, said))
            thread.start()
            if status:
                assert browser("GET", "/dagster/").status == status
            else:
                with pytest.raises(http.client.IncompleteRead):
                    browser("GET", "/dagster/")
            thread.join()
        listener.close()
    core.store.close()


def _say(listener: socket.socket, said: bytes) -> None:
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.sendall(said)
    connection.close()


class ViewersOnly(Access):
    """Lets everybody who has logged in read, and nobody change anything."""

    def allows(self, principal: Principal, action: Action, resource: object) -> bool:
        return principal == OWNER and action is Action.READ


def test_viewer_reads_and_changes_nothing(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Access, "allows", ViewersOnly.allows)
    browser.log_in()
    assert browser("GET", "/dagster/").status == 200
    assert browser("POST", "/dagster/graphql", QUERY, **JSON).status == 200
    reached = len(browser.dagster.asked)
    told = browser("POST", "/dagster/graphql", CHANGE, **JSON)
    assert (told.status, "owner may not operate Dagster" in told.text) == (403, True)
    assert browser("POST", "/dagster/report_asset_check/a", {}, **JSON).status == 403
    assert len(browser.dagster.asked) == reached
    assert browser.audited() == [("owner", "operate", "denied", "")] * 2


def test_anonymous_service_answers_no_foreign_page(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    spec = ServiceSpec(port=0, store="sqlite:///service.db", anonymous=True)
    core = CoreServices(tmp_path, spec, ["false"], dagster=DagsterPrograms(path, ["false"], ["false"]))
    with listening(path, FakeDagster()), answering(core) as url:
        browser = Browser(url.removeprefix("http://"), core, FakeDagster())
        port = browser.host.partition(":")[2]
        for target in ("/dagster/", "/flowconfigsV2"):
            for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.7"):
                told = browser("GET", target, Host=f"{host}:{port}", Origin=f"http://{host}:{port}")
                assert told.status == 200, (target, host)
            assert browser("GET", target, Origin="http://evil.example").status == 403
            assert browser("GET", target, Host=f"evil.example:{port}").status == 403, (
                "a name that leads to this machine"
            )
            assert browser("GET", target, Host="[::1").status == 403
            assert browser("GET", target, Origin="http://[::1").status == 403
    core.store.close()


def test_form_is_a_page_that_no_other_page_can_show(browser: Browser) -> None:
    page = browser("GET", "/login")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert re.search(r"<label>.*token", page.text, re.DOTALL)
