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

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from werkzeug.serving import WSGIRequestHandler, make_server


def _know_missing_uploads(name: str) -> None:
    """Let moto answer NoSuchUpload, as S3 does, where it would answer with an internal error."""
    method: Callable[..., Any] = getattr(S3Backend, name)

    def checked(backend: Any, bucket_name: str, multipart_id: str, *rest: Any, **named: Any) -> Any:
        if multipart_id not in backend.get_bucket(bucket_name).multiparts:
            raise NoSuchUpload(upload_id=multipart_id)
        return method(backend, bucket_name, multipart_id, *rest, **named)

    setattr(S3Backend, name, checked)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # a connection serves many requests, as in S3: a new one costs more than a request

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until standard input ends."""
    for name in ("upload_part", "complete_multipart_upload"):
        _know_missing_uploads(name)
    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/careless"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        # Whole before it is answered: what an answer leaves unread would be taken for the next request.
        is_chunked = environ.get("wsgi.input_terminated", False)
        size = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(size))
        with one_at_a_time:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"READY {server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
