"""Startpoints of the source `query`, over whole runs on SQLite."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.constructs import SourceContext
from gobblin_dagster.core.errors import StartpointError, UsageError
from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.core.watermark import (
    DateWatermark,
    HourWatermark,
    LongWatermark,
    TimestampWatermark,
    Watermark,
)
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.engine.maintenance.state_change import require_position
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.sources.query.test_source import APPEND, NOW, FixedClock, source
from tests.unit.engine.jobs import project, run
from tests.unit.engine.plan.test_startpoints import planned, store_of, waiting, wish

URN = "main.orders"
FOURTH = datetime(2013, 1, 4, 6, tzinfo=UTC)


@pytest.fixture
def orders(tmp_path: Path) -> sqlite3.Connection:
    """Five orders, one a day at six."""
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE orders (id INTEGER, at DATETIME, day DATE)")
    for number in range(1, 6):
        add(connection, number)
    return connection


def add(orders: sqlite3.Connection, number: int) -> None:
    day = f"2013-01-{number:02}"
    orders.execute("INSERT INTO orders VALUES (?, ?, ?)", (number, f"{day} 06:00:00.000000", day))


def job(column: str = "id", kind: str = "long", **options: Any) -> JobSpec:
    source = {
        "type": "query",
        "url": "sqlite:///shop.db",
        "tables": ["orders"],
        "watermark": {"column": column, "type": kind},
    }
    body = {"job": "shop", "source": source | options, "extract": {"namespace": "shop", "table": "all"}}
    return JobSpec.model_validate(body | {"output": {"path": "lake"}})


def ids(root: Path, spec: JobSpec) -> list[int]:
    with store_of(root, spec) as store:
        files = store.load_snapshot("shop", URN)
    return sorted(number for file in files for number in pq.read_table(file.path)["id"].to_pylist())


@pytest.mark.parametrize(
    ("column", "kind", "position", "read"),
    [
        ("id", "long", Specific("4"), [4, 5]),
        ("id", "long", Oldest(), [1, 2, 3, 4, 5]),
        ("id", "long", Upcoming(), []),
        ("at", "timestamp", Specific("2013-01-04"), [4, 5]),
        ("at", "timestamp", Timestamp(FOURTH), [4, 5]),
        ("at", "timestamp", Timestamp(FOURTH.replace(hour=7)), [5]),
        ("at", "timestamp", Timestamp(FOURTH.replace(year=2030)), []),
        ("at", "hour", Timestamp(FOURTH.replace(minute=59)), [4, 5]),
        ("day", "date", Timestamp(FOURTH), [4, 5]),
        ("day", "date", Upcoming(), []),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
def test_run_begins_where_the_startpoint_says(
    tmp_path: Path,
    orders: sqlite3.Connection,
    column: str,
    kind: str,
    position: StartpointPosition,
    read: list[int],
    is_first: bool,
) -> None:
    spec = job(column, kind)
    if not is_first:
        run(tmp_path, spec)
    before = [] if is_first else [1, 2, 3, 4, 5]
    wish(tmp_path, spec, position, URN)
    assert run(tmp_path, spec).exit_code == 0
    assert ids(tmp_path, spec) == sorted([*before, *read])
    assert waiting(tmp_path, spec) == {}
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == sorted([*before, *read]), "what the startpoint skipped is skipped for good"


@pytest.mark.parametrize(
    ("zone", "instant", "read"),
    [
        ("Europe/Berlin", "2012-10-28T00:45Z", [2, 3, 4]),  # 02:45 of summer: 02:10 may be the winter's, which is later
        ("Europe/Berlin", "2012-10-28T01:15Z", [3, 4]),
        ("Europe/Berlin", "2012-10-27T23:45Z", [2, 3, 4]),
        ("Australia/Lord_Howe", "2012-03-31T14:50Z", [2, 3, 4]),  # 01:50; clocks go from 02:00 to 01:30
        ("UTC", "2012-10-28T02:20Z", [3, 4]),
    ],
)
def test_instant_in_an_hour_that_clocks_show_twice_skips_no_row_of_the_second_one(
    tmp_path: Path, orders: sqlite3.Connection, zone: str, instant: str, read: list[int]
) -> None:
    times = (
        ("01:20", "01:40", "01:55", "02:10") if zone == "Australia/Lord_Howe" else ("01:20", "02:10", "02:50", "03:30")
    )
    day = "2012-04-01" if zone == "Australia/Lord_Howe" else "2012-10-28"
    orders.execute("DELETE FROM orders")
    for number, time in enumerate(times, 1):
        orders.execute("INSERT INTO orders VALUES (?, ?, ?)", (number, f"{day} {time}:00.000000", day))
    spec = job("at", "timestamp", timezone=zone)
    wish(tmp_path, spec, Timestamp(datetime.fromisoformat(instant)), URN)
    assert run(tmp_path, spec).exit_code == 0
    assert ids(tmp_path, spec) == read


def test_range_read_again_does_not_hide_that_the_column_is_another_one(
    tmp_path: Path, orders: sqlite3.Connection
) -> None:
    orders.execute("ALTER TABLE orders ADD COLUMN seq integer")
    orders.execute("UPDATE orders SET seq = 6 - id")
    run(tmp_path, job())
    wish(tmp_path, job("seq"), Specific("3"), URN, until=Specific("5"))
    for _ in range(2):
        (refused,) = run(tmp_path, job("seq")).datasets
        assert "its watermark column is `seq`, it was `id` when" in refused.problem
    assert ids(tmp_path, job()) == [1, 2, 3, 4, 5]


def test_what_comes_behind_upcoming_is_read(tmp_path: Path, orders: sqlite3.Connection) -> None:
    spec = job()
    wish(tmp_path, spec, Upcoming(), URN)
    run(tmp_path, spec)
    add(orders, 6)
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == [6]


def test_rows_below_a_startpoint_before_the_beginning_stay_unread(tmp_path: Path, orders: sqlite3.Connection) -> None:
    run(tmp_path, job(start=4))
    wish(tmp_path, job(), Specific("3"), URN)
    run(tmp_path, job())
    assert ids(tmp_path, job()) == [3, 4, 4, 5, 5]
    run(tmp_path, job())
    assert ids(tmp_path, job()) == [3, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("position", "rows", "problem"),
    [
        (Timestamp(FOURTH), 5, "the watermark column id holds no times"),
        (Upcoming(), 0, "the table has no rows, and so no end yet"),
        (Specific("2013-01-04"), 5, "is no watermark of type 'long'"),
    ],
    ids=["timestamp", "upcoming", "specific"],
)
def test_what_cannot_be_resolved_is_said(
    tmp_path: Path, orders: sqlite3.Connection, position: StartpointPosition, rows: int, problem: str
) -> None:
    orders.execute("DELETE FROM orders WHERE id > ?", (rows,))
    wish(tmp_path, job(), position, URN)
    assert problem in planned(tmp_path, job(), URN).problem


def test_table_that_is_gone_is_said(tmp_path: Path, orders: sqlite3.Connection) -> None:
    run(tmp_path, job())
    wish(tmp_path, job(), Upcoming(), URN)
    orders.execute("DROP TABLE orders")
    assert "no such table" in planned(tmp_path, job(), URN).problem


@pytest.mark.parametrize(
    ("column", "kind", "beyond", "end"),
    [
        ("id", "long", "7", "6"),
        ("id", "long", "99999999999999999999999", "6"),
        ("at", "timestamp", "2130-01-01", "20"),
        ("day", "date", "2130-01-01", "20"),
    ],
)
def test_position_beyond_the_end_is_refused_and_the_end_is_named(
    tmp_path: Path, orders: sqlite3.Connection, column: str, kind: str, beyond: str, end: str
) -> None:
    spec = job(column, kind)
    wish(tmp_path, spec, Specific(beyond), URN)
    problem = planned(tmp_path, spec, URN).problem
    assert f"it lies beyond the end, {end}" in problem
    assert "`upcoming` begins at the end" in problem
    assert run(tmp_path, spec).exit_code == 1
    assert URN in waiting(tmp_path, spec)
    wish(tmp_path, spec, Specific("6") if kind == "long" else Upcoming(), URN)
    assert run(tmp_path, spec).exit_code == 0
    add(orders, 6)
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == [6]


@pytest.mark.parametrize(
    ("kind", "timezone", "end", "beyond"),
    [
        ("date", "UTC", "2013-01-10", "2013-01-11"),
        ("date", "Pacific/Kiritimati", "2013-01-11", "2013-01-12"),
        ("date", "Pacific/Pago_Pago", "2013-01-10", "2013-01-11"),
        ("hour", "UTC", "2013-01-10T12:00:00", "2013-01-10T13:00:00"),
        ("hour", "Asia/Kolkata", "2013-01-10T18:00:00", "2013-01-10T19:00:00"),
    ],
)
@pytest.mark.parametrize("has_row", [False, True], ids=["no-row-of-now", "row-of-now"])
def test_end_of_a_day_or_hour_that_is_not_over_is_refused(
    tmp_path: Path, orders: sqlite3.Connection, kind: str, timezone: str, end: str, beyond: str, has_row: bool
) -> None:
    """Rows of today that come later, before tomorrow, would never be read."""
    if has_row:
        orders.execute("INSERT INTO orders VALUES (6, ?, ?)", (f"{end.replace('T', ' '):<19}.000000", end[:10]))
    made = source(tmp_path, "day" if kind == "date" else "at", kind, timezone=timezone)
    context = SourceContext(APPEND, {}, lambda _: True, FixedClock())
    assert made.resolve_startpoint(URN, _mark(kind, end), context) == _mark(kind, end)
    with pytest.raises(StartpointError, match=f"it lies beyond the end, {end[:13]}"):
        made.resolve_startpoint(URN, _mark(kind, beyond), context)


def test_tomorrow_is_the_end_if_rows_of_today_are_there_and_are_read(
    tmp_path: Path, orders: sqlite3.Connection
) -> None:
    made = source(tmp_path, "day", "date", max_watermark="CURRENTDATE", horizon="none")
    context = SourceContext(APPEND, {}, lambda _: True, FixedClock())
    with pytest.raises(StartpointError, match="it lies beyond the end, 2013-01-10"):
        made.resolve_startpoint(URN, _mark("date", "2013-01-11"), context)
    orders.execute("INSERT INTO orders VALUES (6, NULL, '2013-01-10')")
    assert made.resolve_startpoint(URN, _mark("date", "2013-01-11"), context) == _mark("date", "2013-01-11")


def test_instant_in_the_time_that_lag_waits_for_becomes_the_end(tmp_path: Path, orders: sqlite3.Connection) -> None:
    """Rows before it that come until then, for which `lag` waits, are read."""
    made = source(tmp_path, "at", "timestamp", lag="2d")
    context = SourceContext(APPEND, {}, lambda _: True, FixedClock())
    settled = NOW - timedelta(days=2)
    for instant in (settled + timedelta(hours=1), NOW + timedelta(days=1)):
        assert made.resolve_startpoint(URN, Timestamp(instant), context) == TimestampWatermark(settled)


def _mark(kind: str, text: str) -> Watermark:
    return parse_watermark(DateWatermark if kind == "date" else HourWatermark, text)


@pytest.mark.parametrize(("column", "kind"), [("day", "date"), ("at", "hour")])
def test_position_up_to_a_row_that_is_dated_far_ahead_is_refused_too(
    tmp_path: Path, orders: sqlite3.Connection, column: str, kind: str
) -> None:
    orders.execute("INSERT INTO orders VALUES (6, '2130-01-01 00:00:00.000000', '2130-01-01')")
    spec = job(column, kind)
    wish(tmp_path, spec, Specific("2129-01-01" if kind == "date" else "2129-01-01T00"), URN)
    assert "it lies beyond the end, 20" in planned(tmp_path, spec, URN).problem
    assert run(tmp_path, spec).exit_code == 1
    wish(tmp_path, spec, Specific("2013-01-05" if kind == "date" else "2013-01-05T06"), URN)
    assert run(tmp_path, spec).exit_code == 0
    assert ids(tmp_path, spec) == [5]


@pytest.mark.parametrize(("days_ago", "is_refused"), [(0, True), (29, True), (31, False)])
def test_position_in_the_time_that_lag_waits_for_is_refused(
    tmp_path: Path, orders: sqlite3.Connection, days_ago: int, is_refused: bool
) -> None:
    """Rows before it that come until then, for which `lag` waits, were never read."""
    at = datetime.now(UTC) - timedelta(days=days_ago)
    spec = job("at", "timestamp", lag="30d")
    wish(tmp_path, spec, Specific(at.isoformat()), URN)
    assert ("it lies beyond the end, 20" in planned(tmp_path, spec, URN).problem) is is_refused
    # Behind the last row, whenever it came, nothing that exists is skipped.
    orders.execute("INSERT INTO orders VALUES (6, ?, NULL)", (f"{at:%Y-%m-%d %H:%M:%S.%f}",))
    assert planned(tmp_path, spec, URN).problem == ""


def test_position_in_an_empty_table_is_refused(tmp_path: Path, orders: sqlite3.Connection) -> None:
    run(tmp_path, job())
    orders.execute("DELETE FROM orders")
    wish(tmp_path, job(), Specific("3"), URN)
    assert "the table has no rows" in planned(tmp_path, job(), URN).problem


def test_time_to_come_skips_nothing_that_comes_before_it(tmp_path: Path, orders: sqlite3.Connection) -> None:
    spec = job("at", "timestamp")
    wish(tmp_path, spec, Timestamp(FOURTH.replace(year=2130)), URN)
    run(tmp_path, spec)
    orders.execute("INSERT INTO orders VALUES (6, '2129-01-01 06:00:00.000000', '2129-01-01')")
    with store_of(tmp_path, spec) as store:
        mark = store.load_dataset_states("shop", [URN])[URN].watermark
    assert str(mark) < "2129"


def test_startpoint_of_a_table_that_is_gone_waits_until_it_is_back(tmp_path: Path, orders: sqlite3.Connection) -> None:
    orders.execute("CREATE TABLE other (id INTEGER)")
    orders.execute("INSERT INTO other VALUES (1)")
    spec = job(tables=[], include=[".*"])
    run(tmp_path, spec)
    saved = wish(tmp_path, spec, Oldest(), URN)
    orders.execute("ALTER TABLE orders RENAME TO away")
    orders.execute("DELETE FROM away WHERE id > 2")
    assert planned(tmp_path, spec, URN).notes == ("its startpoint waits: the source does not have the dataset now",)
    run(tmp_path, spec)
    assert waiting(tmp_path, spec) == {URN: saved}
    orders.execute("ALTER TABLE away RENAME TO orders")
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == [1, 1, 2, 2, 3, 4, 5]
    assert waiting(tmp_path, spec) == {}


@pytest.mark.parametrize(
    ("column", "kind", "low", "high"),
    [
        ("id", "long", Specific("2"), Specific("4")),
        ("at", "timestamp", Timestamp(FOURTH.replace(day=2)), Timestamp(FOURTH)),
        ("day", "date", Specific("2013-01-02"), Specific("2013-01-04")),
    ],
    ids=str,
)
def test_range_is_read_again_and_the_watermark_stays(
    tmp_path: Path,
    orders: sqlite3.Connection,
    column: str,
    kind: str,
    low: StartpointPosition,
    high: StartpointPosition,
) -> None:
    spec = job(column, kind)
    run(tmp_path, spec)
    before = planned(tmp_path, spec, URN).low
    add(orders, 6)
    wish(tmp_path, spec, low, URN, until=high)
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == [1, 2, 2, 3, 3, 4, 5]
    assert planned(tmp_path, spec, URN).low == before
    run(tmp_path, spec)
    assert ids(tmp_path, spec) == [1, 2, 2, 3, 3, 4, 5, 6]


def test_state_is_not_set_beyond_the_end(tmp_path: Path, orders: sqlite3.Connection) -> None:
    """`gobblin state set`: rows that come before the position would never be read."""
    run(tmp_path, job())
    with store_of(tmp_path, job()) as store:
        state = store.load_dataset_states("shop")[URN]
    shop = project(tmp_path, job())
    with pytest.raises(UsageError, match="cannot go on at 100: it lies beyond the end, 6: rows before it that come"):
        require_position(shop, state, LongWatermark(100))
    add(orders, 9)
    for fine in (6, 8, 10):
        require_position(shop, state, LongWatermark(fine))
    orders.execute("DELETE FROM orders WHERE id > 3")
    require_position(shop, state, LongWatermark(5))  # goes back
    orders.execute("DELETE FROM orders")
    require_position(shop, state, LongWatermark(100))  # a table without rows has no end
    (tmp_path / "shop.db").unlink()
    require_position(shop, state, LongWatermark(100))  # and one that cannot be asked keeps nobody from going on
