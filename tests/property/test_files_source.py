"""Laws of planning files, for each way to know what is new: every file is read once, whatever arrives and fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.files.by_date import ByDate
from gobblin_dagster.constructs.sources.files.by_date_window import ByDateWindow
from gobblin_dagster.constructs.sources.files.by_modified_time import (
    ByModifiedTime,
    Memory,
    ReadChanged,
    known_files,
)
from gobblin_dagster.constructs.sources.files.by_name import ByName
from gobblin_dagster.constructs.sources.files.discovery import OPEN, Discovery, FilesPlan, Gate, Limits
from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PATTERN = PathPattern.parse("{date:%Y-%m-%d}/*")

arrivals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(0, 50)), max_size=12)
"""Files of one run: (day, part, size)."""
Runs = list[tuple[list[tuple[int, int, int]], list[bool]]]
runs: st.SearchStrategy[Runs] = st.lists(
    st.tuples(arrivals, st.lists(st.booleans(), min_size=1, max_size=6)), min_size=1, max_size=6
)
"""What arrives before each run, and which of its work units succeed."""
limits = st.builds(
    Limits,
    st.integers(1, 6),
    st.integers(1, 120),
    st.none() | st.integers(1, 9),
    st.just(1),
    st.sampled_from([-inf, 5e-6, inf]),
)


def same(path: str) -> str:
    return path


def dated(limits: Limits) -> Discovery:
    return ByDate(PATTERN, limits, same)


def named(limits: Limits) -> Discovery:
    return ByName(limits, same, same)


def remembered(limits: Limits, changed: ReadChanged = ReadChanged.REPORT) -> Discovery:
    return ByModifiedTime(Memory(same, same, changed), limits)


def windowed(limits: Limits, lookback: int = 3, changed: ReadChanged = ReadChanged.REPORT) -> Discovery:
    return ByDateWindow(PATTERN, lookback, Memory(same, same, changed), limits)


ways = st.sampled_from([dated, named, remembered, windowed])


@dataclass
class Dataset:
    """A folder of files and what was committed of it."""

    way: Discovery
    files: dict[str, FoundFile] = field(default_factory=dict)
    state: DatasetState | None = None
    read: Counter[str] = field(default_factory=Counter)
    clock_us: int = 0

    def arrive(self, files: Sequence[tuple[int, int, int]], *, rewrite: bool = False) -> None:
        """Add files; one that lies there already stays as it is, or is written again."""
        for number, part, size in files:
            path = f"{FIRST + number * DAY:%Y-%m-%d}/{part}"
            self.clock_us += 1
            found = FoundFile(FIRST + number * DAY, path, size, self.clock_us / 1e6, self.clock_us)
            if rewrite or path not in self.files:
                self.files[path] = found

    def plan(self, gate: Gate = OPEN) -> FilesPlan:
        plan = self.way.plan("AA", sorted(self.files.values()), self.state, gate)
        assert all(unit.interval is not None for unit in plan.work_units)
        return plan

    def run(self, succeeds: Sequence[bool] = (), gate: Gate = OPEN) -> FilesPlan:
        """Plan, and publish the work units that succeed, all where nothing is said, as the engine does.

        Raises RangeOverlapError where something would be committed twice.
        """
        plan = self.plan(gate)
        done = [unit for number, unit in enumerate(plan.work_units) if not succeeds or succeeds[number % len(succeeds)]]
        if done:
            before = self.state.committed if self.state else CommittedRanges(type(done[0].low), {})
            assert plan.low is not None
            committed = before.anchored(plan.low).add_all(unit.interval for unit in done)
            now = FIRST + timedelta(microseconds=self.clock_us)
            self.state = DatasetState("job", "AA", 1, committed, 1, "run", now)
            assert from_json(DatasetState, to_json(self.state)) == self.state
            self.read.update(path for unit in done for path in paths(unit))
        return plan

    def was_read(self, path: str) -> bool | None:
        """Tell whether the file is committed."""
        return self.state is not None and self.way.was_read(self.state.committed)(self.files[path])


def paths(unit: WorkUnit) -> list[str]:
    files: Any = unit.read["files"]
    return [file["path"] for file in files]


# -- laws of all ways --------------------------------------------------------------------------------------------------
@given(ways, runs, limits)
def test_plan_holds_files_that_are_not_committed_and_each_once(way: Any, runs: Runs, limits: Limits) -> None:
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        not_read = {path for path in dataset.files if not dataset.was_read(path)}
        plan = dataset.run(succeeds)
        planned = [path for unit in plan.work_units for path in paths(unit)]
        assert len(planned) == len(set(planned))
        assert set(planned) <= not_read
        assert len(planned) + plan.left == len(not_read)
    assert set(dataset.read.values()) <= {1}


@given(ways, runs, limits)
def test_what_was_read_is_what_is_known_as_read(way: Any, runs: Runs, limits: Limits) -> None:
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        listed = set(dataset.files)
        dataset.run(succeeds)
        assert {path for path in listed if dataset.was_read(path)} >= set(dataset.read)


@given(ways, runs, limits)
def test_plan_after_reading_everything_is_empty(way: Any, runs: Runs, limits: Limits) -> None:
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        dataset.run(succeeds)
    for _ in range(len(dataset.files) + 1):
        dataset.run()
    plan = dataset.plan()
    assert (plan.work_units, plan.left, plan.waiting) == ([], 0, 0)
    assert all(dataset.was_read(path) for path in dataset.files)


@given(ways, runs, limits)
def test_work_units_and_runs_keep_to_their_limits_but_for_single_positions(
    way: Any, runs: Runs, limits: Limits
) -> None:
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        plan = dataset.run(succeeds)
        for unit in plan.work_units:
            fits = len(paths(unit)) <= limits.files and (unit.size_bytes or 0) <= limits.size_bytes
            assert fits or len({dataset.files[path].start for path in paths(unit)}) == 1
        if limits.run_files is not None and len(plan.work_units) > 1:
            assert plan.files <= limits.run_files
        if plan.left and way in (named, remembered):  # where no files have to stay together
            assert plan.files == limits.run_files


@given(ways, runs, limits, st.integers(0, 20))
def test_files_that_are_too_young_wait_and_are_read_later(way: Any, runs: Runs, limits: Limits, age: int) -> None:
    by_date = way in (dated, windowed)
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        ripe_at = FIRST + age * DAY if by_date else datetime.fromtimestamp(dataset.clock_us / 2e6, UTC)
        gate = Gate(ripe_at=ripe_at, by_date=by_date)
        plan = dataset.run(succeeds, gate)
        assert all(gate.is_ripe(dataset.files[path]) for unit in plan.work_units for path in paths(unit))
    for _ in range(len(dataset.files) + 1):
        dataset.run()
    assert set(dataset.read.values()) <= {1}
    assert all(dataset.was_read(path) for path in dataset.files)


# -- laws of single ways -----------------------------------------------------------------------------------------------
@given(runs, limits)
def test_planned_dates_tile_what_is_not_committed(runs: Runs, limits: Limits) -> None:
    dataset = Dataset(dated(limits))
    for files, succeeds in runs:
        dataset.arrive(files)
        plan = dataset.plan()
        assert [unit.low for unit in plan.work_units] == sorted((unit.low for unit in plan.work_units), key=str)
        before = dataset.state.committed if dataset.state else CommittedRanges(dataset.way.watermark_type, {})
        everything = before.add_all(unit.interval for unit in plan.work_units)
        # With all of the plan committed, holes are left only where they were before and no file lies, or by the limits.
        holes: Any = everything.gaps()
        assert set(holes) <= set(before.gaps()) or plan.left
        assert plan.left or not any(low <= f.start < high for low, high in holes for f in dataset.files.values())
        dataset.run(succeeds)


@given(runs, limits, st.sampled_from([remembered, windowed]))
def test_rewritten_files_are_read_again_once_where_that_is_asked_for(runs: Runs, limits: Limits, way: Any) -> None:
    dataset = Dataset(way(limits, changed=ReadChanged.AGAIN))
    versions: Counter[str] = Counter()
    for files, succeeds in runs:
        dataset.arrive(files, rewrite=True)
        dataset.run(succeeds)
    for _ in range(2 * len(dataset.files) + 1):
        dataset.run()
    versions.update(
        f"{FIRST + number * DAY:%Y-%m-%d}/{part}"
        for files, _ in runs
        for number, part, _ in {(*f[:2], 0) for f in files}
    )
    assert all(dataset.read[path] <= versions[path] for path in dataset.files)
    assert dataset.plan().work_units == []


@given(runs, limits, st.sampled_from([remembered, windowed]))
def test_rewritten_and_vanished_files_are_named_and_never_read_twice(runs: Runs, limits: Limits, way: Any) -> None:
    dataset = Dataset(way(limits))
    for files, succeeds in runs:
        dataset.arrive(files, rewrite=True)
        dataset.run(succeeds)
    assert set(dataset.read.values()) <= {1}
    for _ in range(len(dataset.files) + 1):
        dataset.run()
    known = known_files(dataset.state.committed) if dataset.state else {}
    dataset.arrive([(20, 2, 7)], rewrite=True)
    changed = [path for path, version in known.items() if version.modified_us != dataset.files[path].modified_us]
    notes = " ".join(dataset.plan().notes)
    assert (f"{len(changed)} file(s) changed" in notes) == bool(changed)
    for path in list(known)[:2]:
        del dataset.files[path]
    gone = min(len(known), 2)
    assert (f"{gone} file(s) that were read are gone" in " ".join(dataset.plan().notes)) == bool(gone)


@given(runs, limits, st.integers(1, 6))
def test_late_files_are_read_inside_the_window_and_memory_is_kept_for_it_alone(
    runs: Runs, limits: Limits, lookback: int
) -> None:
    dataset = Dataset(windowed(limits, lookback))
    for files, _ in runs:
        newest = max((file.start for file in dataset.files.values()), default=FIRST)
        before = dict(dataset.files)
        dataset.arrive(files)
        for _ in range(len(dataset.files) + 1):
            dataset.run()
        late = {
            path for path, file in dataset.files.items() if path not in before and file.start >= newest - lookback * DAY
        }
        assert late <= set(dataset.read)
    if dataset.state is not None:
        newest = max(file.start for file in dataset.files.values())
        remembered_dates = {path[:10] for path in dataset.state.committed.ranges if path}
        assert all(day >= f"{newest - lookback * DAY:%Y-%m-%d}" for day in remembered_dates)
