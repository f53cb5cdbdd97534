"""Logins of browsers: a one-time link or the token becomes a cookie that says who somebody is, and until when.

The cookie is signed with a key made of the service's token, so that all nodes know it and none stores it. It ends when
its time is over, or when the token is another one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from http.cookies import CookieError, SimpleCookie

from gobblin_dagster.service.security.access import Principal

SESSION_TIME = timedelta(hours=12)
"""How long a login lasts."""
TICKET_TIME = timedelta(minutes=15)
"""How long a one-time link can be used."""

MOST_COOKIES = 16_384
"""Characters of a header `Cookie` that are read: clients without a login must not keep the service busy."""


class Sessions:
    """Makes logins and knows them again.

    Args:
        token: the service's token.
        now: tells the time.
    """

    def __init__(self, token: str, now: Callable[[], datetime]) -> None:
        self._key = hmac.digest(token.encode(), b"gobblin session 1", hashlib.sha256)
        self.name = "gobblin_session_" + hashlib.sha256(self._key).hexdigest()[:8]
        """Of the cookie. Browsers do not keep the cookies of two ports apart: each service has a name of its own."""
        self._now = now
        self._tickets: dict[str, tuple[Principal, datetime]] = {}
        self._lock = threading.Lock()

    def ticket(self, principal: Principal) -> str:
        """Return a word that logs somebody in once, on this node, within `TICKET_TIME`."""
        word = secrets.token_urlsafe(32)
        with self._lock:
            self._tickets[word] = (principal, self._now() + TICKET_TIME)
        return word

    def use_ticket(self, word: str) -> Principal | None:
        """Return whom a ticket logs in; None if it is unknown, used or too old."""
        with self._lock:
            self._tickets = {key: kept for key, kept in self._tickets.items() if kept[1] > self._now()}
            found = self._tickets.pop(word, None)
        return found[0] if found else None

    def cookie(self, principal: Principal) -> str:
        """Return the value of a cookie that says who somebody is."""
        until = int((self._now() + SESSION_TIME).timestamp())
        body = _encoded(json.dumps([principal.name, until, secrets.token_hex(8)]).encode())
        return f"{body}.{self._signature(body)}"

    def known(self, cookies: str | None) -> Principal | None:
        """Return who sends a header `Cookie`; None for nobody, or if the login is over."""
        if cookies is None or len(cookies) > MOST_COOKIES:
            return None
        try:
            found = SimpleCookie(cookies).get(self.name)
        except CookieError:
            return None
        body, _, signature = (found.value if found else "").partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            return None
        try:
            name, until, _ = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            return None
        return Principal(name) if until > self._now().timestamp() else None

    def _signature(self, body: str) -> str:
        return _encoded(hmac.digest(self._key, body.encode(), hashlib.sha256))


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")
