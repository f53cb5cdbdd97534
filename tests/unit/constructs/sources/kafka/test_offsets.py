from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from gobblin_dagster.constructs.sources.kafka.marks import LogCut
from gobblin_dagster.constructs.sources.kafka.offsets import (
    OffsetPlan,
    OffsetRules,
    PartitionOffsets,
    mark_to_compare,
    plan_offsets,
)
from gobblin_dagster.core.dataset_state import DatasetState, with_committed
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges

EARLIEST = OffsetRules("earliest", 0, "nearest", 1000)


def offsets(partition: int = 0, earliest: int = 0, end: int = 100, log_end: int | None = None) -> PartitionOffsets:
    return PartitionOffsets("t", partition, earliest, end, end if log_end is None else log_end)


def state(**ranges: list[tuple[int, int]]) -> DatasetState:
    committed = CommittedRanges(CompositeWatermark, {name.replace("_", "-"): tuple(r) for name, r in ranges.items()})
    return DatasetState("j", "t", 1, committed, 1, "r", datetime(2026, 1, 1, tzinfo=UTC))


def read(plan: OffsetPlan) -> list[tuple[str, int, int, int]]:
    """Return (component, low, start, high) of each work unit."""
    found: list[tuple[str, int, int, int]] = []
    for unit in plan.work_units:
        partitions: Any = unit.read["partitions"]
        for name, low, high in unit.interval.pairs():
            start: Any = partitions[name]["start"] if partitions else low
            found.append((name, cast(int, low), start, cast(int, high)))
    return found


def rules(bootstrap: str = "earliest", lookback: int = 0, out_of_range: str = "nearest") -> OffsetRules:
    return OffsetRules(bootstrap, lookback, out_of_range, 1000)  # type: ignore[arg-type]  # checked by the options


@pytest.mark.parametrize(
    ("bootstrap", "lookback", "start"), [("earliest", 0, 10), ("lookback", 30, 70), ("lookback", 500, 10)]
)
def test_topic_without_watermark_begins_where_the_bootstrap_says(bootstrap: str, lookback: int, start: int) -> None:
    plan = plan_offsets("t", [offsets(earliest=10)], None, rules(bootstrap, lookback))
    assert read(plan) == [("t-0", start, start, 100)]
    assert plan.low == {"t-0": start}
    assert plan.high == {"t-0": 100}
    assert len(plan.notes) == (start > 10)


def test_bootstrap_latest_commits_its_beginning_though_it_reads_nothing() -> None:
    plan = plan_offsets("t", [offsets(), offsets(1, end=7)], None, rules("latest"))
    (unit,) = plan.work_units
    assert unit.low == unit.expected_high == CompositeWatermark({"t-0": 100, "t-1": 7})
    assert plan.notes == [
        "t-0 begins at 100 (bootstrap: latest); 100 offset(s) before it are not read.",
        "t-1 begins at 7 (bootstrap: latest); 7 offset(s) before it are not read.",
    ]


@pytest.mark.parametrize(("bootstrap", "lookback"), [("latest", 0), ("lookback", 30)])
def test_beginning_of_an_empty_topic_is_committed_so_that_what_comes_is_read(bootstrap: str, lookback: int) -> None:
    how = rules(bootstrap, lookback)
    (unit,) = plan_offsets("t", [offsets(end=0)], None, how).work_units
    assert unit.low == unit.expected_high == CompositeWatermark({"t-0": 0})
    assert read(plan_offsets("t", [offsets()], state(t_0=[(0, 0)]), how)) == [("t-0", 0, 0, 100)]


def test_empty_topic_that_is_read_from_its_beginning_needs_no_work_unit() -> None:
    assert plan_offsets("t", [offsets(end=0)], None, EARLIEST).work_units == []
    assert (
        plan_offsets("t", [offsets(end=50), offsets(1, end=0)], state(t_0=[(0, 50)]), rules("latest")).work_units == []
    )


def test_log_made_anew_is_committed_while_it_is_empty() -> None:
    (unit,) = plan_offsets("t", [offsets(end=0)], state(t_0=[(0, 5)]), EARLIEST).work_units
    assert unit.low == unit.expected_high == CompositeWatermark({"t-0@2": 0})
    # Else it would look like the former log once it has outgrown that.
    assert read(plan_offsets("t", [offsets(end=7)], state(t_0=[(0, 5)], **{"t_0@2": [(0, 0)]}), EARLIEST)) == [
        ("t-0@2", 0, 0, 7)
    ]


def anew(topic_id: str = "new", **bounds: Any) -> PartitionOffsets:
    return replace(offsets(**bounds), topic_id=topic_id)


OLD = {"t": "old"}


@pytest.mark.parametrize("policy", ["nearest", "earliest", "latest"])
def test_offsets_of_a_topic_made_anew_that_the_broker_deleted_are_told(policy: str) -> None:
    known = replace(state(t_0=[(0, 5)]), origin=OLD)
    (note,) = plan_offsets("t", [replace(anew(end=9), earliest=2)], known, rules(out_of_range=policy)).notes
    assert note.endswith("2 offset(s) before 2 are lost, the broker deleted them unread.")


@pytest.mark.parametrize("end", [3, 5, 9])
@pytest.mark.parametrize("policy", ["nearest", "earliest", "latest", "skip"])
def test_topic_with_another_id_is_another_log_however_long_it_is(policy: str, end: int) -> None:
    known = replace(state(t_0=[(0, 5)]), origin=OLD)
    plan = plan_offsets("t", [anew(end=end)], known, rules(out_of_range=policy))
    begin = {"skip": None, "latest": end}.get(policy, 0)
    assert read(plan) == ([("t-0@2", begin, begin, end)] if begin is not None else [])
    assert plan.origin == ({"t": "new"} if begin is not None else {})
    assert plan.notes[0].startswith("t-0: its topic was created again (its id is new now); ")
    after = replace(state(t_0=[(0, 5)], **{"t_0@2": [(0, end)]}), origin={"t": "new"})
    assert plan_offsets("t", [anew(end=end)], after, rules(out_of_range=policy)).notes == []


@pytest.mark.parametrize(("known", "now"), [({}, "new"), (OLD, ""), (OLD, "old")])
def test_topic_whose_ids_are_equal_or_not_known_goes_on(known: dict[str, str], now: str) -> None:
    plan = plan_offsets("t", [anew(now, end=9)], replace(state(t_0=[(0, 5)]), origin=known), EARLIEST)
    assert (read(plan), plan.notes) == ([("t-0", 5, 5, 9)], [])
    assert plan.origin == ({"t": now} if now else {})


def test_log_that_got_shorter_though_its_topic_is_the_same_was_cut_short() -> None:
    plan = plan_offsets("t", [anew("old", end=3)], replace(state(t_0=[(0, 5)]), origin=OLD), EARLIEST)
    assert plan.notes[0].startswith(
        "t-0 was committed up to 5, but ends at 3: its log was truncated; reading begins at 3"
    )


@pytest.mark.parametrize("policy", ["nearest", "latest", "skip"])
def test_partitions_of_a_former_topic_are_not_taken_for_those_of_the_next(policy: str) -> None:
    known = replace(state(t_0=[(0, 5)], t_1=[(0, 5)], u_0=[(0, 5)], u_1=[(0, 5)]), origin=OLD | {"u": "u"})
    plan = plan_offsets("t", [anew(end=0)], known, rules(out_of_range=policy))
    if policy == "skip":
        assert (plan.low, plan.origin, plan.work_units) == ({}, {}, [])
        return
    (unit,) = plan.work_units
    assert unit.low == unit.expected_high == CompositeWatermark({"t-0@2": 0, "t-1@2": 0})
    after = replace(known, origin=plan.origin, committed=known.committed.anchored(unit.low))
    later = plan_offsets("t", [anew(end=0), anew(partition=1, end=9)], after, rules(out_of_range=policy))
    assert (read(later), later.notes) == ([("t-1@2", 0, 0, 9)], [])


@pytest.mark.parametrize(("policy", "start"), [("nearest", 0), ("latest", 9), ("skip", None)])
def test_further_partition_of_a_topic_made_anew_begins_as_the_others_do(policy: str, start: int | None) -> None:
    known = replace(state(t_0=[(0, 5)]), origin=OLD)
    plan = plan_offsets("t", [anew(end=9), anew(partition=1, end=9)], known, rules(out_of_range=policy))
    assert plan.low == ({"t-0@2": start, "t-1": start} if start is not None else {})


def test_bootstrap_skip_leaves_a_topic_alone_and_says_so() -> None:
    plan = plan_offsets("t", [offsets()], None, rules("skip"))
    assert plan.work_units == []
    assert plan.low == {}
    assert plan.notes == ["t-0 has no watermark and is not read (bootstrap: skip)."]


@pytest.mark.parametrize("bootstrap", ["latest", "skip"])
def test_new_partition_of_a_known_topic_is_read_from_its_beginning(bootstrap: str) -> None:
    plan = plan_offsets("t", [offsets(end=50), offsets(1, end=9)], state(t_0=[(0, 50)]), rules(bootstrap))
    assert read(plan) == [("t-1", 0, 0, 9)]
    assert plan.notes == []


def test_messages_of_a_new_partition_that_retention_took_before_its_first_run_are_stated() -> None:
    plan = plan_offsets("t", [offsets(end=50), offsets(1, earliest=4, end=9)], state(t_0=[(0, 50)]), EARLIEST)
    assert read(plan) == [("t-1", 4, 4, 9)]
    (note,) = plan.notes
    assert note.startswith("t-1 has no watermark yet and begins at 4, its first offset. 4 offset(s) before 4 are lost")


def test_gaps_are_planned_alone_before_what_is_new() -> None:
    plan = plan_offsets("t", [offsets()], state(t_0=[(0, 10), (20, 30), (40, 60)]), EARLIEST)
    assert read(plan) == [("t-0", 10, 10, 20), ("t-0", 30, 30, 40), ("t-0", 60, 60, 100)]
    assert plan.low == {"t-0": 10}
    assert plan.high == {"t-0": 100}


def test_nothing_new_is_no_work() -> None:
    plan = plan_offsets("t", [offsets()], state(t_0=[(0, 100)]), EARLIEST)
    assert (plan.work_units, plan.low, plan.high) == ([], {"t-0": 100}, {"t-0": 100})


def test_open_transaction_before_the_watermark_is_no_new_log() -> None:
    # Read uncommitted up to 100 before, read committed now: the log did not get shorter.
    plan = plan_offsets("t", [offsets(end=80, log_end=120)], state(t_0=[(0, 100)]), EARLIEST)
    waits = "t-0: 20 offset(s) from 100 on are read when a transaction that is open has ended"
    assert (plan.work_units, plan.notes) == ([], [f"{waits} (isolation: read_committed)."])


def test_large_ranges_are_tiled_by_work_units() -> None:
    plan = plan_offsets("t", [offsets(earliest=3, end=2500)], None, EARLIEST)
    assert read(plan) == [("t-0", 3, 3, 1003), ("t-0", 1003, 1003, 2003), ("t-0", 2003, 2003, 2500)]


@pytest.mark.parametrize(
    ("policy", "units", "note"),
    [
        ("nearest", [("t-0", 20, 50, 100)], "30 offset(s) [20, 50) are lost"),
        ("earliest", [("t-0", 20, 50, 100)], "30 offset(s) [20, 50) are lost"),
        ("latest", [("t-0", 20, 100, 100)], "and 50 more are skipped"),
        ("skip", [], "its range stays open"),
    ],
)
def test_watermark_that_retention_passed_follows_the_policy(
    policy: str, units: list[tuple[str, int, int, int]], note: str
) -> None:
    plan = plan_offsets("t", [offsets(earliest=50)], state(t_0=[(0, 20)]), rules(out_of_range=policy))
    assert read(plan) == units
    assert note in plan.notes[0]
    assert f"on_out_of_range: {policy}" in plan.notes[0]


def test_gap_that_retention_passed_is_closed_and_stated() -> None:
    plan = plan_offsets("t", [offsets(earliest=15)], state(t_0=[(0, 5), (8, 10), (20, 100)]), EARLIEST)
    assert read(plan) == [("t-0", 5, 8, 8), ("t-0", 10, 15, 20)]
    assert len(plan.notes) == 2


def test_long_lost_range_costs_one_work_unit() -> None:
    plan = plan_offsets("t", [offsets(earliest=10**9, end=10**9 + 5)], state(t_0=[(0, 20)]), EARLIEST)
    assert read(plan) == [("t-0", 20, 10**9, 10**9 + 5)]


@pytest.mark.parametrize(
    ("policy", "units"),
    [("nearest", []), ("latest", []), ("earliest", [("t-0@2", 2, 2, 30)]), ("skip", [])],
)
def test_log_that_begins_anew_is_another_component(policy: str, units: list[tuple[str, int, int, int]]) -> None:
    plan = plan_offsets("t", [offsets(earliest=2, end=30)], state(t_0=[(0, 100)]), rules(out_of_range=policy))
    assert [unit for unit in read(plan) if unit[1] < unit[3]] == units
    assert "was committed up to 100, but ends at 30" in plan.notes[0]
    if policy in ("nearest", "latest"):
        assert plan.work_units[0].low == CompositeWatermark({"t-0@2": 30})
        assert "28 offset(s) before it are not read" in plan.notes[0]


def test_gaps_of_a_log_that_is_no_more_are_stated_as_lost() -> None:
    plan = plan_offsets("t", [offsets(end=30)], state(t_0=[(0, 40), (50, 100)]), rules(out_of_range="earliest"))
    assert read(plan) == [("t-0@2", 0, 0, 30)]
    assert "10 offset(s) of the former log that failed work units left are lost" in plan.notes[0]


def test_third_log_of_a_partition_follows_the_second() -> None:
    known = state(t_0=[(0, 100)])
    ranges = {**known.committed.ranges, "t-0@2": ((0, 50),)}
    again = DatasetState("j", "t", 2, CommittedRanges(CompositeWatermark, ranges), 1, "r", known.updated_at)
    assert read(plan_offsets("t", [offsets(end=60)], again, EARLIEST)) == [("t-0@2", 50, 50, 60)]
    assert read(plan_offsets("t", [offsets(end=9)], again, rules(out_of_range="earliest"))) == [("t-0@3", 0, 0, 9)]


@pytest.mark.parametrize("end", [60, 100, 130], ids=["shorter", "as long", "outgrown"])
@pytest.mark.parametrize(("policy", "start"), [("nearest", 50), ("earliest", 2), ("latest", None), ("skip", None)])
def test_log_that_was_cut_follows_the_policy_however_long_it_is(end: int, policy: str, start: int | None) -> None:
    bounds = replace(offsets(earliest=2, end=end), cut=LogCut("its epoch 3 ends at 50", 50))
    plan = plan_offsets("t", [bounds], state(t_0=[(0, 100)]), rules(out_of_range=policy))
    found = [unit for unit in read(plan) if unit[1] < unit[3]]
    assert found == ([("t-0@2", start, start, end)] if start is not None else [])
    (note,) = plan.notes
    assert note.startswith("t-0 was committed up to 100, but its epoch 3 ends at 50: its ")
    assert f"(on_out_of_range: {policy})" in note


@pytest.mark.parametrize(
    ("earliest", "end", "start"), [(70, 130, 70), (0, 40, 50)], ids=["retention", "open transaction"]
)
def test_reading_from_a_cut_stays_inside_of_the_log(earliest: int, end: int, start: int) -> None:
    bounds = replace(offsets(earliest=earliest, end=end, log_end=130), cut=LogCut("", 50))
    plan = plan_offsets("t", [bounds], state(t_0=[(0, 100)]), EARLIEST)
    assert plan.low == {"t-0@2": start}


MARKED = replace(state(t_0=[(0, 100)]), row_marks={"t-0": RowMark(97, "a", 3)}, origin={"t": "id"})


@pytest.mark.parametrize(
    ("bounds", "known", "is_asked"),
    [
        (offsets(end=101), MARKED, True),
        (offsets(end=60), MARKED, True),
        (offsets(end=100), MARKED, False),
        (offsets(end=100, log_end=120), MARKED, False),
        (offsets(end=100), replace(MARKED, committed=state(t_0=[(0, 10), (20, 100)]).committed), True),
        (offsets(earliest=98, end=120), MARKED, False),
        (replace(offsets(end=120), topic_id="another"), MARKED, False),
        (offsets(end=120), replace(MARKED, row_marks={}), False),
        (offsets(end=120), None, False),
    ],
    ids=[
        "grown",
        "shorter",
        "idle",
        "open transaction",
        "gap",
        "retention",
        "another topic",
        "older state",
        "no state",
    ],
)
def test_last_message_is_compared_before_more_is_read(
    bounds: PartitionOffsets, known: DatasetState | None, is_asked: bool
) -> None:
    assert mark_to_compare(bounds, known) == (RowMark(97, "a", 3) if is_asked else None)


@pytest.mark.parametrize(
    ("ranges", "is_kept"),
    [
        pytest.param([(0, 100)], True, id="same"),
        pytest.param([(0, 20), (30, 100)], True, id="read again in the middle"),
        pytest.param([(0, 90), (98, 100)], False, id="marked message is read again"),
        pytest.param([(0, 60)], False, id="back"),
        pytest.param([(0, 120)], False, id="on"),
    ],
)
def test_mark_is_kept_where_it_is_the_last_message_read(ranges: list[tuple[int, int]], is_kept: bool) -> None:
    assert (with_committed(MARKED, state(t_0=ranges).committed).row_marks == MARKED.row_marks) is is_kept
