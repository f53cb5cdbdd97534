"""RunProfile: where the time of one run went, and how fast it read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.task.runner import TaskPlace


@dataclass(frozen=True, slots=True)
class RunProfile:
    """Seconds of the phases of a run, one after the other, and what its work units read."""

    plan_s: float = 0.0
    """Recovery of earlier runs, and the plan."""
    start_s: float = 0.0
    """From the plan until the first work unit began: the start of Spark, or of processes. It is a little too long,
    because the driver hears of work units of Spark a fifth of a second later."""
    extract_s: float = 0.0
    """Share of the time of the work units in which extractors read."""
    convert_s: float = 0.0
    """Share of it in converters and row policies before the fork."""
    write_s: float = 0.0
    """Share of it in fork, branches and files."""
    commit_s: float = 0.0
    """From the last work unit to the end: decisions, commit, manifests, record of the run."""
    rows: int = 0
    """Rows read."""
    bytes: int = 0
    """Bytes read."""
    work_units: int = 0
    skew: float | None = None
    """Seconds of the slowest pack of work units (one task) as a multiple of the mean; None without work units."""
    place: TaskPlace | None = None
    """Where the work units ran, if that is not always Spark."""

    @property
    def work_s(self) -> float:
        """Seconds in which work units ran, several at a time."""
        return self.extract_s + self.convert_s + self.write_s

    @property
    def rows_per_s(self) -> float:
        """Rows read per second while work units ran."""
        return self.rows / self.work_s if self.work_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes read per second while work units ran."""
        return self.bytes / self.work_s if self.work_s else 0.0

    def phases(self, report_s: float) -> dict[str, float]:
        """Return the seconds of each phase by its name; `report_s` is the time of reporting the result, in seconds."""
        return {
            "plan": self.plan_s,
            "start": self.start_s,
            "extract": self.extract_s,
            "convert": self.convert_s,
            "write": self.write_s,
            "commit": self.commit_s,
            "report": report_s,
        }

    def to_document(self, report_s: float) -> dict[str, Any]:
        """Return the profile as plain values, for `--output json` and Dagster's metadata."""
        return {
            "seconds": {name: round(seconds, 3) for name, seconds in self.phases(report_s).items()},
            "work_units": self.work_units,
            "rows": self.rows,
            "bytes": self.bytes,
            "rows_per_s": round(self.rows_per_s, 1),
            "bytes_per_s": round(self.bytes_per_s, 1),
            "runs_on": None if self.place is None else "spark" if self.place.is_spark else "processes",
            "skew": None if self.skew is None else round(self.skew, 2),
        }


class RunProfiler(RunListener):
    """Measures one run; make it right before the run begins, and ask for the profile after it has ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._planned: float | None = None
        self._first_unit: float | None = None
        self._extracted: float | None = None
        self._finished: float | None = None
        self._packs: tuple[tuple[str, ...], ...] = ()
        self._place: TaskPlace | None = None
        self._seconds: defaultdict[str, float] = defaultdict(float)
        """Seconds by work unit."""
        self._extract_s = self._convert_s = 0.0
        self._rows = self._bytes = 0

    def planned(self, plan: JobPlan) -> None:
        self._planned, self._packs, self._place = self._clock(), plan.packs, plan.place

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        began = self._clock() - state.seconds
        self._first_unit = began if self._first_unit is None else min(self._first_unit, began)
        self._seconds[state.work_unit_id] += state.seconds
        self._extract_s += state.extract_s
        self._convert_s += state.convert_s
        self._rows += state.rows_read
        self._bytes += state.bytes_read

    def extracted(self) -> None:
        self._extracted = self._clock()

    def finished(self, result: RunResult) -> None:
        self._finished = self._clock()

    def since_end_s(self) -> float:
        """Return the seconds since the run ended: what listeners did with its result."""
        return self._clock() - (self._clock() if self._finished is None else self._finished)

    def profile(self) -> RunProfile:
        """Return the profile; phases that the run did not reach have no seconds."""
        end = self._clock() if self._finished is None else self._finished
        planned = end if self._planned is None else self._planned
        extracted = end if self._extracted is None else self._extracted
        first = extracted if self._first_unit is None else min(max(self._first_unit, planned), extracted)
        busy, work_s = max(sum(self._seconds.values()), self._extract_s + self._convert_s), extracted - first
        shares = [work_s * part / busy if busy else 0.0 for part in (self._extract_s, self._convert_s)]
        packs = [sum(self._seconds[unit_id] for unit_id in pack) for pack in self._packs]
        return RunProfile(
            plan_s=planned - self._began,
            start_s=first - planned,
            extract_s=shares[0],
            convert_s=shares[1],
            write_s=work_s - sum(shares),
            commit_s=end - extracted,
            rows=self._rows,
            bytes=self._bytes,
            work_units=len(self._seconds),
            place=self._place,
            skew=max(packs) * len(packs) / sum(packs) if sum(packs) else None,
        )
