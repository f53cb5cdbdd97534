"""Iceberg tables in a real catalog (SQLite): the rows that readers see after good and failed runs."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType
from sqlalchemy.exc import OperationalError

from gobblin_dagster.constructs.publishers import iceberg_merge, tables
from gobblin_dagster.constructs.publishers.iceberg import IcebergPublisher
from gobblin_dagster.constructs.publishers.iceberg_steps import AppendToIcebergStep
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import StepRefusedError, StorageError
from gobblin_dagster.core.run_record import RunStatus
from tests.unit.constructs.publishers.lake import STORAGE, Lake
from tests.unit.constructs.publishers.table_jobs import ROWS, check_exactly_once, ids, table_job
from tests.unit.engine.jobs import run


def settings(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}


def publisher(root: Path) -> dict[str, Any]:
    return {"type": "iceberg", "table": "lake.numbers", "catalog": settings(root)}


def table(root: Path) -> Table:
    return load_catalog("default", **settings(root)).load_table("lake.numbers")


def table_ids(root: Path) -> list[int]:
    return sorted(table(root).scan().to_arrow()["id"].to_pylist())


def test_files_are_in_the_table_and_its_snapshots_keep_the_watermarks(tmp_path: Path) -> None:
    run(tmp_path, table_job(publisher(tmp_path), ROWS))

    assert table_ids(tmp_path) == ids(ROWS)
    kept = [snapshot.summary for snapshot in table(tmp_path).metadata.snapshots]
    marks = {one["gobblin.dataset-urn"]: one["gobblin.high-watermark"] for one in kept if one is not None}
    assert marks == {"a/b": "10", "c": "5"}


def test_relative_catalog_and_warehouse_are_in_the_project_whatever_folder_a_process_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relative = publisher(tmp_path) | {
        "catalog": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"}
    }
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        run(tmp_path, table_job(relative, {name: {"rows": 3}}))
        assert list((tmp_path / name).iterdir()) == []
    assert table_ids(tmp_path) == [0, 0, 1, 1, 2, 2]


def test_variable_of_a_property_goes_before_its_plain_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = settings(tmp_path) | {"uri": f"sqlite:///{tmp_path}/another.db"}
    both = publisher(tmp_path) | {"catalog": catalog, "catalog_env": {"uri": "CATALOG_URI"}}
    monkeypatch.setenv("CATALOG_URI", settings(tmp_path)["uri"])
    run(tmp_path, table_job(both, ROWS))
    assert table_ids(tmp_path) == ids(ROWS)


def test_catalog_that_is_asked_for_all_datasets_fails_without_the_name_of_one(tmp_path: Path) -> None:
    catalog = settings(tmp_path) | {"uri": f"sqlite:///{tmp_path}/none/catalog.db"}
    options = IcebergPublisher.Options(table="lake.numbers", catalog=catalog)
    asked = IcebergPublisher(options, ConstructContext(job="j", base_dir=str(tmp_path)))
    why = r"failed with OperationalError: unable to open database file; its folder must be writable"
    with pytest.raises(StorageError, match=rf"^cannot publish to Iceberg table lake\.numbers: its catalog.*{why}"):
        asked.newest_commits({"a": "/lake/a"})


def test_placeholder_of_the_dataset_is_refused_because_there_is_none() -> None:
    with pytest.raises(ValidationError, match="all datasets of a branch share one Iceberg table"):
        IcebergPublisher.Options(table="lake.{dataset}", catalog={"type": "glue"})


def test_rows_are_in_the_table_once_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_exactly_once(tmp_path, publisher(tmp_path), lambda: table_ids(tmp_path), AppendToIcebergStep, monkeypatch)


def test_commit_is_found_again_by_its_files_where_the_history_was_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = table_job(publisher(tmp_path), {"c": {"rows": 5}})
    with monkeypatch.context() as patched:
        patched.setattr("gobblin_dagster.state.sql.store.SqlStateStore.commit", _store_away)
        run(tmp_path, job)
    run(tmp_path, table_job(publisher(tmp_path), {"d": {"rows": 3}}, job="other"))
    lake = table(tmp_path)
    first = lake.metadata.snapshots[0].snapshot_id
    lake.maintenance.expire_snapshots().by_id(first).commit()

    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 4]


def _store_away(*_: Any, **__: Any) -> None:
    raise OSError("the store is away")


def test_catalog_whose_database_others_have_locked_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = SqlCatalog.commit_table
    tries: list[str] = []

    def locked_once(*arguments: Any) -> Any:
        tries.append("")
        if len(tries) == 1:
            raise OperationalError("UPDATE iceberg_tables", {}, sqlite3.OperationalError("database is locked"))
        return committed(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", locked_once)
    assert run(tmp_path, table_job(publisher(tmp_path), ROWS)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == ids(ROWS)
    assert len(tries) > 1


def test_columns_that_come_later_are_added(tmp_path: Path) -> None:
    run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 2}}))
    wider = {"converters": [{"type": "add", "columns": {"origin": "EWR"}}]}
    run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 3}}, **wider))

    rows = table(tmp_path).scan().to_arrow().sort_by("id")
    assert rows["origin"].to_pylist() == [None, None, "EWR"]


@pytest.mark.parametrize(("former", "now", "says"), [("v", "w", "'v' was renamed to 'w'"), ("s.a", "b", "'s.b'")])
def test_new_column_with_the_former_name_of_another_is_refused(
    tmp_path: Path, former: str, now: str, says: str
) -> None:
    """Files that were added as they are have columns by name: the new one would take the values of all older rows."""
    lake = Lake("iceberg", tmp_path)
    lake.append(pa.table({"id": [1], "v": ["a"], "s": [{"a": 1}]}))
    with lake.iceberg().update_schema() as update:
        update.rename_column(former, now)
    before = lake.rows()
    step = lake.step(pa.table({"id": [2], "v": ["b"], "s": [{"a": 2}]}), mode="append", key=[], in_place=True)
    with pytest.raises(StepRefusedError, match=says):
        step.execute(STORAGE)
    assert lake.rows() == before

    with lake.iceberg().update_schema() as update:
        update.rename_column(former.replace("a", now) if "." in former else now, former.rpartition(".")[2])
    step.execute(STORAGE)
    assert [(row["v"], row["s"]) for row in lake.rows()] == [("a", {"a": 1}), ("b", {"a": 2})]


def test_column_that_must_not_be_null_is_named_if_rows_lack_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.append(pa.table({"id": [1], "v": ["a"]}))
    with lake.iceberg().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("more", StringType(), required=True, default_value="x")
    hows: tuple[dict[str, Any], ...] = ({"mode": "append", "key": [], "in_place": True}, {})
    for how in hows:
        with pytest.raises(StepRefusedError, match="column 'more' must not be null in the table, and the rows lack it"):
            lake.step(pa.table({"id": [2], "v": ["b"]}), **how).execute(STORAGE)
    assert capsys.readouterr().out == ""  # pyiceberg prints what differs


def test_type_that_cannot_be_widened_waits_for_a_person(tmp_path: Path) -> None:
    run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 2}}))
    texts = {"converters": [{"type": "sql", "select": "id::VARCHAR AS id, dataset, value"}]}
    result = run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 3}}, **texts))

    assert result.status is RunStatus.FAILED
    message = result.datasets[0].failures[0].message
    assert "Cannot change column type: id" in message
    assert "or give the job the `schema_contract` `discard`" in message
    assert table_ids(tmp_path) == [0, 1]


def test_decimal_keeps_its_scale_because_readers_would_move_the_point(tmp_path: Path) -> None:
    for rows, kind in ((1, "DECIMAL(8, 2)"), (2, "DECIMAL(12, 4)")):
        prices = {"converters": [{"type": "sql", "select": f"id, 1.25::{kind} AS price"}]}
        result = run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": rows}}, **prices))
    said = "column 'price' is decimal128(8, 2) in the table and decimal128(12, 4) in the files"
    assert said in result.datasets[0].problem


def test_merge_keeps_null_in_lists_of_structs_which_get_new_fields(tmp_path: Path) -> None:
    publish = publisher(tmp_path) | {"mode": "merge", "key": ["slot"]}
    for rows, item in ((3, "{'a': id}"), (4, "{'a': id, 'b': 'x'}")):
        places = f"CASE id % 3 WHEN 0 THEN [{item}] WHEN 1 THEN [] END AS places"
        select = {"converters": [{"type": "sql", "select": f"id % 3 AS slot, {places}, MAP {{'k': {item}}} AS m"}]}
        result = run(tmp_path, table_job(publish, {"c": {"rows": rows}}, schema_contract="evolve", **select))
        assert result.status is RunStatus.SUCCEEDED
    rows_now = table(tmp_path).scan().to_arrow().sort_by("slot").to_pylist()
    assert [row["places"] for row in rows_now] == [[{"a": 3, "b": "x"}], [], None]
    assert [row["m"] for row in rows_now] == [[("k", {"a": a, "b": b})] for a, b in ((3, "x"), (1, None), (2, None))]


def test_merge_into_computed_partitions_names_the_package_that_computes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = publisher(tmp_path) | {"mode": "merge", "key": ["id"]}
    run(tmp_path, table_job(publish, {"c": {"rows": 2}}))
    with table(tmp_path).update_spec() as update:
        update.add_field("id", BucketTransform(4))
    monkeypatch.setattr(iceberg_merge, "find_spec", lambda _: None)
    result = run(tmp_path, table_job(publish, {"c": {"rows": 3}}))
    said = (
        "pyiceberg-core is not installed; it is needed for merges into an Iceberg table that is partitioned by bucket["
    )
    assert said + "4](id). Install it with: pip install 'pyiceberg[pyiceberg-core]'" in result.datasets[0].problem
    assert table_ids(tmp_path) == [0, 1]
    with table(tmp_path).update_spec() as update:
        update.remove_field("id_bucket_4")
    assert run(tmp_path, table_job(publish, {"c": {"rows": 3}})).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("is_there", [True, False], ids=["in the table", "in the files"])
def test_columns_that_most_readers_take_for_one_wait_for_a_person(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 2}}))
    renamed = {"converters": [{"type": "rename", "columns": {"value": "Value" if is_there else "ID"}}]}
    result = run(tmp_path, table_job(publisher(tmp_path), {"d": {"rows": 3}}, **renamed))

    assert "differ in case only, which Spark, Trino and Hive do not see" in result.datasets[0].failures[0].message
    if is_there:
        assert table_ids(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("18446744073709551615::UBIGINT", "out of range"),
        ("TIMESTAMP_NS '2020-01-01'", "unsupported type: timestamp[ns]"),
    ],
)
def test_value_that_iceberg_does_not_have_waits_for_a_person(tmp_path: Path, select: str, problem: str) -> None:
    odd = {"converters": [{"type": "sql", "select": f"id, {select} AS v"}]}
    result = run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 3}}, **odd))

    assert "is quarantined: Commit step refused" in result.datasets[0].failures[0].message
    assert problem in result.datasets[0].failures[0].message


def test_branch_that_writes_no_parquet_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    result = run(tmp_path, table_job(publisher(tmp_path), ROWS, writer={"type": "csv"}))

    assert result.status is RunStatus.FAILED
    assert "takes Parquet files" in result.datasets[0].failures[0].message
    assert run(tmp_path, table_job(publisher(tmp_path), ROWS)).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "cannot write to s3://user:secret-word@lake"), "No space left on device."),
        (
            OSError("Unable to load libhdfs for hdfs://user:secret-word@lake\ndlopen"),
            "Unable to load libhdfs for hdfs://lake.",
        ),
    ],
    ids=["of the system", "of Arrow"],
)
def test_error_of_files_is_told_without_the_text_that_may_hold_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(SqlCatalog, "commit_table", fail)
    monkeypatch.setattr(tables, "TRIES", 1)
    (result,) = run(tmp_path, table_job(publisher(tmp_path), {"c": {"rows": 5}})).datasets
    (failure,) = result.failures
    assert f"failed with OSError: {told}" in failure.message
    assert "secret-word" not in failure.message


@pytest.mark.parametrize("kept_bytes", [0, 100])
@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest"])
def test_damaged_file_of_the_table_is_named_and_the_commit_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, kept_bytes: int
) -> None:
    monkeypatch.setattr(tables, "TRIES", 1)
    lake = Lake("iceberg", tmp_path)
    lake.merge(pa.table({"id": [1], "v": ["a"]}))
    step, table = lake.step(pa.table({"id": [2], "v": ["b"]})), lake.iceberg()
    snapshot = table.current_snapshot()
    places = {
        "metadata": table.metadata_location,
        "manifest list": snapshot.manifest_list,
        "manifest": snapshot.manifests(table.io)[0].manifest_path,
    }
    damaged = Path(places[what].removeprefix("file://"))
    held = damaged.read_bytes()
    damaged.write_bytes(held[:kept_bytes])
    with pytest.raises(StorageError, match=f"at {places[what]}; if it is damaged or gone, bring it back"):
        step.execute(STORAGE)
    damaged.write_bytes(held)
    step.execute(STORAGE)
    assert [row["id"] for row in lake.rows()] == [1, 2]
