"""Work units of one run that have other columns than each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import project, run

WITH = pa.table({"id": [1, 2], "note": [10, 11]})
WITHOUT = pa.table({"id": [3]})
TEXTS = pa.table({"id": [4], "note": ["many"]})
LATER = pa.table({"id": [5], "note": [13]})


def job(contract: str | None, **parts: Any) -> JobSpec:
    source = {"type": "files", "path": "in/{dataset}/*.parquet", "format": "parquet", "new_files": "name"}
    body: dict[str, Any] = {
        "job": "notes",
        "source": {**source, "files_per_work_unit": 1},
        "extract": {"namespace": "shop", "table": "notes"},
        "output": {"path": "lake"},
        "schema_contract": contract,
    }
    return JobSpec.model_validate(body | parts)


def read(root: Path, contract: str | None, *tables: pa.Table, **parts: Any) -> DatasetResult:
    """Run the job after these files came, each of which is a work unit."""
    folder = root / "in" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    there = len(list(folder.iterdir()))
    for number, table in enumerate(tables, there):
        pq.write_table(table, folder / f"{number}.parquet")
    [result] = run(root, job(contract, **parts)).datasets
    return result


@pytest.mark.parametrize("contract", [None, "discard"])
def test_a_column_that_the_last_work_unit_lacks_stays_published(tmp_path: Path, contract: str | None) -> None:
    assert read(tmp_path, contract, WITH, WITHOUT).outcome is DatasetOutcome.COMMITTED
    later = read(tmp_path, contract, LATER)
    assert (later.outcome, later.rows_quarantined, later.notes) == (DatasetOutcome.COMMITTED, 0, ())
    the_project = project(tmp_path, job(contract))
    rows = load_published(the_project, the_project.job("notes"), "a").to_arrow("main").to_table()
    assert dict(zip(*rows.select(["id", "note"]).to_pydict().values(), strict=True)) == {1: 10, 2: 11, 3: None, 5: 13}


@pytest.mark.parametrize("contract", ["discard", "fail"])
def test_types_that_no_type_holds_fail_their_dataset_in_one_run_as_in_two(tmp_path: Path, contract: str) -> None:
    result = read(tmp_path, contract, WITH, TEXTS)
    assert result.outcome is DatasetOutcome.FAILED
    assert f"schema contract '{contract}': expected the columns that other work units" in result.problem
    assert "'note' was int64, is string" in result.problem


def test_freeze_takes_one_set_of_columns_also_in_the_first_run(tmp_path: Path) -> None:
    assert "'note' (int64) is gone" in read(tmp_path, "freeze", WITH, WITHOUT).problem


@pytest.mark.parametrize("contract", [None, "fail"])
def test_files_without_header_have_their_columns_in_one_place(tmp_path: Path, contract: str | None) -> None:
    without_header = {"writer": {"type": "csv", "header": False}}
    other = LATER.select(["note", "id"])
    result = read(tmp_path, contract, WITH, other, **without_header)
    assert "work units of this run have their columns in other places: id, note, and note, id." in result.problem
    (tmp_path / "in/a/1.parquet").unlink()
    assert read(tmp_path, contract, **without_header).outcome is DatasetOutcome.COMMITTED
    assert read(tmp_path, contract, other, **without_header).outcome is DatasetOutcome.COMMITTED
    the_project = project(tmp_path, made := job(contract, **without_header))
    rows = load_published(the_project, made, "a").to_arrow("main").to_table().sort_by("id")
    assert rows.to_pydict() == {"id": [1, 2, 5], "note": [10, 11, 13]}


def test_a_column_that_goes_from_files_without_header_is_empty_there(tmp_path: Path) -> None:
    without_header = {"writer": {"type": "csv", "header": False}}
    read(tmp_path, None, WITH.select(["note", "id"]), **without_header)
    read(tmp_path, None, WITHOUT, **without_header)
    assert sorted(file.read_text() for file in (tmp_path / "lake").rglob("*.csv")) == [",3\n", "10,1\n11,2\n"]
