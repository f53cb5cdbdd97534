"""What of a dataset's Kafka partitions is to be read: ranges of offsets that were not committed, cut into work units.

Pure: offsets that the broker told and a stored state in, work units and notes out. A partition is the component
`<topic>-<partition>` of a composite watermark. Where a log begins anew (its topic was made anew, or it was cut short) it
goes on as another component, `<topic>-<partition>@2`, because a watermark never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

Bootstrap: TypeAlias = Literal["latest", "earliest", "lookback", "skip"]
OutOfRange: TypeAlias = Literal["nearest", "earliest", "latest", "skip"]
MESSAGE_BYTES = 1024
"""Assumed size of a message, for packing only. Source: the default of `KafkaAvgRecordSizeBasedWorkUnitSizeEstimator`."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What a broker says of one partition."""

    topic: str
    partition: int
    earliest: int
    """First offset that is still there, inclusive."""
    end: int
    """End of what may be read, exclusive: under `read_committed` the first offset of an open transaction."""
    log_end: int
    """End of the log, exclusive."""
    topic_id: str = ""
    """The topic's id, which another topic of that name does not have; empty where the broker gives none."""

    @property
    def name(self) -> str:
        """Kafka's name of the partition; topic names hold no `@`."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRules:
    """What the user declared."""

    bootstrap: Bootstrap
    lookback: int
    out_of_range: OutOfRange
    unit_offsets: int
    """Most offsets of one work unit."""


@dataclass(slots=True)
class OffsetPlan:
    """What is to be read of one dataset."""

    low: dict[str, int] = field(default_factory=dict)
    """Watermark by component, where a state or the bootstrap gives one."""
    high: dict[str, int] = field(default_factory=dict)
    work_units: list[WorkUnit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)
    """Ids of the topics that are read."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A range `[low, high)` to commit, of which offsets before `start` are not read."""

    low: int
    start: int
    high: int


def plan_offsets(
    dataset_urn: str, partitions: Iterable[PartitionOffsets], state: DatasetState | None, rules: OffsetRules
) -> OffsetPlan:
    """Plan what is new of a dataset; whatever is skipped or lost is stated in the notes.

    Source: gobblin-kafka-common `KafkaSource.getWorkUnitsForTopic`. Differs: offsets that are gone are stated and closed;
    a new partition of a known topic is read from its beginning, whatever the bootstrap says; a topic that was made anew
    is told by its id.
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
        if parts and not is_new_topic and bounds.log_end >= parts[-1][1]:
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
            # Only the first offset that is there is found again by the next run, whatever has come by then.
            is_anchored &= not (parts or is_new_topic) and (
                bounds.topic in known_topics or rules.bootstrap == "earliest"
            )
            plan.low[name] = reached = start
        if bounds.topic_id:
            plan.origin[bounds.topic] = bounds.topic_id
        plan.high[name] = max([reached, *(one.high for one in opens)])
        for one in opens:
            plan.work_units += _units(dataset_urn, bounds, name, one, rules.unit_offsets)
    if rules.out_of_range != "skip":
        gone = vanished(there, state)
        plan.low |= gone
        plan.high |= gone
    if not plan.work_units and not is_anchored:
        # Committed though it reads nothing: else the next run would take a later beginning, and lose what came between.
        mark = CompositeWatermark(plan.low)
        plan.work_units.append(WorkUnit(f"{dataset_urn}-start", dataset_urn, mark, mark, read={"partitions": {}}))
    return plan


def _committed(state: DatasetState | None) -> CommittedRanges:
    return state.committed if state is not None else CommittedRanges(CompositeWatermark, {})


def _partition_of(name: str) -> tuple[str, str]:
    """Return topic and number of the partition that a component is of."""
    topic, _, number = name.partition("@")[0].rpartition("-")
    return topic, number


def _is_made_anew(bounds: PartitionOffsets, state: DatasetState | None) -> bool:
    return state is not None and state.is_other(bounds.topic, bounds.topic_id)


def _current_name(name: str, committed: CommittedRanges) -> str:
    """Return the component of a partition's newest log."""
    while (later := _next_name(name)) in committed.ranges:
        name = later
    return name


def component(bounds: PartitionOffsets, state: DatasetState | None) -> str:
    """Return the component that a partition goes on as: a new one where its log began anew since it was committed."""
    committed = _committed(state)
    name = _current_name(bounds.name, committed)
    parts: Any = committed.ranges.get(name, ())
    is_new_log = parts and (_is_made_anew(bounds, state) or bounds.log_end < parts[-1][1])
    return _next_name(name) if is_new_log else name


def vanished(partitions: Iterable[PartitionOffsets], state: DatasetState | None) -> dict[str, int]:
    """Return new components for partitions that a topic had before it was made anew and has no more: nothing of them is read.

    The topic may get them again, and they are not to be taken for those that were read.
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
    """Return where a partition without a watermark begins; None where it is left alone."""
    if is_known_topic or rules.bootstrap == "earliest":
        return bounds.earliest
    if rules.bootstrap == "skip":
        notes.append(f"{bounds.name} has no watermark and is left alone (bootstrap: skip).")
        return None
    start = bounds.end if rules.bootstrap == "latest" else max(bounds.earliest, bounds.end - rules.lookback)
    if start > bounds.earliest:
        how = "latest" if rules.bootstrap == "latest" else f"lookback {rules.lookback:,}"
        notes.append(
            f"{bounds.name} begins at {start} (bootstrap: {how}); {start - bounds.earliest:,} offset(s) before it are not read."
        )
    return start


def _begun_anew(
    bounds: PartitionOffsets, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> int | None:
    """Return where to begin in a topic of which nothing was read, though one of its name was; None to leave it alone."""
    what = f"{bounds.name}: its topic was made anew (its id is {bounds.topic_id} now){_unread(parts)}"
    if rules.out_of_range == "skip":
        notes.append(f"{what}; it is left alone (on_out_of_range: skip).")
        return None
    start = bounds.end if rules.out_of_range == "latest" else bounds.earliest
    left = f", {start - bounds.earliest:,} offset(s) before it are not read" if start > bounds.earliest else ""
    notes.append(f"{what}; reading begins at {start} (on_out_of_range: {rules.out_of_range}){left}.")
    return start


def _unread(parts: Sequence[tuple[int, int]]) -> str:
    """Say what is lost of a former log."""
    unread = sum(two[0] - one[1] for one, two in pairwise(parts))
    return f", and {unread:,} offset(s) of the former log that failed work units left are lost" if unread else ""


def _restarted(
    bounds: PartitionOffsets, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> int | None:
    """Return where to begin in a log that is shorter than what was committed of it; None to leave it alone."""
    where = f"{bounds.name} was committed up to {parts[-1][1]}, but ends at {bounds.log_end}"
    how = "its log was cut short" if bounds.topic_id else "its topic was made anew or cut short"
    what = f"{where}: {how}{_unread(parts)}"
    if rules.out_of_range == "skip":
        notes.append(f"{what}; it is left alone (on_out_of_range: skip).")
        return None
    start = bounds.earliest if rules.out_of_range == "earliest" else bounds.end
    notes.append(
        f"{what}; reading begins at {start} (on_out_of_range: {rules.out_of_range}), "
        f"{start - bounds.earliest:,} offset(s) before it are not read."
    )
    return start


def _continued(
    bounds: PartitionOffsets, name: str, parts: Sequence[tuple[int, int]], rules: OffsetRules, notes: list[str]
) -> list[_Open]:
    """Return the ranges that are open in a log of which something was committed: each gap alone, then what is new."""
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
                f"{name}: {gone:,} offset(s) [{low}, {low + gone}) are lost, the broker deleted them before they were read{left} "
                f"(on_out_of_range: {rules.out_of_range})."
            )
            opens.append(_Open(low, start, high))
    return opens


def _units(dataset_urn: str, bounds: PartitionOffsets, name: str, one: _Open, unit_offsets: int) -> Iterator[WorkUnit]:
    """Yield work units that tile a range; what is not read rides with the first."""
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
