"""The executor `rest`: the service calls a worker over HTTPS, and both show certificates.

The service sends an order until the worker answers that it is in its store, and asks for reports until it has them. So
each message comes at least once, and stores remove duplicates. The worker opens no connection to the service.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import requests
import uvicorn
from pydantic import Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gobblin_dagster import __version__
from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError, TransientError, UsageError
from gobblin_dagster.service.executors.announcements import read_announcement, write_announcement
from gobblin_dagster.service.executors.messages import RunOrder, StopOrder, from_line, to_line
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.model import JobKey, JobReport
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.store.worker_rows import read_report, write_report
from gobblin_dagster.service.topology.model import CapabilitySpec, RestAddress
from gobblin_dagster.spec.job import SpecModel

log = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_BYTES = 16 << 20
"""Bytes of one request at most."""
MAX_ANSWER = 64 << 20
"""Bytes of one answer at most."""
MAX_REPORTS = 1000
_WAIT_S = 30
_REFUSED = (400, 413)
"""Answers that the same order gets each time."""


class RestInletSpec(SpecModel):
    """Where a worker listens, and which certificates it shows and takes."""

    host: str = "127.0.0.1"
    """Address on which orders are taken."""
    port: int = Field(ge=0, le=65535)
    """Port; 0 takes any that is free."""
    certificate: str
    """PEM file of the worker's certificate, relative to the project."""
    key: str
    """PEM file of its private key."""
    ca: str
    """PEM file of the authority whose certificates may order jobs; all others are refused."""


class RestClient(Protocol):
    """Carries requests to a worker."""

    def call(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """Send a request; return the status and the document. Raises TransientError if there is no answer."""

    def close(self) -> None:
        """Let connections go."""


class HttpsClient:
    """Calls a worker, showing a certificate.

    Args:
        address: where the worker is; files are relative to `root`.
        root: the project of the service.
    """

    def __init__(self, address: RestAddress, root: Path) -> None:
        self._url = address.url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cert = (str(root / address.certificate), str(root / address.key))
        self._session.verify = str(root / address.ca)

    def call(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """Send a request."""
        try:
            with self._session.request(
                method,
                self._url + path,
                data=body.encode(),
                timeout=_WAIT_S,
                allow_redirects=False,  # orders are for this address alone, and so is the certificate that is shown
                stream=True,
            ) as answer:
                if answer.is_redirect:
                    return answer.status_code, f"it points to {answer.headers['location']}; the topology must name that"
                return answer.status_code, json.loads(_read(answer))
        except (OSError, ValueError, RecursionError, requests.RequestException) as error:  # OSError: of a certificate
            raise TransientError(problem=f"The worker at {self._url} does not answer: {error}") from error

    def close(self) -> None:
        """Let connections go."""
        self._session.close()


def _read(answer: requests.Response) -> bytes:
    """Return the body of an answer; raises ValueError if it is too large for one of a worker."""
    found = bytearray()
    for part in answer.iter_content(1 << 16):
        found += part
        if len(found) > MAX_ANSWER:
            raise ValueError(f"its answer is larger than {MAX_ANSWER >> 20} MiB")
    return bytes(found)


class RestExecutor:
    """Orders jobs from a worker over HTTPS.

    Args:
        name: of the executor.
        url: of the worker, for people.
        client: carries requests.
        description: for people.
        capabilities: kinds of movement that it can do.

    Source: gobblin-runtime `SpecProducer`, over HTTPS, as the design of Gobblin-as-a-Service has it.
    """

    def __init__(
        self,
        name: str,
        url: str,
        client: RestClient,
        description: str = "",
        capabilities: Sequence[CapabilitySpec] = (),
    ) -> None:
        self.name = name
        self.description = description
        self.capabilities = tuple(capabilities)
        self.uri = url
        self._client = client
        self._announced: dict[str, Node] = {}

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings."""
        return {"url": self.uri}

    def health(self) -> str:
        """Return why orders would wait."""
        try:
            answer = self._call("GET", "health")
            workers = self._of_type(answer.get("workers", []), list)  # workers of older programs name none
            problem = self._of_type(answer.get("problem"), str)
        except GobblinDagsterError as error:
            return str(error)
        for text in workers:
            try:
                worker = read_announcement(text)
            except ValueError as error:
                log.warning("executor %s: %s", self.name, error)
            else:
                self._announced[worker.name] = worker
        return problem[:1000]

    def add(self, order: RunOrder) -> None:
        """Order a job."""
        self._call("POST", "orders", to_line(order))

    def update(self, order: RunOrder) -> None:
        """Give a job that has not begun another body."""
        self._call("PUT", "orders", to_line(order))

    def delete(self, key: JobKey) -> None:
        """Order the end of a job."""
        self._call("POST", "orders", to_line(StopOrder(key)))

    def list(self) -> Sequence[JobKey]:
        """Return the jobs that are not over."""
        found = self._of_type(self._call("GET", "jobs").get("jobs"), list)
        try:
            return [JobKey.read(one) for one in found]
        except (TypeError, ValueError) as error:
            raise self._odd(found) from error

    def take_reports(self, limit: int) -> Sequence[JobReport]:
        """Return reports that were not acknowledged."""
        found = []
        answer = self._call("GET", f"reports?limit={min(limit, MAX_REPORTS)}")
        for text in self._of_type(answer.get("reports"), list):
            try:
                found.append(read_report(text))
            except ValueError as error:
                log.warning("executor %s: a report is left out: %s", self.name, error)
        return found

    def acknowledge(self, reports: Sequence[JobReport]) -> None:
        """Tell the worker that the service has reports."""
        if reports:
            self._call("POST", "reports", json.dumps([write_report(report) for report in reports]))

    def take_announcements(self) -> Sequence[Node]:
        """Return the workers that the answers to `health` named."""
        found, self._announced = list(self._announced.values()), {}
        return found

    def close(self) -> None:
        """Let connections go."""
        self._client.close()

    def _of_type(self, part: Any, kind: type[_T]) -> _T:
        """Return a part of an answer that has the type; else raise TransientError: something else may answer there."""
        if not isinstance(part, kind):
            raise self._odd(part)
        return part

    def _odd(self, part: object) -> TransientError:
        told = f"The worker at {self.uri} answers what no worker of this program does: {str(part)[:200]!r}."
        return TransientError(problem=f"{told} See what listens there.")

    def _call(self, method: str, what: str, body: str = "") -> dict[str, Any]:
        if len(body.encode()) > MAX_BYTES:  # the worker would close the connection before it has answered
            problem = f"The order for the worker at {self.uri} is larger than {MAX_BYTES >> 20} MiB."
            raise UsageError(problem=problem, hint="Make the job smaller.")
        status, document = self._client.call(method, f"/executors/{self.name}/{what}", body)
        if status == 200:
            return self._of_type(document, dict)
        problem = f"The worker at {self.uri} answers {status}: {str(document)[:500]}."
        if status in _REFUSED:
            raise UsageError(problem=problem, hint="The worker's log says more.")
        raise TransientError(problem=problem)


class RestInlet:
    """The worker's side: answers the service's requests from the worker's store.

    Args:
        inbox: the worker's store, as its executor.
    """

    def __init__(self, inbox: StoreExecutor) -> None:
        self._inbox = inbox

    def answer(self, method: str, what: str, body: str, limit: int = 100) -> tuple[int, Any]:
        """Do what is asked, and return status and document; an order is durable before the answer."""
        try:
            return self._answer(method, what, body, limit)
        except ValueError as error:
            return 400, {"problem": str(error)}
        except GobblinDagsterError as error:
            return 503, {"problem": str(error)}

    def _answer(self, method: str, what: str, body: str, limit: int) -> tuple[int, Any]:
        if (method, what) == ("GET", "health"):
            workers = [write_announcement(one) for one in self._inbox.alive_workers()]
            return 200, {"problem": self._inbox.health(), "version": __version__, "workers": workers}
        if (method, what) == ("GET", "jobs"):
            return 200, {"jobs": [asdict(key) for key in self._inbox.list()]}
        if (method, what) == ("GET", "reports"):
            return 200, {"reports": [write_report(one) for one in self._inbox.take_reports(limit)]}
        if (method, what) == ("POST", "reports"):
            texts = json.loads(body)
            if not isinstance(texts, list):
                raise ValueError("expected a list of reports")
            self._inbox.acknowledge([read_report(str(text)) for text in texts])
            return 200, {}
        if what == "orders" and method in ("POST", "PUT"):
            order = from_line(body)
            if isinstance(order, StopOrder):
                self._inbox.delete(order.key)
            elif isinstance(order, RunOrder):
                (self._inbox.add if method == "POST" else self._inbox.update)(order)
            else:
                raise ValueError(f"{type(order).__name__} is no order")
            return 200, {}
        return 404, {"problem": f"there is no {method} {what}"}


class RestLink:
    """Listens for the service.

    Args:
        spec: where, and with which certificates.
        inbox: the worker's store, as its executor.
        root: the worker's project.
    """

    def __init__(self, spec: RestInletSpec, inbox: StoreExecutor, root: Path) -> None:
        self._spec = spec
        self._inlet = RestInlet(inbox)
        self._name = inbox.name
        app = Starlette(routes=[Route("/executors/{name}/{what}", self._serve, methods=["GET", "POST", "PUT"])])
        config = uvicorn.Config(
            app,
            host=spec.host,
            port=spec.port,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=str(root / spec.certificate),
            ssl_keyfile=str(root / spec.key),
            ssl_ca_certs=str(root / spec.ca),
            ssl_cert_reqs=ssl.CERT_REQUIRED,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                problem=f"A certificate of `worker.inlet` in gobblin.yaml cannot be used: {error}.",
                hint="`certificate`, `key` and `ca` are PEM files, relative to the project.",
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    @property
    def port(self) -> int:
        """The port that answers, once `start` has returned."""
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it answers, once `start` has returned."""
        host = f"[{self._spec.host}]" if ":" in self._spec.host else self._spec.host
        return f"https://{host}:{self.port}"

    def start(self) -> None:
        """Listen, in a thread; raises EnvironmentFaultError if the address cannot be used."""
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise EnvironmentFaultError(
                    problem=f"The worker cannot listen on {self._spec.host}:{self._spec.port}.",
                    hint="Set another `worker: {inlet: {port: ...}}` in gobblin.yaml, or another `--listen HOST:PORT`, "
                    "or end what uses the port.",
                )
            time.sleep(0.01)

    def stop(self) -> None:
        """Answer no more; reports that nobody asked for wait in the store."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # uvicorn's way to say that the port is taken
            log.warning("the worker cannot listen on %s:%d", self._spec.host, self._spec.port)

    async def _serve(self, request: Request) -> Response:
        name, what = request.path_params["name"], request.path_params["what"]
        if name != self._name:
            return JSONResponse({"problem": f"this worker serves executor {self._name}, not {name}"}, 404)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BYTES:
                return JSONResponse({"problem": f"the request is larger than {MAX_BYTES >> 20} MiB"}, 413)
        limit = request.query_params.get("limit", "100")
        number = min(int(limit), MAX_REPORTS) if limit.isdecimal() and len(limit) < 6 else 100
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return JSONResponse({"problem": str(error)}, 400)
        status, document = await run_in_threadpool(self._inlet.answer, request.method, what, text, number)
        return JSONResponse(document, status)
