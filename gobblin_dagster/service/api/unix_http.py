"""One HTTP request over a unix socket, its answer read part by part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import h11

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class UnixAnswer:
    """What a server answers."""

    status: int
    headers: Headers
    parts: AsyncIterator[bytes]
    """The body; raises OSError or h11.RemoteProtocolError if it breaks off."""


@asynccontextmanager
async def asked(
    path: Path, method: str, target: bytes, headers: Headers, body: bytes, wait_s: float
) -> AsyncIterator[UnixAnswer]:
    """Send a request, and yield the answer when its head has come.

    Args:
        path: of the socket.
        method: such as `GET`.
        target: path and query.
        headers: `host` among them; without those that say how long the body is.
        body: of the request.
        wait_s: seconds in which the head must come.

    Raises:
        OSError: nobody listens, or the connection breaks off; TimeoutError among them.
        h11.RemoteProtocolError: the answer is not HTTP.
        h11.LocalProtocolError: the request is not HTTP.
    """
    connection = h11.Connection(h11.CLIENT)
    framing = [(b"connection", b"close"), *([(b"content-length", b"%d" % len(body))] if body else [])]
    events = [h11.Request(method=method, target=target, headers=[*headers, *framing])]
    sent = [connection.send(event) for event in (*events, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())]
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(b"".join(part or b"" for part in sent))
        await writer.drain()
        async with asyncio.timeout(wait_s):
            head = await _event(reader, connection)
            while isinstance(head, h11.InformationalResponse):
                head = await _event(reader, connection)
        if not isinstance(head, h11.Response):
            raise ConnectionResetError("the connection ended without an answer")
        yield UnixAnswer(head.status_code, list(head.headers), _parts(reader, connection))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _parts(reader: asyncio.StreamReader, connection: h11.Connection) -> AsyncIterator[bytes]:
    while isinstance(event := await _event(reader, connection), h11.Data):
        yield bytes(event.data)


async def _event(reader: asyncio.StreamReader, connection: h11.Connection) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_CHUNK))
    return event
