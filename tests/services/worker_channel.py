"""The worker of an executor, in threads of this process and without Spark: the same program on the inline runner."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.executors.messages import JobNews, Message, Shutdown, to_line
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.testing.inline_runner import InlineRunner


class InlineChannel:
    """Runs jobs of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._tell: Callable[[JobNews], None] = lambda _: None

    def listen(self, tell: Callable[[JobNews], None], ended: Callable[[int, str], None]) -> None:
        self._tell = tell
        self._thread.start()

    def send(self, message: Message) -> int:
        self._lines.put(to_line(message))
        return 1

    def shutdown(self) -> None:
        self.send(Shutdown())
        self._thread.join()

    def kill(self) -> None:
        """Threads cannot be killed: they end."""
        self.shutdown()

    def _serve(self) -> None:
        Worker(self._project, InlineRunner(), self._tell, 2).serve(self._each())

    def _each(self) -> Iterator[str]:
        while True:
            yield self._lines.get()
