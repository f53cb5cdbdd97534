"""Stored positions of the source `files` and the dates of its path: another `timezone`, states of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.constructs.sources.files.stored_dates import StoredDates
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges

(ZONE,) = StoredDates(PathPattern.parse("{date:%Y}.csv")).origin
NOW = datetime(2026, 11, 27, tzinfo=UTC)


def dates(zone: str, form: str = "%Y-%m-%d-%H") -> StoredDates:
    return StoredDates(PathPattern.parse(f"data/{{dataset}}/{{date:{form}}}.csv", zone))


def read_upto(hour: str, zone: str, origin: Mapping[str, str] | None = None) -> DatasetState:
    """Return the state behind the file of an hour, as a job with a zone stores it."""
    pattern = PathPattern.parse("data/{dataset}/{date:%Y-%m-%d-%H}.csv", zone)
    start = pattern.start_of(hour)
    committed = CommittedRanges(TimestampWatermark, {"": ((start, pattern.end_of(start)),)})
    return DatasetState("j", "a", 1, committed, 1, "run", NOW, origin=dates(zone).origin if origin is None else origin)


@pytest.mark.parametrize(
    ("hour", "zone", "other"),
    [
        ("2026-01-01-05", "UTC", "Asia/Tokyo"),
        ("2026-07-01-05", "Europe/Berlin", "Africa/Lagos"),
        # In Lagos the end of Berlin's hour that comes twice is the beginning of the same file.
        ("2026-10-25-02", "Europe/Berlin", "Africa/Lagos"),
        ("2026-01-01-05", "Asia/Kolkata", "UTC"),
    ],
)
def test_other_zone_whose_clocks_differ_at_a_stored_position_is_refused(hour: str, zone: str, other: str) -> None:
    problem = dates(other).problem(read_upto(hour, zone))
    assert f"in the `timezone` {zone}, in which it was read, and " in problem
    assert f"in {other}: files between would be left out or read twice." in problem
    assert f" Give the source the `timezone` {zone} again. Or let `gobblin state reset`" in problem


@pytest.mark.parametrize(
    ("hour", "zone", "other"),
    [
        ("2026-07-01-05", "Europe/Berlin", "Europe/Paris"),
        ("2026-10-25-02", "Europe/Berlin", "Europe/Paris"),
        ("2026-01-01-05", "Europe/Berlin", "Africa/Lagos"),
        ("0001-01-01-00", "UTC", "Etc/UTC"),
    ],
)
def test_other_zone_with_the_same_clocks_at_all_stored_positions_is_read_on(hour: str, zone: str, other: str) -> None:
    assert not dates(other).problem(read_upto(hour, zone))


def test_zone_that_this_machine_does_not_have_any_more_is_compared_with_no_other() -> None:
    assert not dates("America/New_York").problem(read_upto("2026-01-01-05", "UTC", origin={ZONE: "Former/Name"}))


def test_shorter_dates_in_the_same_zone_are_read_on_and_longer_ones_if_no_position_is_inside() -> None:
    state = read_upto("2026-01-01-23", "UTC")
    assert not dates("UTC", "%Y-%m-%d-%H%M").problem(state)
    assert "its stored position 2026-01-01T23:00:00Z is inside of a day" in dates("UTC", "%Y-%m-%d").problem(state)


def test_state_of_an_earlier_version_is_refused_only_if_a_position_is_inside_of_a_date() -> None:
    state = read_upto("2026-01-01-05", "UTC", origin={})
    assert not dates("Asia/Tokyo").problem(state)
    assert "is inside of a hour of `path`, in `timezone` Asia/Kolkata" in dates("Asia/Kolkata").problem(state)
    assert not dates("Asia/Kolkata").problem(None)
