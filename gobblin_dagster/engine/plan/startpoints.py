"""Apply startpoints in a plan: the next run of a dataset begins at its startpoints instead of at its watermark.

Startpoints are resolved to positions, from the oldest to the newest: one for the whole dataset moves all partitions,
one for a partition moves this partition. The source then plans as if everything before these positions were committed
and nothing after them. The run's commit starts from the same ranges and consumes the startpoints; nothing is stored
before it but the fan-out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gobblin_dagster.core.constructs import (
    DatasetOffer,
    PartitionStartpointResolver,
    Source,
    SourceContext,
    StartpointResolver,
)
from gobblin_dagster.core.dataset_state import PLACE, DatasetState, with_committed
from gobblin_dagster.core.errors import GobblinDagsterError, StartpointError, UsageError
from gobblin_dagster.core.startpoint import (
    DamagedStartpoint,
    Oldest,
    Specific,
    Startpoint,
    StartpointPosition,
    Timestamp,
    Upcoming,
    by_precedence,
    watermark_at,
)
from gobblin_dagster.core.startpoint_types import CustomPosition
from gobblin_dagster.core.watermark import CompositeWatermark, Watermark
from gobblin_dagster.core.watermark.file_set import LINE
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.watermark.text import parse_watermark


@dataclass(frozen=True, slots=True)
class Start:
    """The resolved startpoints of one dataset."""

    startpoints: tuple[Startpoint, ...] = ()
    """The startpoints in force, in order of precedence, pinned if they must be; empty if none can be applied."""
    begin: CommittedRanges | None = None
    """The ranges that count as read; None if the dataset was never committed and begins at its oldest position
    anyway."""
    problem: str = ""
    begins: str = ""
    """Where the dataset begins and by whose startpoints, for people; empty if none is in force."""
    told: tuple[str, ...] = ()
    """Which startpoints wait or have expired, for people."""
    expired: tuple[Startpoint, ...] = ()
    """Startpoints that have expired and are not applied."""
    only: CommittedRanges | None = None
    """The positions that the run reads, if startpoints have an end; None to read on to the end of the data."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics or tables that an earlier run pinned all of the startpoints in; empty if one was not pinned."""
    is_of_others: bool = False
    """Whether they are all for all jobs: this job need not have the dataset."""
    stale: tuple[Startpoint, ...] = ()
    """Startpoints past their time that a run has fanned out: they expire if the source does not have the dataset."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for people: first where the dataset begins."""
        return (self.begins, *self.told) if self.begins else self.told

    def without_dataset(self, why: str) -> Start:
        """Return what becomes of the startpoints if the source does not have the dataset: they wait, until they expire.

        Args:
            why: why they wait, for people.
        """
        waits = any(one not in self.stale for one in self.startpoints) or bool(self.problem and not self.stale)
        told = [f"its startpoint waits: {why}"] if waits else []
        told += [_expired_note(one) for one in self.stale]
        return Start(told=(*told, *self.told), expired=(*self.expired, *self.stale))


def find_starts(
    job: str, source: Source, context: SourceContext, wishes: Mapping[str, Sequence[Startpoint]], now: datetime
) -> dict[str, Start]:
    """Resolve the startpoints of the selected datasets; an error is put into the `problem` of its dataset.

    `now` is the time by the clock of the state store: clocks of drivers may differ, and one that is ahead would let
    startpoints expire that others still wait for.
    """
    return {
        urn: dataclasses.replace(
            _Resolution(job, urn, source, context, now).start(startpoints),
            is_of_others=all(one.is_copy for one in startpoints),
        )
        for urn, startpoints in sorted(wishes.items())
        if context.is_selected(urn)
    }


def moved_states(
    job: str, states: Mapping[str, DatasetState], starts: Mapping[str, Start], now: datetime
) -> dict[str, DatasetState]:
    """Return the states that the source plans from.

    If an earlier run pinned the positions, they mean nothing in a topic or table that was created again since then: the
    source is given the ids, so that it notices.
    """
    moved = {
        urn: begin_at(states.get(urn), job, urn, start.begin, now, start.startpoints)
        for urn, start in starts.items()
        if start.begin is not None
    }
    pinned = {urn: dataclasses.replace(one, origin={**one.origin, **starts[urn].origin}) for urn, one in moved.items()}
    return {**states, **pinned}


def begin_at(
    before: DatasetState | None,
    job: str,
    dataset_urn: str,
    begin: CommittedRanges,
    now: datetime,
    startpoints: Sequence[Startpoint],
) -> DatasetState:
    """Return the state that a commit under a startpoint builds on: `begin` counts as read, all else is unchanged.

    The ids of what was read (`origin`) are forgotten, because people use a startpoint to go on with a recreated table;
    not by re-reads of a range, after which the next run goes on from where it was.
    A startpoint at the very watermark says that this is the place to go on: the row marks of the components that it
    names are forgotten too. Those of others are not: their rows were written again for all that anybody said.
    """
    if before is None:
        return DatasetState(job, dataset_urn, 0, begin, snapshot=0, run_id="", updated_at=now)
    # Never back: the next commit is later than the last one.
    updated_at = max(now, before.updated_at)
    after = with_committed(before, begin)
    marks = {
        name: mark for name, mark in after.row_marks.items() if not any(_is_named(name, one) for one in startpoints)
    }
    goes_on = all(one.until is not None for one in startpoints)
    return dataclasses.replace(after, updated_at=updated_at, origin=before.origin if goes_on else {}, row_marks=marks)


def _is_named(component: str, startpoint: Startpoint) -> bool:
    """Return whether a startpoint says where a component goes on."""
    if startpoint.until is not None:
        return False  # the watermark stays where it is
    if startpoint.partition:
        return _is_of(component, startpoint.partition)
    if not isinstance(startpoint.position, Specific):
        return True
    with suppress(ValueError):
        named = json.loads(startpoint.position.watermark)
        return not isinstance(named, dict) or component in named
    return True


_MIXED = "one startpoint reads on to the end, another one ends before it; apply one after the other"


def other_place(startpoint: Startpoint, origin: Mapping[str, str]) -> str:
    """Return why a watermark that a person named means nothing now; empty if it lies where it lay when it was set.

    Args:
        startpoint: the startpoint.
        origin: ids of the topics or tables that the source has now (`DatasetOffer.origin`).
    """
    if startpoint.pinned is not None:
        return ""
    topic = startpoint.partition.rpartition("-")[0]
    known = {topic: startpoint.origin[topic]} if topic in startpoint.origin else startpoint.origin
    for name, identity in known.items():
        if name != PLACE and origin.get(name, identity) != identity:
            problem = (
                f"{name} was created again or changed since then, so the position means nothing: it was "
                f"{identity}, now it is {origin[name]}"
            )
            return str(StartpointError(dataset_urn=startpoint.dataset_urn, startpoint=str(startpoint), problem=problem))
    return ""


def _expired_note(startpoint: Startpoint) -> str:
    return (
        f"its startpoint {startpoint} of {startpoint.who} expired at "
        f"{startpoint.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}Z and is not applied; the run deletes it."
    )


class _Absent(Exception):
    """The source does not have the partition of a startpoint now; the message says so."""


class _Resolution:
    """Resolves the startpoints of one dataset."""

    def __init__(self, job: str, dataset_urn: str, source: Source, context: SourceContext, now: datetime) -> None:
        self._job = job
        self._now = now
        self._source = source
        self._context = context
        self._urn = dataset_urn
        self._state = context.states.get(dataset_urn)
        self._fresh: DatasetOffer | None = None

    def start(self, startpoints: Sequence[Startpoint]) -> Start:
        """Return the resolved startpoints; errors of this dataset are in its `problem`, never raised."""
        damaged = next((one for one in startpoints if isinstance(one, DamagedStartpoint)), None)
        return self._resolved(startpoints) if damaged is None else Start(problem=str(damaged.error))

    def _resolved(self, startpoints: Sequence[Startpoint]) -> Start:
        expired = [one for one in by_precedence(startpoints) if one.is_expired(self._now)]
        stale = tuple(one for one in startpoints if one.is_stale(self._now) and one not in expired)
        told = [_expired_note(one) for one in expired]
        in_force: list[Startpoint] = []
        begin = self._state.committed if self._state is not None else None
        only: CommittedRanges | None = None
        for one in by_precedence(startpoints):
            if one in expired:
                continue
            try:
                self._require_past(one)
                if one.until is not None:
                    begin, only = self._bounded(one, one.until, begin, only)
                elif only is not None:
                    raise self._error(one, _MIXED)
                else:
                    begin = self._begin(one, begin)
            except _Absent as absence:
                expired += [each for each in stale if each is one]
                told.append(_expired_note(one) if one in stale else f"its startpoint {one} waits: {absence}.")
            except GobblinDagsterError as error:
                problem = self._other_place(one) or str(error)
                return Start(problem=problem, told=tuple(told), expired=tuple(expired), stale=stale)
            else:
                in_force.append(self._pinned(one, begin))
        if not in_force:
            return Start(told=tuple(told), expired=tuple(expired))
        origin: dict[str, str] = {}
        if all(one.pinned is not None and one.origin for one in startpoints if one not in expired):
            for one in in_force:
                origin |= one.origin
        begins = _begin_note(in_force, begin)
        return Start(
            tuple(in_force),
            begin,
            begins=begins,
            told=tuple(told),
            expired=tuple(expired),
            only=only,
            origin=origin,
            stale=stale,
        )

    def _other_place(self, startpoint: Startpoint) -> str:
        """Return `other_place` by what the source has now; empty if it cannot be asked."""
        with suppress(GobblinDagsterError):
            return other_place(startpoint, self._offer(startpoint).origin) if startpoint.origin else ""
        return ""

    def _bounded(
        self,
        startpoint: Startpoint,
        until: StartpointPosition,
        base: CommittedRanges | None,
        only: CommittedRanges | None,
    ) -> tuple[CommittedRanges, CommittedRanges]:
        """Return the ranges that count as read without those between both ends, and all that is to be read again."""
        if self._state is None or base is None:
            raise self._error(startpoint, "nothing of the dataset was committed, so there is nothing to read again")
        if only is None and base != self._state.committed:
            raise self._error(startpoint, _MIXED)
        if base.watermark_type.is_layered and LINE in base.ranges:
            raise self._error(startpoint, "files with a lookback are read from a position on, without an end")
        first = dataclasses.replace(startpoint, until=None)
        low, high = self._begin(first, base), self._begin(dataclasses.replace(first, position=until), base)
        none = CommittedRanges(base.watermark_type, {})
        again = (high or none).minus(low or none)
        if not again.ranges:
            raise self._error(startpoint, "there is nothing between both ends")
        committed = self._state.committed
        if base.watermark_type.is_layered:
            again = again.minus(again.minus(committed))  # files that came late were never read
        ends = {name: ((parts[0][0], parts[-1][1]),) for name, parts in committed.ranges.items()}
        if (beyond := again.minus(CommittedRanges(base.watermark_type, ends))).ranges:
            problem = f"{beyond} was never read: a re-read ends at or before the watermark, {self._state.watermark}"
            raise self._error(startpoint, problem)
        left: dict[str, Any] = dict(base.minus(again).ranges)
        for name in () if base.watermark_type.is_layered else again.ranges:
            # Empty ranges at both ends keep a gap at the beginning or at the end visible.
            known: Any = base.ranges[name]
            left[name] = _with_ends(left.get(name, ()), known[0][0], known[-1][1])
        total = again if only is None else CommittedRanges(again.watermark_type, {**only.ranges, **again.ranges})
        return CommittedRanges(base.watermark_type, left), total

    def _require_past(self, startpoint: Startpoint) -> None:
        if startpoint.is_from_the_future(self._now):
            ahead = startpoint.created_at - self._now
            raise self._error(
                startpoint,
                f"it was created at {startpoint.created_at.isoformat()}, {ahead} ahead of the state store's clock, and "
                "would win over all others until then; set the clocks, and set it again",
            )

    def _pinned(self, startpoint: Startpoint, begin: CommittedRanges | None) -> Startpoint:
        # If this run crashes, the next one must begin here too, and not after data that arrived in between.
        if (
            begin is None
            or startpoint.until is not None
            or startpoint.pinned is not None
            or not isinstance(startpoint.position, Upcoming | Timestamp | CustomPosition)
        ):
            return startpoint
        name = startpoint.partition
        if name:
            begin = CommittedRanges(begin.watermark_type, {n: r for n, r in begin.ranges.items() if _is_of(n, name)})
        return dataclasses.replace(startpoint, pinned=begin)

    def _begin(self, startpoint: Startpoint, base: CommittedRanges | None) -> CommittedRanges | None:
        """Return `base`, the ranges that count as read so far, with the startpoint applied."""
        if startpoint.pinned is not None:
            if not startpoint.partition or base is None:
                return startpoint.pinned
            return CommittedRanges(base.watermark_type, {**base.ranges, **startpoint.pinned.ranges})
        if startpoint.partition:
            return self._read_up_to(startpoint, self._partition_mark(startpoint), base)
        resolver = self._source if isinstance(self._source, StartpointResolver) else None
        position: Any = startpoint.position
        if isinstance(position, CustomPosition):
            position = position.apply(self._urn, self._source, self._context)
            if not isinstance(position, Specific | Timestamp | Oldest | Upcoming):
                return self._found(startpoint, position, base)
        wanted = self._parsed(startpoint, position.watermark) if isinstance(position, Specific) else position
        if resolver is None:
            found: Watermark | CommittedRanges | None = self._unaided(startpoint, wanted)
        else:
            found = resolver.resolve_startpoint(self._urn, wanted, self._context)
        return self._found(startpoint, found, base)

    def _found(
        self, startpoint: Startpoint, found: Watermark | CommittedRanges | None, base: CommittedRanges | None
    ) -> CommittedRanges | None:
        """Return `base` with what a source found."""
        if found is None:
            return None if self._state is None else CommittedRanges(self._state.committed.watermark_type, {})
        return found if isinstance(found, CommittedRanges) else self._read_up_to(startpoint, found, base)

    def _partition_mark(self, startpoint: Startpoint) -> Watermark:
        """Return where a partition begins."""
        name, source = startpoint.partition, self._source
        position: Any = startpoint.position
        if self._kind(startpoint) is not CompositeWatermark:
            raise self._error(
                startpoint, "the dataset has no partitions with positions of their own; leave the partition out"
            )
        if isinstance(position, CustomPosition):
            position = position.apply(self._urn, source, self._context)
        wanted: Watermark | Timestamp | Oldest | Upcoming
        if isinstance(position, Specific):
            try:
                offset = int(position.watermark)
            except ValueError:
                offset = position.watermark  # type: ignore[assignment]  # refused by the type of the watermark
            wanted = self._parsed(startpoint, json.dumps({name: offset}))
        else:
            wanted = position
        if isinstance(wanted, CommittedRanges | None):
            raise self._error(startpoint, "its type has no position for one partition alone")
        if isinstance(source, PartitionStartpointResolver) and not isinstance(startpoint.position, CustomPosition):
            found: Any = source.resolve_partition_startpoint(self._urn, name, wanted, self._context)
        elif isinstance(source, StartpointResolver):
            found = source.resolve_startpoint(self._urn, wanted, self._context)
        else:
            found = self._unaided(startpoint, wanted)
        components = found.components() if isinstance(found, Watermark) else {}
        mine = {component: at for component, at in components.items() if _is_of(component, name)}
        if not mine:
            raise _Absent(f"the source does not have partition {name} now")
        return CompositeWatermark.from_components(mine)

    def _unaided(self, startpoint: Startpoint, wanted: Watermark | Timestamp | Oldest | Upcoming) -> Watermark | None:
        """Resolve as a StartpointResolver does, for a source that is none."""
        if isinstance(wanted, Oldest) and startpoint.partition:
            return self._offer(startpoint).low
        if isinstance(wanted, Oldest):
            return None
        mark = watermark_at(self._kind(startpoint), wanted.instant) if isinstance(wanted, Timestamp) else wanted
        if isinstance(mark, Watermark):
            return mark
        raise self._error(startpoint, "this source cannot look up such a position; give a watermark, or `oldest`")

    def _parsed(self, startpoint: Startpoint, text: str) -> Watermark:
        try:
            return parse_watermark(self._kind(startpoint), text)
        except UsageError as error:
            how = self._example() or error.hint
            raise self._error(startpoint, f"{error.problem} {how}".strip().rstrip(".")) from error

    def _example(self) -> str:
        """Return how a position with several parts is written, by the dataset's own parts; empty if none are known."""
        now = self._state.watermark if self._state is not None else None
        if not isinstance(now, CompositeWatermark):
            return ""
        text = json.dumps(dict(sorted(now.components().items())))
        return f"Write it as {text}, where the dataset is now."

    def _read_up_to(self, startpoint: Startpoint, mark: Watermark, base: CommittedRanges | None) -> CommittedRanges:
        """Return ranges that end at a position; components that the position does not name stay as they are."""
        known: Any = base.ranges if base is not None else {}
        if self._state is not None and type(mark) is not self._state.committed.watermark_type:
            expected = self._state.committed.watermark_type.type_name
            problem = f"it is of type {mark.type_name!r}, the dataset's watermark of type {expected!r}"
            raise self._error(startpoint, problem)
        ranges = dict(known)
        for name, position in mark.components().items():
            first: Any = known[name][0][0] if name in known else position
            if name not in known or position < first:
                # Data before the first committed position counts as read too, from where the source begins.
                first = self._beginnings(startpoint).get(name, position)
            ranges[name] = ((min(first, position), position),)
        return CommittedRanges(type(mark), ranges)

    def _beginnings(self, startpoint: Startpoint) -> Mapping[str, Any]:
        low = self._offer(startpoint).low
        return low.components() if low is not None else {}

    def _kind(self, startpoint: Startpoint) -> type[Watermark]:
        if self._state is not None:
            return self._state.committed.watermark_type
        offer = self._offer(startpoint)
        mark = offer.low or offer.expected_high
        if mark is None:
            unknown = "the source has no data yet, so its watermark type is unknown"
            raise self._error(startpoint, offer.problem.rstrip(".") or unknown)
        return type(mark)

    def _offer(self, startpoint: Startpoint) -> DatasetOffer:
        """Return what the source would offer if nothing of the dataset had ever been committed."""
        if self._fresh is None:
            alone = dataclasses.replace(self._context, states={}, is_selected=lambda urn: urn == self._urn)
            offers = [offer for offer in self._source.plan(alone) if offer.dataset_urn == self._urn]
            self._fresh = (
                offers[0] if offers else DatasetOffer(self._urn, None, None, problem="the source has no such dataset")
            )
        return self._fresh

    def _error(self, startpoint: Startpoint, problem: str) -> StartpointError:
        shown = f"{startpoint.partition} at {startpoint.position}" if startpoint.partition else str(startpoint.position)
        return StartpointError(dataset_urn=self._urn, startpoint=shown, problem=problem)


def _with_ends(parts: tuple[tuple[Any, Any], ...], first: Any, last: Any) -> tuple[tuple[Any, Any], ...]:
    begin = () if parts and parts[0][0] == first else ((first, first),)
    end = () if parts and parts[-1][1] == last else ((last, last),)
    return (*begin, *parts, *end)


def _is_of(component: str, partition: str) -> bool:
    """Return whether a component belongs to a partition; `clicks-0@2` is `clicks-0` after its topic was recreated."""
    return component == partition or component.startswith(f"{partition}@")


def _begin_note(in_force: Sequence[Startpoint], begin: CommittedRanges | None) -> str:
    where = (begin.watermark if begin is not None else None) or "its oldest position"
    told = []
    for one in in_force:
        what = f"{one.partition} at {one.position}" if one.partition else f"{one.position}"
        told.append(f"{what} of {one.who}" + (f": {one.why}" if one.why else ""))
    return f"begins at {where}, by the startpoint{'s' if len(told) > 1 else ''} {'; then '.join(told)}."
