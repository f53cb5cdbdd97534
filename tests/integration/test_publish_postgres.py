"""Publishing to tables of a real PostgreSQL: types, keys, and once only whatever fails."""

from __future__ import annotations

import dataclasses
import sys
import threading
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gobblin_dagster.constructs.clients.sql import make_engine, parse_url
from gobblin_dagster.constructs.publishers import sql_waits, sql_widen
from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.cut_off import cut_off_all, was_cut_off
from gobblin_dagster.database import engine as state_database
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.verify import Differs, verify
from gobblin_dagster.engine.project import JobLines
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage
from tests.services.postgres import PostgresServer
from tests.unit.constructs.publishers.table_jobs import (
    check_exactly_once,
    check_lost_store,
    check_turns,
    start_at,
    table_job,
)
from tests.unit.engine.jobs import project, run

APPEND = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "public.numbers"}


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = postgres_server.url(postgres_server.new_database())
    monkeypatch.setenv("WAREHOUSE_URL", url)
    return url


def query(url: str, statement: str) -> list[Any]:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.connect() as connection:
        rows = list(connection.execute(sa.text(statement)).all())
    engine.dispose()
    return rows


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_rows_are_in_the_table_once_whatever_fails(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ids() -> list[int]:
        return [row[0] for row in query(url, "SELECT id FROM numbers ORDER BY id")]

    check_exactly_once(tmp_path, APPEND, ids, LoadSqlTableStep, monkeypatch)


def test_table_is_one_with_and_without_the_name_of_its_schema(tmp_path: Path, url: str) -> None:
    replace = {**APPEND, "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    late = run(tmp_path, table_job({**replace, "table": "numbers"}, {"c": {"rows": 2}}, job="other"))
    assert "of job 'numbers'" in late.datasets[0].failures[0].message
    run(tmp_path, table_job({**replace, "table": "Numbers"}, {"c": {"rows": 2}}, job="third"))
    assert query(url, 'SELECT (SELECT count(*) FROM numbers), (SELECT count(*) FROM "Numbers")') == [(4, 2)]


def test_table_is_the_one_that_the_search_path_finds(tmp_path: Path, url: str) -> None:
    """With a schema of the user's name, a table without schema is made in it, and found in `public` too."""
    execute(url, "CREATE SCHEMA postgres")
    replace = {**APPEND, "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    late = run(tmp_path, table_job({**replace, "table": "numbers"}, {"c": {"rows": 2}}, job="other"))
    assert "of job 'numbers'" in late.datasets[0].failures[0].message
    run(tmp_path, table_job({**replace, "table": "new"}, {"c": {"rows": 3}}, job="third"))
    assert query(url, "SELECT (SELECT count(*) FROM public.numbers), (SELECT count(*) FROM postgres.new)") == [(4, 3)]


def test_tables_of_one_name_in_two_schemas_are_two_in_one_ledger(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users with schemas of their own name share the ledger in `public`."""
    execute(url, "CREATE SCHEMA one", "CREATE SCHEMA two")
    run(tmp_path, table_job(APPEND, {"c": {"rows": 1}}, job="first"))
    replace = {**APPEND, "table": "t", "mode": "replace"}
    for schema, rows in (("one", 3), ("two", 4)):
        execute(url, f"CREATE TABLE {schema}.t (id bigint, dataset text, value text)")
        monkeypatch.setenv("WAREHOUSE_URL", f"{url}?options=-csearch_path%3Dpublic,{schema}")
        (done,) = run(tmp_path, table_job(replace, {"c": {"rows": rows}}, job=schema)).datasets
        assert not done.failures
    assert query(url, "SELECT (SELECT count(*) FROM one.t), (SELECT count(*) FROM two.t)") == [(3, 4)]
    assert query(url, "SELECT table_name FROM gobblin_commits ORDER BY 1") == [
        ("one.t",),
        ("public.numbers",),
        ("two.t",),
    ]


def test_ledger_of_an_earlier_version_is_read_and_gets_who_its_tables_are(tmp_path: Path, url: str) -> None:
    plain = {**APPEND, "table": "numbers"}
    run(tmp_path, table_job(plain, {"c": {"rows": 2}}))
    execute(
        url,
        "ALTER TABLE gobblin_commits DROP COLUMN IF EXISTS table_id",
        "UPDATE gobblin_commits SET table_name = 'numbers'",
    )
    assert run(tmp_path, table_job(plain, {"c": {"rows": 4}})).status is RunStatus.SUCCEEDED
    noted = query(url, "SELECT table_name, table_id IS NULL FROM gobblin_commits ORDER BY published_at")
    assert noted == [("numbers", True), ("public.numbers", False)]
    late = run(tmp_path, table_job({**plain, "mode": "replace"}, {"c": {"rows": 2}}, job="other"))
    assert "of job 'numbers'" in late.datasets[0].failures[0].message


def test_role_that_may_not_change_the_ledger_of_an_earlier_version_loads_rows(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    role = f"loader_{sa.make_url(url).database}"
    execute(
        url,
        "ALTER TABLE gobblin_commits DROP COLUMN IF EXISTS table_id",
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT SELECT, INSERT ON gobblin_commits, numbers TO {role}",
    )
    as_role = sa.make_url(url).set(username=role, password="x")
    monkeypatch.setenv("WAREHOUSE_URL", as_role.render_as_string(hide_password=False))
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 4}})).status is RunStatus.SUCCEEDED
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "with_its_rows"])
def test_table_that_was_made_again_by_hand_or_restored_alone_is_refused_until_a_person_decides(
    tmp_path: Path, url: str, is_empty: bool
) -> None:
    each = {**APPEND, "table": "of_{dataset}"}
    run(tmp_path, table_job(each, {"c": {"rows": 2}, "d": {"rows": 2}}))
    rows = "LIKE former" if is_empty else "id, dataset, value"
    made = f"CREATE TABLE of_c ({rows})" + ("" if is_empty else " AS SELECT * FROM former")
    execute(url, "ALTER TABLE of_c RENAME TO former", made)
    outcomes = {
        one.dataset_urn: one for one in run(tmp_path, table_job(each, {"c": {"rows": 5}, "d": {"rows": 5}})).datasets
    }
    said = "".join(one.message for one in outcomes["c"].failures)
    assert "lacks commit" in said if is_empty else "table of_c is not the one that rows were loaded into" in said
    assert not outcomes["d"].failures
    assert query(url, "SELECT count(*) FROM of_c") == [(0 if is_empty else 2,)]
    more = table_job(each, {"c": {"rows": 5}, "d": {"rows": 5}})
    verified = {one.dataset_urn: one.differences for one in verify(project(tmp_path, more), more).datasets}
    assert ([one.what for one in verified["c"]], verified["d"]) == ([Differs.COMMIT_MISSING], ())
    start_at(tmp_path, more, "2")
    assert run(tmp_path, more).status is RunStatus.SUCCEEDED
    assert query(url, "SELECT count(*) FROM of_c") == [(3 if is_empty else 5,)]
    assert verify(project(tmp_path, more), more).is_whole


def test_database_that_was_restored_from_a_dump_is_no_table_made_again(
    tmp_path: Path, url: str, postgres_server: PostgresServer
) -> None:
    again = "CREATE TABLE copy AS TABLE {0}; DROP TABLE {0}; ALTER TABLE copy RENAME TO {0}"
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    execute(
        url,
        "DELETE FROM numbers",  # by whoever takes the rows on from there
        *map(again.format, ("numbers", "gobblin_commits")),
        "ALTER TABLE gobblin_commits ADD PRIMARY KEY (commit_id, branch)",
    )
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 4}})).status is RunStatus.SUCCEEDED
    # In a new server the first table that is made, which the ledger may be, has the oid that it had in the old one.
    former = "replace(table_id, (SELECT system_identifier::text FROM pg_control_system()), '1')"
    execute(url, again.format("numbers"), f"UPDATE gobblin_commits SET table_id = {former}")
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 6}})).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("table", ["numbers", "gobblin_commits", "part"])
def test_table_that_is_empty_after_a_crash_is_refused(tmp_path: Path, url: str, table: str) -> None:
    execute(
        url,
        "CREATE TABLE numbers (id bigint, dataset text, value text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF numbers FOR VALUES FROM (0) TO (100)",
    )
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    execute(
        url,
        f"ALTER TABLE {table} SET UNLOGGED"
        if table != "numbers"
        else "DROP TABLE numbers; CREATE UNLOGGED TABLE numbers AS SELECT 1::bigint AS id, '' AS dataset, '' AS value",
    )
    start_at(tmp_path, table_job(APPEND, {"c": {"rows": 5}}), "2")  # a table that was made again asks for it
    (late,) = run(tmp_path, table_job(APPEND, {"c": {"rows": 5}})).datasets
    name = "part" if table == "part" else table
    assert f"table {name} is UNLOGGED" in late.failures[0].message
    assert f"ALTER TABLE {name} SET LOGGED" in late.failures[0].message


@pytest.mark.parametrize("table", ["public.numbers", "public.first_of_them"])
def test_jobs_whose_ledgers_are_two_and_whose_table_is_one_do_not_replace_each_others_rows(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    execute(
        url,
        "CREATE SCHEMA mart",
        "CREATE TABLE numbers (id bigint, dataset text, value text) PARTITION BY RANGE (id)",
        "CREATE TABLE first_of_them PARTITION OF numbers FOR VALUES FROM (0) TO (100)",
        "CREATE SCHEMA odd",
        "CREATE TABLE odd.gobblin_commits (id int)",
    )
    monkeypatch.setenv("WAREHOUSE_URL", f"{url}?options=-csearch_path%3Dmart")
    replace = {**APPEND, "mode": "replace"}
    assert run(tmp_path, table_job({**replace, "table": table}, {"c": {"rows": 4}})).status is RunStatus.SUCCEEDED
    monkeypatch.setenv("WAREHOUSE_URL", url)
    late = run(tmp_path, table_job(replace, {"c": {"rows": 2}}, job="other"))
    assert "by mart.gobblin_commits, the table also has rows of" in late.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


def test_rows_of_a_view_are_not_replaced(tmp_path: Path, url: str) -> None:
    """Its triggers write to a table with the rows of another job."""
    replace = {**APPEND, "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    body = "BEGIN INSERT INTO numbers SELECT new.*; RETURN new; END"
    execute(
        url,
        "CREATE VIEW seen AS SELECT * FROM numbers",
        f"CREATE FUNCTION pass_on() RETURNS trigger LANGUAGE plpgsql AS '{body}'",
        "CREATE TRIGGER pass_on INSTEAD OF INSERT ON seen FOR EACH ROW EXECUTE FUNCTION pass_on()",
    )
    (late,) = run(tmp_path, table_job({**replace, "table": "seen"}, {"c": {"rows": 2}}, job="other")).datasets
    assert "table seen is a view" in late.failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


@pytest.mark.parametrize("table", ["far", "whole"])
def test_table_of_another_server_which_commits_on_its_own_is_refused(tmp_path: Path, url: str, table: str) -> None:
    execute(
        url,
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE FOREIGN TABLE far (id bigint, dataset text, value text) SERVER other",
        "CREATE TABLE whole (id bigint, dataset text, value text) PARTITION BY RANGE (id)",
        "CREATE FOREIGN TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (100) SERVER other",
    )
    late = run(tmp_path, table_job({**APPEND, "table": table}, {"c": {"rows": 2}}))
    assert "is a foreign table" in late.datasets[0].failures[0].message


def test_tables_of_two_schemas_with_one_name_are_two(tmp_path: Path, url: str) -> None:
    for schema in ("mart", "public"):
        job = table_job({**APPEND, "mode": "replace", "table": f"{schema}.numbers"}, {"c": {"rows": 4}}, job=schema)
        assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert query(url, "SELECT (SELECT count(*) FROM numbers), (SELECT count(*) FROM mart.numbers)") == [(4, 4)]


def test_table_that_spark_reads_by_jdbc_is_known_by_its_server(url: str) -> None:
    at = sa.make_url(url)
    options = {"url": f"jdbc:postgresql://127.0.0.1:{at.port}/{at.database}?user=postgres", "dbtable": "Numbers"}
    spec = {"type": "spark", "format": "jdbc", "options": {**options, "password": at.password}}
    context = ConstructContext(job="numbers", base_dir="")
    source = registry.create(ConstructKind.SOURCE, ConstructSpec.model_validate(spec), context)
    publisher = registry.create(ConstructKind.PUBLISHER, ConstructSpec.model_validate(APPEND), context)
    assert source.server_tables(["t"])["t"][0] == publisher.server_tables(["d"])["d"][0]


def test_own_table_is_not_read_from_a_schema_that_is_later_in_the_search_path(tmp_path: Path, url: str) -> None:
    execute(url, "CREATE SCHEMA postgres", "CREATE TABLE public.orders AS SELECT 1 AS id")
    source = {"type": "query", "url": url, "tables": ["public.orders"], "watermark": {"column": "id", "type": "long"}}
    found = run(tmp_path, table_job({**APPEND, "table": "orders"}, {}, source=source)).datasets[0]
    assert "branch 'all' publishes to it" in "".join(one.message for one in found.failures)


@pytest.mark.parametrize("table", ["orders", "numbers"])
def test_own_table_is_not_read_from_a_schema_that_only_the_server_knows(tmp_path: Path, url: str, table: str) -> None:
    """Without a schema, a table is in that of its user's name, if there is one: each run read the last one's rows."""
    execute(url, "CREATE SCHEMA postgres", "CREATE TABLE postgres.orders AS SELECT 1 AS id")
    source = {"type": "query", "url": url, "tables": ["postgres.orders"], "watermark": {"column": "id", "type": "long"}}
    job = table_job({**APPEND, "table": table}, {}, source=source)
    found = run(tmp_path, job).datasets[0]
    said = "".join(one.message for one in found.failures)
    assert ("branch 'all' publishes to it" in said) is (table == "orders"), said
    assert found.rows_read == (table != "orders")


@pytest.mark.parametrize(
    ("kind", "read", "written", "is_own"),
    [
        ("PARTITION BY LIST (id)", "whole", "part", True),
        ("PARTITION BY LIST (id)", "part", "whole", True),
        ("PARTITION BY LIST (id)", "part", "other", False),
        ("", "whole", "heir", True),  # rows of tables that inherit are read with those of the table
        ("", "heir", "whole", False),
    ],
)
def test_own_table_is_not_read_as_a_part_of_another_one_or_as_the_whole_of_it(
    tmp_path: Path, url: str, kind: str, read: str, written: str, is_own: bool
) -> None:
    execute(
        url,
        f"CREATE TABLE whole (id bigint, dataset text, value text) {kind}",
        *(
            (
                "CREATE TABLE part PARTITION OF whole FOR VALUES IN (1)",
                "CREATE TABLE other PARTITION OF whole DEFAULT",
                "INSERT INTO part VALUES (1, 'd', 'v')",
            )
            if kind
            else ("CREATE TABLE heir () INHERITS (whole)", "INSERT INTO heir VALUES (1, 'd', 'v')")
        ),
    )
    source = {"type": "query", "url": url, "tables": [f"public.{read}"], "watermark": {"column": "id", "type": "long"}}
    found = run(tmp_path, table_job({**APPEND, "table": written}, {}, source=source)).datasets[0]
    said = "".join(one.message for one in found.failures)
    assert ("branch 'all' publishes to it" in said) is is_own, said
    assert found.rows_read == (not is_own)


@pytest.mark.parametrize("is_standby", [True, False], ids=["standby", "copy"])
def test_standby_of_the_server_is_not_read(tmp_path: Path, url: str, is_standby: bool) -> None:
    """A copy that was promoted has rows of its own."""
    execute(
        url,
        "CREATE TABLE numbers (id bigint, dataset text, value text)",
        "INSERT INTO numbers VALUES (1, 'd', 'v')",
        "CREATE SCHEMA other",  # as the other server answers
        f"CREATE FUNCTION other.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT {is_standby}'",
        "CREATE FUNCTION other.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    )
    there = f"{url}?options=-csearch_path%3Dother,pg_catalog,public"
    source = {
        "type": "query",
        "url": there,
        "tables": ["public.numbers"],
        "watermark": {"column": "id", "type": "long"},
    }
    found = run(tmp_path, table_job(APPEND, {}, source=source)).datasets[0]
    said = "".join(one.message for one in found.failures)
    assert ("branch 'all' publishes to it" in said) is is_standby, said


def test_job_that_was_renamed_is_known_at_a_server_by_another_name(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later = (table_job(APPEND, {"c": {"rows": 5}}, job=name) for name in ("former", "later"))
    lines = {"later": JobLines(tmp_path / "later.yaml", {})}
    run(tmp_path, former)
    monkeypatch.setenv("WAREHOUSE_URL", url.replace("127.0.0.1", "127.1"))
    (planned,) = plan_job(dataclasses.replace(project(tmp_path, later), lines=lines), later).datasets
    assert "job 'former', which this project does not have here any more" in planned.problem


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set_back"])
def test_store_that_does_not_know_what_the_table_notes_publishes_nothing(
    tmp_path: Path, url: str, is_lost: bool
) -> None:
    def ids() -> list[int]:
        return [row[0] for row in query(url, "SELECT id FROM numbers ORDER BY id")]

    says = "table gobblin_commits, beside table public.numbers, notes commit "
    check_lost_store(tmp_path, APPEND, ids, says, is_lost=is_lost)


def test_values_of_all_types_arrive(tmp_path: Path, url: str) -> None:
    select = (
        "id::INTEGER AS id, CASE WHEN id > 0 THEN '' END AS blank, 'a,\"b\"\n\\N' AS awkward, encode('ü') AS raw, "
        "1.50::DECIMAL(9, 2) AS price, DATE '2026-02-28' AS day, TIMESTAMPTZ '2026-02-28 12:00:00+02' AS at, "
        "TRUE AS flag, 'nan'::DOUBLE AS ratio, 18446744073709551615::UBIGINT AS large, NULL AS nothing"
    )
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}, converters=[{"type": "sql", "select": select}]))
    assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures

    first, second = query(url, "SELECT * FROM numbers ORDER BY id")
    assert first.blank is None
    assert second.blank == ""
    assert first.awkward == 'a,"b"\n\\N'
    assert bytes(first.raw) == "ü".encode()
    assert (first.price, first.day, first.flag) == (Decimal("1.50"), date(2026, 2, 28), True)
    assert first.at == datetime(2026, 2, 28, 10, tzinfo=UTC)
    assert first.ratio != first.ratio
    assert (first.large, first.nothing) == (Decimal("18446744073709551615"), None)


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_settings_of_the_database_and_the_environment_change_no_value(
    tmp_path: Path, url: str, mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts were taken for others (`Ã¤`), days began elsewhere, a power loss took rows below the watermark."""
    settings = (
        *("client_encoding = 'LATIN1'", "synchronous_commit = off", "timezone = 'Asia/Tokyo'", "array_nulls = off"),
        *("datestyle = 'SQL, MDY'", "intervalstyle = sql_standard", "standard_conforming_strings = off"),
        *("default_transaction_isolation = serializable", "transform_null_equals = on", "bytea_output = escape"),
    )
    execute(
        url,
        *(f"ALTER DATABASE {url.rpartition('/')[2]} SET {setting}" for setting in settings),
        "CREATE TABLE numbers (id bigint PRIMARY KEY, name text, day timestamptz, span interval, items text[], "
        "during tstzrange, commits text DEFAULT current_setting('synchronous_commit'))",
    )
    for name, value in {"CLIENTENCODING": "WIN1252", "TZ": "Asia/Tokyo", "DATESTYLE": "German"}.items():
        monkeypatch.setenv(f"PG{name}", value)
    select = (
        "id, 'ä€日' AS name, DATE '2024-03-04' AS day, '-1 2:03:04' AS span, '{a,NULL}' AS items, "
        "'[2024-05-06 00:00,)' AS during"
    )
    run(tmp_path, table_job(APPEND | mode, {"c": {"rows": 1}}, converters=[{"type": "sql", "select": select}]))
    seen = (
        "convert_to(name, 'UTF8'), day = '2024-03-04 00:00Z', span = '-1 days +02:03:04', items[2] IS NULL, "
        "lower(during) = '2024-05-06 00:00Z', commits"
    )
    ((name, *others),) = query(url, f"SELECT {seen} FROM numbers")
    assert (bytes(name).decode(), *others) == ("ä€日", True, True, True, True, "on")
    store = state_database.make_engine(state_database.parse_url(url))
    with closing(store.connect()) as connection:
        names = ("client_encoding", "timezone", "transaction_isolation")
        told = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
    assert told == ["UTF8", "UTC", "read committed"]
    store.dispose()


@pytest.mark.parametrize("table", ["numbers", "n" * 63], ids=["short", "longest"])
def test_newest_row_of_a_key_counts(tmp_path: Path, url: str, table: str) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["slot"], "table": table}
    slots = {"converters": [{"type": "sql", "select": "id % 4 AS slot, id, value"}]}
    for rows, newest in ((10, [8, 9, 6, 7]), (12, [8, 9, 10, 11])):
        run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, **slots))
        assert query(url, f"SELECT id FROM {table} ORDER BY slot") == [(one,) for one in newest]


def test_keys_that_the_table_takes_for_equal_are_one_and_its_types_take_texts(tmp_path: Path, url: str) -> None:
    execute(
        url,
        "CREATE COLLATION any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false)",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        'CREATE TABLE numbers (name text COLLATE any_case PRIMARY KEY, mood mood, doc jsonb, "50%%" bigint)',
    )
    upsert = APPEND | {"mode": "upsert", "key": ["name"]}
    select = "CASE WHEN id % 2 = 0 THEN 'a' ELSE 'A' END AS name, 'sad' AS mood, '{}' AS doc, id AS \"50%\""
    for rows in (4, 7):
        run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, converters=[{"type": "sql", "select": select}]))
        assert query(url, 'SELECT lower(name), mood, doc, "50%" FROM numbers') == [("a", "sad", {}, rows - 1)]


def test_key_that_only_a_deferrable_constraint_keeps_unique_waits_for_a_person(tmp_path: Path, url: str) -> None:
    """It was tried again by each run."""
    execute(url, "CREATE TABLE numbers (id bigint UNIQUE DEFERRABLE, dataset text, value text)")
    upsert = APPEND | {"mode": "upsert", "key": ["id"]}
    (late,) = run(tmp_path, table_job(upsert, {"c": {"rows": 2}})).datasets
    assert "does not support deferrable unique constraints" in late.failures[0].message
    assert late.failures[0].code == "quarantined"


def test_rows_of_tables_that_inherit_from_one_that_is_replaced_stay(tmp_path: Path, url: str) -> None:
    execute(
        url,
        "CREATE TABLE numbers (id bigint); CREATE TABLE others () INHERITS (numbers); INSERT INTO others VALUES (99)",
        "CREATE TABLE parts (id bigint) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (100); INSERT INTO parts VALUES (99)",
    )
    only_id = {"converters": [{"type": "sql", "select": "id"}]}
    for name, left in (("numbers", [0, 1, 99]), ("parts", [0, 1])):
        replace = APPEND | {"mode": "replace", "table": name if name == "parts" else f"public.{name}"}
        run(tmp_path, table_job(replace, {"c": {"rows": 2}}, job=name, **only_id))
        assert query(url, f"SELECT id FROM {name} ORDER BY id") == [(one,) for one in left]


def test_newer_row_of_a_key_stays_whatever_comes_late(tmp_path: Path, url: str) -> None:
    upsert = APPEND | {"mode": "upsert", "table": "public.numbers"}
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["slot"], "delta_fields": ["version", "id"]}
    for rows, version, newest in ((6, "100 - id", [0, 1, 2]), (9, "50 - id", [0, 1, 2]), (10, "100", [9, 1, 2])):
        slots = {"converters": [{"type": "sql", "select": f"id % 3 AS slot, id, {version} AS version"}]}
        run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, extract=extract, **slots))
        assert query(url, "SELECT id FROM public.numbers ORDER BY slot") == [(one,) for one in newest]


def test_two_runs_at_once_load_a_commit_once(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[LoadSqlTableStep] = []
    execute = LoadSqlTableStep.execute

    def twice(self: LoadSqlTableStep, storage: Storage) -> None:
        steps.append(self)
        both = [threading.Thread(target=execute, args=(self, storage)) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()

    monkeypatch.setattr(LoadSqlTableStep, "execute", twice)
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 1000}})).status is RunStatus.SUCCEEDED

    assert query(url, "SELECT count(*), count(DISTINCT id) FROM numbers") == [(1000, 1000)]
    assert steps[0].verify(LocalStorage())


def test_of_two_jobs_that_replace_a_new_table_at_once_one_is_refused(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    replace = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "numbers", "mode": "replace"}
    check_turns(tmp_path, replace, lambda: bool(query(url, waits)), monkeypatch)
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


def test_of_a_partition_and_its_table_that_are_replaced_at_once_the_later_is_refused(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        url,
        "CREATE TABLE numbers (id bigint, dataset text, value text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF numbers FOR VALUES FROM (0) TO (100)",
        # By it, who had waited for the other load did not see what that one had loaded.
        f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'repeatable read'",
    )
    waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
    replace = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "numbers", "mode": "replace"}
    check_turns(tmp_path, replace, lambda: bool(query(url, waits)), monkeypatch, table="part")
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_texts_that_postgresql_rounds_or_cuts_are_refused(tmp_path: Path, url: str, mode: str) -> None:
    kinds = {
        "money": "1.239",
        "interval(0)": "1.9 seconds",
        "interval year": "1 year 5 months",
        "numeric(5, 1)[]": "{1.29}",
        "timestamp(0)[]": "{2026-01-01 00:00:00.9}",
        "date[]": "{2026-01-01 10:00}",
        "varchar(3)[]": "{abc   }",
        "int[]": "{1}",
        "interval": "1 day",
        "text[]": "{a}",
        "float8[]": "{0.1}",
    }
    if mode == "upsert":  # it writes names of types in quotes
        execute(url, f"ALTER DATABASE {sa.make_url(url).database} SET quote_all_identifiers = on")
    key = {"mode": mode, "key": ["id"]} if mode == "upsert" else {}
    refused = set()
    for number, (kind, value) in enumerate(kinds.items()):
        execute(url, f"CREATE TABLE kind_{number} (id bigint PRIMARY KEY, it {kind})")
        job = table_job(
            APPEND | key | {"table": f"kind_{number}"},
            {"c": {"rows": 1}},
            job=f"kind_{number}",
            converters=[{"type": "sql", "select": f"id, '{value}' AS it"}],
        )
        if run(tmp_path, job).status is not RunStatus.SUCCEEDED:
            refused.add(kind)
    assert refused == {*kinds} - {"int[]", "interval", "text[]", "float8[]"}


def test_values_that_a_column_would_read_as_something_else_are_refused(tmp_path: Path, url: str) -> None:
    refused = {
        "cut": ("name", "repeat('é', 60)", "cuts what is longer than 63 bytes"),
        "first": ('"char"', "'ab'", "cuts what is longer than 63 bytes, or than one"),
        "hexadecimal": ("text", "from_hex('ff00')", "bytes would be written as hexadecimal digits"),
        "seconds": ("interval(0)", "1.9::DOUBLE", "a number would be read as seconds"),
        "time_cut": ("interval(0)", "'01:02:03.9'::TIME", "what is finer would be rounded or cut"),
        "network": ("cidr", "7", "it would be read as an address"),
        "below": ("oid", "-1", "some numbers are below 0"),
    }
    kept = {"whole": ("interval", "'01:02:03.9'::TIME"), "number": ("oid", "7"), "address": ("inet", "'::1'")}
    told = {}
    for table, (kind, value, *_) in (refused | kept).items():
        execute(url, f"CREATE TABLE {table} (id bigint, v {kind})")
        select = [{"type": "sql", "select": f"id, {value} AS v"}]
        job = table_job(APPEND | {"table": table}, {"c": {"rows": 1}}, job=table, converters=select)
        told[table] = [one.message for one in run(tmp_path, job).datasets[0].failures]
    assert {table: len(said) for table, said in told.items()} == dict.fromkeys(refused, 1) | dict.fromkeys(kept, 0)
    assert {table: says in told[table][0] for table, (_, _, says) in refused.items()} == dict.fromkeys(refused, True)
    assert [query(url, f"SELECT count(*) FROM {table}") for table in refused] == [[(0,)]] * len(refused)
    found = [query(url, f"SELECT CAST(v AS text) FROM {table}")[0][0] for table in kept]
    assert found == ["01:02:03.9", "7", "::1/128"]


def test_row_that_the_table_refuses_waits_for_a_person_and_leaves_nothing(tmp_path: Path, url: str) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE numbers ADD CHECK (id < 5)"))
    engine.dispose()
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 9}}))

    assert result.status is RunStatus.FAILED
    assert "violates check constraint" in result.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(2,)]
    assert query(url, "SELECT count(*) FROM gobblin_commits") == [(1,)]


def test_server_that_ends_the_connection_in_copy_is_told_once_in_its_own_words(
    tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        body = "BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END"
        connection.execute(sa.text(f"CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS '{body}'"))
        connection.execute(sa.text("CREATE TRIGGER leave BEFORE INSERT ON numbers EXECUTE FUNCTION leave()"))
    engine.dispose()
    hook = sys.excepthook
    (failed,) = run(tmp_path, table_job(APPEND, {"c": {"rows": 100_000}})).datasets

    assert "OperationalError: terminating connection due to administrator command" in failed.failures[0].message
    assert capfd.readouterr().err == ""
    assert sys.excepthook is hook
    assert query(url, "SELECT count(*) FROM numbers") == [(2,)]


@pytest.mark.parametrize(
    ("column", "select", "problem"),
    [
        ("TEXT", "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'", "would lose data"),
        ("TIMESTAMPTZ", "TIMESTAMP '2020-01-01 10:00:00'", "instants and clock times are not the same"),
        ("TIMESTAMP", "TIMESTAMPTZ '2020-01-01 10:00:00+02'", "instants and clock times are not the same"),
        ("TIMESTAMP(0)", "TIMESTAMP '2020-01-01 10:00:00.7'", "fractions of seconds would be rounded"),
        ("DATE", "TIMESTAMP '2020-01-01 10:00:00'", "the time or the day would be lost"),
        ("NUMERIC(5,1)", "1.239::DECIMAL(7,3)", "it would be rounded"),
        ("NUMERIC(5,1)", "1.239::DOUBLE", "it would be rounded"),
        ("REAL", "0.1::DOUBLE", "digits would be lost"),
        ("DOUBLE PRECISION", "9007199254740993::BIGINT", "digits would be lost"),
        ("INTEGER", "'007'", "text would be read as another type"),
        ("INTEGER", "3000000000::BIGINT", "out of range"),
        ("TEXT", "'a' || chr(0)", "invalid byte sequence"),
        ("REAL", "16777217::INTEGER", "digits would be lost"),
        ("MONEY", "1.239::DECIMAL(5,3)", "it would be rounded"),
        ("TIME(0)", "TIME '10:00:00.7'", "fractions of seconds would be rounded"),
        ("VARCHAR(3)", "'ab   '", "some texts end with blanks"),
        ("tenths", "1.239::DECIMAL(7,3)", "it would be rounded"),
        ("BYTEA", r"'C:\101'", "some texts have backslashes"),
    ],
)
def test_value_that_a_table_would_change_is_refused(
    tmp_path: Path, url: str, column: str, select: str, problem: str
) -> None:
    check_refused(tmp_path, url, column, select, problem, APPEND)


@pytest.mark.parametrize(
    ("column", "select"),
    [("INTEGER", "1.5::DOUBLE"), ("SMALLINT", "1.5::DECIMAL(3,1)"), ("whole", "'nan'::DOUBLE")],
)
def test_fractions_that_an_upsert_would_round_are_refused(tmp_path: Path, url: str, column: str, select: str) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["id"]}
    check_refused(tmp_path, url, column, select, "column 'v' holds whole numbers, and some values have", upsert)


def check_refused(root: Path, url: str, column: str, select: str, problem: str, publisher: dict[str, Any]) -> None:
    """Check that a value is refused for a column that a person has made, and that nothing is in its table."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE DOMAIN tenths AS NUMERIC(5,1)"))
        connection.execute(sa.text("CREATE DOMAIN whole AS INTEGER"))
        connection.execute(sa.text(f"CREATE TABLE numbers (id BIGINT PRIMARY KEY, v {column})"))
    engine.dispose()
    odd = {"converters": [{"type": "sql", "select": f"id, {select} AS v"}]}
    result = run(root, table_job(publisher, {"c": {"rows": 1}}, **odd))

    assert problem in result.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(0,)]


WIDER = [
    ("SMALLINT", "7", "40000::INTEGER", "INTEGER", "40000"),
    ("INTEGER", "7", "3000000000::BIGINT", "BIGINT", "3000000000"),
    ("INTEGER", "7", "1.5::DOUBLE", "DOUBLE PRECISION", "1.5"),
    ("REAL", "0.5", "0.1::DOUBLE", "DOUBLE PRECISION", "0.1"),
    ("BIGINT", "9223372036854775807", "1.25::DECIMAL(5,2)", "NUMERIC(21, 2)", "1.25"),
    ("NUMERIC(5,1)", "1.5", "1.239::DECIMAL(7,3)", "NUMERIC(7, 3)", "1.239"),
    ("DATE", "'2024-02-29'", "TIMESTAMP '2020-01-01 10:00:00.5'", "TIMESTAMP", "'2020-01-01 10:00:00.5'"),
    ("INTEGER", "7", "8::BIGINT", "INTEGER", "8"),
    ("TIMESTAMP(0)", "'2024-02-29'", "TIMESTAMP '2020-01-01 10:00:00.5'", "TIMESTAMP", "'2020-01-01 10:00:00.5'"),
]
"""A column, its value, the SELECT of a new one, the column's type by then, and the new value."""


@pytest.mark.parametrize(("column", "before", "select", "wider", "after"), WIDER)
@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_column_becomes_wider_with_evolve_and_keeps_its_values(
    tmp_path: Path, url: str, column: str, before: str, select: str, wider: str, after: str, mode: dict[str, Any]
) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(
            sa.text(f"CREATE TABLE numbers (id BIGINT PRIMARY KEY, v {column} NOT NULL DEFAULT {before})")
        )
        connection.execute(sa.text("INSERT INTO numbers VALUES (-1, DEFAULT)"))
    rows = {"converters": [{"type": "sql", "select": f"id, {select} AS v"}], "schema_contract": "evolve"}
    assert run(tmp_path, table_job(APPEND | mode, {"c": {"rows": 1}}, **rows)).status is RunStatus.SUCCEEDED

    is_kept = f"SELECT count(*) FROM numbers WHERE (id = -1 AND v = {before}) OR (id = 0 AND v = {after})"
    assert query(url, is_kept) == [(2,)]
    with engine.begin() as connection:
        found = sa.inspect(connection).get_columns("numbers")[1]
    engine.dispose()
    assert (str(found["type"]), found["nullable"], bool(found["default"])) == (wider, False, True)


def test_column_never_becomes_narrower_if_another_run_was_faster(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE numbers (id BIGINT, v NUMERIC(5,1))"))
    is_needed = sql_widen._is_needed

    def slow(*args: Any) -> bool:
        with engine.begin() as connection:  # between the look at the table and its lock
            connection.execute(sa.text("ALTER TABLE numbers ALTER COLUMN v TYPE NUMERIC(9,5)"))
            connection.execute(sa.text("INSERT INTO numbers VALUES (-1, 1.23456)"))
        return is_needed(*args)

    monkeypatch.setattr(sql_widen, "_is_needed", slow)
    rows = {"converters": [{"type": "sql", "select": "id, 1.239::DECIMAL(7,3) AS v"}], "schema_contract": "evolve"}
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 1}}, **rows)).status is RunStatus.SUCCEEDED
    engine.dispose()
    assert query(url, "SELECT v FROM numbers ORDER BY id") == [(Decimal("1.23456"),), (Decimal("1.239"),)]


def test_load_that_failed_behind_a_wider_column_is_finished_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_with(rows: int, value: str) -> RunStatus:
        converters = [{"type": "sql", "select": f"id, {value} AS v"}]
        job = table_job(APPEND, {"c": {"rows": rows}}, converters=converters, schema_contract="evolve")
        return run(tmp_path, job).status

    assert run_with(1, "7::INTEGER") is RunStatus.SUCCEEDED
    with monkeypatch.context() as patched:

        def fail(*_: Any) -> None:
            raise StorageError(operation="load", path="numbers", problem="the network is away")

        patched.setattr(LoadSqlTableStep, "_load", fail)
        assert run_with(2, "1.5::DOUBLE") is RunStatus.FAILED
    assert query(url, "SELECT pg_typeof(v)::text, v FROM numbers") == [("double precision", 7.0)]
    assert run_with(2, "1.5::DOUBLE") is RunStatus.SUCCEEDED
    assert query(url, "SELECT v FROM numbers ORDER BY id") == [(7.0,), (1.5,)]


def test_column_that_a_view_uses_waits_for_a_person(tmp_path: Path, url: str) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE numbers (id BIGINT, v INTEGER)"))
        connection.execute(sa.text("CREATE VIEW shown AS SELECT v FROM numbers"))
    engine.dispose()
    rows = {"converters": [{"type": "sql", "select": "id, 3000000000 AS v"}], "schema_contract": "evolve"}
    (failed,) = run(tmp_path, table_job(APPEND, {"c": {"rows": 1}}, **rows)).datasets
    assert "cannot alter type of a column used by a view or rule" in failed.failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(0,)]


def test_odd_values_arrive_as_they_are(tmp_path: Path, url: str) -> None:
    select = (
        "id, '1811-07-23T15:06:40Z' AS old, '0001-01-01T00:00:00Z' AS first, -0.0::DOUBLE AS zero, "
        "99999999999999999999999999999999999999::DECIMAL(38, 0) AS large, 9223372036854775807 AS high, "
        "'{\"a\": 1}' AS doc, 0.1::DOUBLE AS price"
    )
    zoned = {
        "type": "columns",
        "columns": {at: {"type": "timestamp", "timezone": "America/New_York"} for at in ("old", "first")},
    }
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE numbers (id BIGINT, doc JSONB, price NUMERIC)"))
    engine.dispose()
    parts = {"converters": [{"type": "sql", "select": select}, zoned]}
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 1}}, **parts))
    assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures

    (row,) = query(
        url, "SELECT *, old AT TIME ZONE 'UTC' AS old_utc, first AT TIME ZONE 'UTC' AS first_utc FROM numbers"
    )
    assert (row.old_utc, row.first_utc) == (datetime(1811, 7, 23, 15, 6, 40), datetime(1, 1, 1))
    assert (str(row.zero), row.high, row.doc, row.price) == ("-0.0", 2**63 - 1, {"a": 1}, Decimal("0.1"))
    assert row.large == Decimal("9" * 38)


def test_schema_that_is_missing_is_made_with_the_table(tmp_path: Path, url: str) -> None:
    job = table_job(APPEND | {"table": "mart.numbers"}, {"c": {"rows": 2}})
    result = run(tmp_path, job)
    assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures
    assert [row[0] for row in query(url, "SELECT id FROM mart.numbers ORDER BY id")] == [0, 1]
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED


def test_schema_that_may_not_be_made_is_waited_for_and_nothing_is_read_again(
    tmp_path: Path, url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = str(sa.make_url(url).database)
    postgres_server.execute(f"CREATE ROLE loader_{database} LOGIN PASSWORD 'x'")
    postgres_server.execute(f"GRANT CREATE ON SCHEMA public TO loader_{database}", database)
    parts = sa.make_url(url).set(username=f"loader_{database}", password="x")
    monkeypatch.setenv("WAREHOUSE_URL", parts.render_as_string(hide_password=False))
    job = table_job(APPEND | {"table": "mart.numbers"}, {"c": {"rows": 2}})
    assert run(tmp_path, job).status is RunStatus.FAILED
    postgres_server.execute(f"CREATE SCHEMA mart AUTHORIZATION loader_{database}", database)

    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        assert [one.state for one in recover_job(JobContext.of(opened, job, store))] == ["committed"]
    assert [row[0] for row in query(url, "SELECT id FROM mart.numbers ORDER BY id")] == [0, 1]
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED


def test_names_that_the_server_would_cut_are_refused(tmp_path: Path, url: str) -> None:
    own = APPEND | {"table": "of_{dataset}"}
    long = "x" * 60
    both = run(tmp_path, table_job(own, {f"{long}1": {"rows": 2}, f"{long}2": {"rows": 2}}))
    assert [one.rows_read for one in both.datasets] == [0, 0]
    for one in both.datasets:
        assert f"name 'of_{one.dataset_urn}' has 64 bytes, and the database takes at most 63" in one.failures[0].message
    rename = {"type": "rename", "columns": {"value": f"{long}long"}}
    column = run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}, converters=[rename]))
    assert f"column name '{long}long' has 64 bytes" in column.datasets[0].failures[0].message
    assert query(url, "SELECT relname FROM pg_class WHERE relname LIKE 'of%'") == []


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_columns_whose_names_mean_something_in_sql_come_later_and_are_filled(
    tmp_path: Path, url: str, mode: dict[str, Any]
) -> None:
    odd = {"converters": [{"type": "sql", "select": 'id, id AS ":b", id AS "50%"'}]}
    run(tmp_path, table_job(APPEND | mode, {"c": {"rows": 1}}, converters=[{"type": "sql", "select": "id"}]))
    for rows in (2, 3):
        result = run(tmp_path, table_job(APPEND | mode, {"c": {"rows": rows}}, **odd))
        assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures
    assert query(url, "SELECT * FROM numbers ORDER BY id") == [(0, None, None), (1,) * 3, (2,) * 3]


def test_tables_and_columns_that_differ_in_case_are_two(tmp_path: Path, url: str) -> None:
    own = APPEND | {"table": "of_{dataset}"}
    rename = {"type": "rename", "columns": {"value": "ID"}}
    result = run(tmp_path, table_job(own, {"Orders": {"rows": 2}, "orders": {"rows": 3}}, converters=[rename]))
    assert result.status is RunStatus.SUCCEEDED
    assert query(url, 'SELECT count("ID") FROM "of_Orders"') == [(1,)]
    assert query(url, "SELECT count(id) FROM of_orders") == [(3,)]


def test_table_that_a_frozen_session_holds_is_waited_for_and_told_with_the_session(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_waits, "LOCK_WAIT_S", 1)
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.connect() as frozen:
        frozen.execute(sa.text("LOCK TABLE gobblin_commits IN SHARE MODE"))
        number = frozen.scalar(sa.select(sa.func.pg_backend_pid()))
        (held,) = run(tmp_path, table_job(APPEND, {"c": {"rows": 5}})).datasets
    engine.dispose()
    says = f"Held by session {number} (user postgres, from 127.0.0.1, idle in transaction, its transaction began at "
    assert "cannot publish to table numbers: another session holds it" in held.failures[0].message
    assert says in held.failures[0].message
    assert f"end it (SELECT pg_terminate_backend({number}))" in held.failures[0].message
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 5}})).status is RunStatus.SUCCEEDED
    assert query(url, "SELECT count(*) FROM numbers") == [(5,)]


def test_limits_of_the_server_that_are_shorter_count(url: str) -> None:
    database = sa.make_url(url).database
    asked = "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"ALTER DATABASE {database} SET lock_timeout = '7s'"))
    engine.dispose()
    with sql_waits.bound_waits(make_engine(parse_url(url, ""), "of a test")).connect() as connection:
        assert connection.execute(sa.text(asked)).one() == ("7s", "10min")


def test_statement_that_runs_is_ended_when_the_command_is_stopped(url: str) -> None:
    engine = make_engine(parse_url(url, ""), "of a test")
    stop = threading.Timer(0.2, cut_off_all)
    stop.start()
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError):
        connection.execute(sa.text("SELECT pg_sleep(60)"))
    assert was_cut_off()
