"""The source `query` on a real MariaDB, whose clock is far from UTC: nothing garbled, rounded, missed or twice."""

from __future__ import annotations

import gc
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.clients.sql import make_engine, parse_url
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.query.source import QuerySource
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import ConstructContext, SourceContext
from gobblin_dagster.core.errors import ExtractError, SourceError, TransientError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.mariadb import MariadbServer

pytestmark = pytest.mark.mariadb
CONTEXT = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
BY_ID = {"column": "id", "type": "long"}


@pytest.fixture
def database(mariadb_server: MariadbServer) -> str:
    return mariadb_server.new_database()


def run(root: Path, url: str, **source: Any) -> dict[str, DatasetResult]:
    body = {
        "job": "shop",
        "source": {"type": "query", "url": url, "watermark": BY_ID} | source,
        "extract": {"namespace": "shop", "table": "all"},
        "output": {"path": "lake"},
    }
    job = JobSpec.model_validate(body)
    result = run_job(Project(root, ProjectSpec(project="shop"), (job,)), job, runner=InlineRunner())
    return {dataset.dataset_urn: dataset for dataset in result.datasets}


def published(root: Path) -> pa.Table:
    """Return what all runs published, in order of the ids."""
    return pa.concat_tables(pq.read_table(file) for file in (root / "lake").rglob("*.parquet")).sort_by("id")


def test_every_common_type_arrives_as_it_is(mariadb_server: MariadbServer, database: str, tmp_path: Path) -> None:
    columns = {
        "id": ("bigint", "1", 1),
        "flag": ("tinyint(1)", "1", 1),
        "single": ("float", "16777215", 16777215.0),  # sent as 16777200 where nobody sees to it
        "twice": ("double", "0.1", 0.1),
        "price": ("decimal(12,3)", "1.5", Decimal("1.500")),
        "name": ("varchar(20)", "'100% é😀'", "100% é😀"),
        "kind": ("enum('a','b')", "'b'", "b"),
        "body": ("json", "'{\"k\": 1}'", '{"k": 1}'),
        "packed": ("binary(4)", "x'ff00fe01'", b"\xff\x00\xfe\x01"),
        "some": ("varbinary(9)", "x'fffe'", b"\xff\xfe"),
        "raw": ("blob", "x'80'", b"\x80"),
        "raw_tiny": ("tinyblob", "x'80'", b"\x80"),
        "raw_medium": ("mediumblob", "x'80'", b"\x80"),
        "raw_long": ("longblob", "x'80'", b"\x80"),
        "bits": ("bit(8)", "b'11111110'", b"\xfe"),
        "day": ("date", "'2020-02-29'", date(2020, 2, 29)),
        "at_wall": ("datetime(6)", "'2020-01-01 05:00:00.123456'", datetime(2020, 1, 1, 5, 0, 0, 123456)),
        "instant": ("timestamp(6)", "'2020-01-01 05:00:00.5'", datetime(2020, 1, 1, 10, 0, 0, 500000, UTC)),
        "clock": ("time", "'838:59:59'", "838:59:59"),
        "missing": ("bigint", "NULL", None),
    }
    declared = ", ".join(f"`{name}` {kind} NULL" for name, (kind, _, _) in columns.items())
    values = ", ".join(value for _, value, _ in columns.values())
    mariadb_server.execute(
        f"CREATE TABLE kinds ({declared})", f"INSERT INTO kinds VALUES ({values})", database=database
    )
    run(tmp_path, mariadb_server.url(database), tables=["kinds"])
    assert published(tmp_path).to_pylist() == [{name: value for name, (_, _, value) in columns.items()}]


@pytest.mark.parametrize(("column", "high_hour"), [("at", 7), ("wall", 2)])
def test_what_comes_between_runs_is_read_once(
    mariadb_server: MariadbServer, database: str, tmp_path: Path, column: str, high_hour: int
) -> None:
    columns = "id bigint AUTO_INCREMENT PRIMARY KEY, at timestamp(6) NOT NULL, wall datetime(6) NOT NULL"
    mariadb_server.execute(f"CREATE TABLE events ({columns})", database=database)
    url, source = mariadb_server.url(database), {"tables": ["events"], "watermark": {"column": column}}
    for hour in range(3):
        times = ", ".join(f"('2020-01-01 0{hour}:00:00.{part}', '2020-01-01 0{hour}:00:00.{part}')" for part in (5, 9))
        mariadb_server.execute(f"INSERT INTO events (at, wall) VALUES {times}", database=database)
        assert run(tmp_path, url, **source)[f"{database}.events"].rows_read == 2
    (idle,) = run(tmp_path, url, **source).values()
    assert str(idle.actual_high) == f"2020-01-01T0{high_hour}:00:00.900001Z"
    assert published(tmp_path).column("id").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_days_that_are_taken_for_utc_say_that_the_servers_clock_is_another(
    mariadb_server: MariadbServer, database: str
) -> None:
    mariadb_server.execute("CREATE TABLE events AS SELECT 1 AS id, date '2020-01-01' AS day", database=database)
    url, by_day = mariadb_server.url(database), {"column": "day", "type": "date"}
    (offer,) = source(url, watermark=by_day).plan(CONTEXT)
    assert "day has no time zone and is read as UTC, but the server's clock is -5 h from it" in offer.notes[0]
    (told,) = source(url, watermark=by_day, timezone="UTC").plan(CONTEXT)
    assert told.notes == offer.notes[1:]


@pytest.mark.parametrize("source", [{"tables": ["events"]}, {"query": "SELECT * FROM events"}], ids=["table", "query"])
def test_watermark_column_that_becomes_a_timestamp_is_not_read_on_with_positions_of_the_servers_clock(
    mariadb_server: MariadbServer, database: str, tmp_path: Path, source: dict[str, Any]
) -> None:
    mariadb_server.execute(
        "CREATE TABLE events (id int, at datetime)",
        "INSERT INTO events VALUES (1, '2026-01-05 10:00'), (2, '2026-01-05 12:00')",
        database=database,
    )
    source = source | {"watermark": {"column": "at"}}
    (first,) = run(tmp_path, mariadb_server.url(database), **source).values()
    assert first.rows_read == 2
    # 12:00 of the server's clock is 17:00 in UTC.
    mariadb_server.execute("ALTER TABLE events MODIFY at timestamp NULL", database=database)
    (second,) = run(tmp_path, mariadb_server.url(database), **source).values()
    (failure,) = second.failures
    assert "column `at` holds times with a time zone, it held times without a time zone" in failure.message


def test_timestamp_of_a_query_is_compared_with_now_in_utc(mariadb_server: MariadbServer, database: str) -> None:
    """The server sends it in UTC: no clock of `timezone` is behind it, and no other one is guessed."""
    mariadb_server.execute("CREATE TABLE events AS SELECT now() - INTERVAL 1 MINUTE AS at", database=database)
    mariadb_server.execute("ALTER TABLE events MODIFY at timestamp NULL", database=database)
    query = {"query": "SELECT * FROM events", "watermark": {"column": "at"}}
    for options in ({}, {"timezone": "America/New_York"}):
        (offer,) = source(mariadb_server.url(database), **query, **options).plan(CONTEXT)
        assert len(offer.work_units) == 1
        assert not any("has no time zone" in note for note in offer.notes)


@pytest.mark.parametrize("what", [{"tables": ["events"]}, {"query": "SELECT * FROM events"}], ids=["table", "query"])
def test_times_that_get_a_zone_or_lose_it_between_plan_and_read_are_refused(
    mariadb_server: MariadbServer, database: str, what: dict[str, Any]
) -> None:
    mariadb_server.execute(
        "CREATE TABLE events (id int, at datetime(6), other timestamp NULL)",
        "INSERT INTO events VALUES (1, '2026-01-05 10:00', '2026-01-05 10:00')",
        database=database,
    )
    made = source(mariadb_server.url(database), **what)
    for column, kind, message in (
        ("at", "timestamp(6) NULL", "column at: expected times without a time zone, as the run was planned, got times"),
        ("other", "datetime", "column other: expected times with a time zone, as the run was planned, got times"),
    ):
        (offer,) = made.plan(CONTEXT)
        mariadb_server.execute(f"ALTER TABLE events MODIFY {column} {kind}", database=database)
        with closing(made.extractor(offer.work_units[0])) as extractor, pytest.raises(ExtractError, match=message):
            list(extractor.chunks())


@pytest.mark.parametrize(("options", "is_told"), [({}, True), ({"lag": 1}, False), ({"overlap": 1}, False)])
def test_transactions_that_are_not_waited_for_are_told_where_nothing_covers_them(
    mariadb_server: MariadbServer, database: str, options: dict[str, int], is_told: bool
) -> None:
    mariadb_server.execute("CREATE TABLE events AS SELECT seq AS id FROM seq_1_to_9", database=database)
    context = SourceContext(Extract("shop", "all", ExtractType.SNAPSHOT_APPEND), {}, lambda urn: True, SystemClock())
    (offer,) = source(mariadb_server.url(database), primary_key=["id"], **options).plan(context)
    assert any("are lost; set `lag` or `overlap`" in note for note in offer.notes) is is_told


def test_times_to_come_by_the_servers_clock_wait(mariadb_server: MariadbServer, database: str) -> None:
    mariadb_server.execute(
        "CREATE TABLE events (id bigint, at datetime)",
        "INSERT INTO events VALUES (1, '2020-01-01'), (2, UTC_TIMESTAMP() + INTERVAL 1 HOUR)",
        database=database,
    )
    (offer,) = source(mariadb_server.url(database), watermark={"column": "at"}, timezone="UTC").plan(CONTEXT)
    assert [unit.rows for unit in offer.work_units] == [1]
    assert "they are less than 1 s old, or in the future, by the clock of UTC" in offer.notes[0]


def test_query_with_percent_and_colon_is_read(mariadb_server: MariadbServer, database: str, tmp_path: Path) -> None:
    mariadb_server.execute(
        "CREATE TABLE t (id bigint, v varchar(9), f float)",
        "INSERT INTO t VALUES (1, 'a:x', 123456.789), (2, 'b', 1)",
        database=database,
    )
    run(tmp_path, mariadb_server.url(database), query="select id, v, f from t where v like 'a%' and v = 'a:x'")
    assert published(tmp_path).to_pylist() == [{"id": 1, "v": "a:x", "f": 123456.7890625}]


def test_table_that_we_may_not_read_is_its_problem_alone(
    mariadb_server: MariadbServer, database: str, tmp_path: Path
) -> None:
    mariadb_server.execute(
        "CREATE TABLE open (id bigint)",
        "INSERT INTO open VALUES (1)",
        "CREATE TABLE closed (id bigint)",
        "CREATE USER guest@'127.0.0.1' IDENTIFIED BY 'secret-word'",
        f"GRANT SELECT ON {database}.open TO guest@'127.0.0.1'",
        f"GRANT INSERT ON {database}.closed TO guest@'127.0.0.1'",
        database=database,
    )
    results = run(tmp_path, mariadb_server.url(database, "guest"), tables=["open", "closed"])
    assert results[f"{database}.open"].rows_read == 1
    (failure,) = results[f"{database}.closed"].failures
    assert "SELECT command denied to user ***@" in failure.message


def test_view_that_we_may_not_look_at_is_its_problem_alone(
    mariadb_server: MariadbServer, database: str, tmp_path: Path
) -> None:
    """A user who may select from a view may not look at its columns without SHOW VIEW."""
    mariadb_server.execute(
        "CREATE TABLE open (id bigint)",
        "INSERT INTO open VALUES (1)",
        "CREATE VIEW seen AS SELECT id FROM open",
        "CREATE TABLE behind (id bigint)",
        "CREATE VIEW torn AS SELECT id FROM behind",
        "DROP TABLE behind",
        database=database,
    )
    results = run(tmp_path, mariadb_server.url(database), include=[f"{database}\\..*"])
    assert results[f"{database}.open"].rows_read == 1
    for view in ("seen", "torn"):
        (failure,) = results[f"{database}.{view}"].failures
        assert "SHOW VIEW command denied" in failure.message
    (missing,) = run(tmp_path, mariadb_server.url(database), tables=["nowhere"]).values()
    assert "there is no such table" in missing.failures[0].message
    mariadb_server.execute(f"GRANT SHOW VIEW ON {database}.* TO reader@'127.0.0.1'")
    results = run(tmp_path, mariadb_server.url(database), include=[f"{database}\\..*"])
    assert results[f"{database}.seen"].rows_read == 1
    assert "torn" in results[f"{database}.torn"].failures[0].message


def test_columns_are_read_whatever_their_names(mariadb_server: MariadbServer, database: str, tmp_path: Path) -> None:
    mariadb_server.execute(
        "CREATE TABLE odd (id bigint, `a``b` int, `c````d` float, `50%` int)",
        "INSERT INTO odd VALUES (1, 2, 3.5, 4)",
        "CREATE VIEW seen AS SELECT * FROM odd",
        f"GRANT SHOW VIEW ON {database}.* TO reader@'127.0.0.1'",
        "CREATE TABLE broken (id bigint, `e\nf` int)",
        database=database,
    )
    results = run(tmp_path, mariadb_server.url(database), include=[f"{database}\\..*"])
    assert published(tmp_path).to_pylist() == [{"id": 1, "a`b": 2, "c``d": 3.5, "50%": 4}] * 2
    (failure,) = results[f"{database}.broken"].failures  # its column would be missing
    assert "Unknown column definition" in failure.message


@pytest.mark.parametrize(
    ("kind", "values", "got", "remedy", "read"),
    [
        ("date", "'2020-01-01', 0", "date32[day], got '0000-00-00', which is no date", "NULLIF(c, 0)", None),
        ("datetime", "0, '2020-01-01'", "got '0000-00-00 00:00:00', which is no date", "NULLIF(c, 0)", None),
        ("bigint unsigned", f"1, {2**64 - 1}", f"int64, got {2**64 - 1}", "CAST(c AS CHAR)", str(2**64 - 1)),
    ],
)
def test_value_that_no_type_of_ours_holds_is_told_with_a_way_to_read_it(
    mariadb_server: MariadbServer,
    database: str,
    tmp_path: Path,
    kind: str,
    values: str,
    got: str,
    remedy: str,
    read: Any,
) -> None:
    one, two = values.split(", ")
    mariadb_server.execute(
        f"CREATE TABLE t (id bigint, c {kind})", f"INSERT INTO t VALUES (1, {one}), (2, {two})", database=database
    )
    url = mariadb_server.url(database)
    (result,) = run(tmp_path, url, tables=["t"]).values()
    assert got in result.failures[0].message
    assert remedy in result.failures[0].message
    run(tmp_path / "query", url, query=f"select id, {remedy} as c from t")
    assert read in published(tmp_path / "query")["c"].to_pylist()


def test_table_of_an_engine_without_savepoints_leaves_the_others_be(
    mariadb_server: MariadbServer, database: str
) -> None:
    made = [f"CREATE TABLE {name} (id bigint NOT NULL) ENGINE = {name}" for name in ("Aria", "InnoDB", "MyISAM")]
    made += [f"INSERT INTO {name} VALUES (1)" for name in ("Aria", "InnoDB", "MyISAM")]
    mariadb_server.execute(*made, "CREATE TABLE last_one (id bigint)", database=database)
    read = source(mariadb_server.url(database), tables=["Aria", "InnoDB", "MyISAM", "last_one"])
    found = {offer.dataset_urn.partition(".")[2]: offer for offer in read.plan(CONTEXT)}
    assert {name: offer.problem for name, offer in found.items()} == dict.fromkeys(found, "")
    assert [len(found[name].work_units) for name in ("Aria", "InnoDB", "MyISAM", "last_one")] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("made", "option"),
    [
        ("CREATE TABLE stuck (id bigint NOT NULL)", "lock_wait_s"),
        ("CREATE VIEW stuck AS SELECT id FROM t WHERE sleep(600) = 0", "plan_timeout_s"),
        ("CREATE VIEW stuck AS SELECT id FROM base", "lock_wait_s"),
    ],
    ids=["locked table", "endless view", "view of a locked table"],
)
def test_table_that_does_not_answer_fails_alone(
    mariadb_server: MariadbServer, database: str, made: str, option: str
) -> None:
    columns = "(id bigint NOT NULL)"
    tables = (f"CREATE TABLE t {columns}", "INSERT INTO t VALUES (1)", f"CREATE TABLE base {columns}")
    mariadb_server.execute(*tables, made, f"GRANT SHOW VIEW ON {database}.* TO reader@'127.0.0.1'", database=database)
    waits = {"lock_wait_s": 1, "plan_timeout_s": 1}
    engine = make_engine(parse_url(mariadb_server.url(database, "root", ""), ""), "of a test")
    with engine.connect() as holder:
        if option == "lock_wait_s":
            holder.exec_driver_sql(f"LOCK TABLES {'base' if 'base' in made else 'stuck'} WRITE")
        found = source(mariadb_server.url(database), tables=["t", "stuck"], **waits)
        stuck, free = sorted(found.plan(CONTEXT), key=lambda offer: offer.dataset_urn)
    assert f"{database}.stuck" in stuck.problem
    assert f"`{option}`" in stuck.problem
    assert [unit.rows for unit in free.work_units] == [1]


def test_query_that_does_not_end_fails(mariadb_server: MariadbServer, database: str) -> None:
    limits = {"plan_timeout_s": 1, "lock_wait_s": 1}
    made = source(mariadb_server.url(database), query="SELECT 1 AS id, sleep(600) AS waits", **limits)
    (offer,) = made.plan(CONTEXT)
    assert "max_statement_time" in offer.problem
    assert "`plan_timeout_s`" in offer.problem


def test_column_of_geometries_is_named_and_may_be_left_out(
    mariadb_server: MariadbServer, database: str, tmp_path: Path
) -> None:
    mariadb_server.execute(
        "CREATE TABLE t (id bigint, place point, at inet6)",
        "INSERT INTO t VALUES (1, ST_GeomFromText('POINT(1 2)'), '::1')",
        database=database,
    )
    url = mariadb_server.url(database)
    (result,) = run(tmp_path, url, tables=["t"]).values()
    assert "column place holds geometries" in result.problem
    run(tmp_path / "without", url, tables=["t"], exclude_columns=["place"])
    assert published(tmp_path / "without").to_pylist() == [{"id": 1, "at": "::1"}]
    run(tmp_path / "query", url, query="select id, ST_AsText(place) as place from t")
    assert published(tmp_path / "query")["place"].to_pylist() == ["POINT(1 2)"]


def test_watermark_that_is_no_date_is_told(mariadb_server: MariadbServer, database: str) -> None:
    mariadb_server.execute("CREATE TABLE events (day date)", "INSERT INTO events VALUES (0)", database=database)
    (offer,) = source(mariadb_server.url(database), watermark={"column": "day", "type": "date"}).plan(CONTEXT)
    assert "got '0000-00-00', which is none; a `query` with NULLIF(day, 0) reads it as NULL" in str(offer.problem)


def test_settings_of_the_server_and_the_url_change_and_hide_nothing(
    mariadb_server: MariadbServer, database: str, tmp_path: Path
) -> None:
    """Rows behind a limit, columns beside that of the watermark, and new rows were left out; days were texts."""
    settings = {
        "sql_select_limit": "1",
        "sql_quote_show_create": "0",
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ORACLE,MAXDB'",
        "system_versioning_asof": "'2000-01-01'",
        "tx_isolation": "'READ-UNCOMMITTED'",
        "init_connect": "'SET autocommit = 0, time_zone = \"+09:00\"'",
    }
    columns = "id bigint, c char(5), v varchar(9), at timestamp, day date"
    rows = "(1, 'ab', 'a😀', '2020-01-01 05:00:00', '2020-01-01'), (2, '', '', '2020-01-01 06:00:00', NULL)"
    mariadb_server.execute(
        f"CREATE TABLE t ({columns}) WITH SYSTEM VERSIONING", f"INSERT INTO t VALUES {rows}", database=database
    )
    try:
        mariadb_server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in settings.items()))
        asked = "charset=utf8&init_command=SET+completion_type%3D2"
        run(tmp_path, f"{mariadb_server.url(database)}?{asked}", tables=["t"])
    finally:
        mariadb_server.execute(*(f"SET GLOBAL {name} = DEFAULT" for name in settings))
    assert published(tmp_path).to_pylist() == [
        {"id": 1, "c": "ab", "v": "a😀", "at": datetime(2020, 1, 1, 10, tzinfo=UTC), "day": date(2020, 1, 1)},
        {"id": 2, "c": "", "v": "", "at": datetime(2020, 1, 1, 11, tzinfo=UTC), "day": None},
    ]


def test_option_that_the_driver_does_not_know_is_named(mariadb_server: MariadbServer, database: str) -> None:
    with pytest.raises(SourceError, match=r"wrong option: .*'nope'"):
        list(source(f"{mariadb_server.url(database)}?nope=1").plan(CONTEXT))


def test_wrong_password_is_told_at_once_without_user_or_password(mariadb_server: MariadbServer, database: str) -> None:
    with pytest.raises(SourceError, match="Access denied") as caught:
        list(source(mariadb_server.url(database, password="wrong-word")).plan(CONTEXT))
    assert "wrong-word" not in str(caught.value)
    assert "reader" not in str(caught.value)


@pytest.mark.parametrize("password", ["pässwörd", "snow☃man"])
def test_password_may_have_any_letters(mariadb_server: MariadbServer, database: str, password: str) -> None:
    user = f"odd_{database}"
    mariadb_server.execute(
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'",
        f"GRANT SELECT ON {database}.* TO {user}@'127.0.0.1'",
        f"CREATE TABLE {database}.t (id bigint)",
    )
    (offer,) = source(mariadb_server.url(database, user, password), tables=["t"], watermark=BY_ID).plan(CONTEXT)
    assert offer.dataset_urn == f"{database}.t"
    with pytest.raises(SourceError, match="Access denied"):
        list(source(mariadb_server.url(database, user, f"{password}☃")).plan(CONTEXT))


# PyMySQL reads on when a result of a lost connection is collected, and cannot.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_session_that_is_ended_while_it_reads_may_be_tried_again(mariadb_server: MariadbServer, database: str) -> None:
    mariadb_server.execute(
        "CREATE TABLE long_rows (id bigint, body text)",
        "INSERT INTO long_rows SELECT seq, repeat('x', 2000) FROM seq_1_to_20000",
        database=database,
    )
    made = source(mariadb_server.url(database), tables=["long_rows"], fetch_rows=10)
    ((unit,),) = (offer.work_units for offer in made.plan(CONTEXT))
    chunks = made.extractor(unit).chunks()
    assert next(chunks).batch.num_rows == 10
    mariadb_server.execute("KILL USER reader@'127.0.0.1'")
    with pytest.raises(TransientError, match="mysql://127"):
        list(chunks)
    del chunks
    gc.collect()  # here, where its warnings are expected


def source(url: str, **options: Any) -> QuerySource:
    tables = {} if "query" in options else {"tables": ["events"]}
    body = {"type": "query", "url": url, "watermark": BY_ID} | tables | options
    made = registry.create(
        ConstructKind.SOURCE, ConstructSpec.model_validate(body), ConstructContext(job="shop", base_dir="/")
    )
    assert isinstance(made, QuerySource)
    return made
