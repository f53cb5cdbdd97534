"""A worker without Spark, whose commands show what a client sees: `python echo_worker.py SOCKET`."""

# ruff: noqa: T201
from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gobblin_dagster.warm.address import WarmAddress
from gobblin_dagster.warm.server import WarmServer
from gobblin_dagster.warm.watch import Watch, surroundings


def run(arguments: Sequence[str]) -> int:
    """Run a command of the tests."""
    match list(arguments):
        case ["say", *words]:
            print(*words, Path.cwd().name, os.environ.get("TERM", "none"), sys.stdin.read())
            print("and an error", file=sys.stderr)
            os.system("echo native")
            return 7
        case ["wait"]:
            stop = threading.Event()
            former = signal.signal(signal.SIGINT, lambda *_: stop.set())
            print("waiting", flush=True)
            stop.wait()
            print("stopped", flush=True)
            signal.signal(signal.SIGINT, former)
            return 130
        case ["twice"]:
            came: list[int] = []
            former = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
            print("waiting", flush=True)
            for word in ("once", "again"):
                while not came:
                    time.sleep(0.01)
                came.clear()
                print(word, flush=True)
            signal.signal(signal.SIGINT, former)
            return 130
        case ["deaf"]:
            signal.signal(signal.SIGINT, lambda *_: None)
            print("waiting", flush=True)
            while True:
                time.sleep(1)
        case ["stuck"]:
            try:
                print("waiting", flush=True)
                while True:
                    signal.pause()
            except KeyboardInterrupt:
                return 130
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
    return 0


def unfit() -> str:
    """Return nothing: the worker can run further commands."""
    return ""


def end() -> None:
    """Do nothing: commands left nothing."""


def main() -> None:
    """Serve the socket."""
    root = Path.cwd()
    keep_s = float(os.environ.get("KEEP_S", "30"))
    unfit = lambda: (root / "unfit").read_text() if (root / "unfit").exists() else ""  # noqa: E731
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = WarmServer(WarmAddress.of(root), listener, run, Watch(root, surroundings()), unfit, keep_s)
    server.serve()


if __name__ == "__main__":
    main()
