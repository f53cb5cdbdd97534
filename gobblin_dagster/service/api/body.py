"""Reads the body of a request: not more than is allowed, and not for ever."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from gobblin_dagster.service.api.errors import BadRequest, TooLarge

MAX_BODY = 1 << 20
"""Bytes of a body at most."""
BODY_WAIT_S = 10
"""Seconds in which a body must have come whole."""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Return a request's body; raises TooLarge or BadRequest."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    if lengths and lengths[0].isdigit() and int(lengths[0]) > MAX_BODY:
        raise TooLarge(f"A body has at most {MAX_BODY:,} bytes, got {int(lengths[0]):,}.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WAIT_S):
            while True:
                message: Message = await receive()
                if message["type"] == "http.disconnect":
                    raise BadRequest("The client went away before its body was whole.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MAX_BODY:
                    raise TooLarge(f"A body has at most {MAX_BODY:,} bytes.")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise BadRequest(f"The body did not come whole within {BODY_WAIT_S} s.") from None
