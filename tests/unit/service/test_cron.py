"""Quartz cron: what fires when, over changes of the clock too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.service.cron import Cron, CronError

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
UTC_ZONE = ZoneInfo("UTC")


def fires(cron: str, start: str, count: int, zone: ZoneInfo = UTC_ZONE) -> list[str]:
    """Return the next fire times as local ISO texts without the zone."""
    instant = datetime.fromisoformat(start).replace(tzinfo=zone)
    found = islice(Cron.parse(cron).fire_times(instant, zone), count)
    return [f"{fire.astimezone(zone):%Y-%m-%dT%H:%M:%S}" for fire in found]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 0/20 * ? * *", ["2026-11-22T18:00:00", "2026-11-22T18:20:00", "2026-11-22T18:40:00"]),
        ("0 0 12 * * ?", ["2026-11-23T12:00:00", "2026-11-24T12:00:00"]),
        ("0 15 10 ? * MON-FRI", ["2026-11-23T10:15:00", "2026-11-24T10:15:00"]),
        ("0 0 0 L * ?", ["2026-11-30T00:00:00", "2026-12-31T00:00:00", "2027-01-31T00:00:00"]),
        ("0 0 0 L-2 * ?", ["2026-11-28T00:00:00", "2026-12-29T00:00:00"]),
        ("0 0 0 LW * ?", ["2026-11-30T00:00:00", "2026-12-31T00:00:00", "2027-01-29T00:00:00"]),
        ("0 0 0 15W * ?", ["2026-12-15T00:00:00", "2027-01-15T00:00:00", "2027-02-15T00:00:00"]),
        ("0 0 0 1W * ?", ["2026-12-01T00:00:00", "2027-01-01T00:00:00", "2027-02-01T00:00:00"]),
        ("0 0 0 ? * 6L", ["2026-11-27T00:00:00", "2026-12-25T00:00:00"]),
        ("0 0 0 ? * FRI#1", ["2026-12-04T00:00:00", "2027-01-01T00:00:00"]),
        ("0 0 0 ? * L", ["2026-11-28T00:00:00", "2026-12-05T00:00:00"]),
        (
            "0 0 22-1 * * ?",
            ["2026-11-22T22:00:00", "2026-11-22T23:00:00", "2026-11-23T00:00:00", "2026-11-23T01:00:00"],
        ),
        ("0 0 0 ? 1 1 2050", ["2050-01-02T00:00:00", "2050-01-09T00:00:00"]),
        ("0 0 0 29 2 ?", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("5/25 * * ? * *", ["2026-11-22T17:42:30", "2026-11-22T17:42:55", "2026-11-22T17:43:05"]),
        ("0 0 0 1 JAN,jul ? 2027/2", ["2027-01-01T00:00:00", "2027-07-01T00:00:00", "2029-01-01T00:00:00"]),
    ],
)
def test_fire_times_are_those_of_quartz(cron: str, expected: list[str]) -> None:
    assert fires(cron, "2026-11-22T17:42:23", len(expected)) == expected


def test_nearest_weekday_stays_in_its_month() -> None:
    # 2026-08-01 is a Saturday, 2026-05-31 a Sunday.
    assert fires("0 0 0 1W 8 ?", "2026-07-01T00:00:00", 1) == ["2026-08-03T00:00:00"]
    assert fires("0 0 0 31W 5 ?", "2026-05-01T00:00:00", 1) == ["2026-05-29T00:00:00"]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_time_that_does_not_exist_fires_once_after_the_gap(zone: ZoneInfo) -> None:
    day = "2026-03-29" if zone is BERLIN else "2026-03-08"
    start = datetime.fromisoformat(f"{day}T00:00:00") - timedelta(hours=1)
    found = fires("0 30 2 * * ?", start.isoformat(), 2, zone)
    assert found[0] == f"{day}T03:00:00"
    assert found[1].endswith("T02:30:00")


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_interval_goes_on_evenly_over_both_changes_of_the_clock(zone: ZoneInfo) -> None:
    cron = Cron.parse("0 0/5 * ? * *")
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        start = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=zone)
        found = list(islice(cron.fire_times(start, zone), 12 * 24))
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=5)}


def test_time_that_comes_twice_fires_the_first_time_only() -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    found = list(islice(Cron.parse("0 30 2 * * ?").fire_times(start, BERLIN), 2))
    assert found == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]


def test_gap_at_midnight_loses_no_day() -> None:
    zone = ZoneInfo("America/Santiago")  # 2026-09-06 begins at 01:00
    assert fires("0 0 0 * * ?", "2026-09-05T12:00:00", 2, zone) == ["2026-09-06T01:00:00", "2026-09-07T00:00:00"]


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("*/5 * * * *", "expected 6 or 7 fields, got 5; put the second before"),
        ("", "expected 6 or 7 fields, got 0"),
        ("0 0 0 * * *", "exactly one of day of month and day of week"),
        ("0 0 0 ? * ?", "exactly one of day of month and day of week"),
        ("60 0 0 * * ?", "the second cannot be '60': values are from 0 to 59"),
        ("0 0 24 * * ?", "the hour cannot be '24'"),
        ("0 0 0 32 * ?", "the day of month cannot be '32'"),
        ("0 0 0 ? * 8", "the day of week cannot be '8'"),
        ("0 0 0 ? * MON#6", "at most 5"),
        ("0 0 0 L-31 * ?", "at most 30 days"),
        ("0 0/0 0 * * ?", "the step must be from 1"),
        ("0 0 0 1 FOO ?", "the month cannot be 'FOO'"),
        ("0 0 0 1 1 ? 1969", "values are from 1970 to 2099"),
        ("0 0 0 1 1 ? 2030-2020", "the first year must not be after"),
        ("0 0 0 *-5 1 ?", "the day of month cannot be '*-5'"),
        ("0 0 0 1,,2 1 ?", "the day of month cannot be ''"),
    ],
)
def test_what_is_not_quartz_is_refused_by_field(cron: str, problem: str) -> None:
    with pytest.raises(CronError) as caught:
        Cron.parse(cron)
    assert problem in str(caught.value)


def test_expression_whose_years_are_over_never_fires() -> None:
    assert fires("0 0 0 1 1 ? 2020", "2026-11-22T00:00:00", 1) == []
    assert fires("0 0 0 31 2 ?", "2026-11-22T00:00:00", 1) == []


@pytest.mark.parametrize(
    ("cron", "interval_s"),
    [("* * * ? * *", 1), ("0/20 * * ? * *", 20), ("0 0/5 * ? * *", 300), ("0 0 * ? * *", 3600), ("0,59 * * ? * *", 1)],
)
def test_least_interval_is_that_of_the_finest_field(cron: str, interval_s: int) -> None:
    assert Cron.parse(cron).least_interval_s() == interval_s


_FIELD = st.sampled_from(["*", "0", "0/7", "3,9", "10-20", "*/4"])


@settings(max_examples=60, deadline=None)
@given(
    minute=_FIELD,
    hour=st.sampled_from(["*", "0", "2", "1-3", "*/4"]),
    day=st.sampled_from([("*", "?"), ("?", "1"), ("L", "?"), ("?", "SUN#4"), ("8,29", "?")]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 1)),
    zone=st.sampled_from([UTC_ZONE, BERLIN, NEW_YORK]),
)
def test_next_fire_time_is_the_first_minute_that_matches(
    minute: str, hour: str, day: tuple[str, str], start: datetime, zone: ZoneInfo
) -> None:
    cron = Cron.parse(f"0 {minute} {hour} {day[0]} * {day[1]}")
    instant = start.replace(tzinfo=zone).astimezone(UTC)
    found = cron.next_after(instant, zone)
    assert found is not None
    # Minute by minute, over at most two days: no earlier minute of the clock matches all fields.
    probe = instant.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while probe < min(found, instant + timedelta(days=2)):
        local = probe.astimezone(zone)
        is_second_time = local.fold == 1 and not cron.is_hourly
        matches = local.minute in cron.minutes and local.hour in cron.hours and cron.days.matches(local.date())
        assert is_second_time or not matches, (cron.text, local)
        probe += timedelta(minutes=1)
