"""Publisher `merge` of Parquet snapshots: the rows and files that a snapshot holds after merges, whatever fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.publishers.table_jobs import at_commit, table_job
from tests.unit.engine.jobs import project, run

MERGE: dict[str, Any] = {"type": "merge", "key": ["id"]}
SOURCE = {"type": "files", "path": "in/{dataset}-*.csv", "format": "csv"}
INCREMENTAL = {"namespace": "test", "table": "numbers"}
FULL = INCREMENTAL | {"type": "snapshot_only"}


def job(publisher: dict[str, Any] | None = None, **parts: Any) -> JobSpec:
    """Return a job over the CSV files `in/c-*.csv`."""
    return table_job(MERGE | (publisher or {}), {}, **({"source": SOURCE, "extract": INCREMENTAL} | parts))


class Snapshots:
    """The published snapshots of dataset `c`, and the files that it comes from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "in").mkdir()
        self._files = 0

    def add(self, *lines: str, names: str = "id,v") -> None:
        self._files += 1
        (self.root / f"in/c-{self._files}.csv").write_text("\n".join([names, *lines, ""]))

    def publish(self, spec: JobSpec, *lines: str, names: str = "id,v") -> None:
        self.add(*lines, names=names)
        result = run(self.root, spec)
        assert result.status is RunStatus.SUCCEEDED, result

    def rows(self, snapshot: int | None = None) -> list[tuple[Any, ...]]:
        found = read_published(self.root / "lake", "numbers", "c", snapshot)
        return sorted((tuple(row.values()) for row in found.to_arrow("all").to_table().to_pylist()), key=str)

    def files(self) -> set[str]:
        return {file.path for file in read_published(self.root / "lake", "numbers", "c").files}


@pytest.fixture
def lake(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)


def test_rows_are_replaced_added_and_deleted_and_untouched_files_stay(lake: Snapshots) -> None:
    spec = job({"delete_when": "v = 'gone'"})
    lake.publish(spec, "1,a", "2,b")
    lake.publish(spec, "11,c", "12,d")
    before = lake.files()
    lake.publish(spec, "2,B", "1,gone", "3,e", "3,f", "9,gone")

    assert lake.rows() == [(11, "c"), (12, "d"), (2, "B"), (3, "f")]
    assert lake.rows(2) == [(1, "a"), (11, "c"), (12, "d"), (2, "b")]
    assert len(before) == 2
    assert len(before & lake.files()) == 1
    with project(lake.root, spec).use_store(None) as store:
        assert store.load_dataset_states("numbers", ["c"])["c"].snapshot == 3


def test_new_rows_alone_are_published_as_they_were_written(lake: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.publish(job(), "1,a")
    monkeypatch.setattr(ParquetWriter, "abort", None)
    monkeypatch.setattr("gobblin_dagster.constructs.publishers.snapshot_merge._staged", None)
    lake.publish(job(), "2,b", "3,c")

    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_late_rows_replace_nothing_and_columns_come_widen_and_go(lake: Snapshots) -> None:
    def newest(select: str) -> JobSpec:
        converters = [{"type": "sql", "select": select}]
        return job(converters=converters, extract=INCREMENTAL | {"delta_fields": ["n"]})

    lake.publish(newest("id, v, n::INT AS n"), "1,a,5", "2,b,5", names="id,v,n")
    lake.publish(newest("id, n, 'x' AS w"), "1,late,4", "2,B,5000000000", names="id,v,n")

    assert lake.rows() == [(1, "a", 5, None), (2, "b", 5_000_000_000, "x")]


def test_late_rows_alone_change_nothing(lake: Snapshots) -> None:
    spec = job(extract=INCREMENTAL | {"delta_fields": ["n"]})
    lake.publish(spec, "1,a,5", "2,b,5", names="id,v,n")
    lake.publish(spec, "1,late,4", names="id,v,n")
    lake.publish(spec, "2,late,4", "3,c,4", names="id,v,n")

    assert lake.rows() == [(1, "a", 5), (2, "b", 5), (3, "c", 4)]


@pytest.mark.parametrize(
    ("contract", "expected"),
    [("evolve", [(1, None, 7), (2, "b", None)]), ("discard_row", [(1, "a"), (2, "b")])],
)
def test_contract_works_before_the_merge(lake: Snapshots, contract: str, expected: list[Any]) -> None:
    lake.publish(job(schema_contract=contract), "1,a", "2,b")
    changed = [{"type": "sql", "select": "id, 7 AS w"}]
    lake.publish(job(schema_contract=contract, converters=changed), "1,a")

    assert lake.rows() == expected


@pytest.mark.parametrize("place", ["rewrite", "commit"])
def test_rows_are_in_the_snapshot_once_whatever_fails(
    lake: Snapshots, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    lake.publish(job(), "1,a", "2,b")
    lake.add("2,B", "3,c")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no connection")

    fail: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
        "rewrite": lambda patch: patch.setattr(ParquetWriter, "finish", fails),
        "commit": at_commit,
    }
    with monkeypatch.context() as patched:
        fail[place](patched)
        assert run(lake.root, job()).status is RunStatus.FAILED
    assert lake.rows() == [(1, "a"), (2, "b")]
    assert run(lake.root, job()).status is RunStatus.SUCCEEDED
    assert lake.rows() == [(1, "a"), (2, "B"), (3, "c")]
    assert run(lake.root, job()).datasets[0].rows_read == 0


def test_rows_that_a_full_extract_lacks_are_deleted(lake: Snapshots) -> None:
    spec = job({"delete_missing": True}, extract=FULL)
    lake.publish(spec, "1,a", "2,b")
    (lake.root / "in/c-1.csv").unlink()
    lake.publish(spec, "2,b", "3,c")

    assert lake.rows() == [(2, "b"), (3, "c")]


def test_replayed_rows_replace_those_of_their_keys(lake: Snapshots) -> None:
    strict = job(row_policies=[{"name": "short", "type": "sql", "rule": "length(v) < 3"}])
    lake.publish(strict, "1,a", "2,b")
    lake.publish(strict, "1,long", "2,B")
    assert lake.rows() == [(1, "a"), (2, "B")]

    wider = job(row_policies=[{"name": "short", "type": "sql", "rule": "length(v) < 9"}])
    replay_quarantine(project(lake.root, wider), wider, "c")
    assert [row for row in lake.rows() if row[0] is not None] == [(1, "long"), (2, "B")]


def test_partitions_keep_their_folders(lake: Snapshots) -> None:
    writer = {"type": "parquet", "partition_by": ["v"], "keep_partition_columns": True}
    spec = job(writer=writer)
    lake.publish(spec, "1,a", "2,b", "3,b")
    lake.publish(spec, "2,a")

    assert lake.rows() == [(1, "a"), (2, "a"), (3, "b")]
    assert {Path(path).parent.name for path in lake.files()} == {"v=a", "v=b"}


def test_partition_columns_of_files_that_lack_them_come_from_their_folders(lake: Snapshots) -> None:
    folders = {"type": "parquet", "partition_by": ["v", "day"]}
    names = "id,v,day"
    appended = table_job({"type": "append"}, {}, source=SOURCE, extract=INCREMENTAL, writer=folders)
    lake.publish(appended, "1,a,2026-01-05", "2,b,2026-01-05", "3,b,2026-01-05", names=names)
    lake.publish(job(writer=folders | {"keep_partition_columns": True}), "2,a,2026-01-06", names=names)

    found = read_published(lake.root / "lake", "numbers", "c").to_arrow("all").to_table().to_pylist()
    rows = sorted((row["id"], row["v"], str(row["day"])) for row in found)
    assert rows == [(1, "a", "2026-01-05"), (2, "a", "2026-01-06"), (3, "b", "2026-01-05")]


def test_of_rows_with_one_key_the_last_one_that_was_read_counts_however_units_are_packed(lake: Snapshots) -> None:
    lake.add("1,old")
    lake.add("1,new", *(f"{number},{'x' * 50}" for number in range(2, 9)))  # heavier, so it is read first
    source = SOURCE | {"files_per_work_unit": 1}
    assert run(lake.root, job(source=source, execution={"merge_bytes": 0})).status is RunStatus.SUCCEEDED

    assert lake.rows()[0] == (1, "new")


def test_files_of_one_folder_keep_the_order_of_rows_whatever_they_are_called(lake: Snapshots) -> None:
    writer = {"type": "parquet", "file_name": "{rows}-{unique}", "max_file_rows": 2}
    lake.publish(job(writer=writer, converters=[{"type": "sql", "select": "id, v"}]), "1,a", "2,b", "1,new")

    assert lake.rows() == [(1, "new"), (2, "b")]


def test_newest_rows_in_several_folders_need_an_order(lake: Snapshots) -> None:
    writer = {"type": "parquet", "partition_by": ["v"], "keep_partition_columns": True}
    lake.add("1,b,1", "1,a,2", "2,c,7", names="id,v,n")
    (failed,) = run(lake.root, job(writer=writer)).datasets
    assert "of 1 key(s) the newest rows lie in several folders of `partition_by` (v)" in failed.failures[0].message
    assert ": id=1. Set `extract.delta_fields`" in failed.failures[0].message

    assert run(lake.root, job(writer=writer, extract=INCREMENTAL | {"delta_fields": ["n"]})).datasets[0].rows_read == 3
    assert lake.rows() == [(1, "a", 2), (2, "c", 7)]


def test_newest_rows_of_a_replay_in_several_folders_need_an_order_too(lake: Snapshots) -> None:
    def upto(length: int) -> JobSpec:
        writer = {"type": "parquet", "partition_by": ["v"], "keep_partition_columns": True}
        return job(writer=writer, row_policies=[{"name": "short", "type": "sql", "rule": f"length(v) < {length}"}])

    lake.publish(upto(3), "1,b-long", "1,a-long", "2,c")
    with pytest.raises(StepRefusedError, match="newest rows lie in several folders"):
        replay_quarantine(project(lake.root, upto(9)), upto(9), "c")


HISTORY = {"mode": "scd2"}


def _versions(lake: Snapshots, snapshot: int | None = None) -> list[tuple[Any, ...]]:
    """Return id, value, and the publications at which each version began and ended."""
    found = read_published(lake.root / "lake", "numbers", "c", snapshot).to_arrow("all").to_table().to_pylist()
    times = sorted({row[name] for row in found for name in ("valid_from", "valid_to")} - {None})
    numbers = {time: number for number, time in enumerate(times, 1)} | {None: None}
    return sorted((row["id"], row["v"], numbers[row["valid_from"]], numbers[row["valid_to"]]) for row in found)


def test_snapshots_keep_all_versions_and_untouched_files_stay(lake: Snapshots) -> None:
    spec = job(HISTORY | {"delete_when": "v = 'gone'"})
    lake.publish(spec, "1,a", "2,b")
    lake.publish(spec, "11,c")
    before = lake.files()
    lake.publish(spec, "1,A", "2,gone", "11,c", "3,d")
    assert _versions(lake) == [(1, "A", 3, None), (1, "a", 1, 3), (2, "b", 1, 3), (3, "d", 3, None), (11, "c", 2, None)]
    assert _versions(lake, 2) == [(1, "a", 1, None), (2, "b", 1, None), (11, "c", 2, None)]
    assert len(before & lake.files()) == 1

    files = lake.files()
    lake.publish(spec, "1,A", "3,d")
    assert lake.files() == files
    lake.publish(spec, "2,B", "1,A", names="id,v")
    assert _versions(lake)[2:4] == [(2, "B", 4, None), (2, "b", 1, 3)]


def test_versions_of_snapshots_take_their_place_by_valid_at(lake: Snapshots) -> None:
    spec = job(HISTORY | {"valid_at": "at", "valid_from": "since", "valid_to": "until"})
    names = "id,v,at"
    lake.publish(spec, "1,a,2026-01-01", "1,c,2026-01-03", names=names)
    lake.publish(spec, "1,b,2026-01-02", "1,c2,2026-01-03", names=names)

    found = read_published(lake.root / "lake", "numbers", "c").to_arrow("all").to_table().sort_by("since").to_pylist()
    days = [(row["v"], row["since"].day, row["until"] and row["until"].day) for row in found]
    assert days == [("a", 1, 2), ("b", 2, 3), ("c2", 3, None)]


def test_versions_of_snapshots_end_if_a_full_extract_lacks_their_keys(lake: Snapshots) -> None:
    spec = job(HISTORY | {"delete_missing": True}, extract=FULL)
    lake.publish(spec, "1,a", "2,b")
    (lake.root / "in/c-1.csv").unlink()
    lake.publish(spec, "2,b", "3,c")
    assert _versions(lake) == [(1, "a", 1, 2), (2, "b", 1, None), (3, "c", 2, None)]


def test_snapshot_that_kept_no_history_is_refused(lake: Snapshots) -> None:
    lake.publish(job(), "1,a")
    lake.add("1,b")
    (result,) = run(lake.root, job(HISTORY)).datasets
    assert "rows without 'valid_from'" in result.failures[0].message
    assert lake.rows() == [(1, "a")]


def test_rows_in_quarantine_are_not_missing(lake: Snapshots) -> None:
    short = [{"name": "short", "type": "sql", "rule": "length(v) < 3"}]
    spec = job({"delete_missing": True}, extract=FULL, row_policies=short)
    lake.publish(spec, "1,a", "2,b", "3,c")
    (lake.root / "in/c-1.csv").unlink()
    lake.add("2,long")
    (result,) = run(lake.root, spec).datasets

    assert [row for row in lake.rows() if row[0] is not None] == [(1, "a"), (2, "b"), (3, "c")]
    assert "1 row(s) were put into the quarantine, so no missing row was deleted." in result.notes


def test_key_that_no_published_file_has_fails_its_dataset_alone(lake: Snapshots) -> None:
    lake.publish(job(), "1,a")
    lake.add("7,x", names="nr,v")
    (lake.root / "in/d-1.csv").write_text("nr,v\n1,a\n")
    failed, fine = run(lake.root, job({"key": ["nr"]})).datasets

    assert "the table has no column nr of the key" in failed.failures[0].message
    assert fine.rows_read == 1
    assert not fine.failures


@pytest.mark.parametrize(
    ("first", "converters", "says"),
    [
        ({"type": "append"}, [], "several rows with one key (id), so it is not known which one to replace: id=1 (1 of"),
        (
            MERGE,
            [{"type": "sql", "select": "id, 1 AS v"}],
            "column 'v' is string in published files and int32 in the new rows, and neither is wider; convert it",
        ),
    ],
)
def test_snapshot_that_cannot_be_merged_into_fails_its_dataset(
    lake: Snapshots, first: dict[str, Any], converters: list[Any], says: str
) -> None:
    lines = ("1,a", "1,b") if first["type"] == "append" else ("1,b",)
    lake.publish(table_job(first, {}, source=SOURCE, extract=INCREMENTAL), *lines)
    lake.add("1,x")
    (result,) = run(lake.root, job(converters=converters)).datasets

    assert says in result.failures[0].message
    assert lake.rows()[-1] == (1, "b")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (job({"key": []}), "`type: merge` needs `key`"),
        (job({"delete_missing": True}), "`delete_missing` needs full extracts"),
        (
            job({"delete_missing": True}, extract=FULL, source=SOURCE | {"lead_time": "1h"}),
            "source 'files' may not have read them: `lead_time` leaves the newest files to a later run",
        ),
        (
            job(
                {"delete_missing": True},
                extract=FULL,
                source={"type": "query", "url": "sqlite:///a.db", "tables": ["c"], "watermark": {"column": "at"}},
            ),
            "beyond the end of watermark column 'at'; read without one",
        ),
        (job(writer={"type": "jsonl"}), "it takes Parquet files"),
        (job(writer={"type": "parquet", "partition_by": ["v"]}), "set the writer's `keep_partition_columns: true`"),
    ],
)
def test_job_that_cannot_merge_is_refused_when_it_is_checked(tmp_path: Path, spec: JobSpec, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_parts(spec, tmp_path)
    assert says in str(caught.value)


def test_files_of_a_former_writer_are_named_with_what_to_do(lake: Snapshots) -> None:
    lake.publish(table_job({"type": "append"}, {}, source=SOURCE, extract=INCREMENTAL, writer={"type": "jsonl"}), "1,a")
    lake.add("2,b")
    (failed,) = run(lake.root, job()).datasets
    assert ".jsonl, from when the branch had another writer, and a merge reads Parquet alone." in str(failed.problem)
    assert lake.rows() == [(1, "a")]
