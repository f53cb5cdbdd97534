"""What runs packs of work units: Spark, or a plain loop in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.task.context import RunContext, TaskInput


class TaskRunner(Protocol):
    """Runs packs, many at once."""

    cores: int | None
    """Cores that work at once; None where it is not known."""

    def start_early(self) -> None:
        """Begin to start, without waiting: there is work. Called any number of times."""

    def run(
        self,
        run_context: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs and return one TaskState per work unit."""

    def close(self) -> None:
        """Release what was started."""


@runtime_checkable
class SessionRunner(Protocol):
    """A lane that has a Spark session, for sources that plan and read with Spark."""

    def open_session(self) -> Any:
        """Start Spark where it is not started yet and return the session; raises EnvironmentFaultError."""
