"""WorkerProcess: the child process that runs jobs; it is started when there is something to do."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gobblin_dagster.core.memory import address_space
from gobblin_dagster.service.executors.messages import JobNews, Message, Shutdown, from_line, to_line

log = logging.getLogger(__name__)

_SHUTDOWN_S = 300


class WorkerChannel(Protocol):
    """What a `JobMonitor` hands jobs to. Its callbacks come in a thread of its own."""

    def listen(self, tell: Callable[[JobNews], None], ended: Callable[[int, str], None]) -> None:
        """Set who hears of jobs, and of a worker that ended without being told to: its number, and a few words."""

    def send(self, message: Message) -> int:
        """Hand over a message, and return the worker's number; a worker that is not there is started.

        If the worker ends meanwhile, `ended` is called with this number.
        """

    def shutdown(self) -> None:
        """End the worker gracefully: work units that run end, what is whole is committed. Waits for it."""

    def kill(self) -> None:
        """End the worker at once."""


class WorkerProcess:
    """A process that speaks `messages` on its standard input and output.

    Args:
        command: starts it.
        folder: its working folder: the project's.
        log_file: what it and its Spark print.
    """

    def __init__(self, command: Sequence[str], folder: Path, log_file: Path) -> None:
        self._command = list(command)
        self._folder = folder
        self._log_file = log_file
        self._lock = threading.RLock()  # a signal may kill while the same thread ends it
        self._worker: subprocess.Popen[str] | None = None
        self._number = 0
        """How many processes were started; the number of the one that runs."""
        self._is_closed = False
        self._tell: Callable[[JobNews], None] = lambda _: None
        self._ended: Callable[[int, str], None] = lambda *_: None

    def listen(self, tell: Callable[[JobNews], None], ended: Callable[[int, str], None]) -> None:
        """Set who hears of jobs, and of the process's end."""
        self._tell = tell
        self._ended = ended

    def send(self, message: Message) -> int:
        """Hand over a message."""
        worker, number = self._started()
        try:
            if worker is not None and worker.stdin is not None:
                worker.stdin.write(to_line(message))
                worker.stdin.flush()
        except OSError:
            log.warning("the worker ended; it is started again")  # its reader finds out, and sorts its jobs
        return number

    def shutdown(self) -> None:
        """End the process gracefully and wait for it."""
        with self._lock:
            self._is_closed = True
            worker = self._worker
        if worker is None:
            return
        self.send(Shutdown())
        try:
            worker.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            log.warning("the worker did not end within %d s and is killed; its jobs are taken up later", _SHUTDOWN_S)
            worker.kill()

    def kill(self) -> None:
        """End the process at once, one that is being started too: it would run its job beside those who take it up."""
        with self._lock:
            self._is_closed = True
            worker = self._worker
        if worker is not None:
            worker.kill()

    def _started(self) -> tuple[subprocess.Popen[str] | None, int]:
        """Return the process, which is started if there is none, and its number; None if it was closed."""
        with self._lock:
            if self._worker is None and not self._is_closed:
                self._log_file.parent.mkdir(parents=True, exist_ok=True)
                with self._log_file.open("a", encoding="utf-8") as output, address_space.lifted():
                    self._worker = subprocess.Popen(  # noqa: S603 - the service's own program
                        self._command,
                        cwd=self._folder,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=output,
                        text=True,
                        encoding="utf-8",
                        # A Ctrl-C for the service must not reach the worker: the service decides how it ends.
                        start_new_session=True,
                    )
                self._number += 1
                reader = threading.Thread(
                    target=self._read, args=(self._worker, self._number), name="worker-reader", daemon=True
                )
                reader.start()
            return self._worker, self._number

    def _read(self, worker: subprocess.Popen[str], number: int) -> None:
        """Take in what the process says, until it ends."""
        for line in worker.stdout or ():
            try:
                news = from_line(line)
            except ValueError as error:
                log.warning("%s", error)
                continue
            if isinstance(news, JobNews):
                self._tell(news)
        code = worker.wait()
        with self._lock:
            self._worker = None
        if not self._is_closed:
            self._ended(number, f"code {code}; see {self._log_file}")
