"""The source `query` on SQLite: plans, rows read, and messages if it cannot read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.query.source import QuerySource
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, InvalidSpecError, SourceError, UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.postgresql import postgresql_may_recover
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import ConstructSpec

NOW = datetime(2013, 1, 10, 12, 30, tzinfo=UTC)
APPEND = Extract("shop", "all")


class FixedClock:
    def now(self) -> datetime:
        return NOW


@pytest.fixture
def shop(tmp_path: Path) -> sqlite3.Connection:
    """A database with two tables: orders 1-5 with an instant a day, and no customers."""
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(
        "CREATE TABLE orders (id INTEGER, at DATETIME, day DATE, price NUMERIC(8, 2), note TEXT);"
        "CREATE TABLE customers (id INTEGER NOT NULL, name TEXT);"
    )
    for number in range(1, 6):
        add(connection, number)
    return connection


def add(shop: sqlite3.Connection, number: int, at: str | None = "") -> None:
    instant = f"2013-01-{number:02} 06:00:00.000000" if at == "" else at
    day = instant and instant[:10]
    shop.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", (number, instant, day, number * 1.25, f"n{number}"))


def source(root: Path, column: str = "id", kind: str = "long", **options: Any) -> QuerySource:
    body = {"type": "query", "url": "sqlite:///shop.db", "watermark": {"column": column, "type": kind}}
    tables = {} if options.keys() & {"query", "include", "tables"} else {"tables": ["orders"]}
    spec = ConstructSpec.model_validate(body | tables | options)
    made = registry.create(ConstructKind.SOURCE, spec, ConstructContext(job="shop", base_dir=str(root)))
    assert isinstance(made, QuerySource)
    return made


def plan(
    made: QuerySource,
    states: Mapping[str, DatasetState] | None = None,
    extract: Extract = APPEND,
    is_selected: Callable[[str], bool] = lambda urn: True,
) -> dict[str, DatasetOffer]:
    context = SourceContext(extract, states or {}, is_selected, FixedClock())
    return {offer.dataset_urn: offer for offer in made.plan(context)}


def orders(made: QuerySource, *committed: tuple[int, int], extract: Extract = APPEND) -> DatasetOffer:
    """Plan the table of orders with some ids committed."""
    ranges = CommittedRanges(LongWatermark, {})
    for low, high in committed:
        ranges = ranges.add(WatermarkInterval(LongWatermark(low), LongWatermark(high)))
    return plan(made, state(ranges) if committed else {}, extract)["main.orders"]


def state(ranges: CommittedRanges) -> dict[str, DatasetState]:
    return {"main.orders": DatasetState("shop", "main.orders", 1, ranges, 1, "run", NOW)}


def spans(offer: DatasetOffer) -> list[tuple[str, int | None]]:
    return [(str(unit.interval), unit.rows) for unit in offer.work_units]


def read(made: QuerySource, unit: WorkUnit) -> pa.Table:
    extractor = made.extractor(unit)
    try:
        chunks = list(extractor.chunks())
        assert [n for chunk in chunks for n in chunk.rows.to_pylist()] == list(
            range(1, 1 + sum(c.batch.num_rows for c in chunks))
        )
        return pa.Table.from_batches([chunk.batch for chunk in chunks], extractor.schema)
    finally:
        extractor.close()


def ids(made: QuerySource, offer: DatasetOffer) -> list[int]:
    return [number for unit in offer.work_units for number in read(made, unit)["id"].to_pylist()]


# -- what is planned ---------------------------------------------------------------------------------------------------
def test_first_plan_reads_from_the_lowest_to_the_step_after_the_highest(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    made = source(tmp_path)
    offer = orders(made)
    assert spans(offer) == [("[1, 6)", 5)]
    assert read(made, offer.work_units[0]).to_pydict() == {
        "id": [1, 2, 3, 4, 5],
        "at": [datetime(2013, 1, day, 6) for day in range(1, 6)],
        "day": [datetime(2013, 1, day).date() for day in range(1, 6)],
        "price": [pa.scalar(str(n * 1.25)).cast(pa.decimal128(8, 2)).as_py() for n in range(1, 6)],
        "note": ["n1", "n2", "n3", "n4", "n5"],
    }


def test_first_plan_of_rows_that_all_lie_before_the_start_says_so(tmp_path: Path, shop: sqlite3.Connection) -> None:
    offer = orders(source(tmp_path, start=6))
    assert (spans(offer), offer.notes) == ([], ["its last row is at 5, before `start` (6): nothing is read."])
    assert not orders(source(tmp_path, start=6), (2, 6)).notes


def test_table_that_vanishes_while_the_tables_are_looked_at_is_absent_and_the_others_are_planned(
    tmp_path: Path, shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sa.Inspector, "get_table_names", lambda *_, **__: ["orders", "dropped"])
    offers = plan(source(tmp_path, include=["main.*"]))
    assert [(urn, offer.problem) for urn, offer in offers.items()] == [("main.orders", "")]


def test_table_that_is_swapped_in_while_the_tables_are_looked_at_is_planned(
    tmp_path: Path, shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter([[], ["orders"]])
    monkeypatch.setattr(sa.Inspector, "get_table_names", lambda *_, **__: next(names))
    assert spans(orders(source(tmp_path))) == [("[1, 6)", 5)]


@pytest.mark.parametrize("kind", ["timestamp", "hour"])
def test_times_of_the_first_centuries_are_read_as_all_others(
    tmp_path: Path, shop: sqlite3.Connection, kind: str
) -> None:
    add(shop, 6, "0001-01-01 00:00:00")  # many programs' way to say "never"
    add(shop, 7, "0999-12-31 23:00:00")
    made = source(tmp_path, "at", kind, max_watermark=None if kind == "timestamp" else "CURRENTHOUR-1")
    assert sorted(ids(made, plan(made)["main.orders"])) == [1, 2, 3, 4, 5, 6, 7]


def test_second_plan_is_empty_and_new_rows_are_read_alone(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path)
    idle = orders(made, (1, 6))
    assert (list(idle.work_units), str(idle.low), str(idle.expected_high)) == ([], "6", "6")
    add(shop, 9)
    assert spans(orders(made, (1, 6))) == [("[6, 10)", 1)]


@pytest.mark.parametrize("at", ["2013-01-10 12:29:59", "2013-01-10 12:30:00", "2013-02-01 00:00:00"])
def test_times_of_the_last_second_or_to_come_wait(tmp_path: Path, shop: sqlite3.Connection, at: str) -> None:
    """SQLite's CURRENT_TIMESTAMP has whole seconds: a row written a moment later has the same time."""
    add(shop, 6, at)
    made = source(tmp_path, "at", "timestamp")
    offer = plan(made)["main.orders"]
    assert ids(made, offer) == [1, 2, 3, 4, 5]
    (note,) = offer.notes
    assert note.startswith("from 2013-01-10T12:29:59Z on, rows are left for a later run: they are less than 1 s old")
    hasty = source(tmp_path, "at", "timestamp", horizon="none")
    assert ids(hasty, plan(hasty)["main.orders"]) == [1, 2, 3, 4, 5, 6]


def test_gaps_and_rows_below_the_beginning_are_read_alone(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path)
    offer = orders(made, (2, 3), (4, 5))
    assert spans(offer) == [("[1, 2)", 1), ("[3, 4)", 1), ("[5, 6)", 1)]
    assert ids(made, offer) == [1, 3, 5]


def test_rows_that_come_between_plan_and_read_wait_for_the_next_run(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path)
    offer = orders(made)
    add(shop, 6)
    assert ids(made, offer) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("timestamp", "at", "[2013-01-01T06:00:00Z, 2013-01-05T06:00:00.000001Z)"),
        ("hour", "at", "[2013-01-01T06Z, 2013-01-05T07Z)"),
        ("date", "day", "[2013-01-01, 2013-01-06)"),
        ("date", "at", "[2013-01-01, 2013-01-06)"),
    ],
)
def test_each_watermark_type_reads_every_row_once(
    tmp_path: Path, shop: sqlite3.Connection, kind: str, column: str, expected: str
) -> None:
    made = source(tmp_path, column, kind)
    offer = orders(made)
    assert spans(offer) == [(expected, 5)]
    assert ids(made, offer) == [1, 2, 3, 4, 5]


def test_timestamps_written_with_and_without_fractions_sort_as_instants(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    add(shop, 6, "2013-01-05 06:00:00")
    add(shop, 7, "2013-01-05 06:00:00.5")
    add(shop, 8, "2013-01-05 06:00:00.500000")
    made = source(tmp_path, "at", "timestamp", split_points=["2013-01-05T06:00:00", "2013-01-05T06:00:00.5"])
    offer = orders(made)
    assert [sorted(read(made, unit)["id"].to_pylist()) for unit in offer.work_units] == [[1, 2, 3, 4], [5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"partition_interval": 2}, ["[1, 3)", "[3, 5)", "[5, 6)"]),
        ({"partition_interval": 1, "max_partitions": 2}, ["[1, 4)", "[4, 6)"]),
        ({"rows_per_work_unit": 2}, ["[1, 3)", "[3, 5)", "[5, 6)"]),
        ({"rows_per_work_unit": 1, "count_rows": False}, ["[1, 6)"]),
        ({"split_points": [4, 2, 99]}, ["[1, 2)", "[2, 4)", "[4, 6)"]),
        ({"split_points": [2, 3, 4, 5], "max_partitions": 2}, ["[1, 4)", "[4, 6)"]),
        ({"start": 3}, ["[3, 6)"]),
        ({"start": 3, "end": 5}, ["[3, 5)"]),
        ({"lag": 2}, ["[1, 4)"]),
    ],
)
def test_range_is_cut_and_bounded_as_the_options_say(
    tmp_path: Path, shop: sqlite3.Connection, options: dict[str, Any], expected: list[str]
) -> None:
    made = source(tmp_path, **options)
    offer = orders(made)
    assert [str(unit.interval) for unit in offer.work_units] == expected
    wanted = [n for n in range(1, 6) if options.get("start", 1) <= n < options.get("end", 6) - options.get("lag", 0)]
    assert ids(made, offer) == wanted


@pytest.mark.parametrize(
    ("kind", "column", "options", "bound"),
    [
        ("timestamp", "at", {"max_watermark": "CURRENTDATE-8"}, "2013-01-03"),
        ("timestamp", "at", {"max_watermark": "CURRENTDATE-8", "timezone": "Asia/Tokyo"}, "2013-01-03"),
        ("timestamp", "at", {"max_watermark": "CURRENTDATE-8", "timezone": "Pacific/Kiritimati"}, "2013-01-04"),
        ("timestamp", "at", {"max_watermark": "CURRENTHOUR-150"}, "2013-01-04T07:00:00Z"),
        ("timestamp", "at", {"lag": "6d"}, "2013-01-04T12:30:00Z"),
        ("date", "day", {"max_watermark": "CURRENTDATE-8"}, "2013-01-03"),
        ("date", "day", {"lag": "7d"}, "2013-01-03"),
        ("hour", "at", {"max_watermark": "CURRENTHOUR-150"}, "2013-01-04T07Z"),
    ],
)
def test_what_is_younger_than_the_limit_is_left_and_the_plan_says_so(
    tmp_path: Path, shop: sqlite3.Connection, kind: str, column: str, options: dict[str, Any], bound: str
) -> None:
    made = source(tmp_path, column, kind, **options)
    offer = orders(made)
    name = next(iter(options))
    assert offer.notes == [f"from {bound} on, rows are left for a later run: `{name}: {options[name]}`."]
    given = [f"2013-01-0{day}{' 06:00:00' if column == 'at' else ''}" for day in range(1, 6)]
    assert ids(made, offer) == [number for number, text in enumerate(given, 1) if text < bound.replace("T", " ")]


def test_bound_that_no_row_has_reached_is_not_committed(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path, "at", "timestamp", max_watermark="CURRENTDATE-8")
    committed = CommittedRanges(TimestampWatermark, {}).add(orders(made).work_units[0].interval)
    assert list(plan(made, state(committed))["main.orders"].work_units) == []
    add(shop, 6, "2013-01-02 23:00:00")
    assert ids(made, plan(made, state(committed))["main.orders"]) == [6]


@pytest.mark.parametrize(("kind", "column"), [("date", "day"), ("hour", "at")])
def test_day_and_hour_that_go_on_are_left_for_a_later_run(
    tmp_path: Path, shop: sqlite3.Connection, kind: str, column: str
) -> None:
    add(shop, 10, "2013-01-10 12:10:00")
    made = source(tmp_path, column, kind)
    assert ids(made, orders(made)) == [1, 2, 3, 4, 5]


def test_tables_by_name_and_pattern_become_datasets_and_exclude_wins(tmp_path: Path, shop: sqlite3.Connection) -> None:
    assert list(plan(source(tmp_path, tables=["customers"], include=[r"main\.ord.*"]))) == [
        "main.customers",
        "main.orders",
    ]
    assert list(plan(source(tmp_path, include=[".*"], exclude=[r"main\.cust.*"]))) == ["main.orders"]
    assert list(plan(source(tmp_path, include=[".*"]), is_selected=lambda urn: urn.endswith("customers"))) == [
        "main.customers"
    ]


@pytest.mark.parametrize(
    "at",
    [
        "2013-01-06T06:00:00",
        "2013-01-06 06:00:00Z",
        "2013-01-06 06:00:00.5+02:00",
        "2013-01-06 06:00",
        "2013-01-06",
        1357452000,
    ],
    ids=["T", "Z", "offset", "no seconds", "date", "number"],
)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_times_that_sqlite_would_put_elsewhere_are_refused(
    tmp_path: Path, shop: sqlite3.Connection, at: str | int, is_first: bool
) -> None:
    made = source(tmp_path, "at", "timestamp")
    committed = CommittedRanges(TimestampWatermark, {})
    low, high = (TimestampWatermark(datetime(2013, 1, day, 6, tzinfo=UTC)) for day in (1, 6))
    committed = committed.add(WatermarkInterval(low, high))
    shop.execute("INSERT INTO orders VALUES (6, ?, NULL, 0, '')", (at,))
    offer = plan(made, {} if is_first else state(committed))["main.orders"]
    assert not offer.work_units
    assert "do not sort as the times that they mean" in offer.problem or "fromisoformat" in offer.problem
    shop.execute("UPDATE orders SET at = '2013-01-06 06:00:00.25' WHERE id = 6")
    offer = plan(made, {} if is_first else state(committed))["main.orders"]
    assert (offer.problem, ids(made, offer)[-1]) == ("", 6)


def test_value_that_is_no_time_fails_its_dataset_alone(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("CREATE TABLE faulty (at DATETIME)")
    shop.execute("INSERT INTO faulty VALUES ('')")
    offers = plan(source(tmp_path, "at", "timestamp", tables=["orders", "faulty"]))
    assert offers["main.faulty"].problem
    assert offers["main.orders"].work_units


def test_view_that_does_not_end_fails_its_dataset_alone(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 1)
    shop.execute(
        "CREATE VIEW endless AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id FROM n"
    )
    shop.commit()
    found = plan(source(tmp_path, include=[".*"], plan_timeout_s=1))
    assert "main.endless" in found["main.endless"].problem
    assert "`plan_timeout_s`" in found["main.endless"].problem
    assert found["main.orders"].work_units


@pytest.mark.parametrize(("kind", "value"), [("long", "'{}'"), ("timestamp", "'{}'"), ("long", "x'{}'")])
def test_value_that_is_no_position_is_shown_in_few_letters_however_long_it_is(
    tmp_path: Path, shop: sqlite3.Connection, kind: str, value: str
) -> None:
    shop.execute("CREATE TABLE long_ones (id)")
    shop.execute(f"INSERT INTO long_ones VALUES ({value.format('ab' * 100_000)})")
    shop.commit()
    (offer,) = plan(source(tmp_path, "id", kind, tables=["long_ones"])).values()
    assert "watermark column id" in offer.problem
    assert len(offer.problem) < 500


def test_empty_table_is_idle(tmp_path: Path, shop: sqlite3.Connection) -> None:
    offer = plan(source(tmp_path, tables=["customers"]))["main.customers"]
    assert (offer.work_units, offer.problem, offer.low) == ((), "", None)


def test_table_that_went_away_keeps_its_state_and_is_named(tmp_path: Path, shop: sqlite3.Connection) -> None:
    ranges = CommittedRanges(LongWatermark, {}).add(WatermarkInterval(LongWatermark(1), LongWatermark(6)))
    shop.execute("DROP TABLE orders")
    offer = plan(source(tmp_path, include=[".*"]), state(ranges))["main.orders"]
    assert (str(offer.low), list(offer.notes)) == ("6", ["the table is gone; it is committed up to 6."])


@pytest.mark.parametrize("end", [";", " ;\n", " -- all of them", "; ;"])
def test_query_may_end_as_people_end_them(tmp_path: Path, shop: sqlite3.Connection, end: str) -> None:
    made = source(tmp_path, query=f"SELECT id FROM orders{end}")
    (unit,) = plan(made)["shop.all"].work_units
    assert read(made, unit).num_rows == 5


def test_table_that_lies_behind_its_watermark_is_told(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("DELETE FROM orders WHERE id > 3")
    offer = orders(source(tmp_path), (1, 6))
    assert not offer.work_units
    assert list(offer.notes) == [
        "its last row is at 3, before its watermark 6: were rows deleted, or the table created again? Its rows are "
        "not read again."
    ]
    shop.execute("DELETE FROM orders")
    offer = orders(source(tmp_path), (1, 6))
    assert not offer.work_units
    assert list(offer.notes) == [
        "it holds no row with a position, and is committed up to 6: were rows deleted, or the table created again?"
    ]
    for number in range(1, 6):
        add(shop, number)
    assert not orders(source(tmp_path), (1, 6)).notes


def test_query_is_one_dataset_named_by_the_extract(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path, query="SELECT id, note || ':x' AS label FROM orders WHERE id % 2 = 1")
    offer = plan(made)["shop.all"]
    assert spans(offer) == [("[1, 6)", 3)]
    assert read(made, offer.work_units[0]).to_pydict() == {"id": [1, 3, 5], "label": ["n1:x", "n3:x", "n5:x"]}


def test_query_orders_by_instants_that_sqlite_keeps_as_text(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path, "at", "timestamp", query="SELECT id, at FROM orders", split_points=["2013-01-03T00:00:00Z"])
    offer = plan(made)["shop.all"]
    assert [sorted(read(made, unit)["id"].to_pylist()) for unit in offer.work_units] == [[1, 2], [3, 4, 5]]


def test_columns_left_out_are_not_read_but_the_watermark_column_always_is(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    made = source(tmp_path, exclude_columns=["note", "id", "price"])
    assert read(made, orders(made).work_units[0]).column_names == ["id", "at", "day"]


def test_overlap_reads_again_without_moving_the_interval(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 6)
    made = source(tmp_path, overlap=2, primary_key=["id"])
    offer = orders(made, (1, 6), extract=replace(APPEND, type=ExtractType.SNAPSHOT_APPEND))
    assert spans(offer) == [("[6, 7)", None)]
    assert ids(made, offer) == [4, 5, 6]
    assert "2 before the last watermark are read again; the newest row of (id) counts." in offer.notes


# -- NULL --------------------------------------------------------------------------------------------------------------
def test_null_fails_the_dataset_by_default_and_says_what_to_set(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 6, None)
    problem = orders(source(tmp_path, "at", "timestamp")).problem
    assert "main.orders: 1 row(s) have NULL in the watermark column at; set `nulls: exclude` or" in problem


def test_null_excluded_is_counted_in_the_plan(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 6, None)
    made = source(tmp_path, "at", "timestamp", nulls="exclude")
    offer = orders(made)
    assert offer.notes == ["1 row(s) have NULL in at and are not read (`nulls: exclude`)."]
    assert ids(made, offer) == [1, 2, 3, 4, 5]


def test_null_included_is_read_once_with_the_first_work_unit(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 6, None)
    made = source(tmp_path, "at", "timestamp", nulls="include", split_points=["2013-01-03"])
    offer = orders(made)
    assert [sorted(read(made, unit)["id"].to_pylist()) for unit in offer.work_units] == [[1, 2, 6], [3, 4, 5]]
    committed = CommittedRanges(TimestampWatermark, {}).add(offer.work_units[0].interval)
    again = plan(made, state(committed))["main.orders"]
    assert ids(made, again) == [3, 4, 5]


def test_null_alone_is_not_said_to_be_read_before_there_is_a_first_read(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    shop.execute("DELETE FROM orders")
    add(shop, 6, None)
    made = source(tmp_path, "at", "timestamp", nulls="include")
    offer = orders(made)
    assert list(offer.work_units) == []
    assert offer.notes[0] == (
        "1 row(s) have NULL in at and wait for the first row with a position: `nulls: include` reads them with it."
    )
    add(shop, 7)
    assert sorted(ids(made, orders(made))) == [6, 7]


def test_null_included_is_read_again_where_the_first_work_unit_failed(tmp_path: Path, shop: sqlite3.Connection) -> None:
    add(shop, 6, None)
    made = source(tmp_path, "at", "timestamp", nulls="include", split_points=["2013-01-03"])
    first, second = orders(made).work_units
    committed = CommittedRanges(TimestampWatermark, {}).anchored(first.low).add(second.interval)
    assert sorted(ids(made, plan(made, state(committed))["main.orders"])) == [1, 2, 6]


# -- the audit ---------------------------------------------------------------------------------------------------------
def test_count_rows_counts_committed_ranges_anew(tmp_path: Path, shop: sqlite3.Connection) -> None:
    ranges = CommittedRanges(LongWatermark, {})
    for low, high in ((1, 3), (5, 6)):
        ranges = ranges.add(WatermarkInterval(LongWatermark(low), LongWatermark(high)))
    assert source(tmp_path).count_rows("main.orders", ranges) == 3
    assert source(tmp_path).count_rows("main.orders", CommittedRanges(LongWatermark, {})) == 0
    assert source(tmp_path, overlap=1, primary_key=["id"]).count_rows("main.orders", ranges) is None


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_missing_table_is_its_own_problem_and_names_what_exists(tmp_path: Path, shop: sqlite3.Connection) -> None:
    offers = plan(source(tmp_path, tables=["orders", "odrers"]))
    assert "table main.odrers: there is no such table in database" in offers["main.odrers"].problem
    assert "it has main.customers, main.orders." in offers["main.odrers"].problem
    assert offers["main.orders"].work_units


def test_missing_column_names_those_that_exist(tmp_path: Path, shop: sqlite3.Connection) -> None:
    problem = orders(source(tmp_path, "changed", "timestamp")).problem
    assert "main.orders has no column changed; it has id, at, day, price, note." in problem


def test_pattern_among_names_of_tables_says_where_patterns_stand(tmp_path: Path, shop: sqlite3.Connection) -> None:
    problem = plan(source(tmp_path, tables=["main.*"]))["main.*"].problem
    assert problem.endswith("To name many tables, give a regular expression in `include`.")


def test_pattern_that_matches_nothing_names_what_exists(tmp_path: Path, shop: sqlite3.Connection) -> None:
    with pytest.raises(SourceError, match=r"no table of database .* matches; it has main.customers, main.orders"):
        plan(source(tmp_path, include=["orders"]))


def test_column_that_is_no_number_says_so(tmp_path: Path, shop: sqlite3.Connection) -> None:
    assert "watermark column note of type `long`" in orders(source(tmp_path, "note")).problem


def test_missing_file_and_bad_url_do_not_show_the_url(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file .*shop\.db"):
        plan(source(tmp_path))
    with pytest.raises(SourceError) as caught:
        plan(source(tmp_path, url="nonsense://user:secret@host:port/x"))
    assert "secret" not in str(caught.value)


def test_query_that_the_database_refuses_is_the_datasets_problem(tmp_path: Path, shop: sqlite3.Connection) -> None:
    assert "no such column: nope" in plan(source(tmp_path, query="SELECT nope FROM orders"))["shop.all"].problem


def test_table_that_vanished_since_the_plan_fails_the_work_unit(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(tmp_path)
    (unit,) = orders(made).work_units
    shop.execute("DROP TABLE orders")
    with pytest.raises(ExtractError, match=r"Dataset 'main.orders', file main.orders \[1, 6\): .* no such table"):
        read(made, unit)


@pytest.mark.parametrize("text", ["five", "x"])
@pytest.mark.parametrize("count", [1, 2], ids=["one of two", "all"])
def test_value_that_does_not_fit_its_column_fails_the_work_unit_and_names_the_column(
    tmp_path: Path, shop: sqlite3.Connection, text: str, count: int
) -> None:
    shop.execute("CREATE TABLE odd (id INTEGER, number INTEGER)")
    for number in (1, 2):
        shop.execute("INSERT INTO odd VALUES (?, ?)", (number, text if number <= count else 7))
    made = source(tmp_path, tables=["odd"])
    (unit,) = plan(made)["main.odd"].work_units
    with pytest.raises(ExtractError, match=r"Dataset 'main.odd', file main.odd \[1, 3\): .*column number: "):
        read(made, unit)


def test_watermark_of_another_type_asks_for_another_job_name(tmp_path: Path, shop: sqlite3.Connection) -> None:
    ranges = CommittedRanges(TimestampWatermark, {}).anchored(TimestampWatermark(NOW))
    offer = plan(source(tmp_path), state(ranges))["main.orders"]
    assert "of type 'timestamp', the job asks for 'long'" in offer.problem


def test_full_extract_plans_all_rows_of_a_dataset_whose_ranges_are_empty(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    offer = orders(source(tmp_path), extract=replace(APPEND, type=ExtractType.SNAPSHOT_ONLY, is_full=True))
    assert [(str(unit.low), str(unit.expected_high)) for unit in offer.work_units] == [("1", "6")]


def test_overlap_is_refused_where_rows_would_be_published_twice(tmp_path: Path, shop: sqlite3.Connection) -> None:
    with pytest.raises(UsageError, match="`overlap` reads rows twice"):
        orders(source(tmp_path, overlap=2, primary_key=["id"]))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "secret"}, "expected a URL like postgresql"),
        ({"include": ["("]}, "expected a regular expression"),
        ({"tables": ["a"], "query": "select 1"}, "expected either `query`, or `tables` and `include`"),
        ({"lag": "1h"}, "lag: expected a number of positions"),
        ({"start": "2013-01-01"}, "start: expected a whole number"),
        ({"start": 9, "end": 9}, "end: expected a position after `start`, 9, got 9"),
        ({"split_points": ["x"]}, "split_points: expected a whole number"),
        ({"max_watermark": "CURRENTDATE-1"}, "max_watermark: is for times"),
        ({"overlap": 3}, "overlap: needs `primary_key`"),
        ({"partition_interval": 0}, "partition_interval: expected more than nothing"),
        ({"watermark": {"column": "at", "type": "date"}, "lag": "5h"}, "lag: expected whole dates"),
        ({"watermark": {"column": "at", "type": "date"}, "start": "2013-01-01T05:00"}, "without a time of day"),
        ({"watermark": {"column": "at", "type": "hour"}, "start": "2013-01-01T05:30"}, "expected a whole hour"),
        ({"watermark": {"column": "at"}, "lag": "soon"}, "lag: expected a duration like 90s"),
        ({"watermark": {"column": "at"}, "max_watermark": "YESTERDAY"}, "max_watermark: expected CURRENTDATE"),
        (
            {"watermark": {"column": "at"}, "max_watermark": "CURRENTDATE-9999999"},
            "max_watermark: date value out of range",
        ),
        ({"timezone": "Mars/Dome"}, "expected an IANA zone"),
    ],
)
def test_bad_options_are_told_before_anything_is_read(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        source(tmp_path, **options)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "text", "may_recover"),
    [
        ("57P01", "terminating connection due to administrator command", True),
        ("53300", "sorry, too many clients already", True),
        ("40001", "canceling statement due to conflict with recovery", True),
        ("08006", "connection failure", True),
        ("28P01", "password authentication failed", False),
        ("3D000", 'database "shop" does not exist', False),
        ("57014", "canceling statement due to statement timeout", False),
        ("55P03", "canceling statement due to lock timeout", True),
        (None, "connection to server failed: Connection refused", True),
        (None, "server closed the connection unexpectedly", True),
        (None, "connection failed: FATAL:  the database system is starting up", True),
        (None, "connection failed: FATAL:  the database system is not yet accepting connections", True),
        (None, "connection failed: FATAL:  sorry, too many clients already", True),
        (None, "connection failed: FATAL:  remaining connection slots are reserved", True),
        (None, "[PGRES_FATAL_ERROR]: FATAL:  terminating connection due to administrator command", True),
        (None, "[PGRES_FATAL_ERROR]: ERROR:  canceling statement due to conflict with recovery", True),
        (None, 'connection failed: FATAL:  role "anna" does not exist', False),
        (None, 'connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1"', False),
        (None, "[PGRES_FATAL_ERROR]: ERROR:  canceling statement due to statement timeout", False),
    ],
)
def test_errors_of_postgresql_are_told_apart_by_what_a_retry_may_mend(
    state: str | None, text: str, may_recover: bool
) -> None:
    assert postgresql_may_recover(state, text) is may_recover


def test_least_and_greatest_ids_of_sqlite_are_read(tmp_path: Path, shop: sqlite3.Connection) -> None:
    least, greatest = -(1 << 63), (1 << 63) - 1
    shop.execute("CREATE TABLE ends (id INTEGER)")
    shop.executemany("INSERT INTO ends VALUES (?)", [(least,), (0,), (greatest,)])
    made = source(tmp_path, tables=["ends"], partition_interval=1, max_partitions=3)
    offer = plan(made)["main.ends"]
    assert [unit.rows for unit in offer.work_units] == [1, 1, 1]
    assert ids(made, offer) == [least, 0, greatest]


def test_booleans_of_sqlite_are_what_their_texts_say(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.executescript(
        "CREATE TABLE flags (id INTEGER, word BOOLEAN, number BOOLEAN);"
        "INSERT INTO flags VALUES (1, 'false', 0), (2, 'true', 1), (3, NULL, NULL);"
    )
    made = source(tmp_path, tables=["flags"])
    (unit,) = plan(made)["main.flags"].work_units
    flags = read(made, unit).select(["word", "number"]).to_pydict()
    assert flags == {"word": [False, True, None], "number": [False, True, None]}


def test_table_of_a_schema_that_is_not_there_is_its_problem_alone(tmp_path: Path, shop: sqlite3.Connection) -> None:
    offers = plan(source(tmp_path, tables=["orders", "nowhere.orders"]))
    assert "nowhere.orders: there is no such table" in offers["nowhere.orders"].problem
    assert offers["main.orders"].problem == ""


def test_excluded_column_that_no_table_has_is_named(tmp_path: Path, shop: sqlite3.Connection) -> None:
    """With a misspelt name, the column would be published."""
    shop.execute("INSERT INTO customers VALUES (1, 'Anna')")
    offers = plan(source(tmp_path, include=["main.*"], exclude_columns=["name", "notes", "price"]))
    assert [offer.notes for offer in offers.values()] == [["`exclude_columns`: notes is a column of no table."]] * 2
    query = source(tmp_path, query="select id, note from orders", exclude_columns=["nope", "note"])
    (offer,) = plan(query).values()
    assert offer.notes == ["`exclude_columns`: nope is a column of no table."]


def test_position_in_another_column_is_refused_until_a_person_says_what_it_means(
    shop: sqlite3.Connection, tmp_path: Path
) -> None:
    """Rows below it in the new column would never be read, and those above it would be read twice."""
    shop.execute("ALTER TABLE orders ADD COLUMN seq INTEGER")
    shop.execute("UPDATE orders SET seq = 100 + id")
    offer = plan(source(tmp_path))["main.orders"]
    ranges = CommittedRanges(LongWatermark, {}).add(WatermarkInterval(LongWatermark(1), LongWatermark(6)))
    known = {urn: replace(one, origin=offer.origin) for urn, one in state(ranges).items()}
    assert plan(source(tmp_path), known)["main.orders"].problem == ""
    problem = plan(source(tmp_path, "seq"), known)["main.orders"].problem
    assert "its watermark column is `seq`, it was `id` when the dataset was committed up to 6" in problem
    assert plan(source(tmp_path, "seq"), state(ranges))["main.orders"].problem == ""  # one of an earlier version


def test_column_for_a_table_that_was_read_whole_is_refused(shop: sqlite3.Connection, tmp_path: Path) -> None:
    """Its position is no id: ids up to it would never be read, and all others be added to what is published."""
    full = replace(APPEND, type=ExtractType.SNAPSHOT_ONLY, is_full=True)
    whole = source(tmp_path, watermark=None, without_watermark="full")
    offer = plan(whole, extract=full)["main.orders"]
    ranges = CommittedRanges(LongWatermark, {}).add(offer.work_units[0].interval)
    known = {urn: replace(one, origin=offer.origin) for urn, one in state(ranges).items()}
    assert plan(whole, known, full)["main.orders"].problem == ""
    assert "its watermark column is `id`, it had none" in plan(source(tmp_path), known)["main.orders"].problem


def test_fraction_below_the_next_whole_number_is_refused_and_not_passed_over(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    made = source(tmp_path)
    for number in ("5.5", "6"):  # with 6 as the highest, 5.5 lies before the watermark of ids up to 5
        shop.execute(f"INSERT INTO orders VALUES ({number}, NULL, NULL, NULL, NULL)")
    assert "expected whole numbers, got 1 with a fraction, e.g. 5.5" in orders(made, (1, 6)).problem
    shop.execute("DELETE FROM orders WHERE id = 5.5")
    assert ids(made, orders(made, (1, 6))) == [6]


def test_numbers_that_are_read_as_texts_keep_their_order(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("CREATE TABLE parcels (id NUMERIC)")
    shop.executemany("INSERT INTO parcels VALUES (?)", [(number,) for number in (10, 9, 9, 100)])
    [unit] = plan(source(tmp_path, tables=["parcels"]))["main.parcels"].work_units
    body = {
        "type": "query",
        "url": "sqlite:///shop.db",
        "tables": ["parcels"],
        "watermark": {"column": "id", "type": "long"},
    }
    context = ConstructContext(job="shop", base_dir=str(tmp_path), in_order=True, limit_rows=1)
    extractor = registry.create(ConstructKind.SOURCE, ConstructSpec.model_validate(body), context).extractor(unit)
    found = [(chunk.batch["id"].to_pylist(), str(extractor.position())) for chunk in extractor.chunks()]
    extractor.close()
    assert found == [(["9", "9"], "10"), (["10"], "100"), (["100"], "None")]


def test_decimals_of_sqlite_are_read_as_they_are_or_refused(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("CREATE TABLE sums (id INTEGER, small DECIMAL(5, 2), large DECIMAL(20, 2))")
    shop.execute("INSERT INTO sums VALUES (1, ?, ?)", (0.1 + 0.2, 2**53 + 1))
    made = source(tmp_path, tables=["sums"])
    (unit,) = plan(made)["main.sums"].work_units
    assert read(made, unit).to_pylist() == [{"id": 1, "small": Decimal("0.30"), "large": Decimal(2**53 + 1)}]
    shop.execute("UPDATE sums SET small = 0.126")
    with pytest.raises(ExtractError, match=r"column small: expected decimal128\(5, 2\), got .*0\.126"):
        read(made, unit)
