"""Requests that another web page made a browser send: refused where the browser itself lets somebody in."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from gobblin_dagster.service.api.errors import Forbidden


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuse what comes from a page of another address.

    Browsers send `Origin` with each request that may change something, and with each websocket. Programs send none.

    Raises:
        Forbidden: the page belongs to another address.
    """
    origin = headers.get("origin")
    is_own = origin is None or _host(origin) == headers.get("host")
    if not is_own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden(f"A page of {(origin or 'another address')[:100]} may not send requests to the service.")


def require_own_name(headers: Mapping[str, str]) -> None:
    """Refuse a request whose `Host` is a name that anybody may have given to this machine's address.

    Raises:
        Forbidden: it is neither `localhost` nor an IP address.
    """
    host = headers.get("host", "localhost")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name != "localhost":
            ip_address(name)
    except ValueError:
        known = "`localhost` and IP addresses"
        raise Forbidden(f"Without a token the service answers to {known}, not to {host[:100]!r}.") from None


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
