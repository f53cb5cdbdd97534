"""The ASGI application: reads requests, finds the resource and the method, and turns errors into answers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from anyio import to_thread
from starlette.types import Receive, Scope, Send

from gobblin_dagster import __version__
from gobblin_dagster.core.errors import (
    FlowChangedError,
    FlowCompileError,
    FlowExistsError,
    FlowNotFoundError,
    GobblinDagsterError,
    InvalidFlowError,
    QuotaExceededError,
    SpecError,
    StorageError,
    TransientError,
)
from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.body import read_body
from gobblin_dagster.service.api.errors import (
    BadRequest,
    Conflict,
    Invalid,
    NotAcceptable,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    RestError,
    Unauthenticated,
    Unavailable,
)
from gobblin_dagster.service.api.messages import Answer, Request, error_answer
from gobblin_dagster.service.api.openapi import openapi_document
from gobblin_dagster.service.api.origins import require_own_name, require_own_page
from gobblin_dagster.service.api.pages import Pages
from gobblin_dagster.service.api.remembered import RememberedAnswers
from gobblin_dagster.service.api.replica_reads import ReplicaReads
from gobblin_dagster.service.security.access import ANONYMOUS, Access, Principal
from gobblin_dagster.service.store.replica import Replica

log = logging.getLogger(__name__)


class Resource(Protocol):
    """What answers below one path; further methods (`get`, `get_all`, `create`, ...) are those that it supports."""

    def find(self, request: Request, name: str) -> Answer:
        """Return what a finder finds."""

    def action(self, request: Request, name: str) -> Answer:
        """Do something with one entity."""


@dataclass(frozen=True, slots=True)
class Health:
    """What the health pages say."""

    is_live: Callable[[], bool]
    problems: Callable[[], list[str]]
    """Why the service cannot work now; empty: it is ready."""
    was_ready: Callable[[], bool]
    """Whether the store was open once since the start."""
    copy_age_s: Callable[[], float | None] = lambda: None
    """Seconds since the copy of the store, from which reads are answered without it, was up to date; None: no copy."""


class RestApp:
    """Serves the REST API.

    Args:
        resources: what answers, by the first part of the path.
        access: tells who asks.
        health: what the health pages say.
        changed: called after each request that may have changed something, so that loops need not wait.
        replica: the copy of the store that answers reads while the store is away, and the resources on it; None: only
            what was answered before is answered then.
        pages: what browsers see; None: nothing.
    """

    def __init__(
        self,
        resources: dict[str, Resource],
        access: Access,
        health: Health,
        changed: Callable[[], None],
        replica: tuple[Replica, dict[str, Resource]] | None = None,
        pages: Pages | None = None,
    ) -> None:
        self._pages = pages
        self._resources = resources
        self._access = access
        self._health = health
        self._changed = changed
        self._remembered = RememberedAnswers(time.monotonic)
        self._replica: ReplicaReads | None = None
        if replica is not None:
            copy, on_copy = replica
            self._replica = ReplicaReads(copy, lambda request: self._dispatch(request, on_copy))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection's event."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if self._pages is not None and self._pages.serves(scope):
            await self._pages(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        version = 1 if headers.get("x-restli-protocol-version") == "1.0.0" else 2
        if scope["method"] in ("GET", "HEAD") and scope["path"] == "/health/live":
            # Answered even while all threads wait for a store that hangs.
            is_live = self._health.is_live()
            await _tell(scope, send, Answer(200 if is_live else 503, {"live": is_live}), version)
            return
        try:
            body = await read_body(scope, receive)
        except RestError as error:
            answer = error_answer(error, version)
        else:
            answer, version = await to_thread.run_sync(self._answer, scope, headers, body, version)
        await _tell(scope, send, answer, version)

    def _answer(self, scope: Scope, headers: dict[str, str], body: bytes, version: int) -> tuple[Answer, int]:
        """Return the answer to a request, and the version of the protocol in which it is told.

        Args:
            scope: of the request.
            headers: names in lower case.
            body: of the request.
            version: taken for errors that come before the request is read.
        """
        try:
            path = scope["raw_path"].decode("latin-1")
            if (page := self._page(scope["method"], path)) is not None:
                return page, version
            principal = self._access.authenticate(headers.get("authorization"))
            if principal is None:
                advice = "Send `Authorization: Bearer TOKEN`; the service printed its token at its first start."
                raise Unauthenticated(advice, headers={"WWW-Authenticate": "Bearer"})
            if principal == ANONYMOUS:
                # Any page may make the browser of somebody on this machine send a request.
                require_own_page(headers)
                require_own_name(headers)
            request = _request(scope, headers, path, body, principal)
            version = request.version
            if request.method == "GET":
                return self._read(request), version
            return self._dispatch(request, self._resources), version
        except RestError as error:
            return error_answer(error, version), version
        except GobblinDagsterError as error:
            return error_answer(_rest_error(error, headers), version), version
        except Exception:  # a fault of ours must not end the connection without an answer
            log.exception("request failed")
            return error_answer(RestError("The service failed; its log says why."), version), version

    def _read(self, request: Request) -> Answer:
        """Answer a GET; while the store is away, from the copy of it, or with what was answered last."""
        try:
            answer = self._dispatch(request, self._resources)
        except (TransientError, StorageError):
            stale = self._copied(request) or self._remembered.find(request)
            if stale is None:
                raise
            return stale
        self._remembered.remember(request, answer)
        return answer

    def _copied(self, request: Request) -> Answer | None:
        try:
            return None if self._replica is None else self._replica.find(request)
        except GobblinDagsterError:
            return None  # the copy does not have it, or is away too: the store's own error is told

    def _page(self, method: str, path: str) -> Answer | None:
        """Return the answer of pages that need no login; None for all others."""
        if method not in ("GET", "HEAD"):
            return None
        match path:
            case "/health/ready":
                return self._ready()
            case "/version":
                return Answer(200, {"version": __version__})
            case "/openapi.json":
                return Answer(200, openapi_document())
        return None

    def _ready(self) -> Answer:
        """Say whether requests can be answered; a service that lost its store later still answers reads."""
        problems = self._health.problems()
        is_ready = not problems or self._health.was_ready()
        told = {"ready": is_ready, "read_only": is_ready and bool(problems), "problems": problems}
        age_s = self._health.copy_age_s()
        return Answer(200 if is_ready else 503, told if age_s is None else {**told, "copy_age_s": round(age_s, 3)})

    def _dispatch(self, request: Request, resources: Mapping[str, Resource]) -> Answer:
        resource = resources.get(request.segments[0])
        if resource is None:
            known = ", ".join(f"/{name}" for name in resources)
            raise NotFound(f"There is no resource {request.path[:80]!r}; resources: {known}.")
        if "text/html" in request.headers.get("accept", "") and "*/*" not in request.headers["accept"]:
            raise NotAcceptable("Answers are application/json.")
        if len(request.segments) > 2:
            raise BadRequest(f"The path {request.path[:80]!r} has too many parts; encode `/` inside of a key as %2F.")
        answer = self._call(resource, request)
        if request.method != "GET":
            self._changed()
        mask = request.text("fields")
        return answer if mask is None else _masked(answer, restli.parse_mask(mask))

    def _call(self, resource: Resource, request: Request) -> Answer:
        """Call the method that the verb, the path, the query and `X-RestLi-Method` name together."""
        has_key = len(request.segments) == 2
        wanted = request.headers.get("x-restli-method", "").lower()
        if "ids" in request.parameters or wanted.startswith("batch"):
            raise BadRequest("Batches are not supported; name one key in the path.")
        finder, action = request.text("q"), request.text("action")
        names = {
            ("GET", True): "get",
            ("GET", False): "get_all",
            ("PUT", True): "update",
            ("DELETE", True): "delete",
            ("POST", False): "create",
            ("POST", True): "partial_update",
        }
        name = names.get((request.method, has_key))
        if finder is not None and name == "get_all":
            return resource.find(request, finder)
        if request.method == "POST" and (action is not None or wanted == "action"):
            if action is None or not has_key:
                raise BadRequest("An action is POSTed to a key: /resource/(key)?action=name.")
            return resource.action(request, action)
        method = getattr(resource, name, None) if name else None
        if method is None or (wanted and wanted != name):
            what = wanted or f"{request.method} {'with' if has_key else 'without'} a key"
            raise BadRequest(f"/{request.segments[0]} has no method {what[:40]!r}.")
        answer: Answer = method(request)
        return answer


async def _tell(scope: Scope, send: Send, answer: Answer, version: int) -> None:
    told = answer.all_headers(version)
    if answer.more is None:
        told["Content-Length"] = str(len(answer.body))
    raw = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    if answer.more is None or scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
        return
    parts = answer.parts()
    try:
        while (part := await to_thread.run_sync(next, parts, None)) is not None:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except GobblinDagsterError as error:
        # The server ends the connection in the middle of the body, so that nobody takes a part for the whole.
        log.warning("an answer was cut short: %s", error)
        return
    await send({"type": "http.response.body", "body": b""})


def _request(scope: Scope, headers: dict[str, str], path: str, body: bytes, principal: Principal) -> Request:
    method, query = scope["method"], scope["query_string"].decode("latin-1")
    if method not in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        raise NotAllowed(f"{method[:20]} is not supported.")
    if method == "HEAD":
        method = "GET"
    override = headers.get("x-http-method-override")
    if method == "POST" and override is not None:
        # A query that is too long for a target comes as the body of a POST.
        if override.upper() != "GET" or "x-www-form-urlencoded" not in headers.get("content-type", ""):
            raise BadRequest("X-HTTP-Method-Override takes GET, with the query as a form in the body.")
        method, query, body = "GET", body.decode("latin-1"), b""
    return Request(method, path, query, headers, body, principal)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _masked(answer: Answer, mask: restli.Mask) -> Answer:
    document = answer.document
    if not isinstance(document, dict):
        return answer
    if "elements" in document:

        def shown(elements: list[Any]) -> list[Any]:
            return [restli.project(element, mask) for element in elements]

        more = None if answer.more is None else map(shown, answer.more)
        return replace(answer, document={**document, "elements": shown(document["elements"])}, more=more)
    return replace(answer, document=restli.project(document, mask))


def _rest_error(error: GobblinDagsterError, headers: dict[str, str]) -> RestError:
    """Return the answer to an error of the service."""
    if isinstance(error, InvalidFlowError):
        return Invalid(error.message())
    if isinstance(error, FlowCompileError):
        return BadRequest(_compile_message(error))
    if isinstance(error, QuotaExceededError):
        return Unavailable(str(error), retry_after_s=30)
    if isinstance(error, TransientError | StorageError):
        return Unavailable(f"The service's store cannot be used now: {error}")
    kinds: list[tuple[type[GobblinDagsterError], type[RestError]]] = [
        (FlowNotFoundError, NotFound),
        (FlowExistsError, Conflict),
        (FlowChangedError, PreconditionFailed if "if-match" in headers else Conflict),
        (SpecError, BadRequest),
    ]
    for kind, answer in kinds:
        if isinstance(error, kind):
            return answer(str(error))
    log.error("request failed: %s", error)
    return RestError(str(error))


def _compile_message(error: FlowCompileError) -> str:
    """Return why a flow does not compile, as JSON in a text: the form that Gobblin's clients show."""
    told: dict[str, Any] = {
        "singleHopErrors": list(error.reasons),
        "multiHopErrors": [],
        "message": ["Flow was not compiled successfully. " + "; ".join(error.reasons)],
    }
    return json.dumps(told, ensure_ascii=False)
