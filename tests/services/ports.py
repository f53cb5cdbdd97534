"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

_START_S = 180


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_listening(port: int, process: subprocess.Popen[bytes], log: Path, name: str) -> None:
    """Return once a server listens on a port of 127.0.0.1; else raise RuntimeError with its log."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    said = log.read_text(errors="replace")[-2000:] if log.exists() else "it wrote no log"
    raise RuntimeError(f"{name} did not start: {said}")
