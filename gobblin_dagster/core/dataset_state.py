"""DatasetState: the progress of one dataset; only the commit transaction changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.core.watermark import Position, Watermark
from gobblin_dagster.core.watermark.fields import AnyRanges
from gobblin_dagster.core.watermark.ranges import CommittedRanges

PLACE = "folder of the path"
"""Name in `DatasetState.origin` of where a dataset was read: data may be moved, so this is no identity."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all commits of a dataset, since its first one."""

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
    """Files that publishers removed from newer snapshots."""

    def plus(self, other: Totals) -> Totals:
        """Return the sums of both."""
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
"""Weight of the newest commit in a `Pace` (0-1); the last two commits together weigh about half."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Size and duration of a dataset's work units lately: a moving average over commits, per work unit.

    Source: gobblin-kafka `KafkaSource`'s `previousAvgRecordMillis`, kept per topic.
    """

    rows: float = 0.0
    bytes_read: float = 0.0
    ms: float = 0.0
    """Milliseconds from opening the input to the last staged file; 0 if nothing was committed yet."""

    def then(self, newest: Pace) -> Pace:
        """Return the pace after one more commit."""
        weight = PACE_WEIGHT if self.ms else 1.0
        pairs = ((self.rows, newest.rows), (self.bytes_read, newest.bytes_read), (self.ms, newest.ms))
        return Pace(*(round(known + weight * (latest - known), 1) for known, latest in pairs))


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback: snapshot `snapshot` holds the files of the older snapshot `to`, and none of those in between."""

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


@dataclass(frozen=True, slots=True, repr=False)
class DatasetState(ShownAsFacts):
    """The published progress of one dataset of one job; stored as one row, replaced by each commit.

    Source: gobblin-runtime `JobState.DatasetState`. Differs: holds committed ranges, not the states of single tasks; a
    run without work for a dataset does not change its state.
    """

    format_name: ClassVar[str] = "DatasetState/1"

    job: str
    dataset_urn: str
    version: int
    """Grows by one with each commit. A commit fails if the stored version is not the one that its plan was made
    from."""
    committed: AnyRanges
    """The ranges whose rows are published."""
    snapshot: int
    """Number of the newest snapshot; grows with each commit that published files."""
    run_id: str
    """Id of the run, or of the change by a person, that committed last."""
    updated_at: datetime
    """Time of the commit; grows with each, also if the clock was set back (`later`)."""
    totals: Totals = field(default_factory=Totals)
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Last published Arrow schema by branch, as `name: type` lines."""
    failed_ranges: tuple[str, ...] = ()
    """Ranges whose work units failed in the last commit, as text for people; only `committed` decides what is read
    again."""
    generation: int = 0
    """Grows whenever committed ranges are taken back. Within a generation the watermark never goes back, and no row is
    published twice."""
    rollbacks: tuple[Rollback, ...] = ()
    """Oldest first."""
    oldest_snapshot: int = 1
    """Number of the oldest snapshot that can be read. `gobblin clean` has deleted files of older ones."""

    given_up: AnyRanges | None = None
    """Ranges of failed work units that are not read again (`execution.retry_failed`), until a person asks for it with
    `gobblin state retry`."""
    pace: Pace = field(default_factory=Pace)
    """Size and duration of its work units lately, for packing."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, tables and so on that were read, by name. If the id of a name changes, it was deleted and
    created again, and stored positions mean nothing. Of a watermark column of times: whether it has a zone. Empty if
    the source has no ids, and in states of older programs."""
    applied_startpoints: tuple[str, ...] = ()
    """Ids of startpoints for all jobs that this job has applied, as long as these are stored: they wait for other
    jobs."""

    inferred: Mapping[str, str] = field(default_factory=dict)
    """Types that the source inferred for its columns, by name, in the words of job files; they stay until the state is
    reset. Empty if it infers none, and in states of older programs."""

    row_marks: Mapping[str, RowMark] = field(default_factory=dict)
    """Mark of the last row read, by component, so that the source notices if the row is another one later. Empty if the
    source has no marks, and in states of older programs."""

    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What held the rows of each branch at the last commit (`PublisherTraits.holders`): files, a table, both, or
    nothing. Empty in states of older programs."""

    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where each of the `holders` of a branch was: a folder, or the URL of a table or topic, without user and password;
    then, where the branch was before. Of branches that were taken out too. Local ones are relative to the project's
    folder. An empty text is a place that is not known. Empty in states of older programs."""

    def later(self, now: datetime) -> datetime:
        """Return the time of the next commit: now, or just after the last one if the clock was set back since.

        Delta tables and ledgers take the commit with the greatest time for the newest.
        """
        return max(now, self.updated_at + timedelta(milliseconds=1))

    @property
    def identity(self) -> Mapping[str, str]:
        """The `origin` without the place."""
        return {name: identity for name, identity in self.origin.items() if name != PLACE}

    def is_other(self, name: str, identity: str) -> bool:
        """Return whether a topic or table was deleted and created again since it was read.

        Args:
            name: name of the topic or table.
            identity: its id now; empty if unknown. False is returned if either id is unknown.

        Source: none; Gobblin reads a topic that was created again as if it were the old one.
        """
        known = self.origin.get(name, "")
        return bool(known and identity) and known != identity

    @property
    def settled(self) -> CommittedRanges:
        """The ranges that runs do not read any more: committed and given-up ones."""
        if self.given_up is None or not self.given_up.ranges:
            return self.committed
        ranges = {**self.given_up.ranges, **self.committed.ranges}
        for name in {*self.given_up.ranges} & {*self.committed.ranges}:
            ranges[name] = _joined([*self.committed.ranges[name], *self.given_up.ranges[name]])
        return CommittedRanges(self.committed.watermark_type, ranges)

    @property
    def watermark(self) -> Watermark | None:
        """The next position to read; None if nothing was committed."""
        return self.settled.watermark

    def chain(self, snapshot: int | None = None) -> tuple[tuple[int, int], ...]:
        """Return which snapshots added the files of a snapshot, as ranges `(after, upto]` of numbers, newest first.

        Without rollbacks this is one range: all snapshots up to the given one.

        Args:
            snapshot: number of a snapshot; None, or a number that is too high, means the newest.

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
        """Return whether any snapshot that can still be read may hold files that this snapshot added."""
        ends = [self.snapshot, *(one.snapshot - 1 for one in self.rollbacks if one.snapshot > self.oldest_snapshot)]
        return any(after < snapshot <= upto for end in ends for after, upto in self.chain(end))

    def holding(self, added: int, removed: Iterable[int] = ()) -> tuple[range, ...]:
        """Return the numbers of the snapshots that hold a file, expired snapshots included.

        Args:
            added: the snapshot that added the file.
            removed: the snapshots that removed it.

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
            # Between two rollbacks each snapshot holds the files of the one before, changed by its own commit.
            below = self.chain(end - 1)[1:]
            is_held_below = any(a < added <= upto for a, upto in below)
            is_held_below &= not any(a < number <= upto for number in removed for a, upto in below)
            if is_held_below or begin <= added < end:
                first = begin if is_held_below else added
                last = min((number for number in removed if first <= number < end), default=end)
                ranges.append(range(first, last))
        return tuple(one for one in ranges if one)

    def _facts(self) -> Mapping[str, object]:
        return {
            "dataset": self.dataset_urn,
            "job": self.job,
            "watermark": self.watermark,
            "committed": self.committed,
            "given up": self.given_up,
            "failed ranges": ", ".join(self.failed_ranges),
            "snapshot": self.snapshot,
            "version": self.version,
            "rows read": self.totals.rows_read,
            "rows written": ", ".join(f"{name} {rows:,}" for name, rows in sorted(self.totals.branch_rows.items())),
            "quarantined": self.totals.rows_quarantined or None,
            "files": self.totals.files,
            "bytes": self.totals.bytes_written,
            "published": self.updated_at,
            "by": self.run_id,
        }

    def expire(self, oldest: int) -> DatasetState:
        """Return the state without the snapshots below number `oldest`; the others keep their files."""
        after = replace(self, oldest_snapshot=max(oldest, self.oldest_snapshot))
        # Drop rollbacks that no readable snapshot depends on, so that the list does not grow for ever.
        return replace(after, rollbacks=tuple(one for one in self.rollbacks if after.is_held(one.snapshot)))


def with_committed(state: DatasetState, committed: CommittedRanges) -> DatasetState:
    """Return the state with other committed ranges, as a person sets them; failed and given-up ranges are cleared.

    A new generation begins if a range that was committed no longer is. If no ranges are left, `origin` is cleared too.
    A row mark is kept if its component ends where it ended, and its row is still committed.
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
        row_marks={
            name: mark
            for name, mark in state.row_marks.items()
            if _keeps_mark(committed.ranges.get(name, ()), state.committed.ranges.get(name, ()), mark)
        },
    )


def _covers(parts: tuple[tuple[Position, Position], ...], low: Any, high: Any) -> bool:
    return low == high or any(start <= low and high <= end for start, end in parts)


def _keeps_mark(parts: Sequence[tuple[Any, Any]], before: Sequence[tuple[Any, Any]], mark: RowMark) -> bool:
    is_same_end = bool(parts and before) and parts[-1][1] == before[-1][1]
    return is_same_end and any(low <= mark.position < high for low, high in parts)
