"""The source `query` on a real PostgreSQL, with writers that commit out of order: nothing missed, nothing twice."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import adbc_driver_postgresql
import psycopg2
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin
from gobblin_dagster.constructs.sources.query import planner, row_counts
from gobblin_dagster.constructs.sources.query.commit_horizon import oldest_transaction, settle
from gobblin_dagster.constructs.sources.query.database import Database
from gobblin_dagster.constructs.sources.query.extractor import _libpq_url
from gobblin_dagster.constructs.sources.query.source import QuerySource
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, SourceError, TransientError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.startpoint import Specific
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.postgres import PostgresServer, binaries, running_postgres
from tests.unit.engine.plan.test_startpoints import wish

pytestmark = pytest.mark.postgres
URN = "public.events"
Connect = Callable[[], Any]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """A database with a table whose ids and times are given by the server."""
    name = postgres_server.new_database()
    columns = "id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), body text"
    postgres_server.execute(f"CREATE TABLE events ({columns})", name)
    return postgres_server.url(name)


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    opened: list[Any] = []

    def make() -> Any:
        opened.append(psycopg2.connect(url))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def insert(connection: Any, body: str = "x") -> int:
    """Insert a row in an open transaction and return its id."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO events (body) VALUES (%s) RETURNING id", (body,))
        number: int = cursor.fetchone()[0]
        return number


def source(url: str, column: str = "id", kind: str = "long", **options: Any) -> QuerySource:
    body = {"type": "query", "url": url, "watermark": {"column": column, "type": kind}, "horizon_wait_s": 0}
    tables = {} if options.keys() & {"query", "include", "tables"} else {"tables": ["events"]}
    spec = ConstructSpec.model_validate(body | tables | options)
    made = registry.create(ConstructKind.SOURCE, spec, ConstructContext(job="shop", base_dir="/"))
    assert isinstance(made, QuerySource)
    return made


class Reader:
    """Reads again and again as runs do: plan, read each work unit, commit its range."""

    def __init__(self, made: QuerySource, urn: str = URN) -> None:
        self.made = made
        self.urn = urn
        self.committed: CommittedRanges | None = None
        self.ids: list[int] = []

    def plan(self) -> DatasetOffer:
        states = {}
        if self.committed is not None:
            states[self.urn] = DatasetState("shop", self.urn, 1, self.committed, 1, "run", datetime.now(UTC))
        context = SourceContext(Extract("shop", "all"), states, lambda urn: True, SystemClock())
        (offer,) = self.made.plan(context)
        assert offer.problem == ""
        return offer

    def run(self) -> list[int]:
        """Read what is new and return its ids."""
        fresh: list[int] = []
        for unit in self.plan().work_units:
            extractor = self.made.extractor(unit)
            for chunk in extractor.chunks():
                fresh += chunk.batch.column("id").to_pylist()
            extractor.close()
            committed = self.committed or CommittedRanges(type(unit.low), {})
            self.committed = committed.add(unit.interval)
        self.ids += fresh
        return sorted(fresh)


# -- writers that commit out of order ----------------------------------------------------------------------------------
def test_without_horizon_a_row_committed_late_is_lost_for_ever(url: str, connect: Connect) -> None:
    early, late = connect(), connect()
    reader = Reader(source(url, horizon="none"))
    insert(late), late.commit()
    assert reader.run() == [1]
    insert(early), insert(late)
    late.commit()
    assert reader.run() == [3]
    early.commit()
    insert(late), late.commit()
    assert reader.run() == [4]  # 2 is below the watermark: nobody reads it any more


def test_with_horizon_the_late_row_is_waited_for_and_nothing_is_read_twice(url: str, connect: Connect) -> None:
    early, late = connect(), connect()
    reader = Reader(source(url))
    insert(late), late.commit()
    assert reader.run() == [1]
    insert(early), insert(late)
    late.commit()
    assert reader.run() == []
    assert "1 transaction(s) that write to it are still open" in reader.plan().notes[0]
    early.commit()
    insert(late), late.commit()
    assert reader.run() == [2, 3, 4]
    assert reader.run() == []


def test_horizon_waits_for_a_writer_that_ends_soon(url: str, connect: Connect) -> None:
    early, late = connect(), connect()
    insert(early), insert(late)
    late.commit()
    ending = threading.Timer(0.2, early.commit)
    ending.start()
    reader = Reader(source(url, horizon_wait_s=30))
    assert reader.run() == [1, 2]
    ending.join()


def test_readers_and_writers_to_other_tables_are_not_waited_for(url: str, connect: Connect) -> None:
    writer, other = connect(), connect()
    insert(writer), writer.commit()
    with other.cursor() as cursor:
        cursor.execute("CREATE TABLE elsewhere (id int)")
        cursor.execute("INSERT INTO elsewhere VALUES (1)")
        cursor.execute("SELECT * FROM events")
    assert Reader(source(url)).run() == [1]


def test_writer_to_a_partition_behind_a_view_is_waited_for(url: str, connect: Connect) -> None:
    owner, early, late = connect(), connect(), connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE parts (id bigserial, body text) PARTITION BY RANGE (id)")
        cursor.execute("CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)")
        cursor.execute("CREATE VIEW seen AS SELECT * FROM parts")
    owner.commit()
    with early.cursor() as one, late.cursor() as two:
        one.execute("INSERT INTO part_1 (id) VALUES (nextval('parts_id_seq'))")
        two.execute("INSERT INTO parts (body) VALUES ('x')")
    late.commit()
    reader = Reader(source(url, tables=["seen"]), "public.seen")
    assert reader.run() == []
    early.commit()
    assert reader.run() == [1, 2]


def test_times_wait_for_the_oldest_open_transaction(url: str, connect: Connect) -> None:
    early, late = connect(), connect()
    with early.cursor() as cursor:
        cursor.execute("SELECT 1")  # its now() is settled from here on, though it wrote nothing yet
    with late.cursor() as cursor:
        cursor.execute("INSERT INTO events (at) VALUES (now() - interval '1 hour'), (clock_timestamp())")
    late.commit()
    reader = Reader(source(url, "at", "timestamp"))
    assert reader.run() == [1]
    assert "a transaction is open since" in reader.plan().notes[0]
    insert(early), early.commit()
    later = Reader(source(url, "at", "timestamp", horizon="none"))
    later.committed = reader.committed
    assert later.run() == [2, 3]


def test_writer_with_a_session_that_a_pool_had_lent_to_us_is_waited_for_and_our_readers_are_not(
    url: str, connect: Connect
) -> None:
    early, late = connect(), connect()
    with early.cursor() as cursor:  # PgBouncer leaves the name of its last user to a program without a name
        cursor.execute("SET application_name = 'gobblin_dagster'"), early.commit()
    insert(early), insert(late), late.commit()
    assert Reader(source(url, "at", "timestamp")).run() == []
    early.commit()
    made = source(url, "at", "timestamp", horizon="none")
    extractor = made.extractor(Reader(made).plan().work_units[0])
    next(extractor.chunks())  # its transaction stays open
    with late.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    late.commit()
    assert oldest_transaction(Database(url, "/", "shop")) > now
    extractor.close()


def test_reading_cannot_write_and_asks_for_nothing_that_a_pool_refuses(url: str, connect: Connect) -> None:
    made = source(url, query="SELECT id, f(id) AS value FROM events")
    owner, definition = connect(), "CREATE OR REPLACE FUNCTION f(bigint) RETURNS bigint LANGUAGE sql AS "
    with owner.cursor() as cursor:
        cursor.execute(f"{definition}'SELECT $1'"), insert(owner), owner.commit()
        (unit,) = Reader(made, "shop.all").plan().work_units
        cursor.execute(f"{definition}'SELECT nextval(''events_id_seq'')'"), owner.commit()
    extractor = made.extractor(unit)
    with pytest.raises(ExtractError, match="read-only transaction"):
        list(extractor.chunks())
    extractor.close()
    assert "options" not in _libpq_url(Database(url, "/", "shop").url)  # PgBouncer knows no such parameter


def test_lag_serves_where_ids_are_taken_before_the_insert(url: str, connect: Connect) -> None:
    early, late = connect(), connect()
    with early.cursor() as cursor:
        cursor.execute("SELECT nextval('events_id_seq')")
        (taken,) = cursor.fetchone()
    early.commit()
    insert(late), insert(late), late.commit()
    lagging, hasty = Reader(source(url, lag=3)), Reader(source(url))
    assert (lagging.run(), hasty.run()) == ([], [2, 3])
    with early.cursor() as cursor:
        cursor.execute("INSERT INTO events (id) VALUES (%s)", (taken,))
    early.commit()
    for _ in range(3):
        insert(late)
    late.commit()
    assert lagging.run() == [1, 2, 3]


@contextmanager
def writing(connect: Connect, count: int, writers: int, seed: int) -> Iterator[list[int]]:
    """Let threads insert rows in transactions of random length that overlap and sometimes roll back."""
    kept: list[int] = []
    lock = threading.Lock()
    stop = threading.Event()

    def work(number: int) -> None:
        dice = random.Random(seed * 100 + number)
        connection = connect()
        for _ in range(count):
            mine = [insert(connection, "y" * dice.randrange(50)) for _ in range(dice.randrange(1, 4))]
            stop.wait(dice.random() * 0.01)
            if dice.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
                with lock:
                    kept.extend(mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield kept
    finally:
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("column", "kind"), [("id", "long"), ("at", "timestamp")])
def test_reading_beside_random_writers_misses_nothing_and_reads_nothing_twice(
    url: str, connect: Connect, column: str, kind: str
) -> None:
    options: dict[str, Any] = {"rows_per_work_unit": 7, "horizon_wait_s": 5 if kind == "long" else 0}
    reader = Reader(source(url, column, kind, **options))
    with writing(connect, count=40, writers=5, seed=1) as kept:
        for _ in range(12):
            reader.run()
    # What is younger than the margin is read once its time has come; nobody writes any more.
    last = Reader(source(url, column, kind, horizon="none", rows_per_work_unit=7))
    last.committed = reader.committed
    last.run()
    assert sorted(reader.ids + last.ids) == sorted(kept)


def test_standby_says_that_transactions_of_its_primary_are_not_waited_for(postgres_server: PostgresServer) -> None:
    folder = binaries()
    assert folder is not None  # the fixture runs from there
    with running_postgres(folder) as server:
        server.execute("CREATE TABLE events AS SELECT 1 AS id, now() - interval '1 hour' AS at")
        server.become_standby()
        for column, kind in (("id", "long"), ("at", "timestamp")):
            reader = Reader(source(server.url("postgres"), column, kind))
            (note,) = reader.plan().notes
            assert "a standby does not know those of its primary" in note
            assert reader.run() == [1]


@pytest.mark.parametrize(
    ("zone", "options", "is_told"),
    [
        ("America/Los_Angeles", {}, True),
        ("America/Los_Angeles", {"timezone": "UTC"}, False),
        ("America/Los_Angeles", {"horizon": "none"}, False),
        ("UTC", {}, False),
    ],
)
def test_times_without_a_zone_say_that_the_servers_clock_is_another(
    url: str, connect: Connect, postgres_server: PostgresServer, zone: str, options: dict[str, Any], is_told: bool
) -> None:
    postgres_server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET timezone = '{zone}'")
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE walls AS SELECT 1 AS id, timestamp '2020-01-01' AS wall")
    owner.commit()
    notes = Reader(source(url, "wall", "timestamp", tables=["walls"], **options), "public.walls").plan().notes
    assert any("wall has no time zone and is read as UTC" in note for note in notes) is is_told


# -- one snapshot, bounded reads ---------------------------------------------------------------------------------------
def test_counts_and_high_come_from_one_snapshot_and_bound_the_read(url: str, connect: Connect) -> None:
    writer = connect()
    for _ in range(10):
        insert(writer)
    writer.commit()
    reader = Reader(source(url, rows_per_work_unit=4))
    units = reader.plan().work_units
    for _ in range(5):
        insert(writer)
    writer.commit()
    assert [(str(unit.interval), unit.rows) for unit in units] == [("[1, 5)", 4), ("[5, 9)", 4), ("[9, 11)", 2)]
    extractors = [reader.made.extractor(unit) for unit in units]
    read = [n for one in extractors for chunk in one.chunks() for n in chunk.batch.column("id").to_pylist()]
    for one in extractors:
        one.close()
    assert sorted(read) == list(range(1, 11))


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_times_that_lose_their_zone_between_plan_and_read_are_refused(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    writer = connect()
    insert(writer)
    writer.commit()
    reader = Reader(source(url))
    (unit,) = reader.plan().work_units
    with writer.cursor() as cursor:
        cursor.execute("ALTER TABLE events ALTER at TYPE timestamp USING at AT TIME ZONE 'Europe/Berlin'")
    writer.commit()
    extractor = reader.made.extractor(unit)
    with pytest.raises(ExtractError, match="column at: expected times with a time zone, as the run was planned, got "):
        list(extractor.chunks())
    extractor.close()


def test_many_rows_are_estimated_and_read_each_once(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (row_counts, planner):
        monkeypatch.setattr(module, "MOST_COUNTED", 1_000)
    writer = connect()
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO events (body) SELECT 'x' FROM generate_series(1, 5000)")
        cursor.execute("ANALYZE events")
    writer.commit()
    reader = Reader(source(url, rows_per_work_unit=1_000))
    offer = reader.plan()
    assert [unit.rows for unit in offer.work_units] == [None] * 5
    # An id, an instant and a text of one letter.
    assert all(10_000 < (unit.size_bytes or 0) < 40_000 for unit in offer.work_units)
    assert "more than 1,000 rows, as PostgreSQL estimates; `count_rows: true` counts them." in offer.notes
    assert reader.run() == list(range(1, 5001))
    counted = Reader(source(url, rows_per_work_unit=1_000, count_rows=True)).plan()
    assert [(unit.rows, unit.size_bytes) for unit in counted.work_units] == [(1_000, None)] * 5
    insert(writer), writer.commit()
    assert [unit.rows for unit in reader.plan().work_units] == [1]  # few: counted


# -- types -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_every_common_type_arrives_the_same_by_both_ways(
    url: str, connect: Connect, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('low', 'high')")
        cursor.execute(
            'CREATE TABLE "All Types" (id int, small smallint, real_ real, ok boolean, price numeric(10, 2),'
            " free numeric, at timestamptz, wall timestamp, day date, raw bytea, tag uuid, doc jsonb, mood mood,"
            ' list int[], "a:b%" text)'
        )
        cursor.execute(
            "INSERT INTO \"All Types\" VALUES (1, 2, 0.5, true, 12.30, 1.5, '2013-01-01 05:00+00', '2013-01-01 05:00',"
            " '2013-01-31', '\\x00ff', '00000000-0000-0000-0000-000000000001', '{\"a\": 1}', 'high', '{1,2}', 'x'),"
            " (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null)"
        )
    owner.commit()
    made = source(url, tables=["public.All Types"])
    reader = Reader(made, "public.All Types")
    (unit,) = reader.plan().work_units
    extractor = made.extractor(unit)
    rows = [row for chunk in extractor.chunks() for row in chunk.batch.to_pylist()]
    extractor.close()
    first, second = sorted(rows, key=lambda row: row["id"])
    assert first == {
        "id": 1,
        "small": 2,
        "real_": 0.5,
        "ok": True,
        "price": Decimal("12.30"),
        "free": "1.5",
        "at": datetime(2013, 1, 1, 5, tzinfo=UTC),
        "wall": datetime(2013, 1, 1, 5),
        "day": date(2013, 1, 31),
        "raw": b"\x00\xff",
        "tag": "00000000-0000-0000-0000-000000000001",
        "doc": '{"a": 1}',
        "mood": "high",
        "list": "{1,2}",
        "a:b%": "x",
    }
    assert set(second.values()) == {2, None}

    with owner.cursor() as cursor:
        cursor.execute(
            'ALTER TABLE "All Types" ADD at_time time, ADD ip inet, ADD net inet, ADD names text[], ADD reals real[]'
        )
        cursor.execute(
            "UPDATE \"All Types\" SET at_time = '10:30:00.5', ip = '10.0.0.1', net = '10.0.0.0/24',"
            " names = '{a,NULL}', reals = '{0.5}' WHERE id = 1"
        )
    owner.commit()
    kept = ["id", "small", "real_", "at_time", "ip", "net", "list", "names", "reals"]
    for what in ({"tables": ["public.All Types"]}, {"query": 'SELECT * FROM "All Types"'}):
        made = source(url, types="exact", **what)
        urn = "public.All Types" if "tables" in what else "shop.all"
        extractor = made.extractor(Reader(made, urn).plan().work_units[0])
        table = pa.Table.from_batches([chunk.batch for chunk in extractor.chunks()]).sort_by("id").select(kept)
        extractor.close()
        assert [str(kind) for kind in table.schema.types] == [
            *("int32", "int16", "float", "time64[us]", "string", "string"),
            *("list<item: int32>", "list<item: string>", "list<item: float>"),
        ]
        assert list(table.to_pylist()[0].values()) == [
            *(1, 2, 0.5, time(10, 30, 0, 500_000), "10.0.0.1", "10.0.0.0/24"),
            *([1, 2], ["a", None], [0.5]),
        ]
        assert {*table.to_pylist()[1].values()} == {2, None}

    with owner.cursor() as cursor:
        cursor.execute("UPDATE \"All Types\" SET list = '{{1,2},{3,4}}'")
    owner.commit()
    with pytest.raises(ExtractError, match=r"an array of several dimensions is read by `types: wide` only: \{\{1,2\}"):
        list(made.extractor(Reader(made, urn).plan().work_units[0]).chunks())


@pytest.mark.parametrize(("column", "kind"), [("at", "hour"), ("day", "date"), ("wall", "timestamp")])
def test_watermark_types_read_each_row_once_by_units_of_their_own_width(
    url: str, connect: Connect, column: str, kind: str
) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE times (id int, at timestamptz, wall timestamp, day date)")
        cursor.execute(
            "INSERT INTO times SELECT n, t, t AT TIME ZONE 'UTC', (t AT TIME ZONE 'UTC')::date FROM (SELECT n, "
            "timestamptz '2013-01-01 00:00+00' + n * interval '7 hours' AS t FROM generate_series(1, 50) n) x"
        )
    owner.commit()
    reader = Reader(source(url, column, kind, tables=["times"], partition_interval="2d"), "public.times")
    units = reader.plan().work_units
    assert sum(unit.rows or 0 for unit in units) == 50
    lows: list[Any] = [unit.low.components()[""] for unit in units]
    assert {two - one for one, two in pairwise(lows)} == {timedelta(days=2)}
    assert reader.run() == list(range(1, 51))


def test_table_of_nothing_but_a_decimal_is_planned_and_read(url: str, connect: Connect) -> None:
    """The number of rows is passed as JSON, which was mistaken for a value of its column."""
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE numbers AS SELECT n::numeric(30, 0) AS id FROM generate_series(1, 8) n")
    owner.commit()
    reader = Reader(source(url, tables=["numbers"]), "public.numbers")
    assert [unit.rows for unit in reader.plan().work_units] == [8]
    assert reader.run() == list(range(1, 9))


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_texts_of_a_database_that_keeps_latin1_arrive_as_they_are(
    postgres_server: PostgresServer, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    name = f"latin_{driver}"
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    postgres_server.execute("CREATE TABLE events AS SELECT 1 AS id, 'é' AS body, ARRAY['ü'] AS bodies", name)
    made = source(postgres_server.url(name))
    (unit,) = Reader(made).plan().work_units
    with closing(made.extractor(unit)) as extractor:
        rows = [row for chunk in extractor.chunks() for row in chunk.batch.to_pylist()]
    assert rows == [{"id": 1, "body": "é", "bodies": "{ü}"}]


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_settings_of_the_database_change_no_value(
    url: str, connect: Connect, postgres_server: PostgresServer, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    name = url.rpartition("/")[2]
    writes = (
        "datestyle = 'SQL, DMY'",
        "extra_float_digits = -5",
        "timezone = 'Asia/Tokyo'",
        "intervalstyle = iso_8601",
        "bytea_output = escape",
    )
    for setting in (*writes, "client_encoding = 'LATIN1'", "quote_all_identifiers = on"):
        postgres_server.execute(f"ALTER DATABASE {name} SET {setting}")
    columns = (
        "1 AS id, daterange('2020-02-01', '2020-03-01') AS days, "
        "ARRAY[0.1 + 0.2::float8] AS sums, 0.1 + 0.2::float8 AS sum, '1 day 02:03:04'::interval AS span, "
        "ARRAY['A'::bytea] AS raws, 'A'::bytea AS raw, '2020-02-01'::date AS day"
    )
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute(f"CREATE TABLE kinds AS SELECT {columns}, ARRAY['2020-02-01 05:00Z'::timestamptz] AS times")
    owner.commit()
    made = source(url, tables=["kinds"])
    (unit,) = Reader(made, "public.kinds").plan().work_units
    with closing(made.extractor(unit)) as extractor:
        (row,) = [row for chunk in extractor.chunks() for row in chunk.batch.to_pylist()]
    assert row == {
        "id": 1,
        "days": "[2020-02-01,2020-03-01)",
        "sums": "{0.30000000000000004}",
        "sum": 0.1 + 0.2,
        "span": "1 day 02:03:04",
        "raws": '{"\\\\x41"}',
        "raw": b"A",
        "day": date(2020, 2, 1),
        "times": '{"2020-02-01 05:00:00+00"}',
    }


def test_types_of_the_server_are_asked_for_once_and_those_made_later_are_read_too(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads all types of a server when it is told of it, which takes longer than a small table."""
    connect_to = Mock(wraps=adbc_driver_postgresql.connect)
    monkeypatch.setattr(adbc_driver_postgresql, "connect", connect_to)
    writer, made = connect(), source(url)
    first = Reader(made)
    insert(writer)
    writer.commit()
    assert first.run() == [1]
    with writer.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN rank AS int; CREATE EXTENSION citext")
        cursor.execute("ALTER TABLE events ADD mood mood DEFAULT 'ok', ADD moods mood[] DEFAULT '{sad,ok}'")
        cursor.execute("ALTER TABLE events ADD rank rank DEFAULT 7, ADD name citext DEFAULT 'Ann'")
    insert(writer)
    writer.commit()
    (unit,) = Reader(made).plan().work_units
    with closing(made.extractor(unit)) as extractor:
        (chunk,) = extractor.chunks()
    rows = chunk.batch.select(["mood", "moods", "rank", "name"]).to_pylist()
    assert rows == [{"mood": "ok", "moods": "{sad,ok}", "rank": 7, "name": "Ann"}] * 2
    assert connect_to.call_count == 1


def test_query_with_colons_and_percent_signs_is_one_dataset(url: str, connect: Connect) -> None:
    writer = connect()
    for body in ("a%", "b:c", "d"):
        insert(writer, body)
    writer.commit()
    made = source(
        url, query="SELECT id, body::varchar AS body, 5 % 3 AS two FROM events WHERE body LIKE '%:%' OR id > 2"
    )
    assert Reader(made, "shop.all").run() == [2, 3]


def test_days_of_instants_do_not_depend_on_the_zone_of_the_session(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute(
            "INSERT INTO events (at) SELECT '2013-01-01Z'::timestamptz + n * interval '6 hours' FROM "
            "generate_series(0, 7) n"
        )
    owner.commit()
    reader = Reader(source(url, "at", "date", partition_interval="1d"))
    monkeypatch.setenv("PGTZ", "America/Los_Angeles")
    (first, *_), last = reader.plan().work_units, reader.plan().work_units[-1]
    assert (str(first.low), str(last.expected_high)) == ("2013-01-01", "2013-01-03")
    assert reader.run() == list(range(1, 9))
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    assert reader.run() == []


def test_names_and_passwords_of_any_letters_are_read_with(postgres_server: PostgresServer) -> None:
    user, password, database = "an na/", "p @:/?#%41+é w", "my shop?#%"
    user_in_url, password_in_url, database_in_url = (quote(part, safe="") for part in (user, password, database))
    postgres_server.execute(f'CREATE DATABASE "{database}" TEMPLATE template0')
    postgres_server.execute(f'DROP ROLE IF EXISTS "{user}"; CREATE ROLE "{user}" LOGIN PASSWORD \'{password}\'')
    postgres_server.execute("CREATE TABLE events AS SELECT 1 AS id; GRANT SELECT ON events TO PUBLIC", database_in_url)
    address = f"{user_in_url}:{password_in_url}@127.0.0.1:{postgres_server.port}/{database_in_url}"
    assert Reader(source(f"postgresql://{address}")).run() == [1]


def test_one_of_several_hosts_is_read_that_answers(url: str, connect: Connect) -> None:
    writer = connect()
    insert(writer), writer.commit()
    user, _, host = url.partition("@")
    host, _, database = host.partition("/")
    assert Reader(source(f"{user}@/{database}?host=127.0.0.1:1&host={host}")).run() == [1]


def test_search_path_of_the_url_counts_for_planning_and_reading(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE SCHEMA other")
        cursor.execute("CREATE TABLE other.things AS SELECT generate_series(1, 3) AS id")
    owner.commit()
    made = source(f"{url}?options=-csearch_path%3Dother", query="SELECT id FROM things")
    assert Reader(made, "shop.all").run() == [1, 2, 3]


# -- what goes wrong ---------------------------------------------------------------------------------------------------
def test_refused_connection_is_transient_and_names_host_and_database_only() -> None:
    made = source("postgresql://anna:secret@127.0.0.1:1/shop")
    with pytest.raises(TransientError) as caught:
        Reader(made).plan()
    message = str(caught.value)
    assert "postgresql://127.0.0.1:1/shop cannot be used now" in message
    assert "secret" not in message
    assert "anna" not in message


def test_wrong_password_is_no_transient_fault_and_is_not_shown(url: str) -> None:
    wrong = url.replace("//postgres:", "//postgres:wrong")
    with pytest.raises(SourceError, match="password authentication failed") as caught:
        Reader(source(wrong)).plan()
    assert wrong.split(":")[2].split("@")[0] not in str(caught.value)
    assert "for user ***" in str(caught.value)


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_login_that_is_refused_fails_the_work_unit_for_good_and_a_full_server_for_now(
    url: str, connect: Connect, postgres_server: PostgresServer, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither driver gives an SQLSTATE where a connection cannot be made."""
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    writer = connect()
    insert(writer), writer.commit()
    (unit,) = Reader(source(url)).plan().work_units
    host = url.rpartition("@")[2]
    other = postgres_server.new_database()
    postgres_server.execute(f"ALTER DATABASE {other} CONNECTION LIMIT 0")
    postgres_server.execute("DROP ROLE IF EXISTS single; CREATE ROLE single LOGIN PASSWORD 'pw' CONNECTION LIMIT 0")
    at_server = host.rpartition("/")[0]

    def read(address: str) -> None:
        with closing(source(address).extractor(unit)) as extractor:
            list(extractor.chunks())

    for refused, words in {
        url.replace("//postgres:", "//postgres:not"): "password authentication failed",
        f"{url}_not": "does not exist",
        f"postgresql://nobody@{host}": "no password supplied",
        f"{url}?sslmode=require": "does not support SSL",
    }.items():
        with pytest.raises(ExtractError, match=words):
            read(refused)
    with pytest.raises(TransientError, match="too many connections for role"):
        read(f"postgresql://single:pw@{at_server}/{other}")


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_statement_that_fails_while_its_rows_come_fails_the_work_unit_for_good(
    url: str, connect: Connect, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADBC gives an OSError without an SQLSTATE then, as for a connection that is gone."""
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    writer = connect()
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO events (body) SELECT repeat('x', 1000) FROM generate_series(1, 40000)")
    writer.commit()
    made = source(url, query="SELECT id, body, 1 / (40000 - id) AS fault FROM events")
    (unit,) = Reader(made, "shop.all").plan().work_units
    with closing(made.extractor(unit)) as extractor, pytest.raises(ExtractError, match="division by zero"):
        list(extractor.chunks())


def test_server_that_ends_the_connection_while_reading_is_transient(url: str, connect: Connect) -> None:
    writer = connect()
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO events (body) SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
    writer.commit()
    made = source(url)
    (unit,) = Reader(made).plan().work_units
    extractor = made.extractor(unit)
    chunks = extractor.chunks()
    next(chunks)
    with writer.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gobblin_dagster reads'"
            " AND datname = current_database()"
        )
    with pytest.raises(TransientError, match="cannot be read now"):
        list(chunks)
    extractor.close()


def test_user_who_may_not_see_transactions_is_told_what_to_grant(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS reader_only")
        cursor.execute("CREATE ROLE reader_only LOGIN PASSWORD 'pw'")
        cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_only")
    owner.commit()
    host = url.rpartition("@")[2]
    made = source(f"postgresql://reader_only:pw@{host}", "at", "timestamp")
    with pytest.raises(SourceError, match="GRANT pg_read_all_stats"):
        Reader(made).plan()
    insert(owner), owner.commit()
    assert Reader(source(f"postgresql://reader_only:pw@{host}")).run() == [1]  # locks are open to everybody


def test_table_that_may_not_be_read_fails_alone(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS half_reader")
        cursor.execute("CREATE ROLE half_reader LOGIN PASSWORD 'pw'")
        cursor.execute("GRANT SELECT ON events TO half_reader")
        cursor.execute("CREATE TABLE closed (id bigint); INSERT INTO closed VALUES (1)")
    insert(owner), owner.commit()
    made = source(f"postgresql://half_reader:pw@{url.rpartition('@')[2]}", include=[r"public\..*"])
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    closed, events = made.plan(context)
    assert "public.closed, watermark column id: database" in closed.problem
    assert "permission denied for table closed" in closed.problem
    assert [unit.rows for unit in events.work_units] == [1]


def test_table_that_was_empty_when_writers_were_looked_at_is_left_for_the_next_run(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late = connect(), connect()

    def settle_then_write(*arguments: Any) -> Any:
        settled = settle(*arguments)
        insert(early), insert(late), late.commit()  # 2 is there, 1 will come
        return settled

    monkeypatch.setattr("gobblin_dagster.constructs.sources.query.upper_bound.settle", settle_then_write)
    reader = Reader(source(url))
    assert reader.run() == []
    monkeypatch.undo()
    early.commit()
    assert reader.run() == [1, 2]


def test_partitions_are_no_datasets_of_their_own_unless_named(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE parts (id bigint) PARTITION BY RANGE (id)")
        cursor.execute("CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)")
        cursor.execute("INSERT INTO parts VALUES (1)")
    owner.commit()
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    all_of_them = source(url, include=[r"public\..*"]).plan(context)
    assert [offer.dataset_urn for offer in all_of_them] == ["public.events", "public.parts"]
    assert Reader(source(url, tables=["part_1"]), "public.part_1").run() == [1]


def test_infinity_is_never_reached_and_without_horizon_refused(url: str, connect: Connect) -> None:
    writer = connect()
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO events (at) VALUES ('2013-01-01'), ('infinity')")
    writer.commit()
    assert Reader(source(url, "at", "timestamp")).run() == [1]
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    (offer,) = source(url, "at", "timestamp", horizon="none").plan(context)
    assert "watermark column at of type `timestamp`" in offer.problem


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamptz", "infinity"),
        ("timestamptz", "-infinity"),
        ("timestamp", "infinity"),
        ("timestamp", "294276-12-31"),
        ("date", "infinity"),
        ("date", "-infinity"),
    ],
)
def test_time_that_arrow_does_not_hold_fails_the_work_unit(url: str, connect: Connect, kind: str, value: str) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute(f"ALTER TABLE events ADD until {kind}")
        cursor.execute("INSERT INTO events (until) VALUES ('4000-01-01 BC'), (NULL), ('9999-12-31')")
    owner.commit()
    made = source(url)
    (unit,) = Reader(made).plan().work_units
    with closing(made.extractor(unit)) as extractor:
        assert sum(chunk.batch.num_rows for chunk in extractor.chunks()) == 3
    with owner.cursor() as cursor:
        cursor.execute("UPDATE events SET until = %s WHERE id = 2", (value,))
    owner.commit()
    with closing(made.extractor(unit)) as extractor, pytest.raises(ExtractError, match=r"column until.*NULLIF"):
        list(extractor.chunks())


@pytest.mark.parametrize("at", ["-infinity", "0044-03-15 BC"])
def test_time_before_all_that_watermarks_hold_is_refused(url: str, connect: Connect, at: str) -> None:
    writer = connect()
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO events (at) VALUES (%s), ('2013-01-01')", (at,))
    writer.commit()
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    (offer,) = source(url, "at", "timestamp").plan(context)
    assert "watermark column at of type `timestamp`" in offer.problem
    with writer.cursor() as cursor:
        cursor.execute("UPDATE events SET at = '0001-01-01 00:00Z' WHERE id = 1")
    writer.commit()
    assert Reader(source(url, "at", "timestamp")).run() == [1, 2]


def test_number_that_is_none_fails_the_work_unit_and_tells_what_to_do(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("ALTER TABLE events ADD price numeric(10, 2) DEFAULT 'NaN'")
    insert(owner), owner.commit()
    made = source(url)
    (unit,) = Reader(made).plan().work_units
    with closing(made.extractor(unit)) as extractor, pytest.raises(ExtractError, match=r"column price.*NULLIF"):
        list(extractor.chunks())


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("text", "'2020-01-01 00:00', '2020-01-01T05:00'", "column mark of type `timestamp`: .* got texts"),
        ("uuid", "gen_random_uuid(), gen_random_uuid()", r"column mark: database .* says: function min\(uuid\)"),
    ],
)
def test_watermark_column_of_another_type_is_named(
    url: str, connect: Connect, kind: str, values: str, words: str
) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute(f"CREATE TABLE marks AS SELECT unnest(ARRAY[{values}])::{kind} AS mark")
    owner.commit()
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    (offer,) = source(url, "mark", "timestamp", tables=["marks"]).plan(context)
    assert re.search(words, offer.problem)


def test_domains_are_read_as_what_they_are_made_of(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE DOMAIN whole AS int; CREATE DOMAIN number AS whole; CREATE DOMAIN day AS date")
        cursor.execute("CREATE TABLE made (id number, on_day day, doc xml)")
        cursor.execute("INSERT INTO made VALUES (7, '2013-01-31', '<a/>')")
    owner.commit()
    made = source(url, tables=["made"])
    (unit,) = Reader(made, "public.made").plan().work_units
    with closing(made.extractor(unit)) as extractor:
        rows = [row for chunk in extractor.chunks() for row in chunk.batch.to_pylist()]
    assert rows == [{"id": 7, "on_day": date(2013, 1, 31), "doc": "<a/>"}]


# -- tables that do not answer -----------------------------------------------------------------------------------------
def offers(made: QuerySource) -> dict[str, DatasetOffer]:
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    return {offer.dataset_urn: offer for offer in made.plan(context)}


@pytest.mark.parametrize(
    "column",
    ["id bigserial", "id bigint", "id bigint, at timestamptz"],
    ids=["waits to tell its default", "waits to tell its highest id", "waits to tell its bounds"],
)
def test_locked_table_fails_alone_and_tells_who_holds_it(url: str, connect: Connect, column: str) -> None:
    owner, holder = connect(), connect()
    with owner.cursor() as cursor:
        names = ("a_locked", "b_locked", "c_free")
        for name in names:
            cursor.execute(f"CREATE TABLE {name} ({column}); INSERT INTO {name} (id) VALUES (1)")
            if "at" in column:
                cursor.execute(f"UPDATE {name} SET at = '2026-01-01'")
    owner.commit()
    with holder.cursor() as cursor:
        cursor.execute("LOCK TABLE a_locked, b_locked IN ACCESS EXCLUSIVE MODE")
        cursor.execute("SELECT pg_backend_pid()")
        session = cursor.fetchone()[0]
    kind = ("at", "timestamp") if "at" in column else ("id", "long")
    made = source(url, *kind, include=["public[.].*_.*"], lock_wait_s=1)
    found = offers(made)
    assert [unit.rows for unit in found["public.c_free"].work_units] == [1]
    for name in ("public.a_locked", "public.b_locked"):
        assert name in found[name].problem
        assert "`lock_wait_s`" in found[name].problem
        assert f"Held by session {session} " in found[name].problem
        assert not found[name].work_units
    holder.rollback()
    assert all(offer.work_units for offer in offers(made).values())


@pytest.mark.parametrize("column", ["id", "at"])
def test_plan_that_waits_for_a_table_holds_no_lock_of_another(url: str, connect: Connect, column: str) -> None:
    """A migration that locks both tables, the later one first, would be ended as the victim of a deadlock."""
    owner, migration, watcher = connect(), connect(), connect()
    with owner.cursor() as cursor:
        for name in ("a_first", "b_later"):
            cursor.execute(f"CREATE TABLE {name} (id bigint, at timestamptz)")
            cursor.execute(f"INSERT INTO {name} VALUES (1, '2026-01-01')")
    owner.commit()
    watcher.autocommit = True
    kind = "long" if column == "id" else "timestamp"
    made = source(url, column, kind, tables=["a_first", "b_later"], lock_wait_s=20)
    found: list[dict[str, DatasetOffer]] = []
    with migration.cursor() as cursor, watcher.cursor() as watching:
        cursor.execute("SET lock_timeout = '5s'; BEGIN; LOCK TABLE b_later IN ACCESS EXCLUSIVE MODE")
        plan = threading.Thread(target=lambda: found.append(offers(made)))
        plan.start()
        waits = 0
        while not waits:
            watching.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%b_later%'"
            )
            (waits,) = watching.fetchone()
        cursor.execute("LOCK TABLE a_first IN ACCESS EXCLUSIVE MODE")
    migration.commit()
    plan.join()
    assert [offer.problem for offer in found[0].values()] == ["", ""]


@pytest.mark.parametrize("driver", ["adbc", "sqlalchemy"])
def test_table_that_is_locked_after_the_plan_may_be_tried_again(
    url: str, connect: Connect, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver == "sqlalchemy":
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    owner, holder = connect(), connect()
    insert(owner), owner.commit()
    made = source(url, lock_wait_s=1)
    (unit,) = offers(made)[URN].work_units
    with holder.cursor() as cursor:
        cursor.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
    extractor = made.extractor(unit)
    with pytest.raises(TransientError, match="lock timeout"):
        list(extractor.chunks())
    extractor.close()


def test_view_that_does_not_end_fails_alone(url: str, connect: Connect) -> None:
    owner = connect()
    insert(owner)
    with owner.cursor() as cursor:
        cursor.execute("CREATE VIEW endless AS SELECT id FROM events, pg_sleep(600)")
    owner.commit()
    found = offers(source(url, include=["public[.].*"], plan_timeout_s=1, lock_wait_s=1))
    assert "public.endless" in found["public.endless"].problem
    assert "`plan_timeout_s`" in found["public.endless"].problem
    assert [unit.rows for unit in found[URN].work_units] == [1]


def test_shorter_limit_of_the_role_stays(url: str, connect: Connect) -> None:
    owner = connect()
    insert(owner)
    with owner.cursor() as cursor:
        cursor.execute("CREATE VIEW endless AS SELECT id FROM events, pg_sleep(600)")
        cursor.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET statement_timeout = '300ms'")
    owner.commit()
    found = offers(source(url, include=["public[.].*"]))
    assert "statement timeout" in found["public.endless"].problem
    assert [unit.rows for unit in found[URN].work_units] == [1]


@pytest.mark.parametrize("what", ["is away", "ends the connection"])
def test_foreign_table_whose_server_is_away_fails_alone(
    postgres_server: PostgresServer, url: str, connect: Connect, what: str
) -> None:
    owner = connect()
    insert(owner)
    far = psycopg2.extensions.parse_dsn(postgres_server.url(postgres_server.new_database()))
    place = f"host '{far['host']}', port '{1 if what == 'is away' else far['port']}', dbname '{far['dbname']}'"
    ends = "SELECT pg_terminate_backend(pg_backend_pid())::int AS id"
    postgres_server.execute(f"CREATE VIEW gone AS {ends}", far["dbname"])
    with owner.cursor() as cursor:
        cursor.execute("CREATE EXTENSION postgres_fdw")
        cursor.execute(f"CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({place})")
        cursor.execute(
            f"CREATE USER MAPPING FOR CURRENT_USER SERVER far OPTIONS (user '{far['user']}', "
            f"password '{far.get('password', '')}')"
        )
        cursor.execute("CREATE FOREIGN TABLE a_far (id bigint) SERVER far OPTIONS (table_name 'gone')")
    owner.commit()
    found = offers(source(url, include=["public[.].*"]))
    assert "public.a_far" in found["public.a_far"].problem
    assert [unit.rows for unit in found[URN].work_units] == [1]


def test_rows_without_a_position_are_told_where_not_null_is_not_enforced(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute("CREATE TABLE parents (id bigint NOT NULL); CREATE TABLE heirs () INHERITS (parents)")
        cursor.execute("ALTER TABLE heirs ALTER id DROP NOT NULL; INSERT INTO heirs VALUES (NULL)")
        cursor.execute("CREATE DOMAIN number AS bigint NOT NULL; CREATE TABLE marks (id number)")
        cursor.execute("CREATE VIEW missed AS SELECT marks.id FROM heirs LEFT JOIN marks ON marks.id = heirs.id")
    owner.commit()
    found = offers(source(url, tables=["parents", "missed"]))
    assert len(found) == 2
    assert all("1 row(s) have NULL in the watermark column id" in offer.problem for offer in found.values())


def test_schema_with_a_dot_in_its_name_is_refused_by_the_plan(url: str, connect: Connect) -> None:
    owner = connect()
    with owner.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "a.b"; CREATE TABLE "a.b".t (id int); CREATE TABLE "c.d" (id int)')
        cursor.execute('INSERT INTO "c.d" VALUES (1)')
    owner.commit()
    context = SourceContext(Extract("shop", "all"), {}, lambda urn: True, SystemClock())
    dotted, *_ = source(url, include=["a.*"]).plan(context)
    assert "has a dot" in dotted.problem
    assert Reader(source(url, include=["public.c.d"]), "public.c.d").run() == [1]


# -- a whole job -------------------------------------------------------------------------------------------------------
def test_job_publishes_each_row_once_and_keeps_the_password_nowhere(url: str, connect: Connect, tmp_path: Path) -> None:
    writer = connect()
    for _ in range(30):
        insert(writer)
    writer.commit()
    watermark = {"column": "id", "type": "long"}
    body = {
        "job": "shop",
        "source": {"type": "query", "url": url, "tables": ["events"], "watermark": watermark, "rows_per_work_unit": 7},
        "extract": {"namespace": "shop", "table": "events"},
        "output": {"path": "lake"},
    }
    job = JobSpec.model_validate(body)
    project = Project(tmp_path, ProjectSpec(project="p"), (job,))
    for expected in (30, 5, 0):
        result = run_job(project, job, runner=InlineRunner())
        assert [dataset.rows_read for dataset in result.datasets] == [expected]
        for _ in range(5 if expected == 30 else 0):
            insert(writer)
        writer.commit()
    store = project.open_store()
    audit = audit_dataset(job, source(url), store, URN)
    store.close()
    assert audit is not None
    assert (audit.source_rows, audit.lost, audit.duplicated) == (35, 0, 0)
    secret = url.split(":")[2].split("@", maxsplit=1)[0].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if secret in path.read_bytes()] == []


def test_limited_runs_read_ties_whole_and_every_row_once(url: str, connect: Connect, tmp_path: Path) -> None:
    writer = connect()
    with writer.cursor() as cursor:
        # Written in no order; 40 rows of each of 25 instants.
        values = (
            "SELECT '2013-01-01Z'::timestamptz + (n * 7 % 25) * interval '1 hour', 'x' FROM generate_series(1, 1000) n"
        )
        cursor.execute(f"INSERT INTO events (at, body) {values}")
    writer.commit()
    body = {
        "job": "shop",
        "source": {
            "type": "query",
            "url": url,
            "tables": ["events"],
            "watermark": {"column": "at", "type": "timestamp"},
            "horizon_wait_s": 0,
        },
        "extract": {"namespace": "shop", "table": "events"},
        "output": {"path": "lake"},
        "execution": {"limit": {"rows": 300}, "block_bytes": 1 << 16},
    }
    job = JobSpec.model_validate(body)
    project = Project(tmp_path, ProjectSpec(project="p"), (job,))
    read: list[int] = []
    while not read or read[-1]:
        (dataset,) = run_job(project, job, runner=InlineRunner()).datasets
        read.append(dataset.rows_read)
    assert read == [320, 320, 320, 40, 0]
    store = project.open_store()
    audit = audit_dataset(job, source(url, "at", "timestamp"), store, URN)
    store.close()
    assert audit is not None
    assert (audit.source_rows, audit.lost, audit.duplicated) == (1000, 0, 0)


def test_watermark_column_that_gets_a_zone_is_not_read_on_with_positions_of_the_other_clock(
    url: str, connect: Connect, tmp_path: Path
) -> None:
    """Positions of a clock in Berlin, taken as UTC: row 1 would be read twice, row 3 never."""
    body = {
        "job": "shop",
        "source": {
            "type": "query",
            "url": url,
            "tables": ["t"],
            "watermark": {"column": "at", "type": "timestamp"},
            "horizon_wait_s": 0,
        },
        "extract": {"namespace": "shop", "table": "t"},
        "output": {"path": "lake"},
    }
    job = JobSpec.model_validate(body)
    writer = connect()
    writer.autocommit = True

    def run(*statements: str) -> tuple[int, str]:
        with writer.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        result = run_job(Project(tmp_path, ProjectSpec(project="p"), (job,)), job, runner=InlineRunner())
        (dataset,) = result.datasets
        return dataset.rows_read, " ".join(failure.message for failure in dataset.failures)

    assert run(
        "CREATE TABLE t (id int, at timestamp(0))",
        "INSERT INTO t VALUES (1, '2026-01-05 10:00'), (2, '2026-01-05 12:00')",
    ) == (2, "")
    assert run("ALTER TABLE t ALTER at TYPE timestamp(6)", "INSERT INTO t VALUES (3, '2026-01-05 12:00:00.5')") == (
        1,
        "",
    )
    for expected_before, expected_now, to in (("without", "with", "timestamptz"), ("with", "without", "timestamp")):
        rows, problem = run(
            f"ALTER TABLE t ALTER at TYPE {to} USING at AT TIME ZONE 'Europe/Berlin'",
            "INSERT INTO t VALUES (4, '2026-01-05 12:30')",
        )
        assert rows == 0
        assert f"public.t: its watermark column `at` holds times {expected_now} a time zone" in problem
        assert f"it held times {expected_before} a time zone" in problem
        assert "`gobblin startpoint set`" in problem
        assert "`gobblin state reset`" in problem
        wish(tmp_path, job, Specific("2026-01-05T11:00:00Z"), "public.t")
        assert run()[1] == ""
        assert run() == (0, "")
    wish(tmp_path, job, Specific("2026-01-05T11:00:00Z"), "public.t", origin=column_origin("at", has_zone=True))
    assert "watermark column was created again or changed since then, so the position means nothing" in run()[1]


@pytest.mark.parametrize("kind", ["numeric", "numeric(12,2)", "double precision"])
def test_numbers_with_fractions_are_no_positions(url: str, connect: Connect, kind: str) -> None:
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE parcels (id {kind}); INSERT INTO parcels VALUES (9), (10), (8)")
    reader = Reader(source(url, tables=["parcels"]), "public.parcels")
    assert sorted(map(float, reader.run())) == [8, 9, 10]
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO parcels VALUES (10.5), (11)")
    with pytest.raises(AssertionError, match=r"expected whole numbers, got 1 with a fraction, e\.g\. 10\.5"):
        reader.plan()
