"""The log file of `gobblin run`: one JSON object a line, with a level, from the plan to the end.

It holds what the terminal shows and more: each work unit and commit step, the stack trace of an error, and warnings of
all packages. It is written line by line, so that it also tells how far a killed run came.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from gobblin_dagster.cli.errors import describe
from gobblin_dagster.cli.render.run import recovery_line, summary_line
from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.layout import RUN_LOGS
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import DatasetResult, RecoveredDataset, RunResult

KEPT_LOGS = 100
"""Number of newest log files that are kept."""
_NAMES = "run-*.jsonl"
_BAD = (DatasetOutcome.FAILED, DatasetOutcome.QUARANTINED)


class LogLevel(StrEnum):
    """The least level of the lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as `logging` counts it."""
        return logging.getLevelNamesMapping()[self.name]


class LogEvent(StrEnum):
    """The events of a run; `event` of each line."""

    RECOVERED = "recovered"
    PLANNED = "planned"
    SPARK_STARTING = "spark_starting"
    PROCESSES_STARTING = "processes_starting"
    TASK_DONE = "task_done"
    EXTRACTED = "extracted"
    STEP_DONE = "step_done"
    DATASET_DONE = "dataset_done"
    FINISHED = "finished"
    ERROR = "error"
    LOGGED = "logged"
    """A line that a package logs by `logging`, from `warning` on."""


class RunLog:
    """Writes the log file of one command; use it as a context manager.

    A log that cannot be written does not harm the run: `path` is None then, or the file ends early.

    Args:
        root: folder of the project.
        level: lines below it are left out.
    """

    def __init__(self, root: Path, level: LogLevel) -> None:
        self._level = level.number
        # Finalizers log too, and may run while this thread writes a line.
        self._lock = threading.RLock()
        self._handler = _ToRunLog(self)
        self._terminal = _LastResort()
        self._stream: TextIO | None = None
        self.begun: dict[str, dict[str, Any]] = {}
        """By job that began: `run_id` and `started_at` of its run."""
        self.path: Path | None = None
        """The file; None if it could not be made."""
        folder = root / RUN_LOGS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path, self._stream = _new_file(folder)
            _delete_old(folder, self.path)
        except OSError:
            # A project on a read-only disk can have its state and output elsewhere.
            pass

    def __enter__(self) -> Self:
        root = logging.getLogger()
        if not root.handlers:
            root.addHandler(self._terminal)  # with any handler, `logging` prints warnings no longer
        root.addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handler in (self._handler, self._terminal):
            logging.getLogger().removeHandler(handler)
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):  # some disks say only now that they are full
                stream.close()

    def listener(self, job: str) -> RunListener:
        """Return the listener that logs one run of a job."""
        return _JobLog(self, job)

    @contextmanager
    def told_errors(self, job: str) -> Iterator[None]:
        """Log an error that ends a job, with its stack trace, and raise it."""
        try:
            yield
        except BaseException as error:
            code, message = describe(error)
            trace = "".join(traceback.format_exception(error))
            self.write(
                logging.ERROR,
                LogEvent.ERROR,
                message,
                job=job,
                run_id=self.begun.get(job, {}).get("run_id"),
                code=code,
                stack_trace=trace,
            )
            raise

    def write(self, level: int, event: LogEvent, message: str, **fields: Any) -> None:
        """Write a line; fields that are None are left out."""
        if level < self._level or self._stream is None:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in fields.items() if value is not None}
        document = {"at": at, "level": logging.getLevelName(level).lower(), "event": event, "message": message, **known}
        line = json.dumps(_without_secrets(document), default=str) + "\n"
        with self._lock:
            try:
                if self._stream is not None:
                    self._stream.write(line)
                    self._stream.flush()
            except OSError:
                self._stream = None  # the disk is full; the run says so where it needs the disk


class _JobLog(RunListener):
    """Logs the events of one job."""

    def __init__(self, log: RunLog, job: str) -> None:
        self._log = log
        self._about: dict[str, Any] = {"job": job}

    def begun(self, run_id: str, started_at: datetime) -> None:
        self._log.begun[self._about["job"]] = {"run_id": run_id, "started_at": started_at}
        self._about["run_id"] = run_id

    def recovered(self, dataset: RecoveredDataset) -> None:
        told = {"dataset": dataset.dataset_urn, "sequence": dataset.sequence_id, "state": dataset.state}
        level = logging.INFO if dataset.state == "committed" else logging.WARNING
        self._write(level, LogEvent.RECOVERED, recovery_line(dataset), **told)

    def planned(self, plan: JobPlan) -> None:
        moving = sum(dataset.is_moving for dataset in plan.datasets)
        self._write(
            logging.INFO,
            LogEvent.PLANNED,
            f"{moving:,} of {count(len(plan.datasets), 'dataset')} with something new",
            datasets=len(plan.datasets),
            work_units=sum(len(dataset.work_units) for dataset in plan.datasets),
        )
        for dataset in plan.datasets:
            if dataset.problem:
                self._plan_line(logging.ERROR, dataset.dataset_urn, dataset.problem, code=dataset.code)
            elif dataset.is_moving:
                self._plan_line(logging.INFO, dataset.dataset_urn, _range(dataset.low, dataset.expected_high))
            for note in dataset.notes:
                self._plan_line(logging.INFO, dataset.dataset_urn, note)

    def _plan_line(self, level: int, dataset: str, message: str, **fields: Any) -> None:
        self._write(level, LogEvent.PLANNED, message, dataset=dataset, **fields)

    def spark_starting(self) -> None:
        self._write(logging.INFO, LogEvent.SPARK_STARTING, "Spark starts")

    def processes_starting(self) -> None:
        self._write(logging.INFO, LogEvent.PROCESSES_STARTING, "Processes start; Spark is not needed")

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        about = {"dataset": state.dataset_urn, "work_unit": state.work_unit_id, "state": state.state.value}
        for failure in state.failures:
            self._write(
                logging.ERROR, LogEvent.TASK_DONE, failure.message, code=failure.code, branch=failure.branch, **about
            )
        if state.state is not WorkingState.FAILED:
            read = f"{count(state.rows_read, 'row')} read, {done:,} of {total:,} work units"
            self._write(
                logging.INFO,
                LogEvent.TASK_DONE,
                read,
                rows_read=state.rows_read,
                bytes_read=state.bytes_read,
                rows_quarantined=state.rows_quarantined,
                **about,
            )

    def extracted(self) -> None:
        self._write(logging.INFO, LogEvent.EXTRACTED, "All work units ended; publishing begins")

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        about = {"dataset": sequence.dataset_urn, "sequence": sequence.id, "number": number}
        self._write(logging.DEBUG, LogEvent.STEP_DONE, type(step).__name__, **about)

    def dataset_done(self, result: DatasetResult) -> None:
        outcome = result.outcome
        level = logging.ERROR if outcome in _BAD else logging.INFO if outcome.is_good else logging.WARNING
        self._write(
            level,
            LogEvent.DATASET_DONE,
            f"{outcome.value}, watermark {result.actual_high}" + (f": {result.problem}" if result.problem else ""),
            dataset=result.dataset_urn,
            outcome=outcome.value,
            codes=sorted({failure.code for failure in result.failures}) or None,
            watermark=None if result.actual_high is None else str(result.actual_high),
            rows_read=result.rows_read,
            rows_published=sum(result.rows_by_branch.values()),
            rows_quarantined=result.rows_quarantined,
            files=result.files,
            bytes_written=result.bytes_written,
            snapshot=result.snapshot or None,
        )

    def finished(self, result: RunResult) -> None:
        level = {RunStatus.SUCCEEDED: logging.INFO, RunStatus.FAILED: logging.ERROR}.get(result.status, logging.WARNING)
        about = {"status": result.status.value, "exit_code": int(result.exit_code)}
        self._write(level, LogEvent.FINISHED, summary_line(result), **about)

    def _write(self, level: int, event: LogEvent, message: str, **fields: Any) -> None:
        self._log.write(level, event, message, **{**self._about, **fields})


class _ToRunLog(logging.Handler):
    """Writes what packages log into the log of the run."""

    def __init__(self, log: RunLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
            told = record.getMessage()
        except Exception:  # noqa: BLE001 - a package's line that cannot be formatted must not end the run
            self.handleError(record)
            return
        self._log.write(record.levelno, LogEvent.LOGGED, told, logger=record.name, stack_trace=trace)


class _LastResort(logging.Handler):
    """Prints warnings on stderr as `logging` does if it has no handler: not those of packages with one of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger is not logging.getLogger():
            if logger.handlers:
                return
            logger = logger.parent
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


def shown_path(path: Path) -> Path:
    """Return a path for people: relative to the current folder, if it is in it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _new_file(folder: Path) -> tuple[Path, TextIO]:
    """Make a file whose name is the time, so that names are in the order of the runs."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = folder / _NAMES.replace("*", f"{stamp}Z-{os.getpid()}")
    return path, path.open("x", encoding="utf-8")


def _delete_old(folder: Path, own: Path) -> None:
    """Delete all but the newest files; `own` stays, also if a clock was set back."""
    others = sorted(set(folder.glob(_NAMES)) - {own})
    for path in others[: 1 - KEPT_LOGS]:
        path.unlink(missing_ok=True)


def _range(low: object, high: object) -> str:
    return f"{'the beginning' if low is None else low} -> {high}"


def _without_secrets(value: Any) -> Any:
    match value:
        case str():
            return hidden(value)
        case dict():
            return {name: _without_secrets(one) for name, one in value.items()}
        case Sequence():
            return [_without_secrets(one) for one in value]
    return value
