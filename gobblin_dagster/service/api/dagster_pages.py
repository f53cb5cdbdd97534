"""Dagster's pages under `/dagster`, behind the service's login, rules and audit trail.

Dagster listens on a unix socket that only the service's user can reach. Each request is judged here before it is passed
on: GET reads, POST changes something unless it is a GraphQL query. What is passed on is what was judged: the body is
written again from what was read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h11
from anyio import to_thread
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from gobblin_dagster.service.api.errors import BadRequest, NotAllowed, RestError, Unavailable
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.unix_http import asked
from gobblin_dagster.service.security.access import Action, Principal
from gobblin_dagster.service.store.store import ServiceStore

log = logging.getLogger(__name__)

PREFIX = "/dagster"
WHAT = "Dagster"
"""Names the pages in the audit trail."""
ANSWER_WAIT_S = 300
"""Seconds in which Dagster must begin its answer: it may load definitions in this time."""
_GRAPHQL = f"{PREFIX}/graphql"
_WEBSOCKET = "graphql-ws"
_MOST_BYTES = 1 << 20
"""Of a websocket's message from a browser."""
_PASSED_ON = frozenset(
    b"accept accept-encoding accept-language host if-modified-since if-none-match range user-agent".split()
)
"""Headers of a request that Dagster gets: no cookie and no token among them."""
_OWN = frozenset(b"connection content-length date keep-alive server set-cookie transfer-encoding upgrade".split())
"""Headers of an answer that the service's own server writes, or nobody."""
_ADDED = [(b"x-frame-options", b"SAMEORIGIN"), (b"referrer-policy", b"same-origin")]


class DagsterPages:
    """Passes requests on to Dagster.

    Args:
        socket: of Dagster's web server.
        guard: decides who may read, and who may change something.
        store: keeps the audit trail.
    """

    def __init__(self, socket: Path, guard: Guard, store: ServiceStore) -> None:
        self._socket = socket
        self._guard = guard
        self._store = store

    async def answer(self, scope: Scope, principal: Principal, body: bytes, send: Send) -> None:
        """Answer a request of somebody who has logged in.

        Raises:
            RestError: it is refused, or Dagster does not answer; nothing was sent.
            GobblinDagsterError: the audit trail cannot be written; nothing was sent.
        """
        _require_sound_path(scope["path"])
        document = _document(scope, body)
        change = _change(scope["path"], document) if scope["method"] == "POST" else None
        await to_thread.run_sync(self._require, principal, change)
        headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        if document is not None:
            headers.append((b"content-type", b"application/json"))
        query = b"" if document is not None and _is_graphql(scope["path"]) else scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        told = b"" if document is None else json.dumps(document).encode()
        is_begun = False
        try:
            async with asked(self._socket, scope["method"], target, headers, told, ANSWER_WAIT_S) as found:
                shown = [(name, value) for name, value in found.headers if name not in _OWN]
                lengths = [(name, value) for name, value in found.headers if name == b"content-length"]
                is_begun = True
                await send({"type": "http.response.start", "status": found.status, "headers": shown + lengths + _ADDED})
                async for part in found.parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except h11.LocalProtocolError as error:
            raise BadRequest(f"The request cannot be passed on: {error}.") from error
        except (OSError, h11.RemoteProtocolError) as error:
            if is_begun:
                raise  # the server ends the connection, so that nobody takes the part for the whole
            raise _away(error) from error

    async def converse(self, scope: Scope, principal: Principal, receive: Receive, send: Send) -> None:
        """Pass a websocket's messages on in both directions, until one side ends it.

        Raises:
            RestError: it is refused, or Dagster does not answer; it is not accepted yet.
        """
        if scope["path"] != _GRAPHQL or _WEBSOCKET not in scope["subprotocols"]:
            raise BadRequest(f"The only websocket is {_GRAPHQL}, with the protocol {_WEBSOCKET}.")
        await to_thread.run_sync(self._require, principal, None)
        await receive()  # websocket.connect
        try:
            connection = await unix_connect(
                str(self._socket),
                f"ws://dagster{_GRAPHQL}",
                subprotocols=[Subprotocol(_WEBSOCKET)],
                max_size=None,
                compression=None,
            )
        except (OSError, WebSocketException) as error:
            raise _away(error) from error
        async with connection:
            await send({"type": "websocket.accept", "subprotocol": _WEBSOCKET})
            await _pass_on(connection, receive, send)

    def _require(self, principal: Principal, change: str | None) -> None:
        """Let a request through if a rule allows it; a change leaves a row before it is passed on."""
        action = Action.READ if change is None else Action.OPERATE
        self._guard.require_of(principal, action, None, WHAT)
        if change is not None:
            with self._store.write() as transaction:
                self._guard.note_of(transaction, principal, action, WHAT, change)


def _require_sound_path(path: str) -> None:
    """Refuse a path, without its percent signs, that leads elsewhere than it says."""
    if {".", ".."} & set(path.split("/")) or "\\" in path or not path.isprintable():
        raise BadRequest(f"The path {path[:80]!r} is not one of Dagster's pages.")


def _is_graphql(path: str) -> bool:
    return path.rstrip("/") == _GRAPHQL


def _document(scope: Scope, body: bytes) -> Any:
    """Return the JSON of a POST; None for other requests.

    Raises:
        NotAllowed: Dagster would take the request for a change, or for something that only it can tell.
        BadRequest: the body is no JSON.
    """
    method, query = scope["method"], scope["query_string"]
    if method in ("GET", "HEAD"):
        # Dagster would execute mutations of a GET, which other pages can make a browser send.
        if _is_graphql(scope["path"]) and query:
            raise NotAllowed("GraphQL is POSTed as application/json.")
        return None
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    if method != "POST" or len(types) != 1 or types[0].partition(b";")[0].strip().lower() != b"application/json":
        raise NotAllowed("Dagster's pages are asked by GET, and by POST with application/json.")
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}.") from error


def _change(path: str, document: Any) -> str | None:
    """Tell what a POST changes, for the audit trail; None if it only reads."""
    if not _is_graphql(path):
        return path[:200]
    asked_for: Mapping[str, Any] = document if isinstance(document, dict) else {}
    query = asked_for.get("query")
    # The word of GraphQL cannot be written in any other way. In a query it stands by chance only.
    if isinstance(query, str) and "mutation" not in query:
        return None
    return str(asked_for.get("operationName") or "mutation")[:200]


def _away(error: Exception) -> RestError:
    log.debug("Dagster's pages do not answer: %r", error)
    return Unavailable("Dagster's pages do not answer now; they start, or start again. See .gobblin/dagster-pages.log.")


async def _pass_on(connection: ClientConnection, receive: Receive, send: Send) -> None:
    async def outward() -> None:
        with suppress(ConnectionClosed):
            async for message in connection:
                kind = "text" if isinstance(message, str) else "bytes"
                await send({"type": "websocket.send", kind: message})
        await send({"type": "websocket.close", "code": connection.close_code or 1011})

    async def inward() -> None:
        with suppress(ConnectionClosed):
            while (message := await receive())["type"] == "websocket.receive":
                text = message.get("text")
                if text is None or len(text) > _MOST_BYTES:
                    return
                await connection.send(text)

    ways = [asyncio.create_task(outward()), asyncio.create_task(inward())]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
