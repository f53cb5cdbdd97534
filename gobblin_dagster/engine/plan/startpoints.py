"""Apply startpoints in a plan: the next run of a dataset begins at its startpoint instead of at its watermark.

A startpoint is resolved to a position. The source then plans as if everything before that position were committed and
nothing after it. The run's commit starts from the same ranges and consumes the startpoint; nothing is stored before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gobblin_dagster.core.constructs import DatasetOffer, Source, SourceContext, StartpointResolver
from gobblin_dagster.core.dataset_state import DatasetState, with_committed
from gobblin_dagster.core.errors import GobblinDagsterError, StartpointError, UsageError
from gobblin_dagster.core.startpoint import Oldest, Specific, Startpoint, Timestamp, Upcoming, watermark_at
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.watermark.text import parse_watermark


@dataclass(frozen=True, slots=True)
class Start:
    """The resolved startpoint of one dataset."""

    startpoint: Startpoint | None = None
    """The startpoint in force, pinned if it must be; None if it has expired or cannot be resolved."""
    begin: CommittedRanges | None = None
    """The ranges that count as read; None if the dataset was never committed and begins at its oldest position
    anyway."""
    problem: str = ""
    note: str = ""
    """Remark for people: where the dataset begins, or that its startpoint expired."""
    expired: Startpoint | None = None
    """The startpoint, if it has expired and is not applied."""


def find_starts(job: str, source: Source, context: SourceContext, wishes: Mapping[str, Startpoint]) -> dict[str, Start]:
    """Resolve the startpoints of the selected datasets; an error is put into the `problem` of its dataset."""
    return {
        urn: _Resolution(job, source, context, startpoint).start()
        for urn, startpoint in sorted(wishes.items())
        if context.is_selected(urn)
    }


def moved_states(
    job: str, states: Mapping[str, DatasetState], starts: Mapping[str, Start], now: datetime
) -> dict[str, DatasetState]:
    """Return the states that the source plans from."""
    moved = {urn: begin_at(states.get(urn), job, urn, s.begin, now) for urn, s in starts.items() if s.begin is not None}
    return {**states, **moved}


def begin_at(
    before: DatasetState | None, job: str, dataset_urn: str, begin: CommittedRanges, now: datetime
) -> DatasetState:
    """Return the state that a commit under a startpoint builds on: `begin` counts as read, all else is unchanged.

    The ids of what was read (`origin`) are forgotten, because people use a startpoint to go on with a recreated table.
    """
    if before is None:
        return DatasetState(job, dataset_urn, 0, begin, snapshot=0, run_id="", updated_at=now)
    return dataclasses.replace(with_committed(before, begin), updated_at=now, origin={})


class _Resolution:
    """Resolves one startpoint."""

    def __init__(self, job: str, source: Source, context: SourceContext, startpoint: Startpoint) -> None:
        self._job = job
        self._source = source
        self._context = context
        self._startpoint = startpoint
        self._urn = startpoint.dataset_urn
        self._state = context.states.get(self._urn)
        self._fresh: DatasetOffer | None = None

    def start(self) -> Start:
        """Return the resolved startpoint; errors of this dataset are in its `problem`, never raised."""
        startpoint, now = self._startpoint, self._context.clock.now()
        if startpoint.is_expired(now):
            at = f"{startpoint.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}Z"
            note = f"its startpoint {startpoint} expired at {at} and is not applied; the next run deletes it."
            return Start(note=note, expired=startpoint)
        try:
            begin = self._begin()
        except GobblinDagsterError as error:
            return Start(problem=str(error))
        mark = begin.watermark if begin is not None else None
        if isinstance(startpoint.position, Upcoming):
            # If this run crashes, the next one must begin here too, and not after data that arrived in between.
            startpoint = dataclasses.replace(startpoint, pinned=begin)
        why = f": {startpoint.why}" if startpoint.why else ""
        where = mark or "its oldest position"
        note = f"begins at {where}, by the startpoint {startpoint.position} of {startpoint.who}{why}."
        return Start(startpoint, begin, note=note)

    def _begin(self) -> CommittedRanges | None:
        resolver = self._source if isinstance(self._source, StartpointResolver) else None
        position = self._startpoint.position
        if self._startpoint.pinned is not None:
            return self._startpoint.pinned
        wanted = self._parsed(position) if isinstance(position, Specific) else position
        resolve = self._unaided if resolver is None else resolver.resolve_startpoint
        found = resolve(self._urn, wanted, self._context)
        if found is None:
            return None if self._state is None else CommittedRanges(self._state.committed.watermark_type, {})
        return found if isinstance(found, CommittedRanges) else self._read_up_to(found)

    def _unaided(
        self, _urn: str, wanted: Watermark | Timestamp | Oldest | Upcoming, _context: SourceContext
    ) -> Watermark | None:
        """Resolve as a StartpointResolver does, for a source that is none."""
        if isinstance(wanted, Oldest):
            return None
        mark = watermark_at(self._kind(), wanted.instant) if isinstance(wanted, Timestamp) else wanted
        if isinstance(mark, Watermark):
            return mark
        raise self._error("this source cannot look up such a position; give a watermark, or `oldest`")

    def _parsed(self, position: Specific) -> Watermark:
        try:
            return parse_watermark(self._kind(), position.watermark)
        except UsageError as error:
            raise self._error(error.problem.rstrip(".")) from error

    def _read_up_to(self, mark: Watermark) -> CommittedRanges:
        """Return ranges that end at a position; components that the position does not name stay as they are."""
        known: Any = self._state.committed.ranges if self._state is not None else {}
        if self._state is not None and type(mark) is not self._state.committed.watermark_type:
            expected = self._state.committed.watermark_type.type_name
            raise self._error(f"it is of type {mark.type_name!r}, the dataset's watermark of type {expected!r}")
        ranges = dict(known)
        for name, position in mark.components().items():
            first: Any = known[name][0][0] if name in known else position
            if name not in known or position < first:
                # Data before the first committed position counts as read too, from where the source begins.
                first = self._beginnings().get(name, position)
            ranges[name] = ((min(first, position), position),)
        return CommittedRanges(type(mark), ranges)

    def _beginnings(self) -> Mapping[str, Any]:
        low = self._offer().low
        return low.components() if low is not None else {}

    def _kind(self) -> type[Watermark]:
        if self._state is not None:
            return self._state.committed.watermark_type
        offer = self._offer()
        mark = offer.low or offer.expected_high
        if mark is None:
            unknown = "the source has no data yet, so its watermark type is unknown"
            raise self._error(offer.problem.rstrip(".") or unknown)
        return type(mark)

    def _offer(self) -> DatasetOffer:
        """Return what the source would offer if nothing of the dataset had ever been committed."""
        if self._fresh is None:
            alone = dataclasses.replace(self._context, states={}, is_selected=lambda urn: urn == self._urn)
            offers = [offer for offer in self._source.plan(alone) if offer.dataset_urn == self._urn]
            self._fresh = (
                offers[0] if offers else DatasetOffer(self._urn, None, None, problem="the source has no such dataset")
            )
        return self._fresh

    def _error(self, problem: str) -> StartpointError:
        return StartpointError(dataset_urn=self._urn, startpoint=str(self._startpoint.position), problem=problem)
