"""Compaction: fewer files, the same rows in the same order; in every format, around every crash, beside everything
else."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from gobblin_dagster.constructs.formats.published import MergesColumns
from gobblin_dagster.constructs.registry import registry
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.maintenance import file_merger
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import Compaction, compact
from gobblin_dagster.engine.maintenance.file_merger import FileMerger, likeness
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    kills,
    run_in_child,
)
from tests.faults.strikes import FaultyProject
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run


def _job(rows: int, writer: dict[str, Any] | None = None, unit_rows: int = 5, **parts: Any) -> JobSpec:
    settings = {"writer": writer or {"type": "parquet"}, "execution": {"merge_bytes": 0}}
    return job_spec({"a": {"rows": rows, "unit_rows": unit_rows}}, **(settings | parts))


def _publish(root: Path, *rows: int, **parts: Any) -> JobSpec:
    for count in rows:
        run(root, _job(count, **parts))
    return _job(rows[-1], **parts)


def _files(root: Path, branch: str = "all", snapshot: int | None = None) -> list[PublishedFile]:
    return [file for file in read_published(root / "lake", "numbers", "a", snapshot).files if file.branch == branch]


def _merged(root: Path, job: JobSpec, **settings: Any) -> Compaction:
    (compaction,) = compact(project(root, job), job, **settings)
    assert compaction.problem == ""
    return compaction


def test_small_files_become_one_with_the_same_rows_in_their_order(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20, 33)
    before = _files(tmp_path)
    done = _merged(tmp_path, job)
    assert [(merge.branch, len(merge.files), merge.rows) for merge in done.merges] == [
        ("all", 7, 33),
        ("masked", 7, 33),
    ]
    (file,) = _files(tmp_path)
    assert (file.rows, file.snapshot, done.snapshot) == (33, 3, 3)
    table = pq.read_table(file.path)
    assert table["id"].to_pylist() == list(range(33))
    assert table["value"].to_pylist() == [None if n % 10 == 0 else f"v{n}" for n in range(33)]
    assert _files(tmp_path, snapshot=2) == before
    assert all(Path(old.path).exists() for old in before)
    assert compact(project(tmp_path, job), job) == []


def test_ingestion_goes_on_and_the_watermark_stays(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20)
    _merged(tmp_path, job)
    result = by_urn(run(tmp_path, _job(30)))["a"]
    assert (str(result.low), result.rows_read) == ("20", 10)
    assert published(tmp_path, job, "a") == list(range(30))


def test_dry_run_says_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20)
    before = sorted(tmp_path.rglob("*"))
    done = _merged(tmp_path, job, dry_run=True)
    assert (done.files, done.snapshot) == (8, 0)
    assert [path for path in sorted(tmp_path.rglob("*")) if path.suffix in (".parquet", ".json")] == [
        path for path in before if path.suffix in (".parquet", ".json")
    ]


def test_rollback_and_clean_know_merged_files(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20, commit={"keep_snapshots": 1})
    small = _files(tmp_path)
    _merged(tmp_path, job)
    opened = project(tmp_path, job)
    rollback(opened, job, "a", 1)
    assert _files(tmp_path) == small
    rollback(opened, job, "a", 2)
    (expired,) = clean(opened, job).expired
    assert {file.path for file in expired.files if file.branch == "all"} == {file.path for file in small}
    assert not any(Path(file.path).exists() for file in small)
    assert published(tmp_path, job, "a") == list(range(20))


def test_files_are_cut_at_about_the_target_and_large_ones_are_left_alone(tmp_path: Path) -> None:
    job = _publish(tmp_path, 3000, unit_rows=300, writer={"type": "parquet", "compression": "none"})
    small = _files(tmp_path)
    target = int(3.5 * small[0].size_bytes)
    done = _merged(tmp_path, job, target_bytes=target)
    assert [len(merge.files) for merge in done.merges if merge.branch == "all"] == [3, 3, 3]
    files = _files(tmp_path)
    assert len(files) == 4
    assert small[-1] in files
    assert published(tmp_path, job, "a") == list(range(3000))
    # What was merged is large enough now; the one that was left has no other beside it.
    assert compact(project(tmp_path, job), job, target_bytes=target) == []


def test_fewer_files_than_asked_for_are_left_alone(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20)
    assert compact(project(tmp_path, job), job, min_files=5) == []
    assert _merged(tmp_path, job, min_files=4).files == 8


def test_partition_folders_stay_and_so_does_the_quarantine(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "converters": [{"type": "sql", "select": "id, value, id % 2 as odd"}],
        "row_policies": [{"name": "has_value", "type": "not_null", "columns": ["value"]}],
        "writer": {"type": "parquet", "partition_by": ["odd"], "compression": "zstd"},
    }
    job = _publish(tmp_path, 20, 40, **parts)
    rows = read_published(tmp_path / "lake", "numbers", "a").rows
    done = _merged(tmp_path, job)
    folders = {(merge.branch, Path(merge.folder).name) for merge in done.merges}
    assert folders == {(branch, f"odd={n}") for branch in ("all", "masked") for n in (0, 1)} | {("quarantine", "a")}
    found = read_published(tmp_path / "lake", "numbers", "a")
    assert found.rows == rows
    table = found.to_arrow("all").to_table().to_pylist()
    assert {(row["id"], int(row["odd"])) for row in table} == {(n, n % 2) for n in range(40) if n % 10}
    file = next(file for file in found.files if file.branch == "all")
    assert pq.ParquetFile(file.path).metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("writer", "read"),
    [
        ({"type": "orc"}, None),
        ({"type": "jsonl"}, lambda p: [json.loads(line)["id"] for line in p.read_text().splitlines()]),
        ({"type": "jsonl", "compression": "gzip"}, None),
        ({"type": "csv"}, lambda p: [int(line.split(",")[0]) for line in p.read_text().splitlines()[1:]]),
        ({"type": "csv", "header": False}, lambda p: [int(line.split(",")[0]) for line in p.read_text().splitlines()]),
    ],
    ids=["orc", "jsonl", "jsonl.gz", "csv", "csv without header"],
)
def test_other_formats_keep_their_rows_and_order(
    tmp_path: Path, writer: dict[str, Any], read: Callable[[Path], list[int]] | None
) -> None:
    job = _publish(tmp_path, 33, writer=writer, fork={"branches": [{"name": "all"}]})
    _merged(tmp_path, job)
    (file,) = _files(tmp_path)
    assert file.rows == 33
    if read is not None:
        assert read(Path(file.path)) == list(range(33))
    else:
        table = read_published(tmp_path / "lake", "numbers", "a").to_arrow("all").to_table()
        assert table["id"].to_pylist() == list(range(33))


@pytest.mark.parametrize("writer", [{"type": "avro"}, {"type": "csv", "compression": "gzip"}], ids=["avro", "csv.gz"])
def test_formats_that_cannot_be_merged_are_left_alone(tmp_path: Path, writer: dict[str, Any]) -> None:
    job = _publish(tmp_path, 20, writer=writer)
    assert compact(project(tmp_path, job), job) == []


def test_pipe_in_place_of_a_published_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20)
    lost = Path(_files(tmp_path)[0].path)
    lost.unlink()
    os.mkfifo(lost)
    (done,) = compact(project(tmp_path, job), job)
    assert (done.problem, done.merges) == (
        f"Published file {lost} cannot be read: it is gone, or no regular file.",
        (),
    )


def test_files_of_two_schemas_are_merged_apart(tmp_path: Path) -> None:
    _publish(tmp_path, 20)
    wider = [{"type": "sql", "select": "*, 7 as more"}]
    job = _publish(tmp_path, 40, converters=wider)
    done = _merged(tmp_path, job)
    assert sorted(merge.rows for merge in done.merges if merge.branch == "all") == [20, 20]
    schemas = [pq.read_schema(file.path).names for file in _files(tmp_path)]
    assert sorted(len(names) for names in schemas) == [3, 4]


def test_branches_whose_files_a_table_names_are_left_alone(tmp_path: Path) -> None:
    fork = {
        "branches": [{"name": "all", "publisher": {"type": "iceberg", "table": "a.b", "catalog": {}}}, {"name": "b"}]
    }
    _publish(tmp_path, 20, fork={"branches": [{"name": "all"}, {"name": "b"}]})
    done = _merged(tmp_path, _job(20, fork=fork))
    assert {merge.branch for merge in done.merges} == {"b"}


def test_compacted_dataset_is_no_fresher_than_its_rows(tmp_path: Path) -> None:
    """`sla.max_age` counts from there."""
    job = _publish(tmp_path, 20)
    with project(tmp_path, job).use_store() as store:
        before = store.load_dataset_states("numbers")["a"]
        _merged(tmp_path, job)
        after = store.load_dataset_states("numbers")["a"]
        newest, published = list_snapshots(store, "numbers", "a")
    assert (after.version, after.updated_at) == (before.version + 1, before.updated_at)
    assert newest.committed_at > published.committed_at


def test_unknown_dataset_is_refused_and_a_busy_one_is_told(tmp_path: Path) -> None:
    job = _publish(tmp_path, 20)
    with pytest.raises(UsageError, match="Nothing was published of dataset 'b'"):
        compact(project(tmp_path, job), job, ["b"])
    store = project(tmp_path, job).open_store()
    try:
        store.acquire_leases("numbers", ["a"], LeaseOwner.current("other"), timedelta(minutes=1))
        (found,) = compact(project(tmp_path, job), job)
        assert "other" in found.problem
        assert list_snapshots(store, "numbers", "a")[0].snapshot == 1
    finally:
        store.close()


def test_rows_that_do_not_come_back_as_they_were_are_never_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _publish(tmp_path, 20)
    before = _files(tmp_path)
    right = file_merger._batches

    def wrong(form: MergesColumns, paths: list[str]) -> Any:
        for batch in right(form, paths):
            zeros = pa.array([0] * batch.num_rows, pa.int64())
            yield batch.set_column(0, "id", zeros) if "compact" in paths[0] else batch

    monkeypatch.setattr(file_merger, "_batches", wrong)
    (done,) = compact(project(tmp_path, job), job)
    assert "differ from the published ones: column 'id'" in done.problem
    assert _files(tmp_path) == before
    assert not [path for path in (tmp_path / "lake/_gobblin/staging").rglob("*") if path.is_file()]


def test_interrupt_is_not_hidden_by_staging_that_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _publish(tmp_path, 20, 33)

    def raised(error: BaseException, *_: object) -> None:
        raise error

    monkeypatch.setattr(FileMerger, "merge", partial(raised, KeyboardInterrupt()))
    monkeypatch.setattr(LocalStorage, "delete_tree", partial(raised, PermissionError(13, "Permission denied")))
    with pytest.raises(KeyboardInterrupt):
        compact(project(tmp_path, job), job)


def test_nan_nested_and_encoded_values_are_compared_by_their_bits(tmp_path: Path) -> None:
    nan = float("nan")
    table = pa.table(
        {
            "n": [nan, None, 1.5],
            "l": [[nan, 1.0], [], None],
            "s": [{"x": nan}, {"x": 1.0}, None],
            "m": pa.array([[("k", nan)], [], None], pa.map_(pa.string(), pa.float32())),
            "f": pa.array([[nan, 1.0], None, [1.0, 2.0]], pa.list_(pa.float64(), 2)),
            "d": pa.array(["a", "b", "a"]).dictionary_encode(),
            "t": pa.array([1, None, 3], pa.timestamp("ns", "Europe/Zurich")),
        }
    )
    files = []
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, row_group_size=2)
        files.append(PublishedFile("b", str(path), path.stat().st_size, "", 3, 1))
    where = WriterContext(LocalStorage(), str(tmp_path / "staging"), "t", "id", "b", "a", pa.schema([]))
    merger = FileMerger(LocalStorage(), where, ConstructSpec(type="parquet"))
    (staged,) = merger.merge(files)
    assert staged.rows == 9
    assert pq.read_table(staged.path).slice(0, 3).to_pydict().keys() == table.to_pydict().keys()


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_reading_a_file_keeps_a_part_of_it_in_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"large.{kind}"
    chance = random.Random(0)
    table = pa.table({"n": [chance.getrandbits(60) for _ in range(20_000)]})
    options = {"stripe_size": 1 << 16} if kind == "orc" else {}
    write = orc.ORCWriter(path, **options) if kind == "orc" else pq.ParquetWriter(path, table.schema)
    for _ in range(100):
        write.write(table) if kind == "orc" else write.write_table(table)
    write.close()
    size, before, most = path.stat().st_size, pa.total_allocated_bytes(), 0
    form = registry.published_format(path.name, {})
    assert isinstance(form, MergesColumns)
    for _ in file_merger._batches(form, [str(path)]):
        most = max(most, pa.total_allocated_bytes() - before)
    assert size > 14 << 20
    assert most < 6 << 20


def test_text_that_lacks_its_last_line_break_is_not_glued_to_the_next(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text('{"a": 1}')
        files.append(PublishedFile("b", str(tmp_path / f"{number}.jsonl"), 8, "", 1, 1))
    where = WriterContext(LocalStorage(), str(tmp_path / "staging"), "t", "id", "b", "a", pa.schema([]))
    with pytest.raises(CorruptRecordError, match="the end of a line"):
        FileMerger(LocalStorage(), where, ConstructSpec(type="jsonl")).merge(files)
    assert _likeness(tmp_path, '"a\nb",c\n1,2\n', header=True) is None


def _likeness(root: Path, text: str, **options: Any) -> str | None:
    (root / "one.csv").write_text(text)
    return likeness(LocalStorage(), PublishedFile("b", str(root / "one.csv"), 9, "", 1, 1), options)


def test_csv_that_was_written_in_another_way_than_now_is_left_alone(tmp_path: Path) -> None:
    with_header, without, semicolons = '"a","b"\n1,"x\ny"\n', '1,"x\ny"\n', '"a";"b"\n1;"x"\n'
    assert _likeness(tmp_path, with_header, header=True) == '"a","b"'
    assert _likeness(tmp_path, without, header=True) is None
    assert _likeness(tmp_path, with_header, header=False) is None
    assert _likeness(tmp_path, without, header=False) == "csv, 2 columns"
    assert _likeness(tmp_path, semicolons, header=True, delimiter=";") == '"a";"b"'
    assert _likeness(tmp_path, '1;"x"\n', header=False) == "csv, 1 columns"
    assert _likeness(tmp_path, "1,2\n1,2,3\n", header=True) is None


def _compact_with(points: FaultPoints, root: Path, job: JobSpec) -> None:
    FaultyProject.points = points
    compact(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job)


def test_killed_around_any_operation_readers_see_each_row_once(tmp_path: Path) -> None:
    """SIGKILL before and after each call of storage and store: all rows once at once, and after the next run."""
    root, saved = tmp_path / "project", tmp_path / "saved"
    job = _publish(root, 8, fork={"branches": [{"name": "all"}]}, unit_rows=4)
    shutil.copytree(root, saved)

    def begin_anew() -> None:
        shutil.rmtree(root)
        shutil.copytree(saved, root)

    watch = FaultPoints()
    _compact_with(watch, root, job)
    assert {"store.prepare", "store.commit", "storage.move", "sink.finish"} <= set(watch.trace)
    for number, action in kills(watch.trace):
        begin_anew()
        points = FaultPoints(Fault(number, action))
        assert run_in_child(partial(_compact_with, points, root, job)) == CRASHED
        where = (number, watch.trace[number - 1], action.__name__)
        assert _ids(root, job) == list(range(8)), where
        run(root, job)
        assert _ids(root, job) == list(range(8)), where
        assert [one.problem for one in compact(project(root, job), job)] in ([], [""]), where
        assert (len(_files(root)), _ids(root, job)) == (1, list(range(8))), where
        assert read_published(root / "lake", "numbers", "a") == load_published(project(root, job), job, "a"), where


def _ids(root: Path, job: JobSpec) -> list[int]:
    table = load_published(project(root, job), job, "a").to_arrow("all").to_table()
    found: list[int] = table["id"].to_pylist()
    return sorted(found)
