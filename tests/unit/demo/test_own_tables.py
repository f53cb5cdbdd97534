"""`gobblin init --source query`: the column that tells what is new, and why that one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.demo.own_tables import jobs_of_database


def found(root: Path, *statements: str) -> tuple[dict[str, str], list[str]]:
    """Return column (empty: read whole) by table, and the remarks of all jobs."""
    with sqlite3.connect(root / "shop.db", isolation_level=None) as connection:
        connection.executescript(";".join(statements))
    jobs = jobs_of_database(f"sqlite:///{root}/shop.db", "${URL}", root, "shop")
    columns: dict[str, str] = {}
    for job in jobs:
        source = job.body["source"]
        usual = source.get("watermark", {"column": ""})
        own = source.get("table_options", {})
        for urn in source["tables"]:
            columns[urn.removeprefix("main.")] = own.get(urn, {}).get("watermark", usual)["column"]
    return columns, [remark for job in jobs for remark in job.remarks]


def column(root: Path, columns: str, *more: str) -> str:
    return found(root, f"CREATE TABLE t ({columns})", *more)[0]["t"]


NOT_NULL = "DATETIME NOT NULL"


@pytest.mark.parametrize(
    ("columns", "more", "expected"),
    [
        (f"id INTEGER PRIMARY KEY, created_at {NOT_NULL}, updated_at {NOT_NULL}", "", "updated_at"),
        (f"id INTEGER PRIMARY KEY, created_at {NOT_NULL}, updated_at DATETIME", "", "updated_at"),
        (f"id INTEGER PRIMARY KEY, modified DATETIME, updated_at {NOT_NULL}", "", "updated_at"),
        (f"id TEXT, updated_at {NOT_NULL}, modified {NOT_NULL}", "CREATE INDEX i ON t (modified)", "modified"),
        (f"id INTEGER PRIMARY KEY, created_at {NOT_NULL}", "", "id"),
        (f"id INTEGER PRIMARY KEY, created_at {NOT_NULL}", "CREATE INDEX i ON t (created_at)", "created_at"),
        (f"id TEXT PRIMARY KEY, created_at {NOT_NULL}", "", "created_at"),
        (f"id INTEGER PRIMARY KEY, due_date {NOT_NULL}, birthday {NOT_NULL}, exchange_time {NOT_NULL}", "", "id"),
        (f"id TEXT PRIMARY KEY, due_date {NOT_NULL}, last_login {NOT_NULL}", "", ""),
        (f"a INTEGER, b INTEGER, updatedAt {NOT_NULL}, PRIMARY KEY (a, b)", "", "updatedAt"),
        ("id TEXT PRIMARY KEY, updated_at DATETIME", "INSERT INTO t VALUES ('a', NULL)", ""),
        ("id INTEGER PRIMARY KEY, updated_at DATETIME", "INSERT INTO t VALUES (1, NULL)", ""),
    ],
)  # fmt: skip
def test_column_that_tells_what_is_new(tmp_path: Path, columns: str, more: str, expected: str) -> None:
    assert column(tmp_path, columns, more) == expected


def test_job_file_says_why(tmp_path: Path) -> None:
    _, remarks = found(
        tmp_path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, created_at DATETIME NOT NULL, updated_at DATETIME)",
        f"CREATE TABLE people (id INTEGER PRIMARY KEY, updated_at {NOT_NULL})",
        "CREATE INDEX i ON people (updated_at)",
        "CREATE TABLE log (id INTEGER PRIMARY KEY, text TEXT)",
        "CREATE TABLE codes (code TEXT, text TEXT)",
        "CREATE TABLE late (code TEXT PRIMARY KEY, updated_at DATETIME)",
        "INSERT INTO late VALUES ('a', NULL)",
    )
    assert (
        "main.orders: updated_at, a time of change (may be null: a row with null fails the table, see `nulls`; has no "
        "index, so each run scans the table)." in remarks
    )
    assert "main.people: updated_at, a time of change." in remarks
    assert (
        "main.log: id, the key, as no column tells when a row changed; rows that change are not read again." in remarks
    )
    assert "main.codes: no time of change, and no key of whole numbers." in remarks
    assert "main.late: rows have no value in updated_at." in remarks


def test_database_without_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no table that we may read"):
        found(tmp_path)
