"""The S3 server as a program: moto, one request at a time, so that conditions are checked as atomically as in S3.

Prints "READY" and its port; ends when its standard input does. Buckets whose names begin with `careless` ignore
`If-None-Match`, as some stores do.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import run_wsgi_app


def _know_missing_uploads(name: str) -> None:
    """Let moto answer NoSuchUpload, as S3 does, where it would answer with an internal error."""
    method: Callable[..., Any] = getattr(S3Backend, name)

    def checked(backend: Any, bucket_name: str, multipart_id: str, *rest: Any, **named: Any) -> Any:
        if multipart_id not in backend.get_bucket(bucket_name).multiparts:
            raise NoSuchUpload(upload_id=multipart_id)
        return method(backend, bucket_name, multipart_id, *rest, **named)

    setattr(S3Backend, name, checked)


class _OnOneConnection(WSGIRequestHandler):
    """Answers many requests on one connection, as S3 does: a new connection costs more than a request.

    Werkzeug's own handler ends each connection, and waits 10 ms before for the rest of a request.
    """

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out in one piece

    def handle_expect_100(self) -> bool:
        """Ask for the body at once."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def run_wsgi(self) -> None:
        """Give the application the whole request, and the client its whole answer."""
        environ = self.make_environ()
        is_chunked = environ.get("wsgi.input_terminated", False)
        size = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(size))
        pieces, status, headers = run_wsgi_app(self.server.app, environ)
        answer = b"".join(pieces)
        code, reason = status.split(" ", 1)
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in headers and self.command != "HEAD" and code not in {"204", "304"}:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.wfile.flush()

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until standard input ends."""
    for name in ("upload_part", "complete_multipart_upload"):
        _know_missing_uploads(name)
    application = create_backend_app("s3")
    one_at_a_time = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/careless"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with one_at_a_time:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=_OnOneConnection)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"READY {server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
