"""Reads the body of a request: not more than is allowed, and not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Scope

from gobblin_dagster.service.api.errors import BadRequest, TooLarge

MAX_BODY = 1 << 20
"""Bytes of a body at most."""
BODY_WAIT_S = 10
"""Seconds in which a body must have come whole."""
MAX_DROPPED = 64 << 20
"""Bytes of a body that is too large which are read and dropped at most."""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Return a request's body; raises TooLarge or BadRequest."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > MAX_BODY:
        if b"expect" not in headers:  # such a client sends nothing before it is asked to go on
            await _drop_rest(receive)
        raise TooLarge(f"A body has at most {MAX_BODY:,} bytes, got {int(length):,}.")
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
                    if message.get("more_body"):
                        await _drop_rest(receive)
                    raise TooLarge(f"A body has at most {MAX_BODY:,} bytes.")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise BadRequest(f"The body did not come whole within {BODY_WAIT_S} s.") from None


async def _drop_rest(receive: Receive) -> None:
    """Read what still comes of a body, and drop it: many clients look for an answer only after they have sent all.

    If the connection were closed before, they would get "connection reset" instead of the answer.
    """
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(BODY_WAIT_S):
            while size <= MAX_DROPPED:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):  # nor has the message that the client went away
                    return
