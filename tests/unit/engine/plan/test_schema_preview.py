"""What a plan says of schemas that change, before any row is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.sources.files.source import FilesSource
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.plan import schema_preview
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import project, run

OLD = pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]})
NEW = pa.table({"id": pa.array([2], pa.int64()), "city": ["y"]})
SAME = pa.table({"id": pa.array([2], pa.int32()), "name": ["y"]})

PATH = "in/{dataset}/{date:%Y-%m-%d}.csv"


def job(**parts: Any) -> JobSpec:
    body: dict[str, Any] = {
        "job": "people",
        "source": {"type": "files", "path": "in/{dataset}/{date:%Y-%m-%d}.parquet", "format": {"type": "parquet"}},
        "extract": {"namespace": "n", "table": "people"},
        "output": {"path": "lake"},
    }
    return JobSpec.model_validate(body | parts)


def put(root: Path, dataset: str, day: str, table: pa.Table) -> None:
    folder = root / "in" / dataset
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"{day}.parquet")


def notes(root: Path, spec: JobSpec) -> dict[str, tuple[str, ...]]:
    return {dataset.dataset_urn: dataset.notes for dataset in plan_job(project(root, spec), spec).datasets}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    put(tmp_path, "a", "2026-01-01", OLD)
    assert run(tmp_path, job()).exit_code == 0
    return tmp_path


def test_first_files_and_equal_ones_need_no_word(tmp_path: Path, published: Path) -> None:
    put(published, "a", "2026-01-02", SAME)
    put(published, "new", "2026-01-02", NEW)
    assert notes(published, job()) == {"a": (), "new": ()}


def test_columns_that_are_new_gone_or_changed_are_named_before_a_row_is_read(published: Path) -> None:
    put(published, "a", "2026-01-02", NEW)
    means = "(no schema contract: it is written as it comes)."
    assert notes(published, job())["a"] == (
        f"branch 'main': column 'city' (string) is new {means}",
        f"branch 'main': column 'name' (string) is gone {means}",
        f"branch 'main': column 'id' was int32, is int64 {means}",
    )


def test_contract_tells_what_it_takes(published: Path) -> None:
    put(published, "a", "2026-01-02", NEW)
    found = notes(published, job(schema_contract="evolve"))["a"]
    assert len(found) == 3
    assert all(note.endswith("(schema contract `evolve` allows it).") for note in found)


def test_contract_that_will_be_broken_is_told_by_the_plan_as_by_the_run(published: Path) -> None:
    put(published, "a", "2026-01-02", NEW)
    (note,) = notes(published, job(schema_contract="freeze"))["a"]
    assert note.startswith("its work units will fail: ")
    (failed,) = run(published, job(schema_contract="freeze")).datasets
    assert failed.failures[0].message in note


def test_converter_that_will_fail_is_told(published: Path) -> None:
    put(published, "a", "2026-01-02", NEW)
    (note,) = notes(published, job(converters=[{"type": "drop", "columns": ["name"]}]))["a"]
    assert note.startswith("its work units will fail: ")
    assert "name" in note


def test_converted_columns_are_compared_and_not_those_of_the_file(published: Path) -> None:
    put(published, "a", "2026-01-02", NEW)
    convert = {"type": "sql", "select": "cast(id as integer) as id, city as name"}
    assert notes(published, job(converters=[convert]))["a"] == ()


def test_only_the_first_datasets_are_looked_at(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for urn in "abcd":
        put(published, urn, "2026-01-02", OLD)
    run(published, job())
    for urn in "abcd":
        put(published, urn, "2026-01-03", NEW)
    opened: list[str] = []
    look = FilesSource.preview_schema

    def counting(self: FilesSource, unit: WorkUnit) -> pa.Schema | None:
        opened.append(unit.dataset_urn)
        return look(self, unit)

    monkeypatch.setattr(FilesSource, "preview_schema", counting)
    monkeypatch.setattr(schema_preview, "MOST_DATASETS", 2)
    assert [len(found) for found in notes(published, job()).values()] == [3, 3, 0, 0]
    assert opened == ["a", "b"]


def test_columns_of_a_format_whose_types_are_inferred_are_told(tmp_path: Path) -> None:
    spec = job(source={"type": "files", "path": PATH, "format": {"type": "csv"}})
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.csv").write_text("id,name\n1,x\n")
    run(tmp_path, spec)
    (folder / "2026-01-02.csv").write_text("id,city\n1,x\n")
    (told,) = notes(tmp_path, spec).values()
    assert any("city" in note for note in told)
    assert any("name" in note for note in told)


def test_formats_without_a_schema_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = job(source={"type": "files", "path": PATH, "format": {"type": "csv", "infer": False}})
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.csv").write_text("id,name\n1,x\n")
    run(tmp_path, spec)
    (folder / "2026-01-02.csv").write_text("id,city\n1,x\n")

    def refuse(self: FilesSource, unit: WorkUnit) -> None:
        raise AssertionError("a plan opened a file that does not tell its schema")

    monkeypatch.setattr(FilesSource, "extractor", refuse)
    assert notes(tmp_path, spec) == {"a": ()}


def test_column_that_a_table_got_since_is_told(tmp_path: Path) -> None:
    source = {
        "type": "query",
        "url": "sqlite:///shop.db",
        "tables": ["orders"],
        "watermark": {"column": "id", "type": "long"},
    }
    spec = job(source=source)

    def execute(*statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    execute("create table orders (id integer primary key, item text)", "insert into orders values (1, 'tea')")
    assert run(tmp_path, spec).exit_code == 0
    execute("alter table orders add column price real", "insert into orders values (2, 'milk', 1.5)")
    (found,) = notes(tmp_path, spec).values()
    assert found == ("branch 'main': column 'price' (double) is new (no schema contract: it is written as it comes).",)
