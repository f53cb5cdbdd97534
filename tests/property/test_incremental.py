"""Incremental equals full: whatever arrives when and whatever fails, in the end each row was published exactly once."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.files.source import FilesOptions, FilesSource
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.source import QuerySource
from gobblin_dagster.core.constructs import Chunk, Extractor, PositionedExtractor
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner

_faults: list[int] = []
"""What each work unit to come does: 0 succeeds, 1 fails after its first batch, 2 fails so once and may be repeated."""


class Faulty:
    """An extractor that yields a first batch and then fails, where it is told to."""

    def __init__(self, inner: Extractor, fault: int) -> None:
        self._inner = inner
        self._fault = fault
        self.schema = inner.schema

    @property
    def bytes_read(self) -> int:
        """Bytes of input read so far."""
        return self._inner.bytes_read

    def chunks(self) -> Iterator[Chunk]:
        """Yield rows until the fault."""
        for chunk in self._inner.chunks():
            yield chunk
            if self._fault == 1:
                raise ExtractError(dataset_urn="?", file=chunk.file, problem="is told to fail.")
            if self._fault == 2:
                raise TransientError(problem="The connection was lost.")

    def position(self) -> Watermark | None:
        """Return where the real one is: it is asked behind a chunk that it gave."""
        assert isinstance(self._inner, PositionedExtractor)
        return self._inner.position()

    def close(self) -> None:
        """Release what the real one holds."""
        self._inner.close()


class FaultyFilesSource(FilesSource):
    """The source `files` with faults."""

    Options = FilesOptions

    def extractor(self, unit: WorkUnit) -> Any:
        """Open a work unit."""
        return Faulty(super().extractor(unit), _faults.pop() if _faults else 0)


class FaultyQuerySource(QuerySource):
    """The source `query` with faults."""

    Options = QueryOptions

    def extractor(self, unit: WorkUnit) -> Any:
        """Open a work unit."""
        return Faulty(super().extractor(unit), _faults.pop() if _faults else 0)


class Lake:
    """A job in a folder of its own: rows arrive, runs read them, what is published is counted."""

    def __init__(
        self, root: Path, source: dict[str, Any], policy: str, limit: dict[str, int], merge_bytes: int
    ) -> None:
        self.root = root
        execution = {"retries": {"count": 1, "backoff_s": 0}, "limit": limit, "merge_bytes": merge_bytes}
        commit = {"policy": policy, "durability": "fast"}
        body = {"job": "j", "source": source, "extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
        self.job = JobSpec.model_validate(body | {"execution": execution, "commit": commit})
        self.project = Project(root, ProjectSpec(project="p"), (self.job,))
        self.arrived: Counter[tuple[str, int]] = Counter()

    def run(self, faults: list[int]) -> None:
        """Run once, with faults for the first work units."""
        _faults[:] = faults
        run_job(self.project, self.job, runner=InlineRunner())
        _faults.clear()

    def published(self) -> Counter[tuple[str, int]]:
        """Count every published row of every dataset, from the files of the newest snapshots."""
        found: Counter[tuple[str, int]] = Counter()
        store = self.project.open_store()
        try:
            for urn in store.load_dataset_states("j"):
                for file in store.load_snapshot("j", urn):
                    for number in pq.read_table(file.path, columns=["id"])["id"].to_pylist():
                        found[urn, int(number)] += 1
        finally:
            store.close()
        return found

    def check_end(self) -> None:
        """Run without faults until nothing is left to do: all that arrived is there once."""
        before = ""
        while (plan := plan_job(self.project, self.job)).has_work:
            left = str([(unit.dataset_urn, str(unit.interval)) for one in plan.datasets for unit in one.work_units])
            assert left != before, "each run gets on, also where files hold no rows"
            before = left
            self.run([])
        assert self.published() == self.arrived
        assert set(self.arrived.values()) <= {1}


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gobblin-incremental-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


faults = st.lists(st.sampled_from([0, 0, 1, 2]), max_size=6)
policies = st.sampled_from(["full", "successful", "partial"])
limits = st.sampled_from([{}, {"rows": 1}, {"rows": 3}, {"bytes": 1}])
merges = st.sampled_from([0, 1 << 20])
"""Whether small work units share their files."""
laws = settings(max_examples=15)
days = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), st.integers(0, 3), max_size=4)
"""Rows of the files that come before a run, by dataset and days since the last ones."""
steps = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), max_size=12)
"""Rows that come before a run: table, and distance of the id from the last one."""


@laws
@given(st.lists(st.tuples(days, faults), min_size=1, max_size=4), policies, limits, merges, st.integers(1, 3))
def test_files_read_in_many_runs_with_faults_are_published_as_in_one(
    runs: list[tuple[dict[tuple[str, int], int], list[int]]],
    policy: str,
    limit: dict[str, int],
    merge_bytes: int,
    files_per_unit: int,
) -> None:
    source = {
        "type": f"{__name__}:FaultyFilesSource",
        "path": "in/{dataset}/{date:%Y-%m-%d}.csv",
        "format": {"type": "csv"},
        "files_per_work_unit": files_per_unit,
    }
    with folder() as root:
        lake = Lake(root, source, policy, limit, merge_bytes)
        put_file(lake, "a", 1, rows=1)
        first_day = 1
        for files, fails in runs:
            for (urn, day), rows in files.items():
                put_file(lake, urn, first_day + day, rows)
            first_day += 5  # a date is whole when it first appears: later files have later dates
            lake.run(fails)
            assert lake.published() <= lake.arrived
        lake.check_end()


def put_file(lake: Lake, urn: str, day: int, rows: int) -> None:
    path = lake.root / "in" / urn / f"2013-01-{day:02}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = [day * 10 + number for number in range(rows)]
    path.write_text("id\n" + "".join(f"{number}\n" for number in ids))
    lake.arrived.update((urn, number) for number in ids)


@laws
@given(
    st.lists(st.tuples(steps, faults), min_size=1, max_size=4),
    policies,
    limits,
    merges,
    st.sampled_from([{}, {"rows_per_work_unit": 2}, {"partition_interval": 3, "max_partitions": 4}]),
    st.sampled_from(["id", "at", "day"]),
)
def test_tables_read_in_many_runs_with_faults_are_published_as_in_one(
    runs: list[tuple[list[tuple[str, int]], list[int]]],
    policy: str,
    limit: dict[str, int],
    merge_bytes: int,
    cut: dict[str, Any],
    column: str,
) -> None:
    kind = {"id": "long", "at": "timestamp", "day": "date"}[column]
    if "partition_interval" in cut and column != "id":
        cut = cut | {"partition_interval": "3d"}
    source = {
        "type": f"{__name__}:FaultyQuerySource",
        "url": "sqlite:///shop.db",
        "tables": ["a", "b"],
        "watermark": {"column": column, "type": kind},
        "fetch_rows": 2,
        **cut,
    }
    with folder() as root:
        lake = Lake(root, source, policy, limit, merge_bytes)
        shop = sqlite3.connect(root / "shop.db", isolation_level=None)
        shop.executescript("".join(f"CREATE TABLE {t} (id INTEGER, at DATETIME, day DATE);" for t in "ab"))
        highest = {"a": 0, "b": 0}
        for rows, fails in runs:
            for table, distance in rows:
                highest[table] += distance
                day = date(2013, 1, 1) + timedelta(days=highest[table])
                shop.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (highest[table], f"{day} 00:00:00", f"{day}"))
                lake.arrived[f"main.{table}", highest[table]] += 1
            lake.run(fails)
            assert lake.published() <= lake.arrived
        lake.check_end()
        shop.close()
