"""The executor `rest` over HTTPS: both sides show certificates, and what cannot be taken is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import EnvironmentFaultError, TransientError, UsageError
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.rest import HttpsClient, RestExecutor, RestInletSpec, RestLink
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.model import ExecutionStatus, JobKey
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.model import RestAddress
from tests.services.certificates import Authority

KEY = JobKey("shop/eu", "größe", 1, "a", 1, 1)


class Sides:
    """A worker that listens, and the authority that both trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ours")
        self.store = ServiceStore(f"sqlite:///{folder}/worker.db", SystemClock())
        certificate, key = self.authority.signed("worker")
        files = {"certificate": str(certificate), "key": str(key), "ca": str(self.authority.ca)}
        self.inlet = RestInletSpec(port=0, **files)
        self.inbox = StoreExecutor("east", self.store)
        self.link = RestLink(self.inlet, self.inbox, folder)
        self.link.start()

    def executor(self, authority: Authority | None = None, name: str = "east", ca: Path | None = None) -> RestExecutor:
        certificate, key = (authority or self.authority).signed("service")
        files = {"certificate": str(certificate), "key": str(key), "ca": str(ca or self.authority.ca)}
        address = RestAddress(url=f"https://127.0.0.1:{self.link.port}", **files)
        return RestExecutor(name, address.url, HttpsClient(address, self.folder))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    made = Sides(tmp_path_factory.mktemp("rest"))
    yield made
    made.link.stop()
    made.store.close()


def test_orders_and_reports_go_over_https(sides: Sides) -> None:
    executor = sides.executor()
    executor.add(RunOrder(KEY, "", "{}"))
    assert executor.list() == [KEY]
    assert executor.health() == "no worker of executor east runs", "it listens, and nothing takes its jobs"
    executor.delete(KEY)
    [report] = executor.take_reports(10)
    assert (report.key, report.status) == (KEY, ExecutionStatus.CANCELLED)
    executor.acknowledge([report])
    assert executor.take_reports(10) == []
    executor.close()


def test_only_those_with_a_certificate_of_the_authority_are_answered(sides: Sides) -> None:
    stranger = Authority(sides.folder / "theirs", "strangers")
    with pytest.raises(TransientError, match="does not answer"):
        sides.executor(stranger).list()
    with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
        sides.executor(ca=stranger.ca).list()
    with pytest.raises(requests.RequestException):
        requests.get(
            f"https://127.0.0.1:{sides.link.port}/executors/east/jobs", verify=str(sides.authority.ca), timeout=10
        )


def test_what_cannot_be_taken_is_told(sides: Sides) -> None:
    with pytest.raises(TransientError, match="this worker serves executor east, not west"):
        sides.executor(name="west").add(RunOrder(KEY, "", "{}"))
    with pytest.raises(UsageError, match="larger than 16 MiB"):
        sides.executor().add(RunOrder(KEY, "", "x" * (17 << 20)))
    client = sides.executor()._client
    assert client.call("POST", "/executors/east/orders", "{}")[0] == 400
    assert client.call("POST", "/executors/east/reports", '["x"]')[0] == 400
    assert client.call("POST", "/executors/east/reports", "7")[0] == 400
    assert client.call("GET", "/executors/east/orders", "")[0] == 404


def test_order_is_not_carried_on_to_another_address(sides: Sides) -> None:
    """The certificate and the order are for the worker, not for the address that it names."""

    async def elsewhere(_: Request) -> Response:
        return RedirectResponse(f"https://127.0.0.1:{sides.link.port}/executors/east/orders", 307)

    config = uvicorn.Config(
        Starlette(routes=[Route("/executors/east/orders", elsewhere, methods=["POST"])]),
        port=0,
        log_config=None,
        lifespan="off",
        ssl_certfile=sides.inlet.certificate,
        ssl_keyfile=sides.inlet.key,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    certificate, key = sides.authority.signed("service")
    files = {"certificate": str(certificate), "key": str(key), "ca": str(sides.authority.ca)}
    client = HttpsClient(RestAddress(url=f"https://127.0.0.1:{port}", **files), sides.folder)
    stray = JobKey("shop", "stray", 1, "a", 1, 1)
    with pytest.raises(TransientError, match="answers 307: it points to https"):
        RestExecutor("east", "https://x", client).add(RunOrder(stray, "", "{}"))
    client.close()
    server.should_exit = True
    thread.join()
    assert stray not in sides.inbox.list()


def test_worker_that_cannot_listen_says_why(sides: Sides, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"A certificate of `worker\.inlet`"):
        RestLink(RestInletSpec(port=0, certificate="no.pem", key="no.key", ca="ca.pem"), sides.inbox, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        inlet = sides.inlet.model_copy(update={"port": taken.getsockname()[1]})
        with pytest.raises(EnvironmentFaultError, match=r"cannot listen on 127\.0\.0\.1"):
            RestLink(inlet, sides.inbox, tmp_path).start()


class SaysAnything:
    """Something that answers in place of a worker: another program behind the address, or one that lies."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def call(self, method: str, path: str, body: str) -> tuple[int, Any]:
        return 200, self._document

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("document", [[], None, "x", {}, {"problem": 7}, {"problem": "", "workers": 7}], ids=repr)
def test_answer_that_no_worker_gives_is_a_reason_to_wait(document: Any) -> None:
    executor = RestExecutor("east", "https://worker", SaysAnything(document))
    assert "answers what no worker of this program does" in executor.health()
    for ask in (executor.list, lambda: executor.take_reports(10)):
        with pytest.raises(TransientError, match="https://worker answers what no worker"):
            ask()


def test_parts_of_an_answer_that_no_worker_gives_are_left_out() -> None:
    executor = RestExecutor("east", "https://worker", SaysAnything({"reports": [7, None, {}, "[]", "{" * 100]}))
    assert executor.take_reports(10) == []
    executor = RestExecutor("east", "https://worker", SaysAnything({"problem": "", "workers": [7, None, {}, "{}"]}))
    assert (executor.health(), executor.take_announcements()) == ("", [])
    for jobs in ([7], [{"group": "g"}], {"a": 1}):
        with pytest.raises(TransientError, match="answers what no worker"):
            RestExecutor("east", "https://worker", SaysAnything({"jobs": jobs})).list()


def test_executor_that_cannot_be_asked_is_lost(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if what it says ends the question with an error that nobody foresaw: its jobs must go to others."""
    monkeypatch.setattr("gobblin_dagster.service.executors.dispatcher.LOST_S", 0)
    executor = RestExecutor("east", "https://worker", SaysAnything({}))
    monkeypatch.setattr(executor, "health", lambda: int("problem"))
    dispatcher = Dispatcher(sides.store, executor, lambda _: None)
    is_lost = [dispatcher.is_lost]
    dispatcher._turn()
    assert [*is_lost, dispatcher.is_lost] == [False, True]
    assert dispatcher.problem.startswith("ValueError: invalid literal")


def test_answer_that_is_too_large_is_not_read_to_its_end(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_dagster.service.executors.rest.MAX_ANSWER", 10)
    executor = sides.executor()
    with pytest.raises(TransientError, match="its answer is larger than 0 MiB"):
        executor.list()
    executor.close()
