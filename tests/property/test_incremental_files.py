"""Incremental equals full for files that come in any order, are written again, or fail to be read; by each way to tell
them."""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.engine.run.job_run import plan_job
from tests.property.test_incremental import Lake, faults, folder, laws, limits, merges, policies

SOURCE = "tests.property.test_incremental:FaultyFilesSource"
PATH = "in/{dataset}/{date:%Y-%m-%d}.csv"
names = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 28)), st.integers(0, 3), max_size=4)
"""Rows of the files that come before a run, by dataset and day."""
runs = st.lists(st.tuples(names, faults), min_size=1, max_size=4)
remembering: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"new_files": "modified"}, {"new_files": "modified", "max_files_per_run": 2}, {"lookback": 28}]
)
"""Ways that let files come in any order."""
comparing: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda way, compare: {**way, "compare": compare, "read_changed": "again"},
    remembering,
    st.sampled_from(["checksum", "checksum_always"]),
)
"""Ways that look at contents."""

How: TypeAlias = tuple[str, dict[str, int], int]
"""Commit policy, limit of a work unit, and bytes below which units write to common files."""
hows: st.SearchStrategy[How] = st.tuples(policies, limits, merges)


class Folder:
    """Files with rows that are never the same twice."""

    def __init__(self, root: Path, options: dict[str, Any], how: How) -> None:
        source = {"type": SOURCE, "path": PATH, "format": {"type": "csv"}} | options
        self.lake = Lake(root, source, *how)
        self._ids, self._seconds = count(1), count(1_000_000_000)
        self.versions: dict[tuple[str, int], list[frozenset[int]]] = {}

    def put(self, urn: str, day: int, rows: int) -> None:
        """Write a file again, later than all others."""
        path = self.lake.root / "in" / urn / f"2013-01-{day:02}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = frozenset(next(self._ids) for _ in range(rows))
        path.write_text("id\n" + "".join(f"{number}\n" for number in ids))
        second = next(self._seconds)
        os.utime(path, (second, second))
        self.versions.setdefault((urn, day), []).append(ids)

    def touch(self, urn: str, day: int, *, is_later: bool) -> None:
        """Write a file again unchanged, with a time of change that it never had."""
        second = next(self._seconds) if is_later else 1_000_000_000 - next(self._seconds) % 900_000_000
        os.utime(self.lake.root / "in" / urn / f"2013-01-{day:02}.csv", (second, second))

    def read_out(self) -> None:
        """Run without faults until nothing is left."""
        for _ in range(40):
            self.lake.run([])
            if not plan_job(self.lake.project, self.lake.job).has_work:
                return
        raise AssertionError("there is always work left")


@laws
@given(runs, hows, st.integers(1, 3), remembering)
def test_files_in_any_order_are_published_as_in_one_run(
    arrivals: list[tuple[dict[tuple[str, int], int], list[int]]], how: How, size: int, way: dict[str, Any]
) -> None:
    with folder() as root:
        files = Folder(root, way | {"files_per_work_unit": size}, how)
        for new, fails in arrivals:
            for (urn, day), rows in new.items():
                if (urn, day) not in files.versions:
                    files.put(urn, day, rows)
                    files.lake.arrived.update((urn, number) for number in files.versions[urn, day][0])
            if files.versions:
                files.lake.run(fails)
            assert files.lake.published() <= files.lake.arrived
        if files.versions:
            files.read_out()
            files.lake.check_end()


@laws
@given(runs, hows, st.integers(1, 3))
def test_files_in_the_order_of_their_names_are_published_as_in_one_run(
    arrivals: list[tuple[dict[tuple[str, int], int], list[int]]], how: How, size: int
) -> None:
    with folder() as root:
        files = Folder(root, {"new_files": "name", "files_per_work_unit": size, "max_files_per_run": 3}, how)
        last = {"a": 0, "b": 0}
        for new, fails in arrivals:
            for (urn, day), rows in sorted(new.items()):
                if day > last[urn]:
                    last[urn] = day
                    files.put(urn, day, rows)
                    files.lake.arrived.update((urn, number) for number in files.versions[urn, day][0])
            if files.versions:
                files.lake.run(fails)
            assert files.lake.published() <= files.lake.arrived
        if files.versions:
            files.read_out()
            files.lake.check_end()


@laws
@given(runs, hows, remembering, st.sampled_from(["report", "again"]))
def test_files_that_are_written_anew_are_never_read_in_part_or_twice(
    arrivals: list[tuple[dict[tuple[str, int], int], list[int]]], how: How, way: dict[str, Any], changed: str
) -> None:
    with folder() as root:
        files = Folder(root, way | {"read_changed": changed}, how)
        for new, fails in arrivals:
            for (urn, day), rows in new.items():
                files.put(urn, day, rows)
            if files.versions:
                files.lake.run(fails)
        if not files.versions:
            return
        files.read_out()
        published = files.lake.published()
        assert set(published.values()) <= {1}
        for (urn, _), versions in files.versions.items():
            read = Counter(number for owner, number in published if owner == urn)
            whole = [version for version in versions if version and version <= read.keys()]
            assert not any(version & read.keys() for version in versions if version not in whole)
            if changed == "again":
                assert versions[-1] <= read.keys()
            else:
                assert len(whole) <= 1


@laws
@given(runs, hows, st.integers(1, 3), comparing)
def test_files_that_are_touched_are_published_as_in_one_run(
    arrivals: list[tuple[dict[tuple[str, int], int], list[int]]], how: How, size: int, way: dict[str, Any]
) -> None:
    with folder() as root:
        files = Folder(root, way | {"files_per_work_unit": size}, how)
        for new, fails in arrivals:
            for (urn, day), rows in new.items():
                if (urn, day) in files.versions:
                    files.touch(urn, day, is_later=rows % 2 == 0)
                else:
                    files.put(urn, day, rows)
                    files.lake.arrived.update((urn, number) for number in files.versions[urn, day][0])
            if files.versions:
                files.lake.run(fails)
            assert files.lake.published() <= files.lake.arrived
        if files.versions:
            files.read_out()
            files.lake.check_end()


@laws
@given(runs, hows, comparing, st.data())
def test_contents_that_change_are_read_once_each_and_touches_never(
    arrivals: list[tuple[dict[tuple[str, int], int], list[int]]], how: How, way: dict[str, Any], data: st.DataObject
) -> None:
    with folder() as root:
        files = Folder(root, way, how)
        for new, _ in arrivals:
            for (urn, day), rows in new.items():
                if (urn, day) in files.versions and data.draw(st.booleans()):
                    files.touch(urn, day, is_later=rows % 2 == 0)
                else:
                    files.put(urn, day, rows)
            if files.versions:
                files.read_out()
        if files.versions:
            published = files.lake.published()
            assert set(published.values()) <= {1}
            assert set(published) == {
                (urn, number) for (urn, _), contents in files.versions.items() for ids in contents for number in ids
            }
