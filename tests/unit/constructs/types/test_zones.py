"""Instants and wall clock times, compared with Python's for years before and after 2037."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.zones import instants, wall_times

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "UTC")
TIMES = [
    datetime(year, month, day, hour, 45, tzinfo=UTC)
    for year in (1999, 2036, 2037, 2038, 2050, 2400, 9998)
    for month, day, hour in ((1, 1, 0), (3, 27, 23), (7, 1, 22), (10, 30, 1), (12, 31, 23))
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_wall_times_are_those_of_the_zone_in_all_years(zone: str, unit: str) -> None:
    found = wall_times(pa.array([*TIMES, None], pa.timestamp(unit, zone)))
    assert found.type == pa.timestamp(unit)
    assert found.to_pylist() == [one.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for one in TIMES] + [None]


@pytest.mark.parametrize("zone", ZONES)
def test_instants_are_those_that_the_wall_times_were_made_from(zone: str) -> None:
    times = [one.replace(hour=12) for one in TIMES]  # no hour that clocks skip or show twice
    walls = [one.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for one in times]
    found = instants(pa.array([None, *walls], pa.timestamp("us")), zone)
    assert found.type == pa.timestamp("us", zone)
    assert found.cast(pa.timestamp("us", "UTC")).to_pylist() == [None, *times]


@pytest.mark.parametrize(
    ("wall", "problem"),
    [
        (datetime(2026, 3, 29, 2, 30), "doesn't exist in timezone 'Europe/Berlin'"),
        (
            datetime(2050, 3, 27, 2, 30),
            "doesn't exist in timezone 'Europe/Berlin': in the quarter of an hour from 2050-03-27 02:30:00 on",
        ),
        (
            datetime(2050, 10, 30, 2, 44, 59),
            "ambiguous in timezone 'Europe/Berlin': in the quarter of an hour from 2050-10-30 02:30:00",
        ),
    ],
)
def test_time_that_clocks_skip_or_show_twice_is_refused_in_all_years(wall: datetime, problem: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=problem):
        instants(pa.array([wall]), "Europe/Berlin")


def test_times_outside_of_pythons_calendar_and_fixed_offsets_are_left_to_arrow() -> None:
    far = pa.array([2**63 - 1, 253_402_300_799_000_000], pa.int64()).cast(pa.timestamp("us", "+05:30"))
    assert wall_times(far).cast(pa.int64())[1].as_py() == 253_402_300_799_000_000 + timedelta(hours=5.5) // timedelta(
        microseconds=1
    )
    late = pa.array([253_402_300_799], pa.int64()).cast(pa.timestamp("s", "Europe/Berlin"))
    assert len(wall_times(late)) == 1
