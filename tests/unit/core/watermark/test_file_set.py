from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.errors import CorruptRecordError, RangeOverlapError, UsageError
from gobblin_dagster.core.watermark import watermark_from_json
from gobblin_dagster.core.watermark.file_set import LINE, UNREAD, FileSetSummary, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.watermark.text import parse_watermark

DAY = datetime(2013, 1, 2, tzinfo=UTC)
EMPTY = CommittedRanges(FileSetWatermark, {})

names = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=6)
versions = st.builds(
    FileVersion,
    st.integers(1, 5),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 33),
    st.integers(0, 3),
    st.sampled_from(["", "sha256=ab12", "etag=ab-3", "md5=a:b: c"]),
)
file_sets = st.dictionaries(names, versions, max_size=8)


def added(files: dict[str, FileVersion], before: dict[str, FileVersion] | None = None) -> WatermarkInterval:
    """Return the interval of a work unit that reads some files."""
    low = {name: (before or {}).get(name, UNREAD) for name in files}
    return WatermarkInterval(FileSetWatermark(low), FileSetWatermark(files))


def line(low: datetime, high: datetime) -> WatermarkInterval:
    return WatermarkInterval(FileSetWatermark({}, low), FileSetWatermark({}, high))


def read_of(committed: CommittedRanges) -> dict[str, Any]:
    return {name: parts[-1][1] for name, parts in committed.ranges.items()}


# -- arithmetic --------------------------------------------------------------------------------------------------------
@given(st.lists(file_sets, max_size=5), st.randoms(use_true_random=False))
def test_union_does_not_depend_on_order_and_holds_each_file_once(
    sets: list[dict[str, FileVersion]], order: random.Random
) -> None:
    everything: dict[str, FileVersion] = {}
    units = []
    for files in sets:
        new = {name: version for name, version in files.items() if name not in everything}
        everything |= new
        units.append(added(new))
    order.shuffle(units)
    committed = EMPTY
    for unit in units:
        committed = committed.add(unit)
    assert read_of(committed) == everything
    assert committed == EMPTY.add_all(units)


@given(file_sets, file_sets)
def test_adding_a_file_twice_is_refused_and_a_later_version_is_not(
    files: dict[str, FileVersion], more: dict[str, FileVersion]
) -> None:
    committed = EMPTY.add(added(files))
    twice = {name: version for name, version in more.items() if name in files}
    if twice:
        with pytest.raises(RangeOverlapError, match="committed"):
            committed.add(added(twice))
    later = {name: version._replace(number=files[name].number + 1) for name, version in twice.items()}
    assert read_of(committed.add(added(later, files))) == files | later


@given(file_sets, file_sets)
def test_order_is_inclusion(one: dict[str, FileVersion], two: dict[str, FileVersion]) -> None:
    union = {name: max(files[name] for files in (one, two) if name in files) for name in {**one, **two}}
    low, high = FileSetWatermark(one), FileSetWatermark(union)
    assert low <= high
    assert (high <= low) == (union == one)


@given(st.lists(file_sets, min_size=1, max_size=5))
def test_what_people_see_never_goes_back(sets: list[dict[str, FileVersion]]) -> None:
    committed, seen = EMPTY, None
    for files in sets:
        known = read_of(committed)
        again = {n: v._replace(number=known[n].number + 1 if n in known else 1) for n, v in files.items()}
        committed = committed.add(added(again, known))
        now = committed.watermark
        if seen is not None and now is not None:
            assert seen <= now
        seen = now


@given(file_sets, st.dates(), st.integers(0, 5))
def test_everything_survives_the_store(files: dict[str, FileVersion], day: Any, hours: int) -> None:
    start = datetime(day.year, day.month, day.day, hours, tzinfo=UTC)
    for mark in (FileSetWatermark(files), FileSetWatermark(files, start), FileSetWatermark(files, start).summarised()):
        assert watermark_from_json(json.loads(json.dumps(mark.to_json()))) == mark
        assert pickle.loads(pickle.dumps(mark)) == mark
        assert hash(pickle.loads(pickle.dumps(mark))) == hash(mark)
    committed = EMPTY.add(added(files))
    assert CommittedRanges.from_json(json.loads(json.dumps(committed.to_json()))) == committed


# -- the line of dates -------------------------------------------------------------------------------------------------
def test_files_that_the_line_covers_need_no_entry() -> None:
    old, new = (FileVersion(1, 10, 5, date_s=int(DAY.timestamp()) + days * 86400) for days in (-1, 0))
    committed = EMPTY.add(added({"old": old, "new": new})).add(line(datetime(2013, 1, 1, tzinfo=UTC), DAY))
    assert set(committed.ranges) == {LINE, "new"}
    assert str(committed) == "[2013-01-01, 2013-01-02), 1 file, newest of 1970-01-01 00:00:00Z"
    assert str(committed.watermark) == "2013-01-02 and 1 file, newest of 1970-01-01 00:00:00Z"


def test_gap_in_the_line_keeps_the_files_inside_it() -> None:
    dates = [datetime(2013, 1, number, tzinfo=UTC) for number in range(1, 5)]
    inside = FileVersion(1, 10, 5, date_s=int(dates[1].timestamp()))
    committed = EMPTY.add(line(dates[0], dates[1])).add(added({"x": inside})).add(line(dates[2], dates[3]))
    assert committed.gaps() == ((dates[1], dates[2]),)
    assert "x" in committed.ranges
    assert set(committed.add(line(dates[1], dates[2])).ranges) == {LINE}


def test_summary_anchors_the_line_and_no_count() -> None:
    summary = FileSetSummary(7, 5, DAY)
    assert EMPTY.anchored(summary).ranges == {LINE: ((DAY, DAY),)}
    assert EMPTY.anchored(FileSetSummary(7, 5)).ranges == {}


def test_line_orders_summaries_before_their_counts() -> None:
    assert FileSetSummary(9, 5, datetime(2013, 1, 1, tzinfo=UTC)) <= FileSetSummary(2, 5, DAY)
    assert not FileSetSummary(2, 5, DAY) <= FileSetSummary(9, 5, datetime(2013, 1, 1, tzinfo=UTC))
    assert not FileSetSummary(2, 5) <= FileSetSummary(9, 5, DAY)


# -- shown and stored --------------------------------------------------------------------------------------------------
def test_set_is_shown_by_count_and_newest_change() -> None:
    micros = 1_385_000_000_000_000
    assert str(FileSetWatermark({"a": FileVersion(1, 2, micros), "b": UNREAD})) == (
        "1 file, newest of 2013-11-21 02:13:20Z"
    )
    for micros, shown in ((-(2**40) * 10**6, "-01-01 00:00:00Z"), (2**60, "9999-12-31 23:59:59Z")):
        assert str(FileSetWatermark({"a": FileVersion(1, 2, micros)})).endswith(shown)
    assert str(FileSetWatermark({})) == "0 files"
    assert str(FileSetWatermark({}, DAY)) == "2013-01-02"
    assert str(EMPTY) == ""


def test_size_or_time_of_change_tells_versions_apart() -> None:
    version = FileVersion(1, 10, 5)
    assert version.is_like(FileVersion(2, 10, 5, 7))
    assert not version.is_like(FileVersion(1, 10, 9))
    assert not version.is_like(FileVersion(1, 11, 5))


def test_version_that_is_noted_follows_the_one_that_was_read_and_brings_no_content() -> None:
    version = FileVersion(1, 10, 5, 7)
    noted = version.then_noted(3, "sha256=ab")
    assert noted == FileVersion(2, 10, 3, 7, 1, "sha256=ab")
    assert version < noted
    assert (version.contents, noted.contents) == (1, 1)
    committed = EMPTY.add(added({"x": version})).add(added({"x": noted}, {"x": version}))
    assert read_of(committed) == {"x": noted}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", UNREAD),
        ("1:10:5", FileVersion(1, 10, 5)),
        ("1::5", FileVersion(1, 0, 5)),
        ("2:10:5:7", FileVersion(2, 10, 5, 7)),
        ("1:10:5:::sha256=ab", FileVersion(1, 10, 5, checksum="sha256=ab")),
        ("3:10:5:7:2:etag=a:b-3", FileVersion(3, 10, 5, 7, 2, "etag=a:b-3")),
    ],
)
def test_stored_form_of_a_version(text: str, version: FileVersion) -> None:
    assert version.to_text() == text
    assert FileVersion.from_text(text) == version


def test_set_that_was_stored_before_there_were_checksums_is_read() -> None:
    # As version 1 wrote it.
    packed = "eJyrVkrSr1Cyio5WUtJRMrQyNLAyNjUwUIqNrQUAWBkGcg=="
    stored = {"type": "file_set", "version": 1, "ranges": {"packed": packed}}
    assert read_of(CommittedRanges.from_json(stored)) == {"b/x": FileVersion(1, 10, 3500)}


@pytest.mark.parametrize(
    "packed", ["", "no base64!", "aGVsbG8=", "eJwDAAAAAAE=", 5], ids=["empty", "text", "no zlib", "no JSON", "number"]
)
def test_damaged_state_is_refused(packed: object) -> None:
    with pytest.raises(CorruptRecordError, match="ranges"):
        CommittedRanges.from_json({"type": "file_set", "version": 1, "ranges": {"packed": packed}})
    with pytest.raises(CorruptRecordError, match="watermark"):
        watermark_from_json({"type": "file_set", "version": 1, "components": {"packed": packed}})


def test_hundred_thousand_files_stay_small() -> None:
    rng = random.Random(1)
    files = {
        f"2026/{n // 9000:02}/part-{n:06}.csv.gz": FileVersion(
            1, rng.randint(1, 9 << 20), 10**15 + n * 10**7 + rng.randint(0, 10**6)
        )
        for n in range(100_000)
    }
    committed = EMPTY.add(added(files))
    stored = json.dumps(committed.to_json())
    assert len(stored) < 22 * len(files)
    assert CommittedRanges.from_json(json.loads(stored)) == committed
    assert len(json.dumps(committed.watermark.to_json() if committed.watermark else None)) < 200


@pytest.mark.parametrize("text", ["5", "2013-01-05", "a/x.csv"])
def test_set_is_nothing_that_a_person_could_write(text: str) -> None:
    with pytest.raises(UsageError, match="is a set of files; it cannot be written by hand"):
        parse_watermark(FileSetWatermark, text)
