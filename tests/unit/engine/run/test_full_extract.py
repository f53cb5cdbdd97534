"""Jobs whose every run reads everything: what they plan, publish and keep as watermark; and who is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

SNAPSHOT = {"namespace": "test", "table": "numbers", "type": "snapshot_only"}


def _job(rows: int, extract: dict[str, Any] | None = None, fail_at: int | None = None, **parts: Any) -> JobSpec:
    dataset = {"rows": rows, "unit_rows": 4, "fail_at": fail_at}
    return job_spec({"a": dataset}, extract=extract or SNAPSHOT, **parts)


def _watermark(root: Path) -> LongWatermark:
    store = project(root, _job(0)).open_store()
    try:
        mark = store.load_dataset_states("numbers")["a"].watermark
    finally:
        store.close()
    assert isinstance(mark, LongWatermark)
    return mark


def test_each_run_reads_everything_and_takes_the_place_of_the_last(tmp_path: Path) -> None:
    for rows in (10, 10, 14, 6):
        result = by_urn(run(tmp_path, _job(rows)))["a"]
        assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, rows)
        assert published(tmp_path, _job(rows), "a") == published(tmp_path, _job(rows), "a", "masked") == [*range(rows)]
        # The watermark says how far the snapshot reaches: it goes back where the source became smaller.
        assert _watermark(tmp_path) == LongWatermark(rows)
    older = load_published(project(tmp_path, _job(6)), _job(6), "a", 3)
    assert older.rows == {"all": 14, "masked": 14}


def test_full_extract_with_a_failed_work_unit_leaves_the_last_one_in_place(tmp_path: Path) -> None:
    run(tmp_path, _job(10))
    parts: dict[str, Any] = {"commit": {"policy": "successful"}}
    result = by_urn(run(tmp_path, _job(12, fail_at=5, **parts)))["a"]
    assert result.outcome is DatasetOutcome.FAILED
    assert (published(tmp_path, _job(12), "a"), _watermark(tmp_path)) == ([*range(10)], LongWatermark(10))
    assert by_urn(run(tmp_path, _job(12, **parts)))["a"].rows_read == 12


def test_full_extract_of_a_source_without_rows_leaves_the_last_one_in_place(tmp_path: Path) -> None:
    run(tmp_path, _job(10))
    assert by_urn(run(tmp_path, _job(0)))["a"].outcome is DatasetOutcome.IDLE
    assert (published(tmp_path, _job(0), "a"), _watermark(tmp_path)) == ([*range(10)], LongWatermark(10))


def test_full_extracts_side_by_side_where_the_publisher_says_so(tmp_path: Path) -> None:
    extract = {**SNAPSHOT, "type": "snapshot_append", "is_full": True}
    for rows in (3, 5):
        run(tmp_path, _job(rows, extract, publisher={"type": "timestamped"}))
    assert published(tmp_path, _job(5), "a") == [0, 0, 1, 1, 2, 2, 3, 4]


def test_rows_that_were_changed_or_deleted_in_a_table_are_so_in_the_next_snapshot(tmp_path: Path) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    shop.execute("CREATE TABLE orders (id INTEGER NOT NULL, price INTEGER)")
    shop.executemany("INSERT INTO orders VALUES (?, ?)", [(number, 1) for number in range(1, 6)])
    source = {
        "type": "query",
        "url": "sqlite:///shop.db",
        "tables": ["orders"],
        "watermark": {"column": "id", "type": "long"},
    }
    job = job_spec({}, source=source, extract=SNAPSHOT, fork={"branches": [{"name": "all"}]})
    run(tmp_path, job)
    shop.execute("UPDATE orders SET price = 7 WHERE id = 2")
    shop.execute("DELETE FROM orders WHERE id > 3")
    shop.close()
    run(tmp_path, job)
    found = load_published(project(tmp_path, job), job, "main.orders").to_arrow("all").to_table()
    assert found.sort_by("id").to_pydict() == {"id": [1, 2, 3], "price": [1, 7, 1]}


def test_files_that_grew_or_went_are_so_in_the_next_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "in/a"
    folder.mkdir(parents=True)
    for day in (1, 2, 3):
        (folder / f"2026-01-0{day}.csv").write_text(f"id\n{day}\n")
    source = {"type": "files", "path": "in/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    job = job_spec({}, source=source, extract=SNAPSHOT, fork={"branches": [{"name": "all"}]})
    run(tmp_path, job)
    (folder / "2026-01-01.csv").write_text("id\n1\n11\n")
    (folder / "2026-01-03.csv").unlink()
    run(tmp_path, job)
    found = load_published(project(tmp_path, job), job, "a").to_arrow("all").to_table()
    assert sorted(found["id"].to_pylist()) == [1, 2, 11]


def test_plan_of_a_full_extract_has_all_work_units_again_and_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, _job(10))
    job = _job(10)
    (dataset,) = plan_job(project(tmp_path, job), job).datasets
    assert [(str(unit.low), str(unit.expected_high)) for unit in dataset.work_units] == [
        ("0", "4"),
        ("4", "8"),
        ("8", "10"),
    ]
    assert _watermark(tmp_path) == LongWatermark(10)


def test_turning_full_extracts_on_and_off_reads_on_from_what_is_published(tmp_path: Path) -> None:
    append = {**SNAPSHOT, "type": "append_only"}
    run(tmp_path, _job(4, append))
    run(tmp_path, _job(6))
    assert published(tmp_path, _job(6), "a") == [*range(6)]
    assert by_urn(run(tmp_path, _job(9, append)))["a"].rows_read == 3
    assert published(tmp_path, _job(9), "a") == [*range(9)]


def test_extract_says_what_it_is() -> None:
    named = {**SNAPSHOT, "primary_keys": ["id"], "delta_fields": ["changed"]}
    expected = Extract("test", "numbers", ExtractType.SNAPSHOT_ONLY, ("id",), ("changed",), is_full=True)
    assert _job(1, named).to_extract() == expected
    assert not _job(1, {**SNAPSHOT, "type": "append_only"}).to_extract().is_full


@pytest.mark.parametrize(
    ("extract", "parts", "problem"),
    [
        ({**SNAPSHOT, "is_full": False}, {}, "type snapshot_only reads everything"),
        (SNAPSHOT, {"execution": {"max_work_units": 3}}, "the first part of a full extract again and again"),
        (SNAPSHOT, {"execution": {"limit": {"rows": 3}}}, "a part of a snapshot would replace the whole"),
    ],
    ids=["contradiction", "work units", "rows"],
)
def test_half_a_full_extract_is_refused(extract: dict[str, Any], parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        _job(5, extract, **parts)


def test_limit_of_files_is_refused(tmp_path: Path) -> None:
    source = {
        "type": "files",
        "path": "in/{dataset}/{date:%Y-%m-%d}.csv",
        "format": {"type": "csv"},
        "max_files_per_run": 1,
    }
    with pytest.raises(UsageError, match="as declared cannot read everything"):
        run(tmp_path, job_spec({}, source=source, extract=SNAPSHOT))


def test_source_that_cannot_start_over_is_refused(tmp_path: Path) -> None:
    source = {"type": "tests.unit.engine.run.test_full_extract:Onwards", "datasets": {"a": {"rows": 4}}}
    job = job_spec({}, extract=SNAPSHOT, source=source)
    with pytest.raises(UsageError, match="cannot read everything in each run"):
        run(tmp_path, job)


class Onwards(RowsSource):
    """A source that only goes on."""

    full_extract = ""
