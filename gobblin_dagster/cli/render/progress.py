"""Progress of a run while its work units run: bars on a terminal, plain lines or JSON lines elsewhere, or nothing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from enum import StrEnum
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from gobblin_dagster.cli.render.console import MAX_ROWS, dataset_name
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.task.runner import is_in_spark


class ProgressMode(StrEnum):
    """The way in which progress is shown."""

    AUTO = "auto"
    RICH = "rich"
    LOG = "log"
    JSON = "json"
    NONE = "none"


class ProgressView(Protocol):
    """Shows work units as they end; called from one thread at a time, in this order."""

    def start(self, plan: JobPlan) -> None:
        """Begin to show the work units of a plan; Spark, or processes, start now."""

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        """Show that a work unit ended."""

    def stop(self) -> None:
        """Show nothing more; may be called twice, or without `start`."""


def progress_view(mode: ProgressMode, console: Console) -> ProgressView:
    """Return the view of a mode; `auto` means bars on a terminal, else lines."""
    if mode is ProgressMode.AUTO:
        mode = ProgressMode.RICH if console.is_terminal else ProgressMode.LOG
    match mode:
        case ProgressMode.RICH:
            return Bars(console)
        case ProgressMode.LOG:
            return Lines(console)
        case ProgressMode.JSON:
            return JsonLines(sys.stderr)
        case _:
            return Silence()


class Silence:
    """Shows nothing."""

    def start(self, plan: JobPlan) -> None:
        pass

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        pass

    def stop(self) -> None:
        pass


class Bars:
    """Shows one bar per dataset, at most `MAX_ROWS`, and one for all."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            expand=True,
            refresh_per_second=4,  # drawing costs time that two cores would rather give to Spark
        )
        self._bars: dict[str, TaskID] = {}
        self._rows: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._all: TaskID | None = None

    def start(self, plan: JobPlan) -> None:
        active = [dataset for dataset in plan.datasets if dataset.has_work]
        self._all = self._progress.add_task("all datasets", total=_units(plan), note=_begins(plan))
        for dataset in active[:MAX_ROWS] if len(active) > 1 else ():
            self._bars[dataset.dataset_urn] = self._progress.add_task(
                dataset_name(dataset.dataset_urn)[:40], total=len(dataset.work_units), note=""
            )
        self._progress.start()

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self._rows[state.dataset_urn] += state.rows_read
        self._failed[state.dataset_urn] += state.state is WorkingState.FAILED
        failed = f", {self._failed[state.dataset_urn]:,} failed" if self._failed[state.dataset_urn] else ""
        bar = self._bars.get(state.dataset_urn)
        if bar is not None:
            self._progress.update(bar, advance=1, note=count(self._rows[state.dataset_urn], "row") + failed)
        if self._all is not None:
            self._progress.update(self._all, completed=done, note=count(self._rows.total(), "row"))

    def stop(self) -> None:
        self._progress.stop()


class Lines:
    """Prints a line when a dataset is read completely (few datasets), or at each twentieth of the work units (many)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._left: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._is_detailed = False

    def start(self, plan: JobPlan) -> None:
        active = [dataset for dataset in plan.datasets if dataset.has_work]
        self._left.update({dataset.dataset_urn: len(dataset.work_units) for dataset in active})
        self._is_detailed = len(active) <= MAX_ROWS
        self._console.print(f"{_begins(plan)} for {count(_units(plan), 'work unit')}")

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        urn = state.dataset_urn
        self._left[urn] -= 1
        self._rows[urn] += state.rows_read
        self._failed[urn] += state.state is WorkingState.FAILED
        if self._is_detailed and self._left[urn] == 0:
            failed = f", {count(self._failed[urn], 'work unit')} failed" if self._failed[urn] else ""
            self._console.print(f"read {dataset_name(urn)}: {count(self._rows[urn], 'row')}{failed}")
        if total > MAX_ROWS and done * MAX_ROWS // total > (done - 1) * MAX_ROWS // total:
            rows = count(self._rows.total(), "row")
            self._console.print(f"read {done:,} of {total:,} work units ({100 * done // total}%), {rows}")

    def stop(self) -> None:
        pass


class JsonLines:
    """Prints one JSON object per line and work unit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._job = ""
        self._run_id = ""

    def start(self, plan: JobPlan) -> None:
        self._job, self._run_id = plan.job, plan.run_id
        event = "spark_starting" if is_in_spark(plan.place) else "processes_starting"
        self._print(event=event, work_units=_units(plan))

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self._print(
            event="task_done",
            dataset=state.dataset_urn,
            work_unit=state.work_unit_id,
            state=state.state.value,
            rows_read=state.rows_read,
            done=done,
            total=total,
        )

    def stop(self) -> None:
        pass

    def _print(self, **event: Any) -> None:
        line = json.dumps({"job": self._job, "run_id": self._run_id, **event}, ensure_ascii=False)
        self._stream.write(line + "\n")
        self._stream.flush()


def _begins(plan: JobPlan) -> str:
    return "Spark starts" if is_in_spark(plan.place) else "Processes start"


def _units(plan: JobPlan) -> int:
    return sum(len(dataset.work_units) for dataset in plan.datasets)
