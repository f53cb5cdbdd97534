"""A task runner without Spark: the same packs and tasks in a plain loop, so that jobs in tests run in milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import run_pack


class InlineRunner:
    """Runs packs one after the other in this process; implements `engine.task.runner.TaskRunner`.

    Errors of constructs are isolated as on Spark, with one difference: a work unit that kills its process kills the
    test.
    """

    cores: int | None = 1

    def __init__(self) -> None:
        self.is_started = False
        """True if there was any work; must stay False in an idle run."""

    def start_early(self) -> None:
        """Note that there is work."""
        self.is_started = True

    def run(
        self,
        runner: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs; `stop` cancels work units that have not begun."""
        states = []
        for pack in packs:
            for state in run_pack(runner, iter(pack), is_stopped=stop.is_set):
                on_result(state)
                states.append(state)
        return states

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
