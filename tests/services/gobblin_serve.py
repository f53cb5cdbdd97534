"""`gobblin serve` in a project of its own, as a process on 127.0.0.1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = [sys.executable, "-m", "gobblin_dagster"]
PACKAGE = Path(__file__).parents[2]


@dataclass
class ServeProcess:
    """A project folder, and the service in it."""

    root: Path
    port: int = 0
    process: subprocess.Popen[str] | None = None
    printed: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        with (self.root / "serve.log").open("a") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "serve"], cwd=self.root, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        for line in self.process.stdout or ():
            self.printed.append(line)
            if "answers at http" in line:
                self.port = int(line.split()[4].rpartition(":")[2])
                return
        raise AssertionError(f"the service did not start: {(self.root / 'serve.log').read_text()[-3000:]}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(120)

    @property
    def token(self) -> str:
        return (self.root / ".gobblin" / "service.token").read_text().strip()


@contextmanager
def serving(root: Path) -> Iterator[ServeProcess]:
    """Start the service of a project, and end it afterwards."""
    served = ServeProcess(root)
    served.start()
    try:
        yield served
    finally:
        if served.process is not None and served.process.poll() is None:
            served.end()
