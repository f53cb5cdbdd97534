"""Options by table: another watermark column, key, NULL and start for the tables that match a glob."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.constructs import SourceContext
from gobblin_dagster.core.errors import InvalidSpecError, StartpointError, UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.startpoint import Upcoming
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from tests.unit.constructs.sources.query.test_source import FixedClock, plan, read, shop, source, spans, state

__all__ = ["shop"]
FULL = Extract("shop", "all", type=ExtractType.SNAPSHOT_ONLY, is_full=True)


def both(root: Path, **options: Any) -> Any:
    return source(root, **{"tables": ["orders", "customers"], **options})


def test_tables_have_watermark_columns_of_their_own(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("INSERT INTO customers VALUES (7, 'ann')")
    by_time = {"main.ord*": {"watermark": {"column": "at"}, "start": "2013-01-03", "exclude_columns": ["note"]}}
    made = both(tmp_path, table_options=by_time)
    offers = plan(made)
    assert spans(offers["main.customers"]) == [("[7, 8)", 1)]
    assert str(offers["main.orders"].low) == "2013-01-03"
    rows = read(made, offers["main.orders"].work_units[0])
    assert rows.column_names == ["id", "at", "day", "price"]
    assert rows["id"].to_pylist() == [3, 4, 5]


def test_nulls_are_judged_by_table(tmp_path: Path, shop: sqlite3.Connection) -> None:
    shop.execute("INSERT INTO orders (id, at) VALUES (NULL, NULL)")
    shop.execute("INSERT INTO customers VALUES (7, 'ann')")
    assert "NULL" in plan(both(tmp_path))["main.orders"].problem
    offer = plan(both(tmp_path, table_options={"main.orders": {"nulls": "exclude"}}))["main.orders"]
    assert spans(offer) == [("[1, 6)", 5)]


def test_later_globs_win(tmp_path: Path, shop: sqlite3.Connection) -> None:
    options = {"main.*": {"start": 2, "end": 4}, "*.orders": {"start": 3}}
    assert spans(plan(source(tmp_path, table_options=options))["main.orders"]) == [("[3, 4)", 1)]


def test_table_without_the_column_is_left_out_by_rule(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = both(tmp_path, column="at", kind="timestamp")
    assert "has no column at" in plan(made)["main.customers"].problem
    offer = plan(both(tmp_path, column="at", kind="timestamp", without_watermark="leave_out"))["main.customers"]
    assert (offer.problem, offer.work_units) == ("", ())
    assert offer.notes == ["it has no watermark column and is not read (`without_watermark: leave_out`)."]


@pytest.mark.parametrize("watermark", [None, {"column": "at"}, {"column": "day", "type": "date"}])
def test_table_without_the_column_is_read_whole_by_rule(
    tmp_path: Path, shop: sqlite3.Connection, watermark: Any
) -> None:
    shop.executescript("INSERT INTO customers VALUES (7, 'ann'), (7, NULL)")
    made = both(tmp_path, watermark=watermark, without_watermark="full")
    offers = plan(made, extract=FULL)
    (unit,) = offers["main.customers"].work_units
    assert read(made, unit).to_pylist() == [{"id": 7, "name": "ann"}, {"id": 7, "name": None}]
    assert unit.rows == 2
    ranges = CommittedRanges(type(unit.low), {}).add(unit.interval)
    assert made.count_rows("main.customers", ranges) is None
    with pytest.raises(StartpointError, match="no positions"):
        made.resolve_startpoint("main.customers", Upcoming(), _context())


def _context() -> Any:
    return SourceContext(FULL, {}, lambda _: True, FixedClock())


def test_whole_tables_are_for_jobs_that_replace(tmp_path: Path, shop: sqlite3.Connection) -> None:
    with pytest.raises(UsageError, match="would publish their rows again each time"):
        plan(both(tmp_path, watermark=None, without_watermark="full"))


def test_startpoint_and_count_take_the_column_of_the_table(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = source(
        tmp_path, column="nope", table_options={"main.orders": {"watermark": {"column": "id", "type": "long"}}}
    )
    assert str(made.resolve_startpoint("main.orders", Upcoming(), _context())) == "6"
    (unit,) = plan(made)["main.orders"].work_units
    assert made.count_rows("main.orders", CommittedRanges(type(unit.low), {}).add(unit.interval)) == 5
    assert plan(made, state(CommittedRanges(type(unit.low), {}).add(unit.interval)))["main.orders"].work_units == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"watermark": None}, "expected a `watermark`"),
        ({"table_options": {"a": {"start": "x"}}}, "table_options, a: start: expected a whole number"),
        ({"table_options": {"a": {"overlap": 5}}}, "table_options, a: overlap: needs `primary_key`"),
        (
            {"tables": [], "query": "SELECT id, '-- ' AS v FROM orders LIMIT 10 OFFSET 5; -- don't"},
            "query: 'LIMIT 10 OFFSET 5' takes a part of its rows; the others would never be read",
        ),
        (
            {"tables": [], "query": "select * from o\nfetch first 10 rows only"},
            "query: 'fetch first 10 rows only' takes",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        source(tmp_path, **options)


def test_query_that_takes_a_part_may_be_read_whole_or_have_the_part_inside(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    newest = "SELECT id, (SELECT name FROM customers c WHERE c.id = o.id LIMIT 1) AS name FROM orders o -- limit 5"
    whole = {"query": f"{newest}\n LIMIT 3", "watermark": None, "without_watermark": "full"}
    for options in (whole, {"query": newest}):
        (offer,) = plan(source(tmp_path, tables=[], **options), extract=FULL).values()
        assert not offer.problem


def test_options_that_do_not_fit_together_fail_their_table_only(tmp_path: Path, shop: sqlite3.Connection) -> None:
    options = {"main.o*": {"start": 5}, "main.*s": {"end": 3}}
    offers = plan(both(tmp_path, table_options=options))
    assert "main.orders, `table_options`: end: expected a position after `start`" in offers["main.orders"].problem


def test_table_without_any_watermark_says_what_to_set(tmp_path: Path, shop: sqlite3.Connection) -> None:
    made = both(
        tmp_path, watermark=None, table_options={"main.orders": {"watermark": {"column": "id", "type": "long"}}}
    )
    offers = plan(made)
    assert "main.customers has no `watermark`; set one in `table_options`" in offers["main.customers"].problem
    assert spans(offers["main.orders"]) == [("[1, 6)", 5)]
