"""Ranges of very many files are stored in layers: what a commit changed, and little more."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from gobblin_dagster.core.watermark.file_set import UNREAD, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.layers import pack
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval

NONE = CommittedRanges(FileSetWatermark, {})


def added(ranges: CommittedRanges, numbers: range) -> CommittedRanges:
    high = {f"{number * 2654435761 % 2**32:08x}.csv": FileVersion(1, number, number) for number in numbers}
    return ranges.add(WatermarkInterval(FileSetWatermark(dict.fromkeys(high, UNREAD)), FileSetWatermark(high)))


def stored(ranges: CommittedRanges) -> tuple[str, ...]:
    return tuple(ranges.to_json()["ranges"]["layers"])


def test_ranges_come_back_after_each_of_many_commits_and_share_their_layers() -> None:
    ranges, written, known = NONE, 0, set[str]()
    for turn in range(150):
        ranges = added(ranges, range(20 * turn, 20 * turn + 20))
        layers = stored(ranges)
        assert len(layers) <= 12
        written += sum(len(layer) for layer in {*layers} - known)
        known |= {*layers}
        loaded = CommittedRanges.from_json(ranges.to_json())
        assert loaded == ranges
        ranges = loaded
    whole = len(stored(CommittedRanges(FileSetWatermark, ranges.ranges))[0])
    assert written < 12 * whole  # each file about log2 times; whole states would be 75 times


def test_one_file_more_writes_one_small_layer() -> None:
    base = CommittedRanges.from_json(added(NONE, range(5000)).to_json())
    after = added(base, range(5000, 5001))
    first, second = stored(after)
    assert (first,) == stored(base)
    assert len(second) < 200
    assert stored(CommittedRanges.from_json(after.to_json())) == (first, second)  # nothing changed, nothing is written


def test_files_that_are_forgotten_stay_forgotten() -> None:
    generator, ranges = random.Random(20261122), NONE
    for turn in range(60):
        ranges = added(ranges, range(50 * turn, 50 * turn + 50))
        gone = generator.sample(sorted(ranges.ranges), 20 if turn % 7 else len(ranges.ranges))
        kept = {name: parts for name, parts in ranges.ranges.items() if name not in gone}
        ranges = CommittedRanges(FileSetWatermark, kept, ranges.layers)
        loaded = CommittedRanges.from_json(ranges.to_json())
        assert loaded == ranges
        ranges = loaded


def test_ranges_that_an_older_version_packed_are_the_first_layer() -> None:
    text = pack({f"{number:05d}.csv": [["", f"1:{number}"]] for number in range(500)})
    older = {"type": "file_set", "version": 2, "ranges": {"packed": text}}
    after = added(CommittedRanges.from_json(older), range(1))
    assert stored(after)[0] == text
    assert len(CommittedRanges.from_json(after.to_json()).ranges) == 501


def test_line_of_dates_is_kept_beside_the_files() -> None:
    before = datetime(2026, 11, 22, tzinfo=UTC)
    ranges = CommittedRanges(FileSetWatermark, {"": ((before, before),), "a": ((UNREAD, FileVersion(1)),)})
    assert CommittedRanges.from_json(ranges.to_json()) == ranges
