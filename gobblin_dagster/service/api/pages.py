"""What browsers see: the login, and behind it Dagster's pages.

A browser logs in with a one-time link or with the token, and gets a cookie that counts for `/dagster` alone: REST takes
no cookies, so that no other page can make a browser use it.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.service.api.body import read_body
from gobblin_dagster.service.api.dagster_pages import PREFIX, DagsterPages
from gobblin_dagster.service.api.errors import BadRequest, NotAllowed, RestError, Unauthenticated, Unavailable
from gobblin_dagster.service.api.messages import error_answer
from gobblin_dagster.service.api.origins import require_own_name, require_own_page
from gobblin_dagster.service.security.access import ANONYMOUS, Access, Principal
from gobblin_dagster.service.security.sessions import SESSION_TIME, Sessions

log = logging.getLogger(__name__)

LOGIN = "/login"
_OWN_PAGE = re.compile(PREFIX + r"(?:[/?][\x21-\x5b\x5d-\x7e]*)?")
"""Where a login may lead: a page below the prefix, in printable ASCII without a backslash."""
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in</title>
<meta name="viewport" content="width=device-width">
<style>body {{ font: 16px sans-serif; max-width: 30em; margin: 4em auto; padding: 0 1em }}
input {{ width: 100%; box-sizing: border-box; margin: .5em 0; padding: .5em; font: inherit }}</style></head>
<body><h1>Log in</h1><p role="status">{problem}</p>
<form method="post" action="{login}">
<label>The service's token, kept in the project's folder in <code>.gobblin/service.token</code>
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<input type="hidden" name="next" value="{target}">
<input type="submit" value="Log in"></form></body></html>
"""


class Pages:
    """Serves the login and Dagster's pages.

    Args:
        access: knows tokens.
        sessions: knows browsers that have logged in.
        dagster: passes requests on to Dagster.
    """

    def __init__(self, access: Access, sessions: Sessions, dagster: DagsterPages) -> None:
        self._access = access
        self._sessions = sessions
        self._dagster = dagster

    def serves(self, scope: Scope) -> bool:
        """Tell whether a request, by its path as it came over the wire, is one for here."""
        path: bytes = scope["raw_path"]
        return path in (LOGIN.encode(), PREFIX.encode()) or path.startswith(PREFIX.encode() + b"/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or a websocket."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if scope["type"] == "websocket":
                await self._dagster.converse(scope, self._principal(headers), receive, send)
            elif scope["path"] == LOGIN:
                body = await read_body(scope, receive)
                await self._log_in(scope, headers, body, send)
            else:
                principal = self._principal(headers)
                await self._dagster.answer(scope, principal, await read_body(scope, receive), send)
        except RestError as error:
            await _refuse(scope, headers, error, send)
        except GobblinDagsterError as error:
            await _refuse(scope, headers, Unavailable(f"The service's store cannot be used now: {error}"), send)

    def _principal(self, headers: Mapping[str, str]) -> Principal:
        """Return who asks; raises Unauthenticated, or Forbidden for what a foreign page makes a browser ask."""
        principal = self._sessions.known(headers.get("cookie")) or self._access.authenticate(
            headers.get("authorization")
        )
        if principal is None:
            advice = "Log in first: at /login, or with `Authorization: Bearer TOKEN`."
            raise Unauthenticated(advice, headers={"WWW-Authenticate": "Bearer"})
        require_own_page(headers)
        if principal == ANONYMOUS:
            require_own_name(headers)
        return principal

    async def _log_in(self, scope: Scope, headers: Mapping[str, str], body: bytes, send: Send) -> None:
        """Show the form; take a one-time link, or what was typed in."""
        if scope["method"] == "POST":
            require_own_page(headers)
            typed = _fields(body)
            principal = self._access.authenticate(f"Bearer {typed.get('token', '')}")
            problem = "This is not the service's token."
        elif scope["method"] in ("GET", "HEAD"):
            typed = _fields(scope["query_string"])
            ticket = typed.get("ticket") if scope["method"] == "GET" else None
            principal = self._sessions.use_ticket(ticket) if ticket else None
            problem = "This link was used already, or is too old." if ticket else ""
        else:
            raise NotAllowed("A login is a GET or a POST.")
        target = _own_page(typed.get("next", ""))
        if principal is not None:
            log.info("%s has logged in", principal.name)
            told = {"Location": target, "Set-Cookie": self._cookie(principal), "Cache-Control": "no-store"}
            await _send(send, 303, told, b"", scope)
            return
        if problem:
            log.warning("a login was refused")
        await _send(send, 401 if problem else 200, _HEADERS, _form(problem, target), scope)

    def _cookie(self, principal: Principal) -> str:
        value = f"{self._sessions.name}={self._sessions.cookie(principal)}"
        return f"{value}; Path={PREFIX}; Max-Age={int(SESSION_TIME.total_seconds())}; HttpOnly; SameSite=Lax"


def _fields(encoded: bytes) -> dict[str, str]:
    try:
        found = parse_qs(encoded.decode("latin-1"), max_num_fields=20, errors="replace")
    except ValueError as error:
        raise BadRequest(f"The login cannot be read: {error}.") from error
    return {name: values[0] for name, values in found.items()}


def _own_page(path: str) -> str:
    return path if _OWN_PAGE.fullmatch(path) else f"{PREFIX}/"


def _form(problem: str, target: str) -> bytes:
    return _FORM.format(problem=html.escape(problem), login=LOGIN, target=html.escape(target)).encode()


async def _refuse(scope: Scope, headers: Mapping[str, str], error: RestError, send: Send) -> None:
    """Tell of an error: to a browser without a login by the form, to others as REST does."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
    elif error.status == Unauthenticated.status and "text/html" in headers.get("accept", ""):
        target = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        await _send(send, error.status, _HEADERS, _form("", _own_page(f"{target}?{query}" if query else target)), scope)
    else:
        answer = error_answer(error, 2)
        await _send(send, error.status, answer.all_headers(2), answer.body, scope)


async def _send(send: Send, status: int, headers: Mapping[str, str], body: bytes, scope: Scope) -> None:
    told = {"Content-Length": str(len(body)), **headers}
    raw = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
