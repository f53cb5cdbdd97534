"""Laws of planning dated files: what is planned tiles exactly what was never committed, whatever arrives and fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.dated import Limits, plan_dated_files
from gobblin_dagster.constructs.sources.listing import FoundFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import CommittedRanges, TimestampWatermark
from gobblin_dagster.core.work_unit import WorkUnit

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

arrivals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(0, 50)), max_size=12)
"""Files of one run: (day, part, size)."""
runs = st.lists(st.tuples(arrivals, st.lists(st.booleans(), min_size=30, max_size=30)), min_size=1, max_size=6)
"""What arrives before each run, and which of its work units succeed."""
limits = st.builds(Limits, st.integers(1, 6), st.integers(1, 120))


class Dataset:
    """A folder of files and what was committed of it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: dict[str, FoundFile] = {}
        self.committed = CommittedRanges(TimestampWatermark, {})
        self.read: list[str] = []

    def arrive(self, files: list[tuple[int, int, int]]) -> None:
        """Add files; one that lies there already stays as it is."""
        for number, part, size in files:
            path = f"{number:02}-{part}"
            self.files.setdefault(path, FoundFile(FIRST + number * DAY, path, size, 0.0))

    def plan(self) -> list[WorkUnit]:
        state = DatasetState("job", "AA", 1, self.committed, 1, "run", FIRST) if self.committed.ranges else None
        found = sorted(self.files.values())
        plan = plan_dated_files("AA", found, state, self.limits, lambda start: start + DAY, lambda path: path)
        return plan.work_units

    def commit(self, unit: WorkUnit) -> None:
        """Publish a work unit; raises RangeOverlapError where a position would be committed twice."""
        self.committed = self.committed.add(unit.interval)
        self.read += paths(unit)

    def open_files(self) -> set[str]:
        """Return the files whose dates were never committed."""
        return {file.path for file in self.files.values() if not self.committed.contains(file.start)}


def paths(unit: WorkUnit) -> list[str]:
    files: Any = unit.read["files"]
    return [file["path"] for file in files]


@given(runs, limits)
def test_plan_holds_each_file_that_is_not_committed_once_and_inside_its_interval(
    runs: list[tuple[list[tuple[int, int, int]], list[bool]]], limits: Limits
) -> None:
    dataset = Dataset(limits)
    for files, succeeds in runs:
        dataset.arrive(files)
        units = dataset.plan()
        planned = [path for unit in units for path in paths(unit)]
        assert len(planned) == len(set(planned))
        assert set(planned) == dataset.open_files()
        for unit in units:
            inside = CommittedRanges(TimestampWatermark, {}).add(unit.interval)
            assert all(inside.contains(dataset.files[path].start) for path in paths(unit))
        for unit, succeeded in zip(units, succeeds, strict=False):
            if succeeded:
                dataset.commit(unit)
    assert len(dataset.read) == len(set(dataset.read))


@given(runs, limits)
def test_planned_intervals_tile_what_is_not_committed(
    runs: list[tuple[list[tuple[int, int, int]], list[bool]]], limits: Limits
) -> None:
    dataset = Dataset(limits)
    for files, succeeds in runs:
        dataset.arrive(files)
        units = dataset.plan()
        assert [unit.low for unit in units] == sorted((unit.low for unit in units), key=str)
        everything = dataset.committed
        for unit in units:
            everything = everything.add(unit.interval)
        # With all of the plan committed, holes are left only where they were before and no file lies.
        holes: Any = everything.gaps()
        assert set(holes) <= set(dataset.committed.gaps())
        assert not any(low <= file.start < high for low, high in holes for file in dataset.files.values())
        for unit, succeeded in zip(units, succeeds, strict=False):
            if succeeded:
                dataset.commit(unit)


@given(runs, limits)
def test_plan_after_committing_everything_is_empty(
    runs: list[tuple[list[tuple[int, int, int]], list[bool]]], limits: Limits
) -> None:
    dataset = Dataset(limits)
    for files, succeeds in runs:
        dataset.arrive(files)
        for unit, succeeded in zip(dataset.plan(), succeeds, strict=False):
            if succeeded:
                dataset.commit(unit)
    for unit in dataset.plan():
        dataset.commit(unit)
    assert dataset.plan() == []
    assert dataset.open_files() == set()


@given(runs, limits)
def test_work_units_keep_to_their_limits_but_for_single_dates(
    runs: list[tuple[list[tuple[int, int, int]], list[bool]]], limits: Limits
) -> None:
    dataset = Dataset(limits)
    for files, _ in runs:
        dataset.arrive(files)
    for unit in dataset.plan():
        dates = {dataset.files[path].start for path in paths(unit)}
        fits = len(paths(unit)) <= limits.files and (unit.size_bytes or 0) <= limits.size_bytes
        assert fits or len(dates) == 1
