"""Source `spark` on a real local Spark: formats, queries and columns that order the rows, published exactly once."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.constructs import SourceContext, StartpointResolver
from gobblin_dagster.core.errors import SourceError, StartpointError, UsageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Oldest, Specific, Timestamp, Upcoming
from gobblin_dagster.engine.commit import SilentListener
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import JobRun, plan_job, run_job
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.spark.runner import SparkRunner
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import AllowSpec
from gobblin_dagster.testing.conformance import PlanConformance
from gobblin_dagster.testing.faults import Halted
from tests.services.quick_spark import QUICK, quick
from tests.unit.engine.jobs import by_urn, project, published
from tests.unit.engine.plan.test_startpoints import store_of, waiting, wish

pytestmark = pytest.mark.spark
PARTS = "tests.integration.spark_parts"
ONE = {"branches": [{"name": "all"}]}
EPOCH = dt.datetime(2026, 3, 29, 0, 30)  # the night when clocks go forward in Europe


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(log.parent)
        (log.parent / "parts_on_path.py").write_text(f"from {PARTS} import Fragile\n")
        runner = SparkRunner.start(quick(project(log.parent).spec.spark), log)
        yield runner
        runner.close()


def _job(source: dict[str, Any], **parts: Any) -> JobSpec:
    body: dict[str, Any] = {
        "job": "numbers",
        "source": {"type": "spark", **source},
        "extract": {"namespace": "test", "table": "d"},
        "fork": ONE,
        "task_policies": [{"type": "row_count"}, {"type": "schema_compatible"}],
        "output": {"path": "lake"},
    }
    return JobSpec.model_validate(body | parts)


def _parquet(**more: Any) -> dict[str, Any]:
    return {"format": "parquet", "path": "data", "watermark": {"column": "id", "type": "long"}, **more}


def _run(root: Path, job: JobSpec, runner: SparkRunner) -> DatasetResult:
    (dataset,) = run_job(project(root, job), job, runner=runner).datasets
    return dataset


def _write(root: Path, ids: Sequence[int], name: str = "data", **columns: pa.Array) -> None:
    folder = root / name
    folder.mkdir(exist_ok=True)
    table = pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(ids, pa.int32()), **columns})
    pq.write_table(table, folder / f"{len(list(folder.iterdir())):03}.parquet")


def test_each_run_reads_what_is_new(tmp_path: Path, runner: SparkRunner) -> None:
    job = _job(_parquet())
    _write(tmp_path, range(1000))
    first = _run(tmp_path, job, runner)
    assert (first.outcome, first.rows_read, str(first.actual_high)) == (DatasetOutcome.COMMITTED, 1000, "1000")
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    _write(tmp_path, [2000, 1500])
    second = _run(tmp_path, job, runner)
    assert (str(second.low), str(second.actual_high), second.rows_read) == ("1000", "2001", 2)
    assert published(tmp_path, job, "test.d") == [*range(1000), 1500, 2000]
    store = project(tmp_path, job).open_store()
    try:
        source = JobContext.of(project(tmp_path, job), job, store, runner=runner).source
        audit = audit_dataset(job, source, store, "test.d")
    finally:
        store.close()
    assert audit is not None
    assert (audit.source_rows, audit.lost, audit.duplicated) == (1002, 0, 0)


def test_link_that_leads_out_of_the_allowed_folders_is_not_followed(tmp_path: Path, runner: SparkRunner) -> None:
    job = _job(_parquet())
    _write(tmp_path, range(3))
    _write(tmp_path, [7], name="elsewhere")
    opened = project(tmp_path, job)
    allowed = opened.spec.model_copy(update={"allow": AllowSpec(paths=("data", "lake"))})
    opened = replace(opened, spec=allowed)
    (dataset,) = run_job(opened, job, runner=runner).datasets
    assert dataset.outcome is DatasetOutcome.COMMITTED
    (tmp_path / "data" / "link.parquet").symlink_to("../elsewhere/000.parquet")
    (dataset,) = run_job(opened, job, runner=runner).datasets
    assert dataset.outcome is DatasetOutcome.FAILED
    assert "data/link.parquet' is below none of `allow.paths`" in str(dataset)
    assert published(tmp_path, job, "test.d") == [0, 1, 2]


@pytest.mark.parametrize(
    ("reading", "text", "said"),
    [
        ({"format": "csv", "options": {"header": True}}, "id,value\n1,2\n2,x\n", "Malformed records are detected"),
        ({"format": "CSV", "options": {"header": True}}, "id,value\n1,2\n2,3,4\n", "Malformed records are detected"),
        (
            {"format": "csv", "options": {"header": True}},
            "value,id\n1,2\n",
            "CSV header does not conform to the schema",
        ),
        ({"format": "json"}, '{"id": 1, "value": 2}\n{"id": 2, "value": "x"}\n', "Malformed records are detected"),
    ],
    ids=["type", "too many fields", "other order", "json"],
)
def test_text_that_does_not_fit_its_columns_is_no_null_unless_told_so(
    tmp_path: Path, runner: SparkRunner, reading: dict[str, Any], text: str, said: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text(text)
    source = reading | {
        "path": "data",
        "columns": "id bigint, value int",
        "watermark": {"column": "id", "type": "long"},
    }
    failed = _run(tmp_path, _job(source), runner)
    assert failed.outcome is DatasetOutcome.FAILED
    assert said in failed.failures[0].message
    lenient = {"mode": "PERMISSIVE", "enforceschema": True}
    source["options"] = source.get("options", {}) | lenient
    assert _run(tmp_path, _job(source), runner).outcome is DatasetOutcome.COMMITTED


def test_fields_of_json_that_columns_do_not_declare_are_named(tmp_path: Path, runner: SparkRunner) -> None:
    text = '{"id": 1, "at": {"x": 1, "y": 2}, "tags": [{"a": 1, "b": 2}], "More": 1}\n'
    (tmp_path / "a.json").write_text(text)
    columns = "id bigint, at struct<x: int>, tags array<struct<a: int>>, more int"
    job = _job({"format": "json", "path": "a.json", "columns": columns, "watermark": {"column": "id", "type": "long"}})
    (dataset,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    fields = "'More', 'at.y', 'tags.b'"
    assert list(dataset.notes) == [f"field(s) of the rows that `columns` does not declare were left out: {fields}."]


@pytest.mark.parametrize("kind", ["long", "timestamp", "date"])
def test_table_that_was_emptied_or_made_anew_below_its_watermark_is_named(
    tmp_path: Path, runner: SparkRunner, kind: str
) -> None:
    days = [EPOCH + dt.timedelta(days=day) for day in range(10)]
    at = {"long": pa.array(range(10), pa.int64()), "timestamp": pa.array(days), "date": pa.array(days, pa.date32())}[
        kind
    ]
    job = _job(_parquet(watermark={"column": "at", "type": kind}))

    def notes(count: int) -> tuple[int, Sequence[str]]:
        for file in (tmp_path / "data").glob("*"):
            file.unlink()
        _write(tmp_path, range(count), at=at[:count])
        (dataset,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
        return len(dataset.work_units), dataset.notes

    assert notes(9) == (1, ())
    assert _run(tmp_path, job, runner).rows_read == 9
    assert notes(9) == (0, ())
    assert notes(10) == (1, ())
    for count in (8, 0):
        units, (note,) = notes(count)
        assert units == 0
        assert "where its last read ended, or behind it: were rows deleted, or the table created again?" in note


@pytest.mark.parametrize(
    ("options", "units"),
    [({"partitions": 4}, 4), ({"partition_interval": 30}, 4), ({"partition_interval": 1, "partitions": 3}, 3)],
    ids=["number", "width", "widened"],
)
def test_interval_is_read_in_parts_side_by_side(
    tmp_path: Path, runner: SparkRunner, options: dict[str, Any], units: int
) -> None:
    job = _job(_parquet(**options))
    _write(tmp_path, range(100))
    (dataset,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert (len(dataset.work_units), dataset.rows) == (units, 100)
    assert _run(tmp_path, job, runner).rows_read == 100
    assert published(tmp_path, job, "test.d") == list(range(100))


@pytest.mark.parametrize(
    ("kind", "zone", "step", "high"),
    [
        ("timestamp", "UTC", dt.timedelta(minutes=20), "2026-03-29T02:10:00.000001Z"),
        ("timestamp", None, dt.timedelta(minutes=20), "2026-03-29T02:10:00.000001Z"),
        ("hour", "UTC", dt.timedelta(hours=1), "2026-03-29T06Z"),
        ("hour", None, dt.timedelta(hours=1), "2026-03-29T06Z"),
        ("date", None, dt.timedelta(days=1), "2026-04-04"),
    ],
    ids=["instant", "wall-clock", "hour", "wall-clock-hour", "date"],
)
def test_times_order_rows_whatever_the_zone_of_the_session(
    tmp_path: Path, runner: SparkRunner, kind: str, zone: str | None, step: dt.timedelta, high: str
) -> None:
    arrow = pa.date32() if kind == "date" else pa.timestamp("us", zone)
    job = _job(_parquet(watermark={"column": "at", "type": kind}))
    before = runner.session.conf.get("spark.sql.session.timeZone")
    runner.session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for ids in (range(3), range(3, 6)):
            moments = [EPOCH + step * i for i in ids]
            values = [moment.date() for moment in moments] if kind == "date" else moments
            _write(tmp_path, ids, at=pa.array(values, arrow))
            result = _run(tmp_path, job, runner)
            assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, 3)
    finally:
        runner.session.conf.set("spark.sql.session.timeZone", str(before))
    assert str(result.actual_high) == high
    assert published(tmp_path, job, "test.d") == list(range(6))
    store = project(tmp_path, job).open_store()
    try:
        files = [pq.read_table(file.path) for file in store.load_snapshot(job.job, "test.d")]
        schema = store.load_dataset_states(job.job)["test.d"].schemas["all"]
    finally:
        store.close()
    assert f"at: {'date32[day]' if kind == 'date' else pa.timestamp('us', zone)}" in schema
    read = sorted(value for table in files for value in table["at"].to_pylist())
    expected = [EPOCH + step * i for i in range(6)]
    if kind == "date":
        assert read == [moment.date() for moment in expected]
    else:
        assert [moment.replace(tzinfo=None) for moment in read] == expected


def test_day_that_goes_on_waits_for_its_end(tmp_path: Path, runner: SparkRunner) -> None:
    today = dt.datetime.now(dt.UTC).date()
    days = pa.array([today - dt.timedelta(days=2), today - dt.timedelta(days=1), today], pa.date32())
    _write(tmp_path, range(3), at=days)
    job = _job(_parquet(watermark={"column": "at", "type": "date"}))
    result = _run(tmp_path, job, runner)
    assert (result.rows_read, str(result.actual_high)) == (2, str(today))
    assert result.notes == (f"from {today} on, rows are left for a later run: `max_watermark: CURRENTDATE-1`.",)
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE


def test_lag_end_and_start_bound_what_is_read(tmp_path: Path, runner: SparkRunner) -> None:
    _write(tmp_path, [*range(60), 99])
    job = _job(_parquet(start=10, end=80, lag=30))
    assert str(_run(tmp_path, job, runner).actual_high) == "60", "the bound 70, which no row has reached"
    _write(tmp_path, [65])
    (dataset,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert [(str(unit.interval), unit.rows) for unit in dataset.work_units] == [("[60, 66)", 1)]
    assert published(tmp_path, job, "test.d") == list(range(10, 60))


@pytest.mark.parametrize("nulls", ["fail", "exclude", "include"])
def test_rows_without_a_position_are_treated_as_the_job_says(tmp_path: Path, runner: SparkRunner, nulls: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    column = pa.array([0, 1, None, 3, None], pa.int64())
    pq.write_table(pa.table({"id": pa.array(range(5), pa.int64()), "seq": column}), folder / "a.parquet")
    job = _job(_parquet(watermark={"column": "seq", "type": "long"}, nulls=nulls))
    result = _run(tmp_path, job, runner)
    again = _run(tmp_path, job, runner)
    if nulls == "fail":
        assert "2 row(s) have NULL in the watermark column `seq`" in result.failures[0].message
    else:
        assert published(tmp_path, job, "test.d") == ([0, 1, 3] if nulls == "exclude" else list(range(5)))
        assert "2 row(s) have NULL" in result.notes[0]
        assert again.outcome is DatasetOutcome.IDLE


def test_query_joins_views_and_results_pass_through_sql_and_function(tmp_path: Path, runner: SparkRunner) -> None:
    _write(tmp_path, range(10))
    (tmp_path / "names.csv").write_text("id;name\n1;one\n7;seven\n")
    views = {
        "numbers": {"format": "parquet", "path": "data"},
        "names": {
            "format": "csv",
            "path": "names.csv",
            "columns": "id bigint, name string",
            "options": {"header": True, "sep": ";"},
        },
    }
    source = {
        "query": "select n.id, n.value, m.name from {numbers} n join {names} m on n.id = m.id",
        "views": views,
        "watermark": {"column": "id", "type": "long"},
        "sql": "select id, value + length(name) as value from {rows}",
        "function": f"{PARTS}:doubled",
        "spark_partitions": 1,
    }
    job = _job(source)
    result = _run(tmp_path, job, runner)
    assert (result.outcome, result.rows_read, result.files) == (DatasetOutcome.COMMITTED, 2, 1)
    store = project(tmp_path, job).open_store()
    try:
        (file,) = store.load_snapshot(job.job, "test.d")
    finally:
        store.close()
    assert pq.read_table(file.path).sort_by("id").to_pylist() == [{"id": 1, "value": 8}, {"id": 7, "value": 24}]


def test_datasets_stand_alone(tmp_path: Path, runner: SparkRunner) -> None:
    for name in ("a", "c"):
        _write(tmp_path, range(5), name)
    job = _job(_parquet(path="{dataset}", datasets=["a", "b", "c"]))
    results = by_urn(run_job(project(tmp_path, job), job, runner=runner))
    assert {urn: str(result.outcome) for urn, result in results.items()} == {
        "a": "committed",
        "b": "failed",
        "c": "committed",
    }
    assert "[PATH_NOT_FOUND] Path does not exist" in results["b"].failures[0].message
    assert published(tmp_path, job, "a") == published(tmp_path, job, "c") == list(range(5))


def test_full_extract_replaces_what_was_published(tmp_path: Path, runner: SparkRunner) -> None:
    source = {"format": "parquet", "path": "data"}
    with pytest.raises(UsageError, match=r"without a `watermark` everything is read in each run"):
        _run(tmp_path, _job(source), runner)
    job = _job(source, extract={"namespace": "test", "table": "d", "type": "snapshot_only"})
    _write(tmp_path, range(10))
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.COMMITTED
    (tmp_path / "data" / "000.parquet").unlink()
    _write(tmp_path, range(5, 12))
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.COMMITTED
    assert published(tmp_path, job, "test.d") == list(range(5, 12))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"format": "nosuch"}, r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: nosuch"),
        ({"format": "avro"}, r"spark.jars.packages: org.apache.spark:spark-avro_2.13:4.1.1"),
        ({"watermark": {"column": "idd", "type": "long"}}, r"there is no column idd; it has id, value"),
        ({"watermark": {"column": "id"}}, r"column id is of type bigint, `type: timestamp` needs timestamp"),
        ({"format": "", "path": "", "table": "no.such"}, r"\[TABLE_OR_VIEW_NOT_FOUND\]"),
        ({"format": "", "path": "", "query": "select 1 frm (x"}, r"\[PARSE_SYNTAX_ERROR\]"),
        ({"sql": "select nope from {rows}"}, r"\[UNRESOLVED_COLUMN.WITH_SUGGESTION\].*`nope`"),
        ({"sql": "select id, cast('x' || id as int) as n from {rows}"}, r"\[CAST_INVALID_INPUT\] The value 'x\d'"),
        ({"function": f"{PARTS}:no_frame"}, r"returned NoneType, expected a DataFrame"),
        ({"function": f"{PARTS}:nope"}, r"cannot load tests.integration.spark_parts:nope"),
    ],
    ids=["format", "jar", "column", "type", "table", "query", "sql-name", "sql-value", "no-frame", "no-function"],
)
def test_fault_says_what_is_wrong(
    tmp_path: Path, runner: SparkRunner, capfd: pytest.CaptureFixture[str], source: dict[str, Any], message: str
) -> None:
    _write(tmp_path, range(5))
    result = _run(tmp_path, _job(_parquet(**source)), runner)
    assert result.outcome is DatasetOutcome.FAILED
    (failure,) = result.failures
    assert re.search(message, failure.message), failure.message
    assert not failure.transient
    assert capfd.readouterr().err == ""


def test_worker_that_dies_once_is_replaced_and_rows_are_published_once(tmp_path: Path, runner: SparkRunner) -> None:
    _write(tmp_path, range(100))
    flag = tmp_path / "kill"
    flag.touch()
    job = _job(_parquet(partitions=2), converters=[{"type": f"{PARTS}:Fragile", "kill_once": str(flag)}])
    result = _run(tmp_path, job, runner)
    assert result.outcome is DatasetOutcome.COMMITTED, result.failures
    assert not flag.exists()
    assert published(tmp_path, job, "test.d") == list(range(100))


def test_workers_find_the_modules_that_this_process_finds(tmp_path: Path, runner: SparkRunner) -> None:
    _write(tmp_path, range(3))
    result = _run(tmp_path, _job(_parquet(), converters=[{"type": "parts_on_path:Fragile"}]), runner)
    assert result.outcome is DatasetOutcome.COMMITTED, result.failures


def test_incremental_reads_make_up_the_whole_however_rows_arrive_and_runs_fail(
    tmp_path: Path, runner: SparkRunner
) -> None:
    chance, flag, ids, highest = random.Random(5), tmp_path / "fail", list[int](), 0
    converters = [{"type": f"{PARTS}:Fragile", "fail_while": str(flag)}]
    job = _job(_parquet(partitions=2), converters=converters, commit={"policy": "successful"})
    for _ in range(5):
        batch = chance.sample(range(highest, highest + 60), chance.randint(0, 40))
        if batch:
            _write(tmp_path, batch)
            ids += batch
        if chance.random() < 0.4:
            flag.touch()
        outcome = _run(tmp_path, job, runner).outcome if ids else DatasetOutcome.IDLE
        flag.unlink(missing_ok=True)
        # Rows may come below the highest one as long as no run has read beyond them.
        highest = max(ids, default=-1) + 1 if outcome is DatasetOutcome.COMMITTED else highest
    _run(tmp_path, job, runner)
    assert published(tmp_path, job, "test.d") == sorted(ids)
    assert not plan_job(project(tmp_path, job), job, spark=runner).has_work


def test_startpoints_are_looked_up_in_the_column(tmp_path: Path, runner: SparkRunner) -> None:
    moments = [EPOCH + dt.timedelta(hours=i) for i in range(5)]
    _write(tmp_path, range(5), at=pa.array(moments, pa.timestamp("us", "UTC")))
    job = _job(_parquet(watermark={"column": "at", "type": "timestamp"}))
    opened = project(tmp_path, job)
    store = opened.open_store()
    try:
        source = JobContext.of(opened, job, store, runner=runner).source
        context = SourceContext(job.to_extract(), {}, lambda urn: True, opened.clock)
        assert isinstance(source, StartpointResolver)
        instant = Timestamp((EPOCH + dt.timedelta(hours=2)).replace(tzinfo=dt.UTC))
        assert str(source.resolve_startpoint("test.d", instant, context)) == "2026-03-29T02:30:00Z"
        assert str(source.resolve_startpoint("test.d", Upcoming(), context)) == "2026-03-29T04:30:00.000001Z"
        assert source.resolve_startpoint("test.d", Oldest(), context) is None
        numbers = JobContext.of(opened, _job(_parquet()), store, runner=runner).source
        assert isinstance(numbers, StartpointResolver)
        with pytest.raises(StartpointError, match="column `id` holds no times"):
            numbers.resolve_startpoint("test.d", instant, context)
    finally:
        store.close()


def test_a_row_that_is_dated_far_ahead_is_not_the_end_of_a_column(tmp_path: Path, runner: SparkRunner) -> None:
    days = [EPOCH.date(), dt.date(2130, 1, 1)]
    _write(tmp_path, range(2), at=pa.array(days, pa.date32()))
    job = _job(_parquet(watermark={"column": "at", "type": "date"}))
    saved = wish(tmp_path, job, Specific("2129-01-01"), "test.d")
    (failed,) = _run(tmp_path, job, runner).failures
    assert "it lies beyond the end, 20" in failed.message
    with store_of(tmp_path, job) as store:
        assert store.delete_startpoint(saved, "anna@host")
    wish(tmp_path, job, Upcoming(), "test.d")
    assert str(_run(tmp_path, job, runner).actual_high) < "2130", "the end of what runs read"


def test_runs_begin_at_the_startpoints_of_a_column(tmp_path: Path, runner: SparkRunner) -> None:
    hours = [EPOCH + dt.timedelta(hours=number) for number in range(7)]
    job = _job(_parquet(watermark={"column": "at", "type": "timestamp"}))

    def write(*numbers: int) -> None:
        _write(tmp_path, numbers, at=pa.array([hours[number] for number in numbers], pa.timestamp("us", "UTC")))

    write(*range(5))
    _run(tmp_path, job, runner)
    rows = list(range(5))
    third = hours[3].replace(tzinfo=dt.UTC)
    for position, until, read in (
        (Specific(third.isoformat()), None, [3, 4]),
        (Timestamp(third), None, [3, 4]),
        (Oldest(), None, [0, 1, 2, 3, 4]),
        (Upcoming(), None, []),
        (Specific(hours[1].isoformat()), Specific(third.isoformat()), [1, 2]),
    ):
        wish(tmp_path, job, position, "test.d", until=until)
        result = _run(tmp_path, job, runner)
        assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, len(read)), position
        rows += read
        assert published(tmp_path, job, "test.d") == sorted(rows)
        assert waiting(tmp_path, job) == {}
    wish(tmp_path, job, Upcoming(), "test.d")
    with store_of(tmp_path, job) as store:
        opened = JobContext.of(project(tmp_path, job), job, store, runner=runner)
        with JobRun(opened, runner) as dies:
            dies.extract(dies.plan())
    write(5, 6)
    assert _run(tmp_path, job, runner).rows_read == 2, "the crash pinned the end"
    saved = wish(tmp_path, job, Specific("2130-01-01T00:00Z"), "test.d")
    (failed,) = _run(tmp_path, job, runner).failures
    assert "it lies beyond the end" in failed.message
    with store_of(tmp_path, job) as store:
        assert store.delete_startpoint(saved, "anna@host")
    wish(tmp_path, job, Oldest(), "test.d", partition="p0")
    (one,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert "the dataset has no partitions with positions of their own" in one.problem


def test_column_that_gets_a_zone_is_not_read_on_with_positions_of_the_other_clock(
    tmp_path: Path, runner: SparkRunner
) -> None:
    watermark = {"column": "at", "type": "timestamp"}
    job = _job(_parquet(watermark=watermark), task_policies=[{"type": "row_count"}])  # the column has another type
    _write(tmp_path, [1, 2], at=pa.array([EPOCH, EPOCH], pa.timestamp("us")))
    assert _run(tmp_path, job, runner).rows_read == 2
    (tmp_path / "data" / "000.parquet").unlink()
    _write(tmp_path, [1, 2, 3], at=pa.array([EPOCH] * 3, pa.timestamp("us", "UTC")))
    (failed,) = _run(tmp_path, job, runner).failures
    assert "its watermark column `at` holds times with a time zone, it held times without a time zone" in failed.message
    wish(tmp_path, job, Oldest(), "test.d")
    assert _run(tmp_path, job, runner).rows_read == 3
    assert _run(tmp_path, job, runner).failures == ()


def test_plan_without_spark_says_that_it_needs_it(tmp_path: Path) -> None:
    job = _job(_parquet())
    with pytest.raises(SourceError, match="planning with source `spark` needs Spark"):
        plan_job(project(tmp_path, job), job)


_GOBBLIN = [sys.executable, "-m", "gobblin_dagster"]


class _HaltsAfterAStep(SilentListener):
    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        raise Halted


@pytest.mark.slow
def test_run_killed_between_work_units_or_commit_steps_is_finished_by_the_next(
    tmp_path: Path, runner: SparkRunner
) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text(f"project: killed\nspark: {json.dumps({'conf': QUICK})}\n")
    (tmp_path / "jobs" / "numbers.yaml").write_text(
        "job: numbers\n"
        "source: {type: spark, format: parquet, path: data, partitions: 2, watermark: {column: id, type: long},\n"
        f"         function: '{PARTS}:killed_at_second_call'}}\n"
        "extract: {namespace: test, table: d}\n"
        "fork: {branches: [{name: all}]}\n"
        "output: {path: lake}\n"
    )
    _write(tmp_path, range(200))
    (tmp_path / "kill").touch()

    environment = {**os.environ, "PYTHONPATH": str(root)}
    assert subprocess.run([*_GOBBLIN, "run"], cwd=tmp_path, env=environment, check=False).returncode == -9
    opened = open_project(tmp_path)
    with pytest.raises(Halted):  # test_spark_sensor kills a whole command there
        run_job(opened, opened.job("numbers"), runner=runner, commit_listener=_HaltsAfterAStep())
    third = run_job(opened, opened.job("numbers"), runner=runner)
    assert third.exit_code == 0, third
    assert [dataset.dataset_urn for dataset in third.recovered] == ["test.d"]
    assert published(tmp_path, _job(_parquet()), "test.d") == list(range(200))


class TestSparkSource(PlanConformance):
    """What the source plans; Spark reads its rows, so there are no extractors."""

    spec = {"type": "spark", **_parquet()}
    expected = {"test.d": [{"id": number} for number in range(1, 6)]}
    extract = Extract("test", "d")

    @pytest.fixture(autouse=True)
    def data(self, tmp_path: Path, runner: SparkRunner) -> None:
        _write(tmp_path, range(1, 6))
        self.facts = {"spark": runner.open_session}
