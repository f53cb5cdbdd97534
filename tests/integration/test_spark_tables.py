"""Source `spark` on a Spark Connect server: Iceberg and Delta tables that Spark and deltalake write, read by
snapshot."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import SparkContext
from pyspark.sql import SparkSession

from gobblin_dagster.constructs.sources.spark import table_history
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Oldest, Specific, Timestamp, Upcoming
from gobblin_dagster.core.task_state import PolicyResult
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.state_change import Change, apply_change, plan_reset, plan_set
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.spark.lazy import KeptSparkRunner
from gobblin_dagster.engine.spark.runner import SparkRunner, stop_session
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import SparkSpec
from tests.services.missing import missing
from tests.services.spark_connect import running_connect, table_jars
from tests.unit.engine.jobs import by_urn, project, published
from tests.unit.engine.plan.test_startpoints import waiting, wish

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    jars = table_jars()
    if jars is None:
        missing("no Java, or the jars of Iceberg and Delta cannot be fetched (Maven)")
    # Not below pytest's folder: other users' tables have short paths too, and so have URLs in error messages.
    home = Path(tempfile.mkdtemp(prefix="gobblin-spark-"))
    try:
        with running_connect(home, jars) as address:
            yield address
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def runner(address: str) -> Iterator[SparkRunner]:
    with opened(address) as session:
        yield SparkRunner(session, 2)


@contextmanager
def opened(address: str) -> Iterator[SparkSession]:
    """Yield a new session of the server."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session: Any = RemoteSession.builder.remote(address).create()
    try:
        yield session
    finally:
        stop_session(session)  # one that is left asks the server at the end of Python, for minutes if it has ended


@pytest.fixture
def table(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return "t_" + "".join(char if char.isalnum() else "_" for char in request.node.name)[-60:]


class Table:
    """A table of one kind, with what people do to it."""

    def __init__(self, session: SparkSession, kind: str, name: str, feed: bool = True) -> None:
        self._sql = session.sql
        self.kind = kind
        self.name = f"lake.db.{name}" if kind == "iceberg" else f"default.{name}"
        self._properties = (
            f"tblproperties (delta.enableChangeDataFeed = {str(feed).lower()})" if kind == "delta" else ""
        )

    def create(self) -> None:
        if self.kind == "iceberg":
            self._sql("create namespace if not exists lake.db")
        self._sql(f"create or replace table {self.name} (id bigint, name string) using {self.kind} {self._properties}")

    def create_plain(self) -> None:
        """Make a table of any format that Spark knows."""
        self._sql("create namespace if not exists lake.db")
        self._sql(f"create table {self.name} (id bigint, name string) using {self.kind}")

    def drop(self) -> None:
        self._sql(f"drop table {self.name}")

    def append(self, low: int, high: int) -> None:
        self._sql(f"insert into {self.name} select id, 'n' || id from range({low}, {high}, 1, 1)")

    def compact(self) -> None:
        if self.kind == "iceberg":
            self._sql(
                f"call lake.system.rewrite_data_files(table => '{self.name}', options => map('rewrite-all', 'true'))"
            )
        else:
            self._sql(f"optimize {self.name}")

    def delete(self, condition: str) -> None:
        self._sql(f"delete from {self.name} where {condition}")

    def job(self, **parts: Any) -> JobSpec:
        source = {"type": "spark", "table": self.name, "watermark": {"snapshot": self.kind}} | parts.pop("source", {})
        return JobSpec.model_validate(
            {
                "job": "tables",
                "source": source,
                "extract": {"namespace": "test", "table": "d"},
                "fork": {"branches": [{"name": "all"}]},
                "task_policies": [{"type": "row_count"}, {"type": "schema_compatible"}],
                "output": {"path": "lake"},
            }
            | parts
        )


def _run(root: Path, job: JobSpec, runner: SparkRunner) -> DatasetResult:
    (dataset,) = run_job(project(root, job), job, runner=runner).datasets
    return dataset


KINDS = pytest.mark.parametrize("kind", ["iceberg", "delta"])


@KINDS
def test_snapshots_are_read_once_and_exactly(tmp_path: Path, runner: SparkRunner, table: str, kind: str) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 10)
    made.delete("id = 3")  # before the first read: that takes the table as it is
    job = made.job()
    first = _run(tmp_path, job, runner)
    assert (first.outcome, first.rows_read) == (DatasetOutcome.COMMITTED, 9)
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    made.append(10, 15)
    made.compact()
    made.append(15, 20)
    (planned,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert (planned.rows, len(planned.work_units)) == (10, 1)
    second = _run(tmp_path, job, runner)
    assert (second.rows_read, second.policies[0].result) == (10, PolicyResult.PASSED)
    assert published(tmp_path, job, "test.d") == [i for i in range(20) if i != 3]
    store = project(tmp_path, job).open_store()
    try:
        opened = JobContext.of(project(tmp_path, job), job, store, runner=runner)
        audit = audit_dataset(job, opened.source, store, "test.d")
        schema = store.load_dataset_states(job.job)["test.d"].schemas["all"]
    finally:
        store.close()
    assert audit is not None
    assert (audit.source_rows, audit.lost, audit.duplicated) == (19, 0, 0)
    assert schema == "id: int64\nname: string"
    made.compact()
    third = _run(tmp_path, job, runner)  # compaction alone moves the watermark and publishes nothing
    assert (third.outcome, third.rows_read, third.files) == (DatasetOutcome.COMMITTED, 0, 0)
    assert str(third.low) == str(second.actual_high) != str(third.actual_high)


@KINDS
def test_rows_that_were_taken_away_are_refused_until_the_table_is_read_anew(
    tmp_path: Path, runner: SparkRunner, table: str, kind: str
) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 10)
    job = made.job()
    _run(tmp_path, job, runner)
    made.delete("id < 5")
    result = _run(tmp_path, job, runner)
    assert result.outcome is DatasetOutcome.FAILED
    assert "which cannot be published as added rows; `gobblin state reset`" in result.failures[0].message
    assert published(tmp_path, job, "test.d") == list(range(10))


@KINDS
def test_full_extract_reads_the_table_whole_and_only_where_it_changed(
    tmp_path: Path, runner: SparkRunner, table: str, kind: str
) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 10)
    job = made.job(extract={"namespace": "test", "table": "d", "type": "snapshot_only"})
    assert _run(tmp_path, job, runner).rows_read == 10
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    made.delete("id < 5")
    made.append(10, 12)
    assert _run(tmp_path, job, runner).rows_read == 7
    assert published(tmp_path, job, "test.d") == [5, 6, 7, 8, 9, 10, 11]


@KINDS
def test_snapshots_are_read_in_parts(tmp_path: Path, runner: SparkRunner, table: str, kind: str) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 3)
    job = made.job(source={"snapshots_per_work_unit": 2})
    _run(tmp_path, job, runner)
    for low in range(3, 12, 3):
        made.append(low, low + 3)
    (planned,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert [unit.rows for unit in planned.work_units] == [6, 3]
    assert _run(tmp_path, job, runner).rows_read == 9
    assert published(tmp_path, job, "test.d") == list(range(12))


@KINDS
def test_table_that_was_made_anew_is_refused(tmp_path: Path, runner: SparkRunner, table: str, kind: str) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 5)
    made.append(5, 9)
    job = made.job()
    _run(tmp_path, job, runner)
    made.drop()
    made.create()
    made.append(0, 5)
    assert "created again" in _run(tmp_path, job, runner).failures[0].message


def test_expired_iceberg_snapshots_are_refused(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    made.append(0, 5)
    job = made.job()
    _run(tmp_path, job, runner)
    made.append(5, 7)
    made.append(7, 9)
    runner.session.sql(
        f"call lake.system.expire_snapshots(table => '{made.name}', older_than => timestamp'2100-01-01', retain_last "
        "=> 1)"
    )
    assert "it expired, or the table was rolled back" in _run(tmp_path, job, runner).failures[0].message


@pytest.fixture
def other(address: str) -> Iterator[SparkSession]:
    with opened(address) as session:
        yield session


def test_session_that_stays_sees_what_others_wrote_since(
    tmp_path: Path, runner: SparkRunner, other: SparkSession, table: str
) -> None:
    iceberg, parquet = (Table(other, kind, f"{table}_{kind}") for kind in ("iceberg", "parquet"))
    by_id = {"watermark": {"column": "id", "type": "long"}}
    for made in (iceberg, parquet):
        made.create_plain()
    other.sql(f"create view default.{table} as select * from {iceberg.name}")
    query = f"with v as (select * from default.{table}) select v.* from v join {parquet.name} p on v.id = p.id -- all"
    sources: tuple[dict[str, Any], ...] = ({}, by_id, {"table": "", "query": query, **by_id})
    jobs = [made.job(source=source) for made, source in zip((iceberg, parquet, iceberg), sources, strict=True)]
    for rows in (2, 4):
        for made in (iceberg, parquet):
            made.append(rows - 2, rows)
        plans = [plan_job(project(tmp_path, job), job, spark=runner).datasets[0].work_units for job in jobs]
        assert [units[0].rows for units in plans[:2]] == [rows, rows]
        assert plans[2][0].expected_high == LongWatermark(rows)


def test_next_command_connects_again(
    tmp_path: Path, address: str, runner: SparkRunner, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    # Commands run in processes of their own, where there are no sessions of other tests.
    monkeypatch.setattr(type(runner.session), "_default_session", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # pyspark sets it, for all sessions of a process
    kept = KeptSparkRunner(SparkSpec(remote=address))
    for _ in range(2):
        assert not plan_job(project(tmp_path, made.job()), made.job(), spark=kept).has_work
        kept.close()
        assert not kept.is_started


@pytest.mark.parametrize("extract", ["append_only", "snapshot_only"])
def test_iceberg_snapshots_may_expire_once_they_were_read(
    tmp_path: Path, runner: SparkRunner, table: str, extract: str
) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    for at in range(3):
        made.append(at, at + 1)
    job = made.job(extract={"namespace": "test", "table": "d", "type": extract})
    _run(tmp_path, job, runner)
    runner.session.sql(
        f"call lake.system.expire_snapshots(table => '{made.name}', older_than => timestamp'2100-01-01', retain_last "
        "=> 1)"
    )
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    made.append(3, 5)
    assert _run(tmp_path, job, runner).rows_read == (2 if extract == "append_only" else 5)
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    assert published(tmp_path, job, "test.d") == list(range(5))


def test_full_extract_reads_an_iceberg_table_that_was_rolled_back(
    tmp_path: Path, runner: SparkRunner, table: str
) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    for at in range(3):
        made.append(at, at + 1)
    job = made.job(extract={"namespace": "test", "table": "d", "type": "snapshot_only"})
    _run(tmp_path, job, runner)
    (first,) = runner.session.sql(
        f"select snapshot_id from {made.name}.snapshots order by committed_at limit 1"
    ).collect()
    runner.session.sql(f"call lake.system.rollback_to_snapshot('{made.name}', {first[0]})")
    assert _run(tmp_path, job, runner).rows_read == 1
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE
    assert published(tmp_path, job, "test.d") == [0]


def make_anew(made: Table, how: str, appends: int = 1) -> None:
    """Make another table of the name, with rows of its own."""
    if how == "dropped":
        made.drop()
    made.create()
    for at in range(appends):
        made.append(50 + at, 51 + at)


@pytest.mark.parametrize(
    ("how", "appends"), [("dropped", 1), pytest.param("dropped", 2, marks=pytest.mark.storm), ("replaced", 1)]
)
def test_delta_table_made_anew_with_as_many_versions_is_refused(
    tmp_path: Path, runner: SparkRunner, table: str, how: str, appends: int
) -> None:
    made = Table(runner.session, "delta", table)
    made.create()
    made.append(0, 5)
    job = made.job()
    assert _run(tmp_path, job, runner).rows_read == 5
    make_anew(made, how, appends)
    message = _run(tmp_path, job, runner).failures[0].message
    assert re.search(
        r"its id is \S+, what was read had \S+: the table was created again; `gobblin state reset`", message
    )
    assert published(tmp_path, job, "test.d") == list(range(5))
    if how == "dropped":
        reset(tmp_path, job)
        assert _run(tmp_path, job, runner).rows_read == appends
        assert _run(tmp_path, job, runner).outcome is DatasetOutcome.IDLE


def test_delta_startpoint_goes_on_in_a_table_that_was_made_anew(
    tmp_path: Path, runner: SparkRunner, table: str
) -> None:
    made = Table(runner.session, "delta", table)
    made.create()
    made.append(0, 5)
    job = made.job()
    _run(tmp_path, job, runner)
    make_anew(made, "dropped", appends=3)
    wish(tmp_path, job, Specific("2"), "test.d")
    assert _run(tmp_path, job, runner).rows_read == 2
    made.append(60, 61)
    assert _run(tmp_path, job, runner).rows_read == 1
    assert published(tmp_path, job, "test.d") == [*range(5), 51, 52, 60]


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def test_runs_begin_at_the_startpoints_of_a_table(tmp_path: Path, runner: SparkRunner, table: str, kind: str) -> None:
    made = Table(runner.session, kind, table)
    made.create()
    made.append(0, 3)
    job = made.job()
    assert _run(tmp_path, job, runner).rows_read == 3
    first = str(state_of(tmp_path, job).watermark)
    made.append(3, 5)
    assert _run(tmp_path, job, runner).rows_read == 2
    rows = list(range(5))
    for position, until, read in (
        (Specific(first), None, [3, 4]),
        (Oldest(), None, [0, 1, 2, 3, 4]),
        (Upcoming(), None, []),
    ):
        wish(tmp_path, job, position, "test.d", until=until)
        assert _run(tmp_path, job, runner).outcome is DatasetOutcome.COMMITTED
        rows += read
        assert published(tmp_path, job, "test.d") == sorted(rows), position
        assert waiting(tmp_path, job) == {}
    made.append(5, 7)
    assert _run(tmp_path, job, runner).rows_read == 2
    wish(tmp_path, job, Timestamp(datetime(2026, 1, 1, tzinfo=UTC)), "test.d")
    assert "snapshots are not looked up by time" in _run(tmp_path, job, runner).failures[0].message
    wish(tmp_path, job, Specific("99@99" if kind == "iceberg" else "99"), "test.d")
    assert _run(tmp_path, job, runner).outcome is DatasetOutcome.FAILED
    assert list(waiting(tmp_path, job)) == ["test.d"]


@pytest.mark.parametrize("appends", [1, pytest.param(2, marks=pytest.mark.storm)])
def test_delta_table_made_anew_is_told_by_its_time_where_a_state_has_no_id(
    tmp_path: Path, runner: SparkRunner, table: str, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_history, "_CLOCKS_APART", timedelta(0))
    made = Table(runner.session, "delta", table)
    made.create()
    made.append(0, 5)
    job = made.job()
    _run(tmp_path, job, runner)
    forget_origin(tmp_path, job)
    made.append(5, 7)
    assert _run(tmp_path, job, runner).rows_read == 2  # and its id is known from now on
    assert list(state_of(tmp_path, job).origin) == ["table"]
    forget_origin(tmp_path, job)
    make_anew(made, "dropped", appends + 1)
    assert "the table was created again; `gobblin state reset`" in _run(tmp_path, job, runner).failures[0].message
    assert published(tmp_path, job, "test.d") == list(range(7))


def test_full_extract_reads_a_delta_table_that_was_replaced(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    made = Table(runner.session, "delta", table)
    made.create()
    made.append(0, 5)
    job = made.job(extract={"namespace": "test", "table": "d", "type": "snapshot_only"})
    _run(tmp_path, job, runner)
    make_anew(made, "replaced")
    assert _run(tmp_path, job, runner).rows_read == 1
    assert published(tmp_path, job, "test.d") == [50]
    make_anew(made, "dropped", appends=3)  # as many versions: no version says that anything changed
    assert "the table was created again" in _run(tmp_path, job, runner).failures[0].message
    made.append(70, 71)
    assert _run(tmp_path, job, runner).rows_read == 4


def test_job_that_names_another_delta_table_is_told(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    first, second = (Table(runner.session, "delta", f"{table}_{name}") for name in ("a", "b"))
    for made in (first, second):
        made.create()
        made.append(0, 5)
    _run(tmp_path, first.job(), runner)
    second.append(5, 7)
    assert "what was read had" in _run(tmp_path, second.job(), runner).failures[0].message


def test_iceberg_table_made_anew_without_rows_is_told(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    assert _run(tmp_path, made.job(), runner).outcome is DatasetOutcome.IDLE
    made.append(0, 5)
    _run(tmp_path, made.job(), runner)
    made.drop()
    made.create()
    assert "the table has no snapshot any more" in _run(tmp_path, made.job(), runner).failures[0].message
    whole = made.job(extract={"namespace": "test", "table": "d", "type": "snapshot_only"})
    (planned,) = plan_job(project(tmp_path, whole), whole, spark=runner).datasets
    assert planned.notes == ("the table has no snapshot any more; what was published of it stays.",)


def state_of(root: Path, job: JobSpec) -> DatasetState:
    store = project(root, job).open_store()
    try:
        return store.load_dataset_states(job.job)["test.d"]
    finally:
        store.close()


def reset(root: Path, job: JobSpec) -> None:
    change = plan_reset(state_of(root, job), who="anna", why="made anew", now=datetime.now(UTC))
    _apply(root, job, change)


def forget_origin(root: Path, job: JobSpec) -> None:
    """Take the ids out of a dataset's state, as programs wrote it that knew none."""
    state = state_of(root, job)
    change = plan_set(state, LongWatermark(int(str(state.watermark))), who="anna", why="older", now=datetime.now(UTC))
    _apply(root, job, replace(change, after=replace(change.after, origin={})))


def _apply(root: Path, job: JobSpec, change: Change) -> None:
    store = project(root, job).open_store()
    try:
        apply_change(store, change)
    finally:
        store.close()


def test_delta_without_a_change_feed_says_how_to_turn_it_on(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    made = Table(runner.session, "delta", table, feed=False)
    made.create()
    made.append(0, 5)
    job = made.job()
    assert _run(tmp_path, job, runner).rows_read == 5
    made.append(5, 7)
    (failure,) = _run(tmp_path, job, runner).failures
    assert "[DELTA_MISSING_CHANGE_DATA]" in failure.message
    assert "delta.enableChangeDataFeed = true" in failure.message


def test_delta_folder_that_deltalake_appends_to_is_read_by_version(tmp_path: Path, runner: SparkRunner) -> None:
    folder = tmp_path / "events"

    def append(low: int, high: int) -> None:
        rows = pa.table({"id": pa.array(range(low, high), pa.int64())})
        write_deltalake(str(folder), rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})

    append(0, 4)
    source = {"format": "delta", "path": str(folder), "table": ""}
    job = Table(runner.session, "delta", "unused").job(source=source)
    assert _run(tmp_path, job, runner).rows_read == 4
    append(4, 9)
    assert _run(tmp_path, job, runner).rows_read == 5
    assert published(tmp_path, job, "test.d") == list(range(9))


def test_delta_log_that_lacks_a_version_is_told(tmp_path: Path, runner: SparkRunner) -> None:
    folder = tmp_path / "events"
    job = Table(runner.session, "delta", "unused").job(source={"format": "delta", "path": str(folder), "table": ""})
    for at in range(4):
        rows = pa.table({"id": pa.array([at], pa.int64())})
        write_deltalake(str(folder), rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
        if at == 0:
            assert _run(tmp_path, job, runner).rows_read == 1
    DeltaTable(str(folder)).create_checkpoint()
    version = folder / "_delta_log" / f"{2:020}.json"
    version.write_bytes(b"")
    (planned,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert "version 2 cannot be read: its file in the log is empty, and the feed passes over" in planned.problem
    version.unlink()
    (planned,) = plan_job(project(tmp_path, job), job, spark=runner).datasets
    assert "version 2 cannot be read: its log lacks it, and the feed passes over the rows" in planned.problem


def test_iceberg_folder_without_a_catalog_is_read_by_snapshot(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    made = Table(runner.session, "iceberg", table)
    made.create()
    made.append(0, 4)
    location = (
        runner.session.sql(f"select file from {made.name}.metadata_log_entries")
        .collect()[0][0]
        .rpartition("/metadata/")[0]
    )
    job = made.job(source={"format": "iceberg", "path": location, "table": ""})
    assert _run(tmp_path, job, runner).rows_read == 4
    made.append(4, 9)
    assert _run(tmp_path, job, runner).rows_read == 5
    assert published(tmp_path, job, "test.d") == list(range(9))


def test_tables_of_a_namespace_are_datasets(tmp_path: Path, runner: SparkRunner, table: str) -> None:
    for name in ("a", "b"):
        made = Table(runner.session, "iceberg", f"{table}_{name}")
        made.create()
        made.append(0, 5)
    source = {
        "table": "lake.db.{dataset}",
        "datasets": [f"{table}_*"],
        "watermark": {"column": "id", "type": "long"},
    }
    job = made.job(source=source)
    results = by_urn(run_job(project(tmp_path, job), job, runner=runner))
    assert {urn: result.rows_read for urn, result in results.items()} == {f"{table}_a": 5, f"{table}_b": 5}
    assert run_job(project(tmp_path, job), job, runner=runner).exit_code == 0


@KINDS
@pytest.mark.parametrize(("seed", "runs"), [(249, 2), pytest.param(11, 4, marks=pytest.mark.storm)])
def test_incremental_reads_make_up_the_table_whatever_is_done_to_it_between(
    tmp_path: Path, runner: SparkRunner, table: str, kind: str, seed: int, runs: int
) -> None:
    chance, made, at = random.Random(seed), Table(runner.session, kind, table), 0
    made.create()
    job = made.job(source={"snapshots_per_work_unit": 2})
    for _ in range(runs):
        for _ in range(chance.randint(0, 3)):
            if chance.random() < 0.3:
                made.compact()
            else:
                size = chance.randint(0, 6)
                made.append(at, at + size)
                at += size
        assert _run(tmp_path, job, runner).outcome in (DatasetOutcome.COMMITTED, DatasetOutcome.IDLE)
        assert published(tmp_path, job, "test.d") == list(range(at))
    assert not plan_job(project(tmp_path, job), job, spark=runner).has_work
