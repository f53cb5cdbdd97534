"""The cursor's arithmetic: values to steps and back, distances, and limits by the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType

LONG, TIMESTAMP, DATE, HOUR = (Cursor(kind) for kind in CursorType)
BERLIN = ZoneInfo("Europe/Berlin")
instants = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


@given(instants, instants)
def test_steps_keep_the_order_and_hold_their_value(one: datetime, two: datetime) -> None:
    for cursor in (TIMESTAMP, HOUR, DATE):
        first, second = cursor.step(one), cursor.step(two)
        assert first <= second or one > two
        assert cursor.step(cursor.position(first)) == first
        following: Any = cursor.position(first + 1)
        begin: Any = cursor.position(first)
        value = one.date() if cursor is DATE else one
        assert begin <= value < following


def test_instants_of_any_zone_are_one_step_and_those_without_are_taken_as_they_stand() -> None:
    plus_two = datetime(2013, 1, 1, 7, tzinfo=timezone(timedelta(hours=2)))
    assert TIMESTAMP.step(plus_two) == TIMESTAMP.step(datetime(2013, 1, 1, 5)) == TIMESTAMP.step("2013-01-01 05:00:00")


@pytest.mark.parametrize(
    ("cursor", "value"),
    [(LONG, 1.5), (LONG, True), (TIMESTAMP, 5), (TIMESTAMP, date(2013, 1, 1)), (DATE, 5), (HOUR, "noon")],
)
def test_value_of_another_kind_is_no_step(cursor: Cursor, value: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|Invalid"):
        cursor.step(value)


@pytest.mark.parametrize(
    ("cursor", "value", "shown"),
    [
        (LONG, 7, "7"),
        (TIMESTAMP, date(2013, 1, 31), "2013-01-31"),
        (TIMESTAMP, "2013-01-31T05:30:00+01:00", "2013-01-31T04:30:00Z"),
        (HOUR, "2013-01-31T05:00", "2013-01-31T05Z"),
        (DATE, "2013-01-31", "2013-01-31"),
        (DATE, date(2013, 1, 31), "2013-01-31"),
    ],
)
def test_values_of_job_files_are_read(cursor: Cursor, value: Any, shown: str) -> None:
    assert str(cursor.mark(cursor.parse(value))) == shown


@pytest.mark.parametrize(
    ("cursor", "value"), [(LONG, "7"), (LONG, True), (TIMESTAMP, 7), (TIMESTAMP, "soon"), (DATE, [])]
)
def test_values_of_job_files_that_are_none_are_refused(cursor: Cursor, value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        cursor.parse(value)


@pytest.mark.parametrize(
    ("cursor", "text", "steps"),
    [
        (LONG, 5, 5),
        (TIMESTAMP, "2s", 2_000_000),
        (TIMESTAMP, "6 h", 21_600_000_000),
        (HOUR, "1d", 24),
        (HOUR, "120m", 2),
        (DATE, "48h", 2),
    ],
)
def test_distances_are_counted_in_steps(cursor: Cursor, text: Any, steps: int) -> None:
    assert cursor.span(text) == steps


@pytest.mark.parametrize(
    ("cursor", "value", "problem"),
    [
        (LONG, "6h", "expected a number of positions, e.g. 100000, got '6h'"),
        (LONG, -1, "expected a number of positions"),
        (TIMESTAMP, 6, "expected a duration like 90s, 30m, 6h or 2d, got 6"),
        (TIMESTAMP, "6 weeks", "expected a duration like"),
        (HOUR, "90m", "expected whole hours, got '90m'"),
        (DATE, "36h", "expected whole dates, got '36h'"),
    ],
)
def test_distances_that_are_none_are_refused(cursor: Cursor, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        cursor.span(value)


@pytest.mark.parametrize(
    ("limit", "now", "end"),
    [
        ("CURRENTDATE", "2013-01-10T22:59:59+00:00", "2013-01-10T23:00:00+00:00"),
        ("CURRENTDATE-1", "2013-01-10T23:00:00+00:00", "2013-01-10T23:00:00+00:00"),
        ("CURRENTDATE", "2013-03-31T12:00:00+00:00", "2013-03-31T22:00:00+00:00"),  # a day of 23 hours
        ("CURRENTDATE - 1", "2013-10-28T12:00:00+00:00", "2013-10-27T23:00:00+00:00"),  # after one of 25
        ("CURRENTHOUR", "2013-01-10T12:34:56+00:00", "2013-01-10T13:00:00+00:00"),
        ("CURRENTHOUR-13", "2013-01-10T12:34:56+00:00", "2013-01-10T00:00:00+00:00"),
        ("CURRENTMINUTE-5", "2013-01-10T12:34:56+00:00", "2013-01-10T12:30:00+00:00"),
        ("CURRENTSECOND-30", "2013-01-10T12:34:56.5+00:00", "2013-01-10T12:34:27+00:00"),
    ],
)
def test_limits_end_with_their_day_hour_minute_or_second_in_the_zone(limit: str, now: str, end: str) -> None:
    step = TIMESTAMP.limit(limit, datetime.fromisoformat(now), BERLIN, True)
    assert TIMESTAMP.position(step) == datetime.fromisoformat(end)


def test_limit_for_a_column_without_zone_is_the_wall_clock_of_the_zone() -> None:
    now = datetime(2013, 7, 10, 12, 34, tzinfo=UTC)
    assert TIMESTAMP.position(TIMESTAMP.limit("CURRENTHOUR", now, BERLIN, False)) == datetime(
        2013, 7, 10, 15, tzinfo=UTC
    )
    assert DATE.position(DATE.limit("CURRENTDATE-1", now, BERLIN, False)) == date(2013, 7, 10)


def test_limit_of_hours_is_the_clocks_where_it_is_half_an_hour_from_utc() -> None:
    now, kolkata = datetime(2013, 7, 10, 10, 45, tzinfo=UTC), ZoneInfo("Asia/Kolkata")  # 16:15 there
    ends = [TIMESTAMP.position(TIMESTAMP.limit(f"CURRENTHOUR-{back}", now, kolkata, False)) for back in (0, 1)]
    assert ends == [datetime(2013, 7, 10, 17, tzinfo=UTC), datetime(2013, 7, 10, 16, tzinfo=UTC)]


@pytest.mark.parametrize(
    "value", [2.0**53, -1e300, float("inf"), float("nan"), Decimal("NaN"), Decimal("Infinity"), True, "1", 1.5]
)
def test_numbers_that_no_range_can_hold_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"expected .*numbers"):
        Cursor(CursorType.LONG).step(value)


def test_large_whole_numbers_are_steps() -> None:
    assert [Cursor(CursorType.LONG).step(value) for value in (2.0**53 - 1, Decimal(2**70), 2**70)] == [
        2**53 - 1,
        2**70,
        2**70,
    ]
