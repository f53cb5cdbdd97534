from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.errors import CorruptRecordError, RangeOverlapError, WatermarkTypeError
from gobblin_dagster.core.watermark import (
    CompositeWatermark,
    DateWatermark,
    HourWatermark,
    LongWatermark,
    NameWatermark,
    TimestampWatermark,
    Watermark,
    register_watermark_type,
    watermark_from_json,
    watermark_type,
)
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from tests.unit.core.weeks import WEEK, WeekWatermark

MARKS: list[Watermark] = [
    LongWatermark(7),
    TimestampWatermark(datetime(2013, 1, 1, 12, 30, tzinfo=UTC)),
    DateWatermark(date(2013, 1, 1)),
    HourWatermark(datetime(2013, 1, 1, 12, tzinfo=UTC)),
    NameWatermark("in/b.csv"),
    NameWatermark.after("in/b.csv"),
    CompositeWatermark({"0": 5, "1": 9}),
]


def _interval(low: int, high: int) -> WatermarkInterval:
    return WatermarkInterval(LongWatermark(low), LongWatermark(high))


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.type_name)
def test_json_and_pickle_round_trip(mark: Watermark) -> None:
    assert watermark_from_json(mark.to_json()) == mark
    assert pickle.loads(pickle.dumps(mark)) == mark
    assert hash(mark) == hash(watermark_from_json(mark.to_json()))


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {"type": "long", "version": 1},
        {"type": "long", "version": 2, "components": {"": 1}},
        {"type": "long", "version": 1, "components": {"": "1"}},
        {"type": "long", "version": 1, "components": {}},
        {"type": "timestamp", "version": 1, "components": {"": "2013-01-01"}},
        {"type": "timestamp", "version": 1, "components": {"": 5}},
    ],
    ids=["none", "no components", "newer version", "text", "empty", "no zone", "number"],
)
def test_alien_json_is_refused(raw: object) -> None:
    with pytest.raises(CorruptRecordError, match="stored watermark"):
        watermark_from_json(raw)


def test_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(WatermarkTypeError, match=r"one of composite, date, .*hour, long, name, .*timestamp"):
        watermark_from_json({"type": "moon", "version": 1, "components": {}})


def test_second_type_of_the_same_name_is_refused() -> None:
    class Impostor(LongWatermark):
        pass

    with pytest.raises(WatermarkTypeError, match=r"'long' where .*LongWatermark was expected"):
        register_watermark_type(Impostor)


def test_type_of_a_user_is_found_by_its_name_where_nobody_imported_it() -> None:
    weeks = WatermarkInterval(WeekWatermark(date(2013, 1, 7)), WeekWatermark(date(2013, 1, 28)))
    stored = json.dumps(CommittedRanges(WeekWatermark, {}).add(weeks).to_json())
    # In another process, as in a Spark task: this one knows the class.
    program = "import json, sys\nfrom gobblin_dagster.core.watermark.ranges import CommittedRanges\n"
    program += "print(CommittedRanges.from_json(json.load(sys.stdin)))"
    command = [sys.executable, "-c", program]
    root = Path(__file__).parents[4]
    done = subprocess.run(command, input=stored, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[2013-W02, 2013-W05)"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:Week", "cannot be loaded: No module named 'no_such_module'"),
        ("tests.unit.core.weeks:Month", "cannot be loaded: .*no attribute 'Month'"),
        (":Week", "cannot be loaded: "),
        ("tests.unit.core.weeks:WEEK", "is not a subclass of Watermark"),
        ("tests.unit.core.weeks:Impostor", "is not a subclass of Watermark with `type_name`"),
    ],
)
def test_type_that_cannot_be_found_by_its_name_says_why(name: str, problem: str) -> None:
    with pytest.raises(WatermarkTypeError, match=problem) as caught:
        watermark_type(name)
    assert f"The watermark type '{name}'" in str(caught.value)


def _hours(count: int) -> HourWatermark:
    return HourWatermark(datetime(2013, 1, 1, tzinfo=UTC) + timedelta(hours=count))


@given(st.integers(0, 50), st.integers(1, 60))
def test_interval_of_any_type_is_partitioned_without_gap_or_overlap(length: int, width: int) -> None:
    ends: list[tuple[Watermark, Watermark, Any]] = [
        (LongWatermark(-5), LongWatermark(-5 + length), width),
        (_hours(0), _hours(length), timedelta(hours=width)),
        (DateWatermark(date(2013, 1, 1)), DateWatermark(date(2013, 1, 1) + timedelta(days=length)), timedelta(width)),
        (TimestampWatermark(_hours(0).value), TimestampWatermark(_hours(length).value), timedelta(minutes=61 * width)),
        (CompositeWatermark({"0": 1, "1": 7}), CompositeWatermark({"0": 1 + length, "1": 8 + length}), width),
        (WeekWatermark(date(2013, 1, 7)), WeekWatermark(date(2013, 1, 7) + length * WEEK), width * WEEK),
    ]
    for low, high, step in ends:
        whole = WatermarkInterval(low, high)
        parts = list(whole.partition(step))
        # Adding refuses what overlaps; a gap would be left in the ranges.
        tiled = CommittedRanges(type(low), {}).add_all(parts)
        assert tiled == CommittedRanges(type(low), {}).add(whole)
        assert all(part.high.components()[name] - at <= step for part in parts for name, at in _position(part.low))
        assert all(
            one.high == two.low for one, two in pairwise(parts) if _position(one.low)[0][0] == _position(two.low)[0][0]
        )


def _position(mark: Watermark) -> list[tuple[str, Any]]:
    return list(mark.components().items())


@pytest.mark.parametrize(
    ("mark", "width", "error"),
    [
        (LongWatermark(7), 0, ValueError),
        (LongWatermark(7), -1, ValueError),
        (DateWatermark(date(2013, 1, 1)), timedelta(hours=1), ValueError),
        (_hours(0), timedelta(minutes=30), ValueError),
        (LongWatermark(7), timedelta(days=1), TypeError),
        (NameWatermark("b.csv"), 1, TypeError),
    ],
    ids=["nothing", "backwards", "part of a day", "half an hour", "time for a number", "names"],
)
def test_width_that_leads_nowhere_is_refused(mark: Watermark, width: Any, error: type[Exception]) -> None:
    far = {"long": LongWatermark(9), "date": DateWatermark(date(2013, 2, 1)), "hour": _hours(9)}
    whole = WatermarkInterval(mark, far.get(mark.type_name, NameWatermark("c.csv")))
    with pytest.raises(error):
        list(whole.partition(width))


def test_timestamps_are_instants_whatever_their_zone() -> None:
    east = timezone(timedelta(hours=2))
    assert TimestampWatermark(datetime(2013, 1, 1, 2, tzinfo=east)) == TimestampWatermark(
        datetime(2013, 1, 1, tzinfo=UTC)
    )
    with pytest.raises(ValueError, match="time zone"):
        TimestampWatermark(datetime(2013, 1, 1))


def test_order_is_by_component_and_refuses_other_types() -> None:
    assert LongWatermark(1) <= LongWatermark(2)
    assert CompositeWatermark({"0": 1}) <= CompositeWatermark({"0": 1, "1": 0})
    assert not CompositeWatermark({"0": 2}) <= CompositeWatermark({"0": 1, "1": 9})
    assert not CompositeWatermark({"2": 1}) <= CompositeWatermark({"0": 1})
    with pytest.raises(WatermarkTypeError):
        _ = LongWatermark(1) <= MARKS[1]


def test_interval_refuses_reversed_bounds_and_other_components() -> None:
    with pytest.raises(ValueError, match="not an interval"):
        _interval(2, 1)
    with pytest.raises(ValueError, match="not an interval"):
        WatermarkInterval(CompositeWatermark({"0": 1}), CompositeWatermark({"0": 1, "1": 2}))
    assert _interval(2, 2).is_empty


@pytest.mark.parametrize("cls", [TimestampWatermark, HourWatermark])
def test_years_below_1000_are_written_with_four_digits_and_read_again(cls: type[Watermark]) -> None:
    mark = cls.from_components({"": datetime(1, 1, 1, tzinfo=UTC)})
    assert str(mark).startswith("0001-01-01")
    assert watermark_from_json(mark.to_json()) == mark


def test_days_are_shown_without_their_midnight() -> None:
    shown = ["7", "2013-01-01T12:30:00Z", "2013-01-01", "2013-01-01T12Z", "in/b.csv", "after in/b.csv", "{0:5, 1:9}"]
    assert [str(mark) for mark in MARKS] == shown
    assert str(TimestampWatermark(datetime(2013, 1, 1, tzinfo=UTC))) == "2013-01-01"
    ranges = CommittedRanges(CompositeWatermark, {}).add(
        WatermarkInterval(CompositeWatermark({"0": 1}), CompositeWatermark({"0": 3}))
    )
    assert str(ranges) == "0:[{0:1}, {0:3})"


def test_watermark_is_the_end_of_the_first_range_and_gaps_stay() -> None:
    ranges = CommittedRanges(LongWatermark, {}).add(_interval(0, 10)).add(_interval(20, 30))
    assert (ranges.watermark, ranges.high) == (LongWatermark(10), LongWatermark(30))
    assert ranges.gaps() == ((10, 20),)
    assert (ranges.contains(5), ranges.contains(10), ranges.contains(20)) == (True, False, True)
    assert CommittedRanges(LongWatermark, {}).watermark is None
    assert CommittedRanges(LongWatermark, {}).high is None


def test_anchor_keeps_a_failed_first_unit_as_a_gap() -> None:
    ranges = CommittedRanges(LongWatermark, {}).anchored(LongWatermark(0)).add(_interval(5, 10))
    assert (ranges.watermark, ranges.gaps()) == (LongWatermark(0), ((0, 5),))
    assert not ranges.contains(0)
    assert ranges.add(_interval(0, 5)).ranges == {"": ((0, 10),)}
    assert ranges.anchored(LongWatermark(3)) == ranges
    assert ranges.add(_interval(-3, 2)).watermark == LongWatermark(2)


def test_range_committed_twice_is_refused() -> None:
    ranges = CommittedRanges(LongWatermark, {}).add(_interval(0, 10))
    with pytest.raises(RangeOverlapError, match=r"Dataset 'd': range \[9, 11\) overlaps the committed \[0, 10\)"):
        ranges.add(_interval(9, 11), "d")
    with pytest.raises(WatermarkTypeError):
        ranges.add(WatermarkInterval(MARKS[1], MARKS[1]))


def test_ranges_alien_json_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="committed ranges"):
        CommittedRanges.from_json({"type": "long", "version": 1, "ranges": {"": [[1, "x"]]}})


@given(st.permutations([(i, i + 1) for i in range(8)]))
def test_ranges_added_in_any_order_merge_into_one(pairs: list[tuple[int, int]]) -> None:
    ranges = CommittedRanges(LongWatermark, {})
    for low, high in pairs:
        before = ranges.watermark
        ranges = ranges.add(_interval(low, high)).add(_interval(high, high))
        assert CommittedRanges.from_json(ranges.to_json()) == ranges
        # The first range may begin lower than before, but what is committed never shrinks.
        assert before is None or ranges.contains(int(str(before)) - 1)
    assert ranges.ranges == {"": ((0, 8),)}


def test_date_is_a_whole_day_and_shows_itself_as_one() -> None:
    mark = DateWatermark(date(2013, 1, 31))
    assert (str(mark), mark.to_json()["components"]) == ("2013-01-31", {"": "2013-01-31"})
    with pytest.raises(TypeError, match="expected a date"):
        DateWatermark(datetime(2013, 1, 31, tzinfo=UTC))


def test_hour_is_a_whole_hour_in_utc_whatever_its_zone_was() -> None:
    mark = HourWatermark(datetime(2013, 1, 31, 5, tzinfo=timezone(timedelta(hours=2))))
    assert (str(mark), mark.value.hour) == ("2013-01-31T03Z", 3)
    with pytest.raises(ValueError, match="expected a whole hour"):
        HourWatermark(datetime(2013, 1, 31, 5, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "date", "version": 1, "components": {"": 20130101}},
        {"type": "date", "version": 1, "components": {"": "2013-01-01T05"}},
        {"type": "hour", "version": 1, "components": {"": 2013010105}},
        {"type": "hour", "version": 1, "components": {"": "2013-01-01T05:30Z"}},
        {"type": "hour", "version": 1, "components": {"": "2013-01-01T05"}},
    ],
    ids=["date as number", "date with hour", "hour as number", "half an hour", "hour without zone"],
)
def test_date_and_hour_refuse_what_they_cannot_hold(raw: object) -> None:
    with pytest.raises(CorruptRecordError, match="stored watermark"):
        watermark_from_json(raw)


def test_days_without_gap_merge_and_a_day_left_out_is_a_gap() -> None:
    days = [DateWatermark(date(2013, 1, day)) for day in (1, 2, 3, 4)]
    committed = CommittedRanges(DateWatermark, {}).add(WatermarkInterval(days[0], days[1]))
    committed = committed.add(WatermarkInterval(days[2], days[3]))
    assert committed.gaps() == ((date(2013, 1, 2), date(2013, 1, 3)),)
    assert committed.add(WatermarkInterval(days[1], days[2])).watermark == days[3]


@given(
    st.lists(st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1), unique=True, min_size=2)
)
def test_place_behind_a_name_lies_before_the_next_one(names: list[str]) -> None:
    marks = [mark for name in sorted(names) for mark in (NameWatermark(name), NameWatermark.after(name))]
    assert all(one <= two for one, two in pairwise(marks))
    assert len({mark.value for mark in marks[1::2]}) == len(names)
