"""A server on 127.0.0.1 that speaks Google Cloud Storage's protocol, for tests: gcp-storage-emulator."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote

_START_S = 180


@dataclass(frozen=True)
class GcsServer:
    """A running server."""

    url: str

    def put(self, bucket: str, name: str, data: bytes) -> None:
        """Write an object, making its bucket where there is none."""
        with suppress(urllib.error.HTTPError):
            self._send("POST", "/storage/v1/b?project=tests", b'{"name": "%s"}' % bucket.encode())
        where = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._send("POST", where, data)

    def delete(self, bucket: str, name: str) -> None:
        """Delete an object."""
        self._send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}", None)

    def _send(self, method: str, where: str, data: bytes | None) -> None:
        kind = {"Content-Type": "application/json" if "/upload/" not in where else "application/octet-stream"}
        request = urllib.request.Request(self.url + where, data=data, method=method, headers=kind)
        urllib.request.urlopen(request, timeout=10).read()


@contextmanager
def running_gcs() -> Iterator[GcsServer]:
    """Start a server and end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen([*command, "--in-memory", "--quiet"])
    try:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{url}/storage/v1/b?project=tests", timeout=1):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError("gcp-storage-emulator did not start; its own words are above.")
        yield GcsServer(url)
    finally:
        process.terminate()
        process.wait()
