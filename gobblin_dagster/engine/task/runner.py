"""Protocols of classes that run packs of work units: on Spark, in processes, or in a plain loop in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.spec.job import JobSpec


class TaskRunner(Protocol):
    """Runs packs, several at once."""

    cores: int | None
    """Number of cores that work at once; None if unknown."""

    def start_early(self) -> None:
        """Begin to start, without waiting, because there is work. May be called any number of times."""

    def run(
        self,
        run_context: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs and return one TaskState per work unit.

        `on_result` is called with each TaskState as soon as it is known. After `stop` is set, no further unit begins.
        """

    def close(self) -> None:
        """Stop what this object started."""


@runtime_checkable
class PagesRunner(Protocol):
    """A task runner that works where web pages show its work."""

    def pages(self) -> dict[str, str]:
        """Return the addresses of its pages; empty if it has none. Starts nothing.

        The key `pages` is for those that end with the work, `history` for those that stay.
        """


@runtime_checkable
class SessionRunner(Protocol):
    """A task runner that has a Spark session, for sources that plan and read with Spark."""

    def open_session(self) -> Any:
        """Start Spark if it is not started yet and return the session; raises EnvironmentFaultError."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where the work units of a run are run."""

    is_spark: bool
    """Whether it is Spark; else it is processes of this machine."""
    why: str
    """The reason, for people; it follows a colon."""

    def __str__(self) -> str:
        """Return it with the reason, for people."""
        return f"{'Spark' if self.is_spark else 'processes of this machine, without Spark'}: {self.why}."


def is_in_spark(place: TaskPlace | None) -> bool:
    """Return whether work units are run by Spark: always, if no place was chosen."""
    return place is None or place.is_spark


@runtime_checkable
class PlacingRunner(Protocol):
    """A task runner that chooses for each run between Spark and processes of this machine."""

    def place(self, job: JobSpec, units: Iterable[WorkUnit]) -> TaskPlace | None:
        """Return where work units of a job would be run now; None if there is no choice. Starts nothing."""
