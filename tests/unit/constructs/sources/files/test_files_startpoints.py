"""Startpoints of the source `files`: by date, by date with a lookback, by time of change and by name."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.engine.maintenance.state_change import require_position
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import project, run
from tests.unit.engine.plan.test_startpoints import planned, store_of, waiting, wish

WAYS: dict[str, dict[str, Any]] = {
    "date": {},
    "lookback": {"lookback": 2},
    "modified": {"new_files": "modified"},
    "name": {"new_files": "name"},
}
NOON = datetime(2013, 1, 4, 12, tzinfo=UTC)


def add(root: Path, day: int) -> None:
    """Write the file of a day, changed in that night."""
    path = root / "data" / "a" / f"2013-01-{day:02}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"id\n{day}\n")
    changed = datetime(2013, 1, day, 23, tzinfo=UTC).timestamp()
    os.utime(path, (changed, changed))


def job(way: str, **options: Any) -> JobSpec:
    source = {"type": "files", "path": "data/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    body = {"job": "days", "source": source | WAYS[way] | options, "extract": {"namespace": "test", "table": "days"}}
    return JobSpec.model_validate(body | {"output": {"path": "lake"}})


def days(root: Path, spec: JobSpec) -> list[int]:
    with store_of(root, spec) as store:
        files = store.load_snapshot("days", "a")
    return sorted(int(number) for file in files for number in pq.read_table(file.path)["id"].to_pylist())


@pytest.mark.parametrize(
    ("way", "other", "said"),
    [
        ("date", {"timezone": "Europe/Berlin"}, "2013-01-02 00:00:00 in the `timezone` UTC, in which it was read, and"),
        ("lookback", {"timezone": "Europe/Berlin"}, "2013-01-02 01:00:00 in Europe/Berlin: files between would be"),
        ("date", {"path": "data/{dataset}/{date:%Y-%m}-*.csv"}, "inside of a month of `path`, in `timezone` UTC"),
    ],
    ids=["zone", "zone and lookback", "longer dates"],
)
def test_dates_that_no_longer_begin_where_the_state_ends_are_refused(
    tmp_path: Path, way: str, other: dict[str, Any], said: str
) -> None:
    for day in range(2, 6):
        add(tmp_path, day)
    run(tmp_path, job(way))
    add(tmp_path, 6)
    (refused,) = run(tmp_path, job(way, **other)).datasets
    assert "its stored position 2013-01-02 is " in refused.problem
    assert said in refused.problem
    run(tmp_path, job(way))
    assert days(tmp_path, job(way)) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("way", ["date", "lookback"])
def test_other_zone_of_hours_is_refused_and_the_former_one_reads_on(tmp_path: Path, way: str) -> None:
    form = "data/{dataset}/{date:%Y-%m-%d-%H}.csv"
    before, after = job(way, path=form), job(way, path=form, timezone="Asia/Tokyo")
    (tmp_path / "data" / "a").mkdir(parents=True)
    for hour in range(12):
        if hour == 11:
            run(tmp_path, before)
        (tmp_path / "data" / "a" / f"2013-01-02-{hour:02}.csv").write_text(f"id\n{hour}\n")
    (refused,) = run(tmp_path, after).datasets
    assert "is 2013-01-02 00:00:00 in the `timezone` UTC, in which it was read, and 2013-01-02 09:00" in refused.problem
    assert "`gobblin state reset` forget the positions, and say by `gobblin startpoint set` after it" in refused.problem
    run(tmp_path, before)
    assert days(tmp_path, before) == list(range(12))


@pytest.mark.parametrize(
    ("way", "position", "read"),
    [
        ("date", Specific("2013-01-04"), [4, 5]),
        ("name", Specific("a/2013-01-04.csv"), [4, 5]),
        *((way, Oldest(), [1, 2, 3, 4, 5]) for way in WAYS),
        *((way, Upcoming(), []) for way in WAYS),
        *((way, Timestamp(NOON), [4, 5]) for way in WAYS if way != "name"),
        *((way, Timestamp(NOON.replace(year=2012)), [1, 2, 3, 4, 5]) for way in WAYS if way != "name"),
        *((way, Timestamp(NOON.replace(year=2014)), []) for way in WAYS if way != "name"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
def test_run_begins_where_the_startpoint_says(
    tmp_path: Path, way: str, position: StartpointPosition, read: list[int], is_first: bool
) -> None:
    for day in range(1, 6):
        add(tmp_path, day)
    spec = job(way, max_files_per_run=10)
    before = [] if is_first else [1, 2, 3, 4, 5]
    if not is_first:
        run(tmp_path, spec)
    wish(tmp_path, spec, position)
    assert run(tmp_path, spec).exit_code == 0
    assert days(tmp_path, spec) == sorted([*before, *read])
    assert waiting(tmp_path, spec) == {}
    add(tmp_path, 6)
    run(tmp_path, spec)
    assert days(tmp_path, spec) == sorted([*before, *read, 6])


def test_time_of_change_that_no_date_has_is_compared_with_a_startpoint(tmp_path: Path) -> None:
    for day, seconds in ((1, -(2**40)), (2, 2**38)):
        add(tmp_path, day)
        os.utime(tmp_path / "data/a" / f"2013-01-{day:02}.csv", (seconds, seconds))
        if (tmp_path / "data/a" / f"2013-01-{day:02}.csv").stat().st_mtime != seconds:
            pytest.skip("this file system keeps no such time")
    spec = job("modified")
    wish(tmp_path, spec, Timestamp(NOON))
    assert run(tmp_path, spec).exit_code == 0
    assert days(tmp_path, spec) == [2]


def test_upcoming_is_behind_all_files_whatever_a_run_may_take(tmp_path: Path) -> None:
    for day in range(1, 6):
        add(tmp_path, day)
    spec = job("modified", max_files_per_run=2)
    wish(tmp_path, spec, Upcoming())
    run(tmp_path, spec)
    add(tmp_path, 6)
    run(tmp_path, spec)
    assert days(tmp_path, spec) == [6]


@pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
@pytest.mark.parametrize("position", ["2013-01-04T06:00", "2013-01-04T23:59:59.999999Z"])
def test_time_inside_of_a_date_is_refused_when_it_is_set_and_the_dates_around_it_are_named(
    tmp_path: Path, position: str, is_first: bool
) -> None:
    for day in range(1, 6):
        add(tmp_path, day)
    if not is_first:
        run(tmp_path, job("date"))
    wish(tmp_path, job("date"), Specific(position))
    problem = planned(tmp_path, job("date")).problem
    assert "inside of a day, whose files are read together; begin at 2013-01-04 to read them" in problem
    assert "or at 2013-01-05 not to" in problem


@pytest.mark.parametrize("to", ["2013-01-04T06:00", "2013-01-07T12:00:00Z"])
def test_watermark_is_not_set_inside_of_a_date(tmp_path: Path, to: str) -> None:
    """`gobblin state set`: the rest of the date would be read, and its files lie at its beginning."""
    for day in range(1, 6):
        add(tmp_path, day)
    run(tmp_path, job("date"))
    with store_of(tmp_path, job("date")) as store:
        state = store.load_dataset_states("days")["a"]
    with pytest.raises(UsageError, match=f"inside of a day, whose files are read together; begin at {to[:10]} to read"):
        require_position(project(tmp_path, job("date")), state, parse_watermark(TimestampWatermark, to))
    for fine in (project(tmp_path, job("date")), project(tmp_path)):
        require_position(fine, state, TimestampWatermark(datetime(2013, 1, 4, tzinfo=UTC)))
    require_position(project(tmp_path), state, parse_watermark(TimestampWatermark, to))


def test_date_begins_by_the_clock_of_the_zone_of_the_paths(tmp_path: Path) -> None:
    for day in range(1, 6):
        add(tmp_path, day)
    spec = job("date", timezone="America/New_York")
    wish(tmp_path, spec, Specific("2013-01-04"))
    assert "begin at 2013-01-03T05:00:00Z to read them, or at 2013-01-04T05:00:00Z" in planned(tmp_path, spec).problem
    wish(tmp_path, spec, Specific("2013-01-04T05:00"))
    run(tmp_path, spec)
    assert days(tmp_path, spec) == [4, 5]


@pytest.mark.parametrize(
    ("form", "names", "instant", "read"),
    [
        ("%Y-%m-%d-%H", ("2026-11-01-00", "2026-11-01-01", "2026-11-01-02"), "06:30", [1, 2]),
        ("%Y-%m-%d-%H", ("2026-11-01-00", "2026-11-01-01", "2026-11-01-02"), "07:00", [2]),
        ("%Y-%m-%d-%H%M", ("2026-11-01-0129", "2026-11-01-0130", "2026-11-01-0159"), "06:30", [1, 2]),
        ("%Y-%m-%d", ("2026-10-31", "2026-11-01", "2026-11-02"), "05:00", [1, 2]),
    ],
)
def test_instant_in_an_hour_that_clocks_show_twice_lies_in_the_file_of_its_name(
    tmp_path: Path, form: str, names: tuple[str, ...], instant: str, read: list[int]
) -> None:
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        (folder / f"{name}.csv").write_text(f"id\n{number}\n")
    spec = job("date", path=f"data/{{dataset}}/{{date:{form}}}.csv", timezone="America/New_York")
    wish(tmp_path, spec, Timestamp(datetime.fromisoformat(f"2026-11-01T{instant}Z")))
    run(tmp_path, spec)
    assert days(tmp_path, spec) == read


def test_lookback_whose_positions_are_no_text_is_refused_in_words_before_the_first_run(tmp_path: Path) -> None:
    add(tmp_path, 1)
    wish(tmp_path, job("lookback"), Specific("2013-01-01"))
    assert "is a set of files; it cannot be written by hand" in planned(tmp_path, job("lookback")).problem


def test_names_tell_no_time(tmp_path: Path) -> None:
    add(tmp_path, 1)
    wish(tmp_path, job("name"), Timestamp(NOON))
    assert "names hold no times" in planned(tmp_path, job("name")).problem


def test_upcoming_of_a_dataset_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    add(tmp_path, 1)
    run(tmp_path, job("date"))
    wish(tmp_path, job("date"), Upcoming())
    (tmp_path / "data" / "a" / "2013-01-01.csv").rename(tmp_path / "data" / "a" / "other.csv")
    (tmp_path / "data" / "b").mkdir()
    (tmp_path / "data" / "b" / "2013-01-01.csv").write_text("id\n1\n")
    assert "it has no files yet" in planned(tmp_path, job("date")).problem


@pytest.mark.parametrize(
    ("way", "beyond"), [("date", "2130-01-01"), ("name", "a/2013-01-06.csv"), ("name", "after z.csv")], ids=str
)
def test_position_beyond_the_end_is_refused_and_the_end_is_named(tmp_path: Path, way: str, beyond: str) -> None:
    for day in (1, 2):
        add(tmp_path, day)
    spec = job(way)
    wish(tmp_path, spec, Specific(beyond))
    problem = planned(tmp_path, spec).problem
    assert "it lies beyond the end, " in problem
    assert "2013-01-0" in problem
    assert run(tmp_path, spec).exit_code == 1
    assert waiting(tmp_path, spec)


def test_position_up_to_a_file_that_is_dated_far_ahead_is_refused_too(tmp_path: Path) -> None:
    add(tmp_path, 1)
    (tmp_path / "data" / "a" / "2130-01-01.csv").write_text("id\n2\n")
    wish(tmp_path, job("date"), Specific("2129-01-01"))
    assert "it lies beyond the end, 2013-01-02" in planned(tmp_path, job("date")).problem
    assert planned(tmp_path, job("date", lead_time="-100000d")).problem == "", (
        "such files are read where the job says so"
    )


@pytest.mark.parametrize("lead_time", ["2d", "-90d"])
@pytest.mark.parametrize("position", [Upcoming(), Timestamp(NOON.replace(year=2140))], ids=str)
def test_file_that_is_dated_far_ahead_is_not_the_end(
    tmp_path: Path, lead_time: str, position: StartpointPosition
) -> None:
    add(tmp_path, 1)
    (tmp_path / "data" / "a" / "2130-01-01.csv").write_text("id\n2\n")
    spec = job("date", lead_time=lead_time)
    wish(tmp_path, spec, position)
    assert run(tmp_path, spec).exit_code == 0
    add(tmp_path, 2)
    run(tmp_path, spec)
    assert days(tmp_path, spec) == [2]


@pytest.mark.parametrize("way", list(WAYS))
def test_startpoint_of_a_dataset_whose_folder_is_gone_waits_until_it_is_back(tmp_path: Path, way: str) -> None:
    spec = job(way)
    add(tmp_path, 1)
    run(tmp_path, spec)
    saved = wish(tmp_path, spec, Oldest())
    (tmp_path / "data" / "a").rename(tmp_path / "away")
    (tmp_path / "data" / "b").mkdir()
    (tmp_path / "data" / "b" / "2013-01-01.csv").write_text("id\n1\n")
    dataset = planned(tmp_path, spec)
    assert dataset.notes == ("its startpoint waits: the source does not have the dataset now",), "nothing else is wrong"
    assert dataset.low == dataset.expected_high is not None
    run(tmp_path, spec)
    assert waiting(tmp_path, spec) == {"a": saved}
    (tmp_path / "away").rename(tmp_path / "data" / "a")
    run(tmp_path, spec)
    assert days(tmp_path, spec) == [1, 1]
    assert waiting(tmp_path, spec) == {}


@pytest.mark.parametrize(
    ("way", "low", "high"),
    [
        ("date", Specific("2013-01-02"), Specific("2013-01-04")),
        ("name", Specific("a/2013-01-02.csv"), Specific("a/2013-01-04.csv")),
        *((way, Timestamp(NOON.replace(day=2)), Timestamp(NOON.replace(day=4))) for way in WAYS if way != "name"),
    ],
    ids=str,
)
def test_range_is_read_again_and_nothing_else(
    tmp_path: Path, way: str, low: StartpointPosition, high: StartpointPosition
) -> None:
    for day in range(1, 6):
        add(tmp_path, day)
    spec = job(way)
    run(tmp_path, spec)
    add(tmp_path, 6)
    wish(tmp_path, spec, low, until=high)
    if way == "lookback":
        assert "files with a lookback are read from a position on, without an end" in planned(tmp_path, spec).problem
        return
    run(tmp_path, spec)
    new = [6] if way == "modified" else []
    assert days(tmp_path, spec) == [1, 2, 2, 3, 3, 4, 5, *new], "sets of files have no end behind which files are new"
    run(tmp_path, spec)
    assert days(tmp_path, spec) == [1, 2, 2, 3, 3, 4, 5, 6]
