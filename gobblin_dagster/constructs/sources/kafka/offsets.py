"""Plan the offsets of a dataset's Kafka partitions: find ranges that are not committed, and cut them into work units.

Pure functions: from offsets that the broker reported and a stored state to work units and notes. A partition is the
component `<topic>-<partition>` of a composite watermark. If a log begins again (its topic was created again, or the log
was truncated), it continues as another component, `<topic>-<partition>@2`, because a watermark never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from gobblin_dagster.constructs.sources.kafka.marks import LogCut
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

Bootstrap: TypeAlias = Literal["latest", "earliest", "lookback", "skip"]
OutOfRange: TypeAlias = Literal["nearest", "earliest", "latest", "skip"]
MESSAGE_BYTES = 1024
"""Assumed size of a message, for packing only. Source: default of `KafkaAvgRecordSizeBasedWorkUnitSizeEstimator`."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What a broker reports about one partition."""

    topic: str
    partition: int
    earliest: int
    """First offset that still exists (inclusive)."""
    end: int
    """End of what may be read (exclusive); under `read_committed`, the first offset of an open transaction."""
    log_end: int
    """End of the log (exclusive)."""
    topic_id: str = ""
    """Id of the topic; a later topic with the same name has another. Empty if the broker reports none."""
    cut: LogCut | None = None
    """That the log was cut below what was read, though it may have grown beyond it again; None if that is not known."""

    @property
    def name(self) -> str:
        """Kafka's name of the partition; topic names contain no `@`."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRules:
    """The options that decide about offsets."""

    bootstrap: Bootstrap
    lookback: int
    out_of_range: OutOfRange
    unit_offsets: int
    """Most offsets of one work unit."""


@dataclass(slots=True)
class OffsetPlan:
    """The work units of one dataset, with notes."""

    low: dict[str, int] = field(default_factory=dict)
    """Watermark by component, if a state or the bootstrap gives one."""
    high: dict[str, int] = field(default_factory=dict)
    work_units: list[WorkUnit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)
    """Ids of the topics."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A range `[low, high)` to commit; offsets before `start` are not read."""

    low: int
    start: int
    high: int


def plan_offsets(
    dataset_urn: str, partitions: Iterable[PartitionOffsets], state: DatasetState | None, rules: OffsetRules
) -> OffsetPlan:
    """Plan the new offsets of a dataset; the notes report everything that is skipped or lost.

    Source: gobblin-kafka-common `KafkaSource.getWorkUnitsForTopic`. Differs: lost offsets are reported and committed; a
    new partition of a known topic is read from its beginning with every bootstrap; a topic that was created again is
    recognised by its id.
    """
    plan = OffsetPlan()
    there = sorted(partitions, key=lambda one: (one.topic, one.partition))
    committed = _committed(state)
    known_topics = {_partition_of(name)[0] for name in committed.ranges}
    is_anchored = True
    for bounds in there:
        name = _current_name(bounds.name, committed)
        parts: Any = committed.ranges.get(name, ())
        is_new_topic = _is_made_anew(bounds, state)
        if parts and not is_new_topic and not _is_cut(bounds, parts):
            opens = _continued(bounds, name, parts, rules, plan.notes)
            plan.low[name], reached = parts[0][1], parts[-1][1]
        else:
            if is_new_topic:
                start = _begun_anew(bounds, parts, rules, plan.notes)
            elif parts:
                start = _restarted(bounds, parts, rules, plan.notes)
            else:
                start = _first_start(bounds, bounds.topic in known_topics, rules, plan.notes)
            if start is None:
                continue
            name = component(bounds, state)
            opens = [_Open(start, start, max(start, bounds.end))]
            # The next run finds only the first existing offset again; any other beginning must be stored now.
            is_anchored &= not (parts or is_new_topic) and (
                bounds.topic in known_topics or rules.bootstrap == "earliest"
            )
            plan.low[name] = reached = start
        if bounds.topic_id:
            plan.origin[bounds.topic] = bounds.topic_id
        plan.high[name] = max([reached, *(one.high for one in opens)])
        if bounds.log_end > bounds.end and (waiting := bounds.log_end - plan.high[name]) > 0:
            plan.notes.append(
                f"{name}: {waiting:,} offset(s) from {plan.high[name]} on are read when a transaction that is open has "
                "ended (isolation: read_committed)."
            )
        for one in opens:
            plan.work_units += _units(dataset_urn, bounds, name, one, rules.unit_offsets)
    if rules.out_of_range != "skip":
        gone = vanished(there, state)
        plan.low |= gone
        plan.high |= gone
    if not plan.work_units and not is_anchored:
        # Committed although it reads nothing: otherwise the next run would begin later, and lose the messages in
        # between.
        mark = CompositeWatermark(plan.low)
        plan.work_units.append(WorkUnit(f"{dataset_urn}-start", dataset_urn, mark, mark, read={"partitions": {}}))
    return plan


def _committed(state: DatasetState | None) -> CommittedRanges:
    return state.committed if state is not None else CommittedRanges(CompositeWatermark, {})


def _partition_of(name: str) -> tuple[str, str]:
    """Return topic and number of the partition of a component."""
    topic, _, number = name.partition("@")[0].rpartition("-")
    return topic, number


def topics_of(state: DatasetState) -> set[str]:
    """Return the topics of a dataset's watermark; none if another source committed it."""
    if state.committed.watermark_type is not CompositeWatermark:
        return set()
    return {_partition_of(name)[0] for name in state.committed.ranges}


def _is_made_anew(bounds: PartitionOffsets, state: DatasetState | None) -> bool:
    return state is not None and state.is_other(bounds.topic, bounds.topic_id)


def _is_cut(bounds: PartitionOffsets, parts: Any) -> bool:
    return bounds.cut is not None or bounds.log_end < parts[-1][1]


def mark_to_compare(bounds: PartitionOffsets, state: DatasetState | None) -> RowMark | None:
    """Return the mark of the last message read of a partition if it must be compared before more is read.

    None if there is nothing to read, no mark, the marked message was deleted by retention, or the topic is another one.
    """
    committed = _committed(state)
    name = _current_name(bounds.name, committed)
    parts: Any = committed.ranges.get(name, ())
    mark = state.row_marks.get(name) if state is not None else None
    if mark is None or not parts or mark.position < bounds.earliest or _is_made_anew(bounds, state):
        return None
    has_more = bounds.end > parts[-1][1] or len(parts) > 1
    return mark if has_more or _is_cut(bounds, parts) else None


def rewritten_problem(dataset_urn: str, bounds: PartitionOffsets, state: DatasetState, how: str) -> str:
    """Return why a partition is not read whose log was cut, nobody knows where, and written again."""
    committed = _committed(state)
    high: Any = committed.ranges[_current_name(bounds.name, committed)][-1][1]
    end = min(high, bounds.log_end)  # a log that is shorter has no later offset
    return (
        f"{bounds.name} was committed up to {high}, but {how}: its log was cut and written again, nobody knows from "
        f"which offset on, and what was written below {high} was not read. Begin where it was cut: `gobblin startpoint "
        f"set {dataset_urn} <offset> --partition {bounds.name} --on-rewind append --reason '...'`; what was read from "
        f"there on is published again. With {end} as the offset, what is missing is given up. Or choose "
        "`on_out_of_range: earliest`, `latest` or `skip`."
    )


def _current_name(name: str, committed: CommittedRanges) -> str:
    """Return the component of a partition's newest log."""
    while (later := _next_name(name)) in committed.ranges:
        name = later
    return name


def component(bounds: PartitionOffsets, state: DatasetState | None) -> str:
    """Return the component under which a partition continues.

    It is a new one if its log began again after the last commit.
    """
    committed = _committed(state)
    name = _current_name(bounds.name, committed)
    parts: Any = committed.ranges.get(name, ())
    is_new_log = parts and (_is_made_anew(bounds, state) or _is_cut(bounds, parts))
    return _next_name(name) if is_new_log else name


def vanished(partitions: Iterable[PartitionOffsets], state: DatasetState | None) -> dict[str, int]:
    """Return new components, at offset 0, for partitions that a topic lost when it was created again.

    Nothing is read for them. If the topic gets these partitions again, they must not continue the old components.
    """
    anew = {one.topic for one in partitions if _is_made_anew(one, state)}
    here = {one.name for one in partitions}
    committed = _committed(state)
    former = {"-".join(part) for name in committed.ranges if (part := _partition_of(name))[0] in anew}
    return {_next_name(_current_name(name, committed)): 0 for name in sorted(former - here)}


def _next_name(name: str) -> str:
    base, _, number = name.partition("@")
    return f"{base}@{int(number or 1) + 1}"


def _first_start(bounds: PartitionOffsets, is_known_topic: bool, rules: OffsetRules, notes: list[str]) -> int | None:
    """Return where a partition without a watermark begins; None if it is not read."""
    if is_known_topic or rules.bootstrap == "earliest":
        if is_known_topic and bounds.earliest:
            notes.append(
                f"{bounds.name} has no watermark yet and begins at {bounds.earliest}, its first offset.{_lost(bounds)}"
            )
        return bounds.earliest
    if rules.bootstrap == "skip":
        notes.append(f"{bounds.name} has no watermark and is not read (bootstrap: skip).")
        return None
    start = bounds.end if rules.bootstrap == "latest" else max(bounds.earliest, bounds.end - rules.lookback)
    if start > bounds.earliest:
        how = "latest" if rules.bootstrap == "latest" else f"lookback {rules.lookback:,}"
        notes.append(
            f"{bounds.name} begins at {start} (bootstrap: {how}); {start - bounds.earliest:,} offset(s) before it "
            "are not read."
        )
    return start


def _begun_anew(
    bounds: PartitionOffsets, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> int | None:
    """Return where to begin in a topic that was created again under a known name; None if it is not read."""
    what = f"{bounds.name}: its topic was created again (its id is {bounds.topic_id} now){_unread(parts)}"
    if rules.out_of_range == "skip":
        notes.append(f"{what}; it is not read (on_out_of_range: skip).")
        return None
    start = bounds.end if rules.out_of_range == "latest" else bounds.earliest
    left = f", {start - bounds.earliest:,} offset(s) before it are not read" if start > bounds.earliest else ""
    notes.append(f"{what}; reading begins at {start} (on_out_of_range: {rules.out_of_range}){left}.{_lost(bounds)}")
    return start


def _lost(bounds: PartitionOffsets) -> str:
    """Return a sentence on what the broker deleted of a log of which nothing was read; empty if it is whole."""
    if not bounds.earliest:
        return ""
    return f" {bounds.earliest:,} offset(s) before {bounds.earliest} are lost, the broker deleted them unread."


def _unread(parts: Sequence[tuple[int, int]]) -> str:
    """Return a text on offsets of the former log that are lost; empty if none are."""
    unread = sum(two[0] - one[1] for one, two in pairwise(parts))
    return f", and {unread:,} offset(s) of the former log that failed work units left are lost" if unread else ""


def _restarted(
    bounds: PartitionOffsets, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> int | None:
    """Return where to begin in a log that ends before its committed offset; None if it is not read."""
    shown = bounds.cut.how if bounds.cut is not None else f"ends at {bounds.log_end}"
    where = f"{bounds.name} was committed up to {parts[-1][1]}, but {shown}"
    how = "its log was truncated" if bounds.topic_id else "its topic was created again or truncated"
    what = f"{where}: {how}{_unread(parts)}"
    if rules.out_of_range == "skip":
        notes.append(f"{what}; it is not read (on_out_of_range: skip).")
        return None
    if rules.out_of_range == "nearest" and bounds.cut is not None and bounds.cut.offset is not None:
        start = max(bounds.cut.offset, bounds.earliest)
        notes.append(
            f"{what}; reading begins at {start} (on_out_of_range: nearest), and what was read from there on before, up "
            f"to {parts[-1][1]}, stays published."
        )
        return start
    start = bounds.earliest if rules.out_of_range == "earliest" else bounds.end
    notes.append(
        f"{what}; reading begins at {start} (on_out_of_range: {rules.out_of_range}), "
        f"{start - bounds.earliest:,} offset(s) before it are not read."
    )
    return start


def _continued(
    bounds: PartitionOffsets, name: str, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> list[_Open]:
    """Return the open ranges of a log that was read before: each gap alone, then the new offsets."""
    gaps = [(one[1], two[0]) for one, two in pairwise(parts)]
    opens = []
    for low, high in [*gaps, (parts[-1][1], max(parts[-1][1], bounds.end))]:
        gone = min(bounds.earliest, high) - low
        is_new = low == parts[-1][1]
        if gone <= 0 and high > low:
            opens.append(_Open(low, low, high))
        elif gone > 0 and rules.out_of_range == "skip":
            notes.append(
                f"{name}: offsets [{low}, {low + gone}) are gone; its range stays open (on_out_of_range: skip)."
            )
        elif gone > 0:
            start = high if is_new and rules.out_of_range == "latest" else low + gone
            left = f", and {start - low - gone:,} more are skipped" if start > low + gone else ""
            notes.append(
                f"{name}: {gone:,} offset(s) [{low}, {low + gone}) are lost, the broker deleted them before they were "
                f"read{left} (on_out_of_range: {rules.out_of_range})."
            )
            opens.append(_Open(low, start, high))
    return opens


def _units(dataset_urn: str, bounds: PartitionOffsets, name: str, one: _Open, unit_offsets: int) -> Iterator[WorkUnit]:
    """Yield work units that cover a range; the first one also commits the offsets that are not read."""
    low, start = one.low, one.start
    place: dict[str, JsonValue] = {"topic": bounds.topic, "topic_id": bounds.topic_id, "partition": bounds.partition}
    while low < one.high:
        high = min(one.high, start + unit_offsets)
        yield WorkUnit(
            id=f"{name}-{low}",
            dataset_urn=dataset_urn,
            low=CompositeWatermark({name: low}),
            expected_high=CompositeWatermark({name: high}),
            read={"partitions": {name: {**place, "start": start}}},
            size_bytes=(high - start) * MESSAGE_BYTES,
        )
        low = start = high
