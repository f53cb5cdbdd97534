"""Servers are told to end and waited for; one that does not come to it, on a loaded machine, is killed."""

from __future__ import annotations

import subprocess

_PATIENCE_S = 60


def wait_or_kill(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Wait for the end of a process that was told to end."""
    try:
        process.wait(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
