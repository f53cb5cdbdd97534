"""Publishing to tables of a real MariaDB: names are one where the server takes them for one, and nowhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gobblin_dagster.constructs.clients.sql import columns_of, make_engine, parse_url
from gobblin_dagster.constructs.publishers import sql_waits
from gobblin_dagster.constructs.publishers.sql_names import unfit_columns
from gobblin_dagster.constructs.publishers.sql_table import SqlTableOptions, SqlTablePublisher
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import QuarantinedError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.spec.job import JobSpec
from tests.services.mariadb import MariadbServer, mariadb_binary, running_mariadb
from tests.unit.constructs.publishers.table_jobs import check_turns, table_job
from tests.unit.engine.jobs import by_urn, job_spec, project, run

pytestmark = pytest.mark.mariadb
ORDERS = {"Orders": {"rows": 2}, "orders": {"rows": 3}}
OWN = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "of_{dataset}"}


@pytest.fixture
def url(mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> str:
    return _known(mariadb_server, monkeypatch)


@pytest.fixture(scope="module")
def lax_server() -> Iterator[MariadbServer]:
    """Start a server that takes all names of tables in small letters, as on Windows, cuts values, stores zeros for
    missing ones, makes tables without transactions, and shows rows that are not committed."""
    binary = mariadb_binary()
    assert binary is not None  # the other server runs
    lax = ("--sql-mode=ANSI_QUOTES,EMPTY_STRING_IS_NULL", "--default-storage-engine=MyISAM")
    with running_mariadb(binary, "--lower-case-table-names=1", *lax) as server:
        others = ("sql_quote_show_create = 0", "tx_isolation = 'READ-UNCOMMITTED'", "sql_safe_updates = 1")
        server.execute(*(f"SET GLOBAL {one}" for one in others))
        yield server


@pytest.fixture
def folding_url(lax_server: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> str:
    return _known(lax_server, monkeypatch)


def _known(server: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = server.url(server.new_database(), "root", "")
    monkeypatch.setenv("WAREHOUSE_URL", url)
    return url


def query(url: str, statement: str) -> list[Any]:
    engine = sa.create_engine(url.replace("mysql:", "mysql+pymysql:"))
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(statement)).all()]
    engine.dispose()
    return rows


def test_tables_that_differ_in_case_are_two_where_the_server_says_so(tmp_path: Path, url: str) -> None:
    result = run(tmp_path, table_job(OWN, ORDERS))
    assert {one.outcome for one in result.datasets} == {DatasetOutcome.COMMITTED}
    run(tmp_path, table_job(OWN, {"Orders": {"rows": 4}}))
    assert query(url, "SELECT (SELECT count(*) FROM of_Orders), (SELECT count(*) FROM of_orders)") == [(4, 3)]


def test_of_two_jobs_that_replace_a_new_table_at_once_one_is_refused(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE IN ('User lock', 'Updating') AND DB = database()"
    replace = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "numbers", "mode": "replace"}
    check_turns(tmp_path, replace, lambda: bool(query(url, waits)), monkeypatch)
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


def test_commit_that_is_not_over_is_not_taken_for_done(tmp_path: Path, folding_url: str) -> None:
    """It may be rolled back, and the watermark would have moved past its rows. Safe updates let it replace rows."""
    replace = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "numbers", "mode": "replace"}
    for rows, left in ((4, 4), (6, 2)):
        run(tmp_path, table_job(replace, {"c": {"rows": rows}}))
        assert query(folding_url, "SELECT count(*) FROM numbers") == [(left,)]
    options = SqlTableOptions(url_env="WAREHOUSE_URL", table="numbers")
    publisher = SqlTablePublisher(options, ConstructContext("numbers", str(tmp_path)))
    known = publisher.newest_commits({"c": "/lake/c"})
    assert known.keys() == {"c"}
    engine = sa.create_engine(folding_url.replace("mysql:", "mysql+pymysql:"))
    with engine.connect() as other:
        other.exec_driver_sql("UPDATE gobblin_commits SET commit_id = concat('of ', commit_id) WHERE commit_id > '0'")
        assert publisher.newest_commits({"c": "/lake/c"}) == known
    engine.dispose()


@pytest.mark.parametrize("asked", ["charset=latin1", "init_command=SET+NAMES+latin1"])
def test_texts_arrive_as_they_are_whatever_charset_the_url_asks_for(
    tmp_path: Path, url: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_URL", f"{url}?{asked}")
    select = [{"type": "sql", "select": "id, 'ä€日😀' AS name"}]
    run(tmp_path, table_job(OWN | {"table": "numbers"}, {"c": {"rows": 1}}, converters=select))
    assert query(url, "SELECT hex(name) FROM numbers") == [("ä€日😀".encode().hex().upper(),)]


def test_tables_that_are_one_for_the_server_are_refused(tmp_path: Path, folding_url: str) -> None:
    result = run(tmp_path, table_job(OWN, ORDERS))
    assert [(one.outcome, one.rows_read) for one in result.datasets] == [(DatasetOutcome.FAILED, 0)] * 2
    assert "would share the target 'of_orders'" in result.datasets[0].failures[0].message
    run(tmp_path, table_job(OWN, {"Orders": {"rows": 2}}))
    late = run(tmp_path, table_job(OWN, {"orders": {"rows": 3}}))
    assert "the table also has rows of dataset 'Orders'" in by_urn(late)["orders"].failures[0].message
    assert query(folding_url, "SELECT count(*) FROM of_orders") == [(2,)]


def test_table_is_one_with_and_without_the_name_of_its_database(tmp_path: Path, url: str) -> None:
    replace = {**OWN, "table": "numbers", "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    named = {**replace, "table": f"{url.rpartition('/')[2]}.numbers"}
    late = run(tmp_path, table_job(named, {"c": {"rows": 2}}, job="other"))
    assert "of job 'numbers'" in late.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


def test_jobs_whose_ledgers_are_two_and_whose_table_is_one_do_not_replace_each_others_rows(
    tmp_path: Path, url: str, mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = url.rpartition("/")[2]
    other = mariadb_server.new_database()
    monkeypatch.setenv("WAREHOUSE_URL", mariadb_server.url(other, "root", ""))
    replace = {**OWN, "table": f"{ours}.numbers", "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    monkeypatch.setenv("WAREHOUSE_URL", url)
    late = run(tmp_path, table_job({**replace, "table": "numbers"}, {"c": {"rows": 2}}, job="other"))
    assert f"by {other}.gobblin_commits, the table also has rows" in late.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


def test_view_that_is_another_name_of_a_table_is_refused(
    tmp_path: Path, url: str, mariadb_server: MariadbServer
) -> None:
    replace = {**OWN, "table": "numbers", "mode": "replace"}
    run(tmp_path, table_job(replace, {"c": {"rows": 4}}))
    mariadb_server.execute("CREATE VIEW shown AS SELECT * FROM numbers", database=url.rpartition("/")[2])
    late = run(tmp_path, table_job({**replace, "table": "shown"}, {"c": {"rows": 2}}, job="other"))
    assert "table shown is a view" in late.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(4,)]


@pytest.mark.parametrize("others", [("Orders", "orders"), ("orders", "Orders"), ("café", "cafe")])
def test_ledger_tells_datasets_apart_that_the_server_takes_for_equal_texts(
    tmp_path: Path, url: str, others: tuple[str, str]
) -> None:
    shared = {**OWN, "table": "all_of_them"}
    run(tmp_path, table_job(shared, {name: {"rows": 2} for name in others}))
    for path in (tmp_path / ".gobblin").glob("state.db*"):
        path.unlink()
    result = run(tmp_path, table_job(shared, {name: {"rows": 2} for name in others}))
    assert [one.outcome for one in result.datasets] == [DatasetOutcome.FAILED] * 2
    assert all("gobblin_commits" in one.failures[0].message for one in result.datasets)
    other_job = table_job(shared, {others[0]: {"rows": 1}}).model_copy(update={"job": "NUMBERS"})
    assert run(tmp_path, other_job).datasets[0].outcome is DatasetOutcome.COMMITTED
    assert query(url, "SELECT count(*) FROM all_of_them") == [(5,)]


@pytest.mark.parametrize("is_old", [False, True], ids=["new_ledger", "old_ledger"])
def test_branches_that_differ_in_case_are_two(
    mariadb_server: MariadbServer, tmp_path: Path, url: str, is_old: bool
) -> None:
    """The second one counted as loaded, and its rows were nowhere."""
    database = url.rpartition("/")[2]
    earlier = "ALTER TABLE gobblin_commits MODIFY branch varchar(64) CHARACTER SET utf8mb4 NOT NULL"
    if is_old:
        run(tmp_path, table_job({**OWN, "table": "first"}, {"c": {"rows": 1}}, job="first"))
        mariadb_server.execute(earlier, database=database)
    branches = [
        {"name": name, "path": f"{number}/{{dataset}}", "publisher": {**OWN, "table": f"of_{number}"}}
        for number, name in enumerate("bB")
    ]
    job = job_spec({"c": {"rows": 3}}, fork={"branches": branches})
    (done,) = run(tmp_path, job).datasets
    if is_old:
        assert "Duplicate entry" in done.failures[0].message
        mariadb_server.execute(f"{earlier.removesuffix('NOT NULL')} COLLATE utf8mb4_bin NOT NULL", database=database)
        opened = project(tmp_path, job)
        with closing(opened.open_store()) as store:
            recover_job(JobContext.of(opened, job, store))
    assert query(url, "SELECT (SELECT count(*) FROM of_0), (SELECT count(*) FROM of_1)") == [(3, 3)]


@pytest.mark.parametrize(
    ("names", "are_one"),
    [(("Ä", "ä"), True), (("AΣ", "aσ"), True), (("İ", "i"), True), (("ß", "ss"), False), (("a", "ä"), False)],
    ids=str,
)
def test_columns_are_one_or_two_as_for_the_server(
    mariadb_server: MariadbServer, url: str, names: tuple[str, str], are_one: bool
) -> None:
    database = sa.engine.make_url(url).database or ""
    refused = pytest.raises(sa.exc.OperationalError, match="Duplicate column name") if are_one else nullcontext()
    with refused:
        mariadb_server.execute(f"CREATE TABLE pair (`{names[0]}` int, `{names[1]}` int)", database=database)
    assert bool(unfit_columns("mysql", names)) == are_one


def test_columns_whose_names_mean_something_in_sql_come_later_and_are_found_again(tmp_path: Path, url: str) -> None:
    odd = {"converters": [{"type": "sql", "select": 'id, id AS ":b", id AS "50%", id AS "a`b"'}]}
    run(tmp_path, table_job(OWN, {"a": {"rows": 1}}, converters=[{"type": "sql", "select": "id"}]))
    for rows in (2, 3):
        (result,) = run(tmp_path, table_job(OWN, {"a": {"rows": rows}}, **odd)).datasets
        assert result.outcome is DatasetOutcome.COMMITTED, result.failures
    assert query(url, "SELECT * FROM of_a ORDER BY id") == [(0, None, None, None), (1,) * 4, (2,) * 4]


def _wait_for(table: str, connection: sa.Connection) -> None:
    while not sa.inspect(connection).has_table(table):
        time.sleep(0.01)


def test_table_that_another_session_makes_is_waited_for_in_a_transaction_that_has_used_another(
    mariadb_server: MariadbServer, url: str
) -> None:
    database = sa.engine.make_url(url).database or ""
    mariadb_server.execute("CREATE TABLE used (id int)", database=database)
    make = threading.Thread(
        target=mariadb_server.execute,
        args=("CREATE TABLE made AS SELECT sleep(0.5) AS id",),
        kwargs={"database": database},
    )
    engine = make_engine(parse_url(url, ""), "of a test")
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT * FROM used")).all()
        make.start()
        with pytest.raises(sa.exc.OperationalError, match="1684"):  # SQLAlchemy's own question does not wait
            _wait_for("made", connection)
        assert [column["name"] for column in columns_of(connection, "made", None) or ()] == ["id"]
        assert columns_of(connection, "never_made", None) is None
    engine.dispose()
    make.join()


def test_names_that_the_server_refuses_are_refused_before_anything_is_read(tmp_path: Path, url: str) -> None:
    long, longest = "x" * 62, "y" * 61
    result = by_urn(run(tmp_path, table_job(OWN, {long: {"rows": 2}, longest: {"rows": 2}})))
    assert (result[long].outcome, result[long].rows_read) == (DatasetOutcome.FAILED, 0)
    message = result[long].failures[0].message
    assert f"table of_{long}: name 'of_{long}' has 65 characters, and the database takes at most 64" in message
    assert result[longest].outcome is DatasetOutcome.COMMITTED
    assert query(url, f"SELECT count(*) FROM of_{longest}") == [(2,)]


@pytest.mark.parametrize("name", ["x" * 65, "a😀", "a "])
def test_column_that_the_server_refuses_is_named_before_anything_is_staged(tmp_path: Path, url: str, name: str) -> None:
    rename = {"type": "rename", "columns": {"value": name}}
    (result,) = run(tmp_path, table_job(OWN, {"a": {"rows": 2}}, converters=[rename])).datasets
    assert result.outcome is DatasetOutcome.FAILED  # and no commit sequence waits for a person
    assert f"column name {name!r}" in result.failures[0].message
    assert "rename it" in result.failures[0].message
    assert by_urn(run(tmp_path, table_job(OWN, {"a": {"rows": 2}})))["a"].outcome is DatasetOutcome.COMMITTED


def test_upsert_is_refused_before_anything_is_read(tmp_path: Path, url: str) -> None:
    (result,) = run(tmp_path, table_job(OWN | {"mode": "upsert", "key": ["id"]}, {"a": {"rows": 2}})).datasets
    assert (result.outcome, result.rows_read) == (DatasetOutcome.FAILED, 0)
    assert "`mode: upsert` is for PostgreSQL and SQLite, the database is m" in result.failures[0].message
    assert by_urn(run(tmp_path, table_job(OWN, {"a": {"rows": 2}})))["a"].outcome is DatasetOutcome.COMMITTED


def test_table_that_a_frozen_session_holds_is_waited_for_and_told_with_the_session(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_waits, "LOCK_WAIT_S", 1)
    append = OWN | {"table": "numbers"}
    run(tmp_path, table_job(append, {"a": {"rows": 2}}, converters=[{"type": "sql", "select": "id"}]))
    engine = sa.create_engine(url.replace("mysql:", "mysql+pymysql:"))
    with engine.connect() as frozen:
        frozen.execute(sa.text("SELECT * FROM numbers"))
        number = frozen.scalar(sa.text("SELECT connection_id()"))
        (held,) = run(tmp_path, table_job(append, {"a": {"rows": 5}})).datasets
    engine.dispose()
    message = held.failures[0].message
    assert "cannot publish to table numbers: another session holds it" in message
    assert f"It may be held by session {number} from 127.0.0.1:" in message
    assert f"end it (KILL {number})" in message
    assert run(tmp_path, table_job(append, {"a": {"rows": 5}})).datasets[0].outcome is not DatasetOutcome.FAILED
    assert query(url, "SELECT count(*) FROM numbers") == [(5,)]


def test_right_that_was_revoked_is_named_and_the_commit_waits_for_a_person(
    tmp_path: Path, url: str, mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, user = url.rpartition("/")[2], "loader@'127.0.0.1'"
    rights = f"SELECT, CREATE ON {database}.* TO {user}"
    mariadb_server.execute(f"CREATE USER {user} IDENTIFIED BY 'x'", f"GRANT {rights}")
    monkeypatch.setenv("WAREHOUSE_URL", mariadb_server.url(database, "loader", "x"))
    job = table_job(OWN, {"a": {"rows": 2}})
    (refused,) = run(tmp_path, job).datasets
    assert refused.failures[0].code == QuarantinedError.code
    assert "INSERT command denied to user 'loader'@'127.0.0.1'" in refused.failures[0].message
    assert "grant what is missing" in refused.failures[0].message
    mariadb_server.execute(f"GRANT INSERT ON {database}.* TO {user}")
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        assert [one.state for one in recover_job(JobContext.of(opened, job, store))] == ["committed"]
    assert query(url, "SELECT count(*) FROM of_a") == [(2,)]


FILES = {"type": "files", "path": "data/{dataset}/{date:%Y-%m-%d}.csv"}
COLUMNS = {"id": "int64", "at": "timestamp", "on": "timestamp_ntz", "name": "string"}
MOMENT, CLOCK = datetime(2024, 1, 1, 10, 0, 0, 123456), datetime(2024, 3, 10, 2, 30)
ROW = (0, MOMENT, CLOCK, "日本 \\'")


def _files_job(root: Path, *tables: str) -> JobSpec:
    for table in tables:
        file = root / f"data/{table}/2024-01-01.csv"
        file.parent.mkdir(parents=True)
        file.write_text(f"id,at,on,name\n0,{MOMENT.isoformat()}Z,{CLOCK.isoformat()},{ROW[3]}\n")
    source = FILES | {"format": {"type": "csv", "columns": COLUMNS}}
    return table_job({**OWN, "table": "{dataset}"}, {}, source=source)


def test_no_value_is_changed_whatever_the_server_is_set_up_to_do(
    tmp_path: Path, lax_server: MariadbServer, folding_url: str
) -> None:
    text, fits = "varchar(50) character set utf8mb4", "at datetime(6), `on` datetime(6)"
    made = {
        "numbered": f"id bigint auto_increment primary key, {fits}, name {text}",
        "instants": f"id bigint, at timestamp(6), `on` datetime, name {text}",
        "clocks": f"id bigint, at datetime(6), `on` timestamp, name {text}",
        "seconds": f"id bigint, at datetime, `on` datetime, name {text}",
        "days": f"id bigint, at date, `on` datetime, name {text}",
        "years": f"id year, {fits}, name {text}",
        "latin": f"id bigint, {fits}, name varchar(50) character set latin1",
        "short": f"id bigint, {fits}, name varchar(3) character set utf8mb4",
        "lacking": f"id bigint, {fits}, name {text}, more int not null",
    }
    for table, columns in made.items():
        lax_server.execute(f"create table {table} ({columns}) engine=InnoDB", database=folding_url.rpartition("/")[2])
    result = by_urn(run(tmp_path, _files_job(tmp_path, "new", *made)))
    refused = {urn: one.failures[0].message for urn, one in result.items() if one.failures}
    says = {
        "clocks": "instants and clock times are not the same",
        "seconds": "column 'at' keeps 0 digits of a second, and some times have more",
        "days": "the time or the day would be lost",
        "years": "short numbers would become other years",
        "latin": "Incorrect string value",
        "short": "Data too long",
        "lacking": "Field 'more' doesn't have a default value",
    }
    assert refused.keys() == says.keys()
    assert {urn: says[urn] in message for urn, message in refused.items()} == dict.fromkeys(says, True)
    assert query(folding_url, "SELECT * FROM new") == query(folding_url, "SELECT * FROM numbered") == [ROW]
    # The session that looks has another zone than UTC.
    assert query(folding_url, "SELECT id, at = '2024-01-01 05:00:00.123456', `on`, name FROM instants") == [
        (0, 1, *ROW[2:])
    ]


def test_numbers_and_texts_that_a_column_would_round_or_cut_are_refused(
    tmp_path: Path, lax_server: MariadbServer, folding_url: str
) -> None:
    kinds = {
        "whole": ("int", "column 'd' holds whole numbers, and some values have fractions"),
        "whole_decimal": ("int", "column 'm' holds whole numbers, and some values have fractions"),
        "short": ("float", "column 'n' is FLOAT in the table and int32 in the files: digits would be lost"),
        "tenths": (
            "double(5,1)",
            "column 'd' is DOUBLE in the table and double in the files: it would be rounded",
        ),
        "as_text": ("varchar(5)", "column 'd' is VARCHAR(5) in the table and double in the files"),
        "blanks": ("varchar(3)", "column 't' is VARCHAR(3), and some texts end with blanks: they would be cut"),
        "padded": ("char(9)", "column 't' is CHAR(9), and some texts end with blanks: they would be cut"),
        "filled": ("timestamp not null", "column 'i' takes no null, and some values are null"),
        "fits": ("int", ""),
    }
    values = (
        "1.25::DOUBLE AS d, 1.25::DECIMAL(5,2) AS m, 16777217::INTEGER AS n, 'ab   ' AS t, 2::DOUBLE AS w, "
        "NULL::TIMESTAMPTZ AS i"
    )
    says = {}
    for table, (kind, problem) in kinds.items():
        column = problem[8] if problem else "w"
        lax_server.execute(
            f"create table {table} (id bigint, {column} {kind}) engine=InnoDB", database=folding_url.rpartition("/")[2]
        )
        job = table_job(
            OWN | {"table": table},
            {"c": {"rows": 1}},
            job=table,
            converters=[{"type": "sql", "select": f"id, {values}"}],
        )
        (result,) = run(tmp_path, job).datasets
        says[table] = [problem in one.message for one in result.failures]
    assert says == {table: [True] if problem else [] for table, (_, problem) in kinds.items()}
    assert query(folding_url, "SELECT w, n FROM fits") == [(2, 16777217)]


def test_values_that_a_column_would_read_as_something_else_are_refused(
    tmp_path: Path, lax_server: MariadbServer, folding_url: str
) -> None:
    refused = {
        "letters": ("varchar(9) character set ascii", "from_hex('ff00')", "bytes would be read as letters"),
        "place": ("enum('a','b')", "1", "a number would be taken for the place of a value"),
        "place_in_text": ("enum('a','b')", "'1'", "some texts are none of its values"),
        "spelled": ("enum('a','b')", "'A'", "some texts are none of its values"),
        "mask": ("set('a','b')", "'3'", "some texts are none of its values"),
        "rounded_bits": ("bit(4)", "1.5::DOUBLE", "it would be rounded"),
        "letters_as_bits": ("bit(64)", "'1'", "its letters would be read as bits"),
        "below": ("bit(64)", "-1", "some numbers are below 0"),
        "hours": ("time", "7", "the digits of a number would be read as hours"),
        "day": ("date", "20200102", "or as a date"),
        "decade": ("year", "'1.5'", "some texts are not four digits: they would become other years"),
        "zeros": ("binary(4)", "from_hex('ff')", "some values are shorter: they would be filled with zeros"),
        "zero_bits": ("bit(16)", "from_hex('ff')", "some values are shorter: they would be filled with zeros"),
        "digits": ("binary(4)", "7", "or zeros behind them"),
        "fewer": ("varbinary(5)", "0.123456789::DOUBLE", "the database would write fewer digits"),
    }
    kept = {
        "member": ("enum('a','b')", "'b'", "b"),
        "members": ("set('a','b')", "'a,b'", "a,b"),
        "quoted": ("enum('it''s','50%')", "'it''s'", "it's"),
        "percent": ("set('it''s','50%')", "'50%'", "50%"),
        "no_members": ("set('a','b')", "''", ""),
        "year": ("year", "'2020'", 2020),
        "no_year": ("year", "NULL::VARCHAR", None),
        "one_bit": ("bit(1)", "true", b"\x01"),
        "bits": ("bit(16)", "from_hex('00ff')", b"\x00\xff"),
        "whole_bytes": ("binary(2)", "from_hex('ff00')", b"\xff\x00"),
        "few_bytes": ("varbinary(2)", "from_hex('ff')", b"\xff"),
        "nothing": ("enum('a')", "NULL::VARCHAR", None),
        "no_bytes": ("binary(2)", "NULL::BLOB", None),
    }
    told = {}
    for table, (kind, value, _) in (refused | kept).items():
        statement = f"create table {table} (id bigint, v {kind}) engine=InnoDB"
        lax_server.execute(statement, database=folding_url.rpartition("/")[2])
        select = [{"type": "sql", "select": f"id, {value} AS v"}]
        job = table_job(OWN | {"table": table}, {"c": {"rows": 1}}, job=table, converters=select)
        (result,) = run(tmp_path, job).datasets
        told[table] = [one.message for one in result.failures]
    assert {table: len(said) for table, said in told.items()} == dict.fromkeys(refused, 1) | dict.fromkeys(kept, 0)
    assert {table: says in told[table][0] for table, (_, _, says) in refused.items()} == dict.fromkeys(refused, True)
    assert [query(folding_url, f"SELECT count(*) FROM {table}") for table in refused] == [[(0,)]] * len(refused)
    found = {table: query(folding_url, f"SELECT v FROM {table}")[0][0] for table in kept}
    assert found == {table: value for table, (_, _, value) in kept.items()}


def test_column_becomes_wider_with_evolve_and_keeps_all_else_that_was_said_of_it(
    tmp_path: Path, lax_server: MariadbServer, folding_url: str
) -> None:
    columns = {
        "a": ("smallint(6) unsigned NOT NULL DEFAULT 65535 COMMENT 'it''s 5%, `x`'", "70000::INTEGER", "int(11)"),
        "b": ("int(11) NOT NULL DEFAULT 7", "3000000000", "bigint(20)"),
        "c": ("int(11) DEFAULT 7", "1.5::DOUBLE", "double"),
        "d": ("float DEFAULT 0.5", "0.1::DOUBLE", "double"),
        "e": ("decimal(5,1) DEFAULT 1.5", "1.239::DECIMAL(7,3)", "decimal(7,3)"),
        "f": ("date DEFAULT '2024-02-29'", "TIMESTAMP '2020-01-01 10:00:00.5'", "datetime(6)"),
        "g": ("datetime DEFAULT '2024-02-29'", "TIMESTAMP '2020-01-01 10:00:00.5'", "datetime(6)"),
        "h": ("int(11) DEFAULT 7", "8::BIGINT", "int(11)"),
        "%:i": ("int(11) DEFAULT 7", "3000000000", "bigint(20)"),
    }
    database = folding_url.rpartition("/")[2]
    made = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in columns.items())
    lax_server.execute(f"create table of_c (id bigint, {made}) engine=InnoDB", database=database)
    lax_server.execute("insert into of_c (id) values (-1)", database=database)
    select = ", ".join(f'{value} AS "{name}"' for name, (_, value, _) in columns.items())
    rows = {"converters": [{"type": "sql", "select": f"id, {select}"}], "schema_contract": "evolve"}
    (result,) = run(tmp_path, table_job(OWN, {"c": {"rows": 1}}, **rows)).datasets

    assert result.outcome is DatasetOutcome.COMMITTED
    day, moment = datetime(2024, 2, 29), datetime(2020, 1, 1, 10, 0, 0, 500_000)
    assert query(folding_url, "SELECT * FROM of_c ORDER BY id") == [
        (-1, 65535, 7, 7.0, 0.5, Decimal("1.500"), day, day, 7, 7),
        (0, 70000, 3000000000, 1.5, 0.1, Decimal("1.239"), moment, moment, 8, 3000000000),
    ]
    kept = query(folding_url, "SELECT column_type FROM information_schema.columns WHERE table_name = 'of_c'")
    assert [kind for (kind,) in kept] == ["bigint(20)", *(wider for _, _, wider in columns.values())]
    ((_, created),) = query(folding_url, "SHOW CREATE TABLE of_c")
    assert "int(11) NOT NULL DEFAULT 65535 COMMENT 'it''s 5%, `x`'" in created


def test_table_without_transactions_is_refused_and_stays_empty(
    tmp_path: Path, lax_server: MariadbServer, folding_url: str
) -> None:
    lax_server.execute("create table of_c (id bigint)", database=folding_url.rpartition("/")[2])
    (result,) = run(tmp_path, table_job(OWN, {"c": {"rows": 2}})).datasets
    assert "table of_c is of the engine MyISAM, which has no transactions" in result.failures[0].message
    assert query(folding_url, "SELECT count(*) FROM of_c") == [(0,)]


def test_rows_that_the_server_refuses_wait_for_a_person(
    tmp_path: Path, mariadb_server: MariadbServer, url: str
) -> None:
    made = {
        "needs": "id bigint, z int NOT NULL",
        "checked": "id bigint, CHECK (id < 0)",
        "generated": "id bigint AS (1) VIRTUAL",
        "signals": "id bigint",
    }
    trigger = "create trigger t before insert on of_signals for each row signal sqlstate '45000'"
    tables = [f"create table of_{name} ({columns})" for name, columns in made.items()]
    mariadb_server.execute(*tables, trigger, database=url.rpartition("/")[2])
    job = table_job(OWN, {name: {"rows": 1} for name in made}, converters=[{"type": "sql", "select": "id"}])
    says = {one.dataset_urn: one.failures[0].message for one in run(tmp_path, job).datasets}
    assert {name for name, message in says.items() if "is quarantined" in message} == set(made), says


@pytest.mark.parametrize(("text", "fits"), [("x", True), ("''", False)])
def test_row_that_no_statement_can_hold_waits_for_a_person(
    tmp_path: Path, mariadb_server: MariadbServer, url: str, text: str, fits: bool
) -> None:
    """The server closes the connection at such a row, as it would at each run."""
    ((former,),) = query(url, "SELECT @@global.max_allowed_packet")
    mariadb_server.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        select = {"type": "sql", "select": f"id, repeat('{text}', 600000) AS long"}
        found = run(tmp_path, table_job({**OWN, "table": "some"}, {"c": {"rows": 2}}, converters=[select])).datasets[0]
    finally:
        mariadb_server.execute(f"SET GLOBAL max_allowed_packet = {former}")
    said = "".join(one.message for one in found.failures)
    assert ("max_allowed_packet" in said and "is quarantined" in said) is not fits, said


def test_long_texts_fit_tables_that_are_made(tmp_path: Path, url: str) -> None:
    job = _files_job(tmp_path, "long")
    (tmp_path / "data/long/2024-01-01.csv").write_text(f"id,at,on,name\n1,,,{'y' * 70_000}\n")
    assert run(tmp_path, job).datasets[0].outcome is DatasetOutcome.COMMITTED
    assert query(url, "SELECT length(name) FROM `long`") == [(70_000,)]


@pytest.mark.parametrize("name", ["orders", "Orders"])
def test_own_table_is_not_read_from_a_server_by_another_name(tmp_path: Path, url: str, name: str) -> None:
    execute = sa.create_engine(url.replace("mysql:", "mysql+pymysql:"))
    with execute.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders AS SELECT 1 AS id")
        knows_itself = bool(connection.exec_driver_sql("SHOW GLOBAL VARIABLES LIKE 'server_u%%id'").all())
    execute.dispose()
    ((socket,),) = query(url, "SELECT @@socket")
    database = url.rpartition("/")[2]
    source: dict[str, Any] = {"url": f"mysql://root@/{database}?unix_socket={socket}", "tables": [f"{database}.orders"]}
    source |= {"type": "query", "watermark": {"column": "id", "type": "long"}}
    job = table_job({**OWN, "table": name}, {}, source=source)
    said = "".join(one.message for one in run(tmp_path, job).datasets[0].failures)
    assert ("branch 'all' publishes to it" in said) is (name == "orders" and knows_itself), said
