"""Database tables: their rows after good and failed runs, on SQLite; PostgreSQL is in the integration tests."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.publishers.sql_copy import _printable
from gobblin_dagster.constructs.publishers.sql_load import column_type, merge_rows
from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep, SqlTableOptions, SqlTablePublisher
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import StorageError, UsageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.engine.validation import check_publishers
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.publishers.table_jobs import ROWS, check_exactly_once, ids, table_job
from tests.unit.engine.jobs import job_spec, project, run

APPEND = {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": "numbers"}

EXTRACT = Extract(namespace="n", table="t")


def query(root: Path, statement: str) -> list[Any]:
    engine = sa.create_engine(f"sqlite:///{root}/warehouse.db")
    with engine.connect() as connection:
        return list(connection.execute(sa.text(statement)).all())


def table_ids(root: Path) -> list[int]:
    return [row[0] for row in query(root, "SELECT id FROM numbers ORDER BY id")]


def test_rows_are_in_the_table_and_no_file_in_the_output(tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND, ROWS))

    assert table_ids(tmp_path) == ids(ROWS)
    assert sorted(query(tmp_path, "SELECT dataset_urn, high FROM gobblin_commits")) == [("a/b", "10"), ("c", "5")]
    assert not list((tmp_path / "lake/test").rglob("*.parquet"))


def test_rows_are_in_the_table_once_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_exactly_once(tmp_path, APPEND, lambda: table_ids(tmp_path), LoadSqlTableStep, monkeypatch)


def test_table_that_others_make_and_change_first_gets_the_columns_that_are_still_missing(tmp_path: Path) -> None:
    """Datasets with other columns come between the look at what is missing and each change of the table."""
    theirs = iter(["CREATE TABLE numbers (id bigint)", "ALTER TABLE numbers ADD COLUMN dataset text"])

    def overtake(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("CREATE TABLE numbers", "ALTER TABLE numbers")) and (one := next(theirs, "")):
            with closing(sqlite3.connect(tmp_path / "warehouse.db")) as other:
                other.execute(one)

    sa.event.listen(sa.Engine, "before_cursor_execute", overtake)
    try:
        result = run(tmp_path, table_job(APPEND, {"a": {"rows": 3}}))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", overtake)
    assert result.status is RunStatus.SUCCEEDED, result.datasets
    assert next(theirs, "") == ""
    assert query(tmp_path, "SELECT id, dataset FROM numbers ORDER BY id") == [(0, "a"), (1, "a"), (2, "a")]


def test_commit_that_is_in_the_table_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = LoadSqlTableStep.execute

    def twice(self: LoadSqlTableStep, storage: Storage) -> None:
        execute(self, storage)
        execute(self, storage)  # as a run that looked before the first one was done, and woke after it

    monkeypatch.setattr(LoadSqlTableStep, "execute", twice)
    assert run(tmp_path, table_job(APPEND, ROWS)).status is RunStatus.SUCCEEDED

    assert table_ids(tmp_path) == ids(ROWS)


def test_ledger_that_refuses_the_commit_is_no_sign_of_it(tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as database:
        database.execute("CREATE UNIQUE INDEX one_line_a_dataset ON gobblin_commits (dataset_urn)")

    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 3}}))

    assert result.status is RunStatus.FAILED
    assert "UNIQUE constraint failed: gobblin_commits.dataset_urn" in result.datasets[0].failures[0].message
    assert table_ids(tmp_path) == [0, 1]


def test_dataset_whose_state_alone_was_set_back_publishes_nothing(tmp_path: Path) -> None:
    store = tmp_path / ".gobblin/state.db"
    run(tmp_path, table_job(APPEND, {"c": {"rows": 10}}))
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("CREATE TABLE kept AS SELECT * FROM gobblin_dataset_states")
    run(tmp_path, table_job(APPEND, {"c": {"rows": 20}}))
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("DELETE FROM gobblin_dataset_states")
        database.execute("INSERT INTO gobblin_dataset_states SELECT * FROM kept")
    (result,) = run(tmp_path, table_job(APPEND, {"c": {"rows": 30}})).datasets

    assert "or the state of this dataset alone, was lost or restored from an older copy" in result.failures[0].message
    assert table_ids(tmp_path) == list(range(20))


def test_each_dataset_can_have_a_table(tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND | {"table": "of_{dataset}"}, ROWS))

    assert query(tmp_path, "SELECT count(*) FROM of_a_b") == [(10,)]
    assert query(tmp_path, "SELECT count(*) FROM of_c") == [(5,)]


@pytest.mark.parametrize("table", ["{dataset}", "Gobblin_Commits"])
def test_rows_cannot_become_commits_of_other_jobs(table: str, tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND, ROWS))
    forged = [
        f"'{name}' AS {name}" for name in ("commit_id", "branch", "job", "dataset_urn", "table_name", "low", "high")
    ]
    job = table_job(
        APPEND | {"table": table, "mode": "replace"},
        {"gobblin_commits": {"rows": 1}},
        job="hostile",
        converters=[{"type": "sql", "select": ", ".join(forged)}],
    )
    (dataset,) = run(tmp_path, job).datasets

    assert "holds the commits of all jobs" in dataset.failures[0].message
    assert query(tmp_path, "SELECT count(*) FROM gobblin_commits WHERE job = 'numbers'") == [(2,)]


def test_rows_of_a_view_are_not_replaced(tmp_path: Path) -> None:
    """Its triggers write to a table with the rows of another job."""
    replace = APPEND | {"mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as database:
        database.executescript(
            "CREATE VIEW Seen AS SELECT * FROM numbers; CREATE TRIGGER clear INSTEAD OF DELETE ON Seen BEGIN DELETE "
            "FROM numbers WHERE id = old.id; END; CREATE TRIGGER pass_on INSTEAD OF INSERT ON Seen BEGIN INSERT INTO "
            "numbers SELECT new.id, new.dataset, new.value; END"
        )
    (late,) = run(tmp_path, table_job(replace | {"table": "seen"}, {"c": {"rows": 2}}, job="other")).datasets
    assert "table seen is a view" in late.failures[0].message
    assert table_ids(tmp_path) == [0, 1, 2, 3]


def test_newest_row_of_a_key_counts(tmp_path: Path) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["slot"]}
    slots = {"converters": [{"type": "sql", "select": "id % 4 AS slot, id, value"}]}
    result = run(tmp_path, table_job(upsert, {"c": {"rows": 10}}, **slots))
    assert result.datasets[0].bytes_written > 0
    assert query(tmp_path, "SELECT slot, id FROM numbers ORDER BY slot") == [(0, 8), (1, 9), (2, 6), (3, 7)]

    run(tmp_path, table_job(upsert, {"c": {"rows": 12}}, **slots))
    assert query(tmp_path, "SELECT slot, id FROM numbers ORDER BY slot") == [(0, 8), (1, 9), (2, 10), (3, 11)]


@pytest.mark.parametrize("before", [{}, {"mode": "upsert", "key": ["id", "dataset"]}], ids=["append", "other key"])
def test_table_without_the_key_is_refused_until_it_has_one(tmp_path: Path, before: dict[str, Any]) -> None:
    """It was "the database failed with OperationalError", and tried again by each run for ever."""
    upsert = APPEND | {"mode": "upsert", "key": ["id"]}
    run(tmp_path, table_job(APPEND | before, {"c": {"rows": 3}}))
    (refused,) = run(tmp_path, table_job(upsert, {"c": {"rows": 5}})).datasets
    assert "no primary key or unique index of the table is over the key (id)" in refused.failures[0].message
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as database:
        database.execute("CREATE UNIQUE INDEX by_id ON numbers (id)")
    job = table_job(upsert, {"c": {"rows": 5}})
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        recovered = recover_job(JobContext.of(opened, job, store))
    assert [one.state for one in recovered] == ["committed"]
    assert table_ids(tmp_path) == [0, 1, 2, 3, 4]


def test_key_of_a_table_that_was_made_in_another_case_is_found(tmp_path: Path) -> None:
    """It was "NoSuchTableError: numbers": SQLAlchemy looks for SQLite's constraints by the name as it was made."""
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as database:
        database.execute("CREATE TABLE NUMbers (id INTEGER PRIMARY KEY, value TEXT)")
    run(tmp_path, table_job(APPEND | {"mode": "upsert", "key": ["id"]}, {"c": {"rows": 3}}))
    assert table_ids(tmp_path) == [0, 1, 2]


def test_branch_that_was_renamed_gets_its_table_back_as_its_error_says(tmp_path: Path) -> None:
    table = APPEND | {"mode": "replace"}

    def job(branch: str, rows: int) -> JobSpec:
        return job_spec({"c": {"rows": rows}}, fork={"branches": [{"name": branch, "publisher": table}]})

    run(tmp_path, job("one", 3))
    (refused,) = run(tmp_path, job("two", 5)).datasets
    assert "If 'one' is the former name of this branch: set `branch` of these rows" in refused.failures[0].message
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as database, database:
        database.execute("UPDATE gobblin_commits SET branch = 'two'")
    opened = project(tmp_path, job("two", 5))
    with closing(opened.open_store()) as store:
        recovered = recover_job(JobContext.of(opened, job("two", 5), store))
    assert [one.state for one in recovered] == ["committed"]
    assert run(tmp_path, job("two", 6)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [5]


def test_keys_and_order_of_rows_come_from_the_extract(tmp_path: Path) -> None:
    upsert = APPEND | {"mode": "upsert"}
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["slot"], "delta_fields": ["version", "part"]}

    def run_with(rows: int, version: str) -> list[tuple[int, int]]:
        converters = [{"type": "sql", "select": f"id % 3 AS slot, id, {version} AS version, 0 AS part"}]
        result = run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, extract=extract, converters=converters))
        assert result.status is RunStatus.SUCCEEDED
        return query(tmp_path, "SELECT slot, id FROM numbers ORDER BY slot")

    assert run_with(6, "100 - id") == [(0, 0), (1, 1), (2, 2)]  # each newer than those after it
    assert run_with(9, "50 - id") == [(0, 0), (1, 1), (2, 2)]  # a late row does not replace a newer one
    assert run_with(10, "100") == [(0, 9), (1, 1), (2, 2)]
    assert run_with(11, "100") == [(0, 9), (1, 10), (2, 2)]
    assert run_with(12, "CAST(NULL AS BIGINT)") == [(0, 9), (1, 10), (2, 2)]  # null is older than each value
    assert run_with(15, "CASE WHEN id < 14 THEN NULL ELSE 100 END") == [(0, 9), (1, 10), (2, 14)]


def test_row_without_a_value_of_the_order_gives_way_to_one_with_a_value(tmp_path: Path) -> None:
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["slot"], "delta_fields": ["version"]}
    converters = [{"type": "sql", "select": "0 AS slot, id, CASE WHEN id < 2 THEN NULL ELSE 1 END AS version"}]
    for rows, expected in ((1, 0), (2, 1), (3, 2)):
        job = table_job(APPEND | {"mode": "upsert"}, {"c": {"rows": rows}}, extract=extract, converters=converters)
        run(tmp_path, job)
        assert query(tmp_path, "SELECT slot, id FROM numbers") == [(0, expected)]


@pytest.mark.parametrize("field", ["primary_keys", "delta_fields"])
def test_column_of_the_extract_that_the_branch_lacks_is_named(tmp_path: Path, field: str) -> None:
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["id"]} | {field: ["gone"]}

    result = run(tmp_path, table_job(APPEND | {"mode": "upsert"}, {"c": {"rows": 2}}, extract=extract))

    assert result.status is RunStatus.FAILED
    assert "branch 'all', publisher: `mode: upsert` needs column gone; there are id" in result.datasets[0].problem


def test_merging_without_a_key_is_refused_when_the_job_is_checked() -> None:
    with pytest.raises(UsageError, match=r"needs `key`, or `extract\.primary_keys`"):
        check_publishers(table_job(APPEND | {"mode": "upsert"}, ROWS))


def test_step_of_an_earlier_version_merges_by_its_key_alone() -> None:
    names = ("commit_id", "job", "run_id", "dataset_urn", "branch", "low", "high")
    commit: dict[str, Any] = {**dict.fromkeys(names, "x"), "files": []}
    places = {"schema": "", "table": "t", "url": "sqlite:///w.db", "url_env": "", "base_dir": ""}
    stored = {**places, "mode": "upsert", "key": ["id"], "commit": commit}
    assert LoadSqlTableStep.from_json(stored).newest_by == ()


def test_replaced_table_holds_the_newest_publication(tmp_path: Path) -> None:
    replace = APPEND | {"mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    run(tmp_path, table_job(replace, {"c": {"rows": 6}}))

    assert table_ids(tmp_path) == [4, 5]


def test_replaced_table_of_two_datasets_is_refused_for_one_would_delete_the_others_rows(tmp_path: Path) -> None:
    replace = APPEND | {"mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    result = run(tmp_path, table_job(replace, {"d": {"rows": 2}}))

    assert result.status is RunStatus.FAILED
    assert "the table also has rows of dataset 'c', branch 'all'" in result.datasets[0].failures[0].message
    assert table_ids(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("table", ["numbers", "main.numbers", "NUMBERS"])
def test_replaced_table_of_two_jobs_is_refused_by_whatever_name(table: str, tmp_path: Path) -> None:
    replace = APPEND | {"mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    result = run(tmp_path, table_job(replace | {"table": table}, {"c": {"rows": 2}}, job="other"))

    message = result.datasets[0].failures[0].message
    assert "the table also has rows of dataset 'c', branch 'all', of job 'numbers'" in message
    assert "if this job took the place of that one, delete its rows from gobblin_commits" in message
    assert table_ids(tmp_path) == [0, 1, 2, 3]


def test_table_whose_name_ends_like_another_is_another(tmp_path: Path) -> None:
    replace = APPEND | {"mode": "replace"}
    run(tmp_path, table_job(replace | {"table": "old_numbers"}, {"c": {"rows": 4}}))
    run(tmp_path, table_job(replace, {"d": {"rows": 2}}))
    assert table_ids(tmp_path) == [0, 1]


def test_two_jobs_may_append_a_dataset_to_one_table(tmp_path: Path) -> None:
    own = APPEND | {"table": "of_{dataset}"}
    run(tmp_path, table_job(own, {"c": {"rows": 4}}))
    run(tmp_path, table_job(own, {"c": {"rows": 2}}, job="other"))
    assert query(tmp_path, "SELECT count(*) FROM of_c") == [(6,)]


def test_commits_are_found_by_whatever_name_of_their_table(tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 4}}))
    context = ConstructContext(job="numbers", base_dir=str(tmp_path), branch="all")
    for table in ("numbers", "main.numbers", "NUMBERS"):
        publisher = SqlTablePublisher(SqlTableOptions(url=APPEND["url"], table=table), context)
        assert len(publisher.newest_commits({"c": "/lake"})["c"]) == 1


def test_datasets_whose_tables_would_have_one_name_are_refused(tmp_path: Path) -> None:
    own = APPEND | {"table": "of_{dataset}"}
    run(tmp_path, table_job(own, {"a/b": {"rows": 2}}))
    result = run(tmp_path, table_job(own, {"a-b": {"rows": 3}}))

    assert "the table also has rows of dataset 'a/b'" in result.datasets[0].failures[0].message
    assert query(tmp_path, "SELECT count(*) FROM of_a_b") == [(2,)]
    assert run(tmp_path, table_job(own, {"a/b": {"rows": 4}})).recovered == ()


def test_datasets_whose_tables_differ_in_case_only_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    own = {**APPEND, "table": "of_{dataset}", "mode": "replace"}
    result = run(tmp_path, table_job(own, {"Orders": {"rows": 2}, "orders": {"rows": 3}, "other": {"rows": 1}}))

    assert [(one.outcome, one.rows_read) for one in result.datasets] == [
        (DatasetOutcome.FAILED, 0), (DatasetOutcome.FAILED, 0), (DatasetOutcome.COMMITTED, 1)
    ]  # fmt: skip
    assert "datasets 'Orders', 'orders' would share the target 'of_orders'" in result.datasets[0].failures[0].message
    run(tmp_path, table_job(own, {"Orders": {"rows": 2}}))
    alone = run(tmp_path, table_job(own, {"orders": {"rows": 3}}))
    assert alone.datasets[-1].outcome is not DatasetOutcome.COMMITTED
    assert query(tmp_path, "SELECT count(*) FROM of_orders") == [(2,)]


@pytest.mark.parametrize(
    ("url", "table", "datasets", "targets"),
    [
        ("postgresql://h/d", "of_{dataset}", ["A", "a"], {"of_A", "of_a"}),
        ("postgres://h/d", "of_{dataset}", ["A", "a"], {"of_A", "of_a"}),
        ("sqlite:///of.db", "of_{dataset}", ["A", "a"], {"of_a"}),
        ("mysql://h/d", "of_{dataset}", ["A", "b"], {"of_A", "of_b"}),
        ("", "of_{dataset}", ["A", "b"], {"of_A", "of_b"}),
        ("postgresql://h/d", "all", ["A", "a"], set()),
    ],
)
def test_names_of_tables_are_compared_as_the_database_does(
    url: str, table: str, datasets: list[str], targets: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_TABLES", url)
    publisher = SqlTablePublisher(SqlTableOptions(url_env="OF_TABLES", table=table), ConstructContext("j", "/"))
    assert {*publisher.targets_of(datasets).values()} == targets


@pytest.mark.parametrize(
    ("url", "table", "dataset", "problem"),
    [
        ("postgresql://h/d", "s.{dataset}", "x" * 64, "has 64 bytes, and the database takes at most 63"),
        ("postgresql://h/d", "s.{dataset}", "x" * 63, ""),
        ("postgresql://h/d", "ü" * 32, "a", "has 64 bytes, and the database takes at most 63"),
        ("mysql://h/d", "of_{dataset}", "x" * 62, "has 65 characters, and the database takes at most 64"),
        ("mysql://h/d", "ü" * 64, "a", ""),
        ("mysql://h/d", f"{'s' * 65}.all", "a", "has 65 characters"),
        ("sqlite:///of.db", "of_{dataset}", "x" * 200, ""),
        ("", "of_{dataset}", "x" * 200, ""),
    ],
)
def test_names_that_a_database_does_not_take_are_refused_with_their_length(
    url: str, table: str, dataset: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_TABLES", url)
    publisher = SqlTablePublisher(SqlTableOptions(url_env="OF_TABLES", table=table), ConstructContext("j", "/"))
    refused = publisher.unfit_targets([dataset])
    assert bool(refused) == bool(problem)
    assert problem in refused.get(dataset, "")


@pytest.mark.parametrize(
    ("url", "names", "problem"),
    [
        ("postgresql://h/d", ["a", "x" * 64], "has 64 bytes, and the database takes at most 63; rename it"),
        ("postgresql://h/d", ["ü" * 31, "😀", "a ", "A "], ""),
        ("postgresql://h/d", [""], "column name '' is empty"),
        ("mysql://h/d", ["ü" * 65], "has 65 characters, and the database takes at most 64; rename it"),
        ("mysql://h/d", ["ü" * 64, "日本"], ""),
        (
            "mysql://h/d",
            ["a😀"],
            "column name 'a😀' has the character '😀' (U+1F600), which the database takes in no",
        ),
        ("mysql://h/d", ["a "], "column name 'a ' ends with a space"),
        ("mysql://h/d", ["a", "A"], "columns 'a' and 'A' differ in case only"),
        ("sqlite:///of.db", ["a\0b"], "has the character '\\x00' (U+0000)"),
        ("sqlite:///of.db", ["x" * 200, "😀"], ""),
        ("", ["x" * 200, "a", "A"], ""),
    ],
)
def test_columns_that_a_database_does_not_take_are_refused_before_anything_is_staged(
    url: str, names: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_TABLES", url)
    publisher = SqlTablePublisher(SqlTableOptions(url_env="OF_TABLES", table="t"), ConstructContext("j", "/"))
    refused = publisher.unfit_columns(EXTRACT, pa.schema([(name, pa.int64()) for name in names]))
    assert bool(refused) == bool(problem)
    assert problem in refused


def test_database_that_cannot_be_asked_is_told_without_a_dataset_that_it_is_not_about(tmp_path: Path) -> None:
    options = SqlTableOptions(url="sqlite:///no/such/folder/w.db", table="all")
    publisher = SqlTablePublisher(options, ConstructContext("j", str(tmp_path)))
    with pytest.raises(StorageError, match=r"^cannot publish to table all: .* its folder must be writable") as refused:
        publisher.newest_commits({"a": "/lake/a", "b": "/lake/b"})
    assert "the database failed with OperationalError" in str(refused.value)


@pytest.mark.parametrize("is_there", [True, False], ids=["in the table", "in the files"])
def test_columns_that_the_database_takes_for_one_are_refused(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    rename = {"type": "rename", "columns": {"value": "VALUE" if is_there else "ID"}}
    result = run(tmp_path, table_job(APPEND, {"d": {"rows": 3}}, converters=[rename]))
    message = result.datasets[0].failures[0].message
    assert ("is quarantined" in message) == is_there
    assert "differ in case only, which the database does not see; rename one" in message


def test_letters_outside_of_ascii_that_differ_in_case_are_two_columns_in_sqlite(tmp_path: Path) -> None:
    add: dict[str, Any] = {"type": "add", "columns": {"Größe": 1, "GRÖSSE": 2, "größe": 3, "GRÖßE": 4}}
    result = run(tmp_path, table_job(APPEND, {"d": {"rows": 1}}, converters=[add]))
    assert "columns 'Größe' and 'größe' differ in case only" in result.datasets[0].failures[0].message
    add["columns"].pop("größe")
    run(tmp_path, table_job(APPEND, {"d": {"rows": 1}}, converters=[add]))
    assert query(tmp_path, 'SELECT "größe", "GRÖSSE", "GRÖßE" FROM numbers') == [(1, 2, 4)]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("'nan'::DOUBLE AS v", "column 'v': SQLite has no NaN, it would be null"),
        ("18446744073709551615::UBIGINT AS v", "SQLite keeps it as a float, which 18446744073709551615 does not fit"),
        ("12345678901234567.89::DECIMAL(20,2) AS v", "SQLite keeps it as a float, which 12345678901234567.89 does not"),
        ("TIMESTAMP_NS '2020-01-01 00:00:00.000000001' AS v", "column 'v': Casting .* would lose data"),
        ("TIMESTAMP '10000-01-01 00:00:00' AS v", "column 'v' has times before the year 1 or after 9999"),
    ],
    ids=["nan", "uint64", "decimal", "nanoseconds", "year 10000"],
)
def test_value_that_sqlite_would_change_is_refused(tmp_path: Path, select: str, problem: str) -> None:
    odd = {"converters": [{"type": "sql", "select": f"id, {select}"}]}
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}, **odd))

    assert result.status is RunStatus.FAILED
    assert re.search(problem, result.datasets[0].failures[0].message)
    assert table_ids(tmp_path) == []


def test_instants_are_in_utc_in_sqlite_which_knows_no_zones(tmp_path: Path) -> None:
    zoned = {"type": "columns", "columns": {"v": {"type": "timestamp", "timezone": "America/New_York"}}}
    select = {
        "type": "sql",
        "select": "id, '2020-01-01T10:00:00Z' AS v, 0.1::DECIMAL(20,2) AS d, 9007199254740993 AS n",
    }
    run(tmp_path, table_job(APPEND, {"c": {"rows": 1}}, converters=[select, zoned]))

    assert query(tmp_path, "SELECT v, d, n FROM numbers") == [("2020-01-01 10:00:00.000000", 0.1, 9007199254740993)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("7::INTEGER", "'007'"),
        ("1.5::DECIMAL(5,1)", "1.239::DECIMAL(7,3)"),
        ("1.5::DECIMAL(5,1)", "1.239::DOUBLE"),
        ("1.5::DOUBLE", "9007199254740993::BIGINT"),
        ("1.5::DOUBLE", "1.5::DECIMAL(20,1)"),
        ("'a'", "0.30000000000000004::DOUBLE"),
        ("DATE '2024-01-01'", "TIMESTAMP '2024-01-01 10:00:00'"),
    ],
)
def test_column_of_another_type_that_would_change_values_is_refused(tmp_path: Path, before: str, after: str) -> None:
    def run_with(rows: int, value: str) -> Any:
        return run(
            tmp_path,
            table_job(APPEND, {"c": {"rows": rows}}, converters=[{"type": "sql", "select": f"id, {value} AS v"}]),
        )

    assert run_with(2, before).status is RunStatus.SUCCEEDED
    assert "column 'v' is " in run_with(4, after).datasets[0].failures[0].message
    assert table_ids(tmp_path) == [0, 1]


def test_row_without_a_key_is_refused_where_sqlite_would_make_one_up(tmp_path: Path) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["slot"]}
    slots = {"converters": [{"type": "sql", "select": "CASE WHEN id > 0 THEN id END::INTEGER AS slot, id"}]}
    result = run(tmp_path, table_job(upsert, {"c": {"rows": 3}}, **slots))

    assert "column 'slot' of the key is null in some rows" in result.datasets[0].failures[0].message
    assert table_ids(tmp_path) == []


def test_bytes_of_a_fixed_size_are_bytes_in_tables() -> None:
    assert isinstance(column_type(pa.field("b", pa.binary(3))), sa.LargeBinary)
    rows = _printable(pa.record_batch({"b": pa.array([b"a\x00b", None], pa.binary(3))}))
    assert rows.column("b").to_pylist() == [r"\x610062", None]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32()])
def test_short_floats_have_all_their_digits_in_postgresql(kind: pa.DataType) -> None:
    values = pa.array([0.1, None], kind)
    rows = _printable(pa.record_batch({"number": values, "text": values}), {"text"})
    assert rows.column("number").type == pa.float64()
    assert rows.to_pylist() == [{"number": one, "text": one} for one in values.to_pylist()]
    assert rows.column("text").type == kind


@pytest.mark.parametrize(
    ("kind", "expected"), [(pa.timestamp("us", "UTC"), "DATETIME(6)"), (pa.time64("us"), "TIME(6)")]
)
def test_times_in_mysql_keep_their_fractions(kind: pa.DataType, expected: str) -> None:
    assert column_type(pa.field("t", kind)).compile(mysql.dialect()) == expected


def test_replayed_rows_join_a_table_that_each_run_replaces(tmp_path: Path) -> None:
    replace = APPEND | {"mode": "replace"}
    strict = {"row_policies": [{"name": "small", "type": "sql", "rule": "id <> 2"}]}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}, **strict))
    assert table_ids(tmp_path) == [0, 1, 3]

    mended = table_job(replace, {"c": {"rows": 4}})
    replay_quarantine(project(tmp_path, mended), mended, "c")

    assert table_ids(tmp_path) == [0, 1, 2, 3]


def test_part_of_a_publication_never_takes_the_place_of_a_whole_table(tmp_path: Path) -> None:
    replace, lenient = APPEND | {"mode": "replace"}, {"commit": {"policy": "successful"}}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}, **lenient))
    broken = {"c": {"rows": 8, "unit_rows": 2, "fail_at": 6}}

    assert run(tmp_path, table_job(replace, broken, **lenient)).status is RunStatus.FAILED
    assert table_ids(tmp_path) == [0, 1, 2, 3]
    run(tmp_path, table_job(replace, {"c": {"rows": 8}}, **lenient))
    assert table_ids(tmp_path) == [4, 5, 6, 7]


def test_columns_that_come_later_are_added(tmp_path: Path) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    wider = {"converters": [{"type": "add", "columns": {"origin": "EWR"}}]}
    run(tmp_path, table_job(APPEND, {"c": {"rows": 3}}, **wider))

    assert query(tmp_path, "SELECT origin FROM numbers ORDER BY id") == [(None,), (None,), ("EWR",)]


def test_columns_whose_names_mean_something_in_sql_come_later_and_are_merged(tmp_path: Path) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["id"]}
    run(tmp_path, table_job(upsert, {"c": {"rows": 2}}))
    odd = {"converters": [{"type": "sql", "select": '*, id AS ":b", id AS "50%", id AS "a`b"'}]}
    for number in (3, 4):
        assert run(tmp_path, table_job(upsert, {"c": {"rows": number}}, **odd)).status is RunStatus.SUCCEEDED

    rows = query(tmp_path, 'SELECT "\\:b", "50%", "a`b" FROM numbers ORDER BY id')
    assert rows == [(None,) * 3] * 2 + [(2,) * 3, (3,) * 3]


def test_column_that_no_table_can_hold_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    nested = {"converters": [{"type": "sql", "select": "id, [id, id] AS pair"}]}
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}, **nested))

    assert result.status is RunStatus.FAILED
    assert "no type for column(s) pair" in result.datasets[0].failures[0].message
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 2}})).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "postgresql://u:secret@h/db"}, "must hold no password"),
        ({"url": "warehouse.db"}, "URL cannot be read; write it as postgresql://"),
        ({"url": ""}, "either `url` or `url_env`"),
        ({"url_env": "WAREHOUSE"}, "either `url` or `url_env`"),
        ({"key": ["id"]}, "`key` belongs to `mode: upsert`"),
    ],
)
def test_options_that_do_not_fit_are_named_without_the_password(options: dict[str, Any], problem: str) -> None:
    given = {"url": "sqlite:///w.db", "table": "t"} | options

    (fault,) = registry.check(ConstructKind.PUBLISHER, "sql_table", given)

    assert problem in fault[1]
    assert "secret" not in fault[1]


def test_missing_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAREHOUSE_URL", raising=False)
    from_environment = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "numbers"}
    result = run(tmp_path, table_job(from_environment, {"c": {"rows": 2}}))

    assert (
        "'url' is taken from WAREHOUSE_URL, which is not set in the environment"
        in result.datasets[0].failures[0].message
    )
    monkeypatch.setenv("WAREHOUSE_URL", f"sqlite:///{tmp_path}/warehouse.db")
    assert run(tmp_path, table_job(from_environment, {"c": {"rows": 2}})).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [0, 1]


def test_url_that_is_none_is_told_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_URL", "postgresql://u:hunter2@h:port/db")
    result = run(tmp_path, table_job({"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "t"}, ROWS))

    message = result.datasets[0].failures[0].message
    assert "Table t: the database's URL cannot be read" in message
    assert "Correct WAREHOUSE_URL" in message
    assert "hunter2" not in message


def test_dataset_whose_rows_a_table_keeps_is_not_rolled_back(tmp_path: Path) -> None:
    job = table_job(APPEND, {"c": {"rows": 2}})
    run(tmp_path, job)

    with pytest.raises(UsageError, match="branch 'all' is published to a database table"):
        rollback(project(tmp_path, job), job, "c", 1)


def test_of_keys_that_the_table_takes_for_equal_the_last_row_counts() -> None:
    with sa.create_engine("sqlite://").begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (code TEXT COLLATE NOCASE PRIMARY KEY, n INTEGER)")
        table = sa.Table("t", sa.MetaData(), autoload_with=connection)
        rows = pa.RecordBatch.from_pylist([{"code": "a", "n": 1}, {"code": "A", "n": 2}])
        merge_rows(connection, table, ["code"], [], [rows])
        assert connection.exec_driver_sql("SELECT n FROM t").scalars().all() == [2]
