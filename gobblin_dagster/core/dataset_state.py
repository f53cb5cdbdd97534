"""DatasetState: the progress of one dataset, moved only by the commit transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from gobblin_dagster.core.watermark import Position, Watermark
from gobblin_dagster.core.watermark.fields import AnyRanges
from gobblin_dagster.core.watermark.ranges import CommittedRanges


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of everything ever published for a dataset."""

    rows_read: int = 0
    rows_filtered: int = 0
    rows_rejected: int = 0
    rows_untaken: int = 0
    rows_quarantined: int = 0
    branch_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by branch."""
    files: int = 0
    bytes_written: int = 0
    files_removed: int = 0
    """Files that publishers took out of newer snapshots."""

    def plus(self, other: Totals) -> Totals:
        """Return the sums."""
        names = {*self.branch_rows, *other.branch_rows}
        return Totals(
            rows_read=self.rows_read + other.rows_read,
            rows_filtered=self.rows_filtered + other.rows_filtered,
            rows_rejected=self.rows_rejected + other.rows_rejected,
            rows_untaken=self.rows_untaken + other.rows_untaken,
            rows_quarantined=self.rows_quarantined + other.rows_quarantined,
            branch_rows={n: self.branch_rows.get(n, 0) + other.branch_rows.get(n, 0) for n in sorted(names)},
            files=self.files + other.files,
            bytes_written=self.bytes_written + other.bytes_written,
            files_removed=self.files_removed + other.files_removed,
        )


PACE_WEIGHT = 0.3
"""Share of the newest commit in a `Pace`: half of it is what the last two commits said."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a work unit of a dataset held and took lately: means over its units, moving from commit to commit.

    Source: gobblin-kafka `KafkaSource`'s `previousAvgRecordMillis`, kept per topic.
    """

    rows: float = 0.0
    bytes_read: float = 0.0
    ms: float = 0.0
    """Milliseconds from opening to staging; 0 where nothing was committed yet."""

    def then(self, newest: Pace) -> Pace:
        """Return the pace after one more commit."""
        weight = PACE_WEIGHT if self.ms else 1.0
        pairs = ((self.rows, newest.rows), (self.bytes_read, newest.bytes_read), (self.ms, newest.ms))
        return Pace(*(round(known + weight * (latest - known), 1) for known, latest in pairs))


@dataclass(frozen=True, slots=True)
class Rollback:
    """Snapshot `snapshot` was made by going back to what snapshot `to` held; those in between left no file in it."""

    snapshot: int
    to: int


def _joined(parts: Iterable[tuple[Any, Any]]) -> tuple[tuple[Position, Position], ...]:
    joined: list[tuple[Any, Any]] = []
    for low, high in sorted(parts):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class DatasetState:
    """What was published of one dataset of one job.

    Source: gobblin-runtime `JobState.DatasetState`. Differs: holds committed ranges, never the states of single tasks; a
    dataset that is not planned keeps its state untouched.
    """

    format_name: ClassVar[str] = "DatasetState/1"

    job: str
    dataset_urn: str
    version: int
    """Grows by one with each commit; the compare-and-swap of the commit reads it."""
    committed: AnyRanges
    snapshot: int
    """Number of the newest snapshot; grows with each commit that published files."""
    run_id: str
    """The run that moved it last."""
    updated_at: datetime
    totals: Totals = field(default_factory=Totals)
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Last published Arrow schema by branch, as text."""
    failed_ranges: tuple[str, ...] = ()
    """Ranges that the last commit left out because their work units failed, for people; `committed` is the truth."""
    generation: int = 0
    """Grows with each rollback; within a generation the watermark never goes back and no row is published twice."""
    rollbacks: tuple[Rollback, ...] = ()
    """Oldest first."""
    oldest_snapshot: int = 1
    """Older ones have lost files to `gobblin clean` and cannot be read or rolled back to any more."""

    given_up: AnyRanges | None = None
    """Ranges of failed work units that are not read again (`execution.retry_failed`), until somebody says so."""
    pace: Pace = field(default_factory=Pace)
    """Size and cost of its work units lately, for packing."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the things that were read (a topic, a table), by name: where another thing has that name, positions mean nothing.
    Empty where the source gives none, and in states that older programs wrote."""

    def is_other(self, name: str, identity: str) -> bool:
        """Tell whether what has this name now is not what was read; False where one of the ids is not known.

        Source: none; Gobblin takes a topic that was made anew for the one that it read.
        """
        known = self.origin.get(name, "")
        return bool(known and identity) and known != identity

    @property
    def settled(self) -> CommittedRanges:
        """What is not read any more: the committed ranges and those that were given up."""
        if self.given_up is None or not self.given_up.ranges:
            return self.committed
        ranges = {**self.given_up.ranges, **self.committed.ranges}
        for name in {*self.given_up.ranges} & {*self.committed.ranges}:
            ranges[name] = _joined([*self.committed.ranges[name], *self.given_up.ranges[name]])
        return CommittedRanges(self.committed.watermark_type, ranges)

    @property
    def watermark(self) -> Watermark | None:
        """The next position to read."""
        return self.settled.watermark

    def chain(self, snapshot: int | None = None) -> tuple[tuple[int, int], ...]:
        """Return the snapshots whose added files a snapshot holds, as ranges `(after, upto]` of numbers, newest first.

        Without rollbacks that is one range: all up to the snapshot.

        Args:
            snapshot: number; None takes the newest, and so does one that is not there yet.

        Example:
            >>> from datetime import UTC, datetime
            >>> from gobblin_dagster.core.watermark import CommittedRanges, LongWatermark
            >>> none, now = CommittedRanges(LongWatermark, {}), datetime(2026, 11, 21, tzinfo=UTC)
            >>> state = DatasetState("j", "d", 8, none, 8, "r", now, rollbacks=(Rollback(7, to=4),))
            >>> state.chain(), state.chain(6)
            (((6, 8), (0, 4)), ((0, 6),))
        """
        ranges = []
        upto = self.snapshot if snapshot is None else min(snapshot, self.snapshot)
        for rollback in reversed(self.rollbacks):
            if rollback.snapshot <= upto:
                ranges.append((rollback.snapshot - 1, upto))
                upto = rollback.to
        return (*ranges, (0, upto))

    def is_held(self, snapshot: int) -> bool:
        """Tell whether any snapshot that can still be read holds the files that a snapshot added."""
        ends = [self.snapshot, *(one.snapshot - 1 for one in self.rollbacks if one.snapshot > self.oldest_snapshot)]
        return any(after < snapshot <= upto for end in ends for after, upto in self.chain(end))

    def holding(self, added: int, removed: Iterable[int] = ()) -> tuple[range, ...]:
        """Return the numbers of the snapshots that hold a file, those that have expired among them.

        Args:
            added: the snapshot that added it.
            removed: the snapshots that took it out.

        Example:
            >>> from datetime import UTC, datetime
            >>> from gobblin_dagster.core.watermark import CommittedRanges, LongWatermark
            >>> none, now = CommittedRanges(LongWatermark, {}), datetime(2026, 11, 21, tzinfo=UTC)
            >>> state = DatasetState("j", "d", 8, none, 8, "r", now, rollbacks=(Rollback(7, to=4),))
            >>> state.holding(added=3, removed=[5])
            (range(3, 5), range(7, 9))
        """
        ranges = []
        begins = [1, *(one.snapshot for one in self.rollbacks)]
        ends = [*begins[1:], self.snapshot + 1]
        for begin, end in zip(begins, ends, strict=True):
            # Between two rollbacks each snapshot holds what the one before held, and what it changed itself.
            below = self.chain(end - 1)[1:]
            is_held_below = any(a < added <= upto for a, upto in below)
            is_held_below &= not any(a < number <= upto for number in removed for a, upto in below)
            if is_held_below or begin <= added < end:
                first = begin if is_held_below else added
                last = min((number for number in removed if first <= number < end), default=end)
                ranges.append(range(first, last))
        return tuple(one for one in ranges if one)

    def expire(self, oldest: int) -> DatasetState:
        """Return the state without the snapshots below a number; those from it on hold what they held."""
        after = replace(self, oldest_snapshot=max(oldest, self.oldest_snapshot))
        # Rollbacks that no snapshot goes through any more are forgotten: the list is as long as the history that is kept.
        return replace(after, rollbacks=tuple(one for one in self.rollbacks if after.is_held(one.snapshot)))


def with_committed(state: DatasetState, committed: CommittedRanges) -> DatasetState:
    """Return the state with other ranges; a new generation begins where some that were committed no longer are.

    Where nothing counts as read any more, it does not matter of what.
    """
    is_backward = any(
        not _covers(committed.ranges.get(name, ()), low, high)
        for name, parts in state.committed.ranges.items()
        for low, high in parts
    )
    return replace(
        state,
        committed=committed,
        failed_ranges=(),
        given_up=None,
        generation=state.generation + is_backward,
        origin=state.origin if committed.ranges else {},
    )


def _covers(parts: tuple[tuple[Position, Position], ...], low: Any, high: Any) -> bool:
    return low == high or any(start <= low and high <= end for start, end in parts)
