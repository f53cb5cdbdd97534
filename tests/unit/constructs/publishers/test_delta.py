"""Delta tables on disk: the rows that readers see after good and failed runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.cli.render.run import summary_line
from gobblin_dagster.constructs.publishers.delta_steps import AppendToDeltaStep, MergeIntoDeltaStep
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.recovery import recover_job
from tests.unit.constructs.publishers.table_jobs import ROWS, check_exactly_once, ids, table_job
from tests.unit.engine.jobs import project, run

PUBLISHER = {"type": "delta"}


def table(root: Path, dataset: str = "") -> DeltaTable:
    return DeltaTable(root / "lake/test/numbers/all" / dataset)


def table_ids(root: Path) -> list[int]:
    return sorted(table(root).to_pyarrow_table()["id"].to_pylist())


def test_files_of_all_datasets_are_in_the_branchs_table(tmp_path: Path) -> None:
    run(tmp_path, table_job(PUBLISHER, ROWS))

    assert table_ids(tmp_path) == ids(ROWS)
    kept = [entry for entry in table(tmp_path).history() if "gobblin.dataset-urn" in entry]
    assert {entry["gobblin.dataset-urn"]: entry["gobblin.high-watermark"] for entry in kept} == {"a/b": "10", "c": "5"}


def test_rows_are_in_the_table_once_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_exactly_once(tmp_path, PUBLISHER, lambda: table_ids(tmp_path), AppendToDeltaStep, monkeypatch)


@pytest.mark.parametrize("said", ["", '{"version":null,"timestamp":"2040-01-01 00:00:00.0"}'], ids=["version", "time"])
def test_rows_that_somebody_took_back_are_told_before_more_are_published(tmp_path: Path, said: str) -> None:
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}}))
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}, "d": {"rows": 3}}))
    former = table(tmp_path)
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 6}, "d": {"rows": 3}}))
    whole = table(tmp_path)
    table(tmp_path).restore(former.version())
    (log,) = tmp_path.glob(f"lake/test/numbers/all/_delta_log/{table(tmp_path).version():020}.json")
    if said:  # as Spark's RESTORE TO TIMESTAMP AS OF writes it
        log.write_text(re.sub('{"version":"[0-9]+"}', said, log.read_text()))
        assert "2040" in log.read_text()
    more = table_job(PUBLISHER, {"c": {"rows": 7}, "d": {"rows": 4}})
    first = {one.dataset_urn: one for one in run(tmp_path, more).datasets}
    assert "it notes an older one: the table or topic was restored" in first["c"].failures[0].message
    assert first["d"].outcome is DatasetOutcome.COMMITTED
    assert table_ids(tmp_path) == [0, 0, 1, 1, 2, 3]
    table(tmp_path).restore(whole.version())
    second = {one.dataset_urn: one for one in run(tmp_path, more).datasets}
    assert second["c"].outcome is DatasetOutcome.COMMITTED
    assert table_ids(tmp_path) == sorted([*range(7), *range(3)])


def test_table_that_is_a_link_to_a_place_outside_is_not_written_to(tmp_path: Path) -> None:
    merges = PUBLISHER | {"mode": "merge", "key": ["id"]}
    run(tmp_path, table_job(merges, {"c": {"rows": 3}}))
    place, elsewhere = tmp_path / "lake/test/numbers/all", tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    held = sorted(elsewhere.rglob("*"))
    job = table_job(merges, {"c": {"rows": 5}})
    assert f"leads to {elsewhere}" in run(tmp_path, job).datasets[0].failures[0].message
    assert sorted(elsewhere.rglob("*")) == held
    place.unlink()
    elsewhere.rename(place)
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        assert [one.state for one in recover_job(JobContext.of(opened, job, store))] == ["committed"]
    assert table_ids(tmp_path) == [*range(5)]


def test_log_that_the_library_cannot_read_is_told_in_one_line(tmp_path: Path) -> None:
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 3}}))
    newest = max((tmp_path / "lake").rglob("*.json"))
    newest.write_text('{"metaData":{}}')
    (failure,) = run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 5}})).datasets[0].failures
    assert re.fullmatch("cannot publish to Delta table .*DeltaError: [^\n]*", failure.message)


def test_partition_folders_are_partition_columns(tmp_path: Path) -> None:
    writer = {"type": "parquet", "partition_by": ["dataset"]}
    run(tmp_path, table_job(PUBLISHER, ROWS, writer=writer))

    assert table(tmp_path).metadata().partition_columns == ["dataset"]
    rows = table(tmp_path).to_pyarrow_table(filters=[("dataset", "=", "a/b")])
    assert sorted(rows["id"].to_pylist()) == list(range(10))
    assert set(rows["dataset"].to_pylist()) == {"a/b"}


def test_table_of_one_dataset_lies_in_its_folder(tmp_path: Path) -> None:
    result = run(tmp_path, table_job({"type": "delta", "table": "dataset"}, ROWS))

    assert table(tmp_path, "c").to_pyarrow_table().num_rows == 5
    refused = next(one for one in result.datasets if one.dataset_urn == "a/b")
    assert "cannot open folders with `%`" in refused.failures[0].message


def test_columns_that_come_later_are_added(tmp_path: Path) -> None:
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}}))
    wider = {"converters": [{"type": "add", "columns": {"origin": "EWR"}}]}
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 3}}, **wider))

    rows = table(tmp_path).to_pyarrow_table().sort_by("id")
    assert rows["origin"].to_pylist() == [None, None, "EWR"]


NAMED = {"type": "rename", "columns": {"value": "Value"}}
NESTED = {
    "type": "function",
    "function": f"{__name__}:with_items",
    "columns": {"id": "int64", "s": [{"n": "int64", "N": "int64"}]},
}
NULLS = {"type": f"{__name__}:WithoutValues"}


def with_items(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "s": [{"n": 1, "N": 2}]}


class WithoutValues:
    """A converter whose column `value` has no type, as one of Python's that holds None only."""

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, options: Options, context: ConstructContext) -> None:
        pass

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.set(schema.get_field_index("value"), pa.field("value", pa.null()))

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        columns = [*chunk.batch.columns[:-1], pa.nulls(chunk.batch.num_rows)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.convert_schema(chunk.batch.schema))
        yield Chunk(batch, chunk.file, chunk.rows)


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        (
            "id::VARCHAR AS id, dataset, value",
            "which is no wider type; convert it back in the job (converter `cast`), or give",
        ),
        ("id, dataset, value, '2026-01-01'::TIMESTAMP_NS AS at", "cast it to timestamp[us]"),
        ("id, dataset, value, ['2026-01-01'::TIMESTAMP_NS] AS at", "cast it to timestamp[us]"),
        ("id, dataset, value, 255::UTINYINT AS n", "column 'n' is uint8, Delta has signed integers only"),
        ("id, dataset, value, [18446744073709551615::UBIGINT] AS n", "Delta has signed integers only"),
        (
            "id, dataset, value, TIME '08:00' AS opens",
            "column 'opens' is time64[us], Delta has no time of day; make it",
        ),
        (NAMED, "columns 'value' and 'Value' differ in case only, which Delta does not see"),
        (NESTED, "columns 'n' and 'N' differ in case only, which Delta does not see"),
        (NULLS, "a column with nothing but nulls needs a type"),
    ],
)
def test_columns_that_the_table_cannot_take_wait_for_a_person(
    tmp_path: Path, select: str | dict[str, Any], problem: str
) -> None:
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}}))
    other = {"converters": [select if isinstance(select, dict) else {"type": "sql", "select": select}]}
    result = run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 3}}, **other))

    assert result.status is RunStatus.FAILED
    assert problem in result.datasets[0].failures[0].message
    assert table_ids(tmp_path) == [0, 1]


def test_columns_that_no_delta_table_can_hold_fail_before_anything_is_stored(tmp_path: Path) -> None:
    def run_with(select: str) -> DatasetResult:
        (result,) = run(
            tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}}, converters=[{"type": "sql", "select": select}])
        ).datasets
        return result

    failed = run_with("id, TIME '08:00' AS opens")
    assert (failed.outcome, failed.failures[0].code) == (DatasetOutcome.FAILED, "convert")
    assert run_with("id, '08:00' AS opens").outcome is DatasetOutcome.COMMITTED  # the mended job needs no other command


MERGES = PUBLISHER | {"mode": "merge", "key": ["id"]}
FULL: dict[str, Any] = {"extract": {"namespace": "test", "table": "numbers", "type": "snapshot_only"}}


@pytest.mark.parametrize(
    ("publisher", "parts"), [(PUBLISHER, {}), (MERGES, {}), (MERGES, FULL)], ids=["append", "merge", "full extract"]
)
def test_rows_are_published_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: dict[str, Any], parts: dict[str, Any]
) -> None:
    now = datetime(2040, 1, 1, tzinfo=UTC)
    for rows, ahead in ((2, timedelta(days=400)), (3, timedelta()), (4, timedelta(seconds=-1)), (5, timedelta())):
        monkeypatch.setattr(SystemClock, "now", lambda _, moment=now + ahead: moment)
        result = run(tmp_path, table_job(publisher, {"c": {"rows": rows}}, **parts))
        assert result.status is RunStatus.SUCCEEDED
        assert "(0 B)" not in summary_line(result)
        assert table_ids(tmp_path) == list(range(rows))


def test_later_transaction_that_is_not_ours_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 2}}))
    monkeypatch.setattr(
        "gobblin_dagster.constructs.publishers.delta._transaction_number",
        lambda _: int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()),
    )
    result = run(tmp_path, table_job(PUBLISHER, {"c": {"rows": 3}}))

    assert "knows a later transaction" in result.datasets[0].failures[0].message
    assert table_ids(tmp_path) == [0, 1]


@pytest.mark.parametrize(("first", "then"), [([], ["dataset"]), (["dataset"], [])], ids=["new", "gone"])
def test_files_in_other_partitions_than_the_table_has_wait_for_a_person(
    tmp_path: Path, first: list[str], then: list[str]
) -> None:
    """Readers would find null in the columns: files lack them, or the table lists no value of theirs."""

    def run_with(rows: int, partition_by: list[str]) -> str:
        writer = {"type": "parquet", "partition_by": partition_by}
        (result,) = run(tmp_path, table_job(PUBLISHER, {"c": {"rows": rows}}, writer=writer)).datasets
        return result.failures[0].message if result.failures else ""

    assert run_with(2, first) == ""
    said = run_with(3, then)
    assert f"partitioned by {(first or ['no column'])[0]}, and the files by {(then or ['no column'])[0]}" in said
    assert table(tmp_path).to_pyarrow_table()["dataset"].to_pylist() == ["c", "c"]


def version_file(root: Path, version: int) -> Path:
    return root / f"lake/test/numbers/all/_delta_log/{version:020}.json"


@pytest.mark.parametrize(
    ("kept_bytes", "said"),
    [(0, "has 0 bytes: what it changed is lost; bring the file back"), (50, "cannot be read (Unterminated")],
)
def test_nothing_is_published_on_top_of_a_damaged_version(tmp_path: Path, kept_bytes: int, said: str) -> None:
    for number in (2, 3, 4):
        run(tmp_path, table_job(PUBLISHER, {"c": {"rows": number}}))
    damaged, job = version_file(tmp_path, 2), table_job(PUBLISHER, {"c": {"rows": 5}})
    held = damaged.read_bytes()
    damaged.write_bytes(held[:kept_bytes])
    (result,) = run(tmp_path, job).datasets
    assert f"{damaged.name} of its log {said}" in result.failures[0].message
    damaged.write_bytes(held)
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [*range(5)]


def test_commit_that_waits_is_not_published_on_top_of_an_emptied_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = PUBLISHER | {"mode": "merge", "key": ["id"]}
    run(tmp_path, table_job(merges, {"c": {"rows": 2}}))
    held = version_file(tmp_path, 0).read_bytes()
    execute = MergeIntoDeltaStep.execute

    def damaged(step: MergeIntoDeltaStep, storage: Storage) -> None:
        version_file(tmp_path, 0).write_bytes(b"")
        execute(step, storage)

    job = table_job(merges, {"c": {"rows": 4}})
    with monkeypatch.context() as patched:
        patched.setattr(MergeIntoDeltaStep, "execute", damaged)
        (result,) = run(tmp_path, job).datasets
    assert "00000000000000000000.json of its log has 0 bytes" in result.failures[0].message
    version_file(tmp_path, 0).write_bytes(held)
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [*range(4)]
