"""Calls the service's application without a socket, and counts the steps that an answer takes."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from starlette.types import ASGIApp


@dataclass(frozen=True)
class AsgiAnswer:
    """What the application sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def answer(
    app: ASGIApp,
    method: str,
    target: bytes,
    headers: Sequence[tuple[bytes, bytes]] = (),
    chunks: Sequence[bytes] = (b"",),
) -> AsgiAnswer:
    """Send one request to an application, and return its answer.

    Args:
        app: of the service.
        method: any word.
        target: path and query as they stand on the wire.
        headers: names in lower case.
        chunks: the body, in the parts in which it arrives.
    """
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": list(headers),
    }
    left = [
        {"type": "http.request", "body": chunk, "more_body": at + 1 < len(chunks)} for at, chunk in enumerate(chunks)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def call() -> None:
        await app(scope, receive, send)

    asyncio.run(call())
    start, *parts = sent
    told = {name.decode("ascii"): value.decode("latin-1") for name, value in start["headers"]}
    return AsgiAnswer(start["status"], told, b"".join(part["body"] for part in parts))


class Steps:
    """Counts the calls of Python and C functions in all threads that begin inside of the block.

    The count does not depend on how busy the machine is. Python does not look for unreachable objects meanwhile: the
    finalizers of what earlier tests left would be counted too.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Steps:
        gc.disable()
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()

    def _event(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1
