"""The process of a worker whose commands another package runs: `python -m gobblin_dagster.warm.process ...`.

It can be reached at once, and imports what runs the commands when the first one comes.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from gobblin_dagster.warm.address import WarmAddress
from gobblin_dagster.warm.log import start_log
from gobblin_dagster.warm.server import WarmServer
from gobblin_dagster.warm.watch import Watch, surroundings


class CommandRunner(Protocol):
    """A module that runs commands; the worker calls its functions in its main thread."""

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command, which reads and writes the standard streams, and return its exit code; raises nothing."""
        ...

    def unfit(self) -> str:
        """Return why this process can run no further command; empty if it can."""
        ...

    def end(self) -> None:
        """Give back what commands left for the next ones, such as Spark."""
        ...


class _LaterRunner:
    """Imports a runner when the first command comes."""

    def __init__(self, module: str) -> None:
        self._module = module

    def run(self, arguments: Sequence[str]) -> int:
        return int(self._loaded().run(arguments))

    def unfit(self) -> str:
        return str(self._loaded().unfit()) if self._module in sys.modules else ""

    def end(self) -> None:
        if self._module in sys.modules:
            self._loaded().end()

    def _loaded(self) -> Any:
        return import_module(self._module)


def program(root: Path, purpose: str, runner: str, keep_s: int) -> list[str]:
    """Return the command that starts a worker; the number of its listening socket is added.

    Args:
        root: the project folder.
        purpose: as in `WarmAddress.of`.
        runner: name of a module, see `CommandRunner`.
        keep_s: seconds without a command after which the worker ends.
    """
    return [sys.executable, "-m", __name__, str(root), purpose, runner, str(keep_s)]


def main() -> None:
    """Serve the clients of a socket that one of them made."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("purpose")
    parser.add_argument("runner")
    parser.add_argument("keep_s", type=int)
    parser.add_argument("socket", type=int)
    args = parser.parse_args()
    start_log()
    os.set_inheritable(args.socket, False)
    runner: CommandRunner = _LaterRunner(args.runner)
    server = WarmServer(
        WarmAddress.of(args.root, args.purpose),
        socket.socket(fileno=args.socket),
        runner.run,
        Watch(args.root, surroundings()),
        runner.unfit,
        args.keep_s,
        lambda: {"memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024},
    )
    server.serve()
    runner.end()


if __name__ == "__main__":
    main()
