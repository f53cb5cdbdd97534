"""A JSON API on 127.0.0.1 in a thread: lists of records in pages, with faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Reply:
    """One answer."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """One request."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class JsonApi:
    """Answers by `reply`, after all of `faults` were handed out, one a request."""

    reply: Callable[[Asked], Reply]
    faults: list[Reply] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def answer(self, request: Asked) -> Reply:
        self.asked.append(request)
        return self.faults.pop(0) if self.faults else self.reply(request)


@contextmanager
def running_api(reply: Callable[[Asked], Reply]) -> Iterator[JsonApi]:
    """Serve until the block ends."""
    api = JsonApi(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = api.answer(Asked(parts.path, dict(parse_qsl(parts.query)), dict(self.headers.items()), sent))
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
