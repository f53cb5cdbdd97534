"""Plan by the snapshots of an Iceberg table or the versions of a Delta table.

The first read takes the whole table as of its newest snapshot. Later reads take the rows that snapshots added since. A
snapshot that removed or changed rows is refused, because published rows cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from gobblin_dagster.constructs.sources.spark.frames import Frames
from gobblin_dagster.constructs.sources.spark.options import SparkOptions
from gobblin_dagster.core.constructs import DatasetOffer
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import LongWatermark, Watermark
from gobblin_dagster.core.watermark.table_snapshot import TableSnapshotWatermark
from gobblin_dagster.core.work_unit import WorkUnit

_RESET = "`gobblin state reset` reads the whole table again; `extract.type: snapshot_only` does so whenever it changed"

_MADE_ANEW = "the table was created again; `gobblin state reset` reads it from its beginning"
_TABLE = "table"
"""Name of the only origin: the same for all jobs, so that another table under the same dataset is noticed."""
_CLOCKS_APART = timedelta(minutes=5)
"""Most that the clocks of the table's writers and of our runs may differ."""


@dataclass(frozen=True, slots=True)
class Step:
    """The changes between two neighbouring snapshots."""

    high: Watermark
    rows: int | None
    """Rows added; None if unknown."""
    refused: str = ""
    """A change that cannot be read as added rows; empty if there is none."""


class TableHistory(Protocol):
    """The snapshots of a table, in one format."""

    @property
    def watermark_type(self) -> type[Watermark]:
        """Return the class of its positions."""

    def identity(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[str, str]:
        """Return the table's id (empty if it has none), and why it is not the table read before (empty if it is)."""

    def newest(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[Watermark, int | None] | None:
        """Return the position behind the newest snapshot, and the table's rows then; None if there is no snapshot.

        It is the state's position if no snapshot came since, else a later one. Raises ValueError if the history went
        back.
        """

    def steps(self, session: Any, dataset: str, low: Any, high: Any) -> list[Step]:
        """Return the changes between two positions, in order; raises ValueError if they are no longer known."""

    def frame(self, session: Any, dataset: str, low: Any, high: Any) -> Any:
        """Return the rows added between two positions; from the beginning, all rows of the table at the later one."""

    def beginning(self) -> Watermark:
        """Return the position before the first snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotPlanner:
    """Plan tables by their history."""

    options: SparkOptions
    history: TableHistory
    is_full: bool
    """Whether the whole table is read whenever it changed."""

    def offer(self, session: Any, dataset: str, urn: str, state: DatasetState | None) -> DatasetOffer:
        """Offer one dataset; raises ValueError if its history cannot be read as added rows."""
        newest = self.history.newest(session, dataset, state)
        last = _last(state)
        if newest is None:
            return self._without_snapshot(urn, state)
        high, rows = newest
        beginning = self.history.beginning()
        low = self._mark(last) if last is not None else beginning
        identity, other = self.history.identity(session, dataset, state if last is not None else None)
        if other and (not self.is_full or low == high):
            raise ValueError(f"{other}: {_MADE_ANEW}")
        origin = {_TABLE: identity} if identity else {}
        if self.is_full:
            units = self._numbered(urn, [(low, high, rows)], read={"whole": True}) if low != high else []
            return DatasetOffer(urn, low, high, units, origin=origin)
        parts: list[tuple[Watermark, Watermark, int | None]] = []
        if state is not None:
            parts = [
                part for gap in state.committed.gaps() for part in self._parts(session, dataset, *map(self._mark, gap))
            ]
        if low == beginning:
            parts.append((beginning, high, rows))
        elif low != high:
            parts += self._parts(session, dataset, low, high)
        units = self._numbered(urn, parts)
        first, end = (units[0].low, units[-1].expected_high) if units else (low, low)
        return DatasetOffer(urn, first, end, units, origin=origin)

    def _without_snapshot(self, urn: str, state: DatasetState | None) -> DatasetOffer:
        """Offer a table without any snapshot; if it had one before, a full extract keeps what is published."""
        if _last(state) is None:
            return DatasetOffer(urn, None, None)
        mark, what = state.watermark if state is not None else None, "the table has no snapshot any more"
        if not self.is_full:
            raise ValueError(f"{what}, the dataset is committed up to {mark}: {_MADE_ANEW}")
        return DatasetOffer(urn, mark, mark, notes=[f"{what}; what was published of it stays."])

    def _parts(
        self, session: Any, dataset: str, low: Watermark, high: Watermark
    ) -> Iterator[tuple[Watermark, Watermark, int | None]]:
        steps = self.history.steps(session, dataset, low, high)
        if refused := [step.refused for step in steps if step.refused]:
            raise ValueError(f"{refused[0]}, which cannot be published as added rows; {_RESET}")
        size = self.options.snapshots_per_work_unit or len(steps)
        for at in range(0, len(steps), size):
            group = steps[at : at + size]
            counts = [step.rows for step in group if step.rows is not None]
            yield low, group[-1].high, sum(counts) if len(counts) == len(group) else None
            low = group[-1].high

    def _numbered(
        self, urn: str, parts: Sequence[tuple[Watermark, Watermark, int | None]], read: Mapping[str, bool] | None = None
    ) -> list[WorkUnit]:
        plain = self.options.is_plain
        return [
            WorkUnit(str(n), urn, low, high, read=dict(read or {}), rows=rows if plain else None)
            for n, (low, high, rows) in enumerate(parts)
        ]

    def _mark(self, position: Any) -> Watermark:
        return self.history.watermark_type.from_components({"": position})


def _last(state: DatasetState | None) -> Any:
    """Return the position up to which a dataset is committed."""
    known: Any = state.committed.ranges.get("", ()) if state is not None else ()
    return known[-1][1] if known else None


@dataclass(frozen=True, slots=True)
class IcebergHistory:
    """The ancestors of the newest snapshot of the main branch.

    `append` adds rows, `replace` (compaction) changes none; `overwrite` and `delete` are refused. Source: Iceberg's
    incremental append scan. Differs: that scan skips overwrites and deletes silently.
    """

    frames: Frames
    watermark_type: type[Watermark] = TableSnapshotWatermark

    def beginning(self) -> Watermark:
        return TableSnapshotWatermark(0, 0)

    def identity(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[str, str]:
        """Return nothing: Spark does not show a table's uuid, and no two tables have a snapshot in common."""
        return "", ""

    def newest(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[Watermark, int | None] | None:
        chain = self._chain(session, dataset)
        if not chain:
            return None
        number = len(chain)
        if (last := _last(state)) is not None:
            # Continue the state's count: a chain gets shorter when snapshots expire or the table is rolled back.
            before, ids = last[0], [row["snapshot_id"] for row in chain]
            number = before + ids.index(last[1]) if last[1] in ids else max(number, before + 1)
        summary = chain[0]["summary"]
        deletes = {summary.get(f"total-{kind}-deletes") for kind in ("position", "equality")}
        rows = int(summary["total-records"]) if "total-records" in summary and deletes == {"0"} else None
        return TableSnapshotWatermark(number, chain[0]["snapshot_id"]), rows

    def steps(
        self, session: Any, dataset: str, low: TableSnapshotWatermark, high: TableSnapshotWatermark
    ) -> list[Step]:
        chain = self._chain(session, dataset)
        ids = [row["snapshot_id"] for row in chain]
        if low.snapshot_id not in ids:
            raise ValueError(
                f"snapshot {low.snapshot_id}, up to which the dataset is committed, is no ancestor of the table's "
                f"newest snapshot {ids[0]} any more: it expired, or the table was rolled back or created again; "
                f"{_RESET}"
            )
        begin, end = ids.index(low.snapshot_id), ids.index(high.snapshot_id) if high.snapshot_id in ids else 0
        steps = []
        for number, row in enumerate(reversed(chain[end:begin]), start=low.number + 1):
            added = row["summary"].get("added-records", "0")
            is_append = row["operation"] == "append"
            refused = "" if row["operation"] in ("append", "replace") else _refused_snapshot(row)
            mark = TableSnapshotWatermark(number, row["snapshot_id"])
            steps.append(Step(mark, int(added) if is_append else 0, refused))
        return steps

    def frame(self, session: Any, dataset: str, low: TableSnapshotWatermark, high: TableSnapshotWatermark) -> Any:
        if low.snapshot_id == 0:
            return self.frames.whole(session, dataset, {"versionAsOf": high.snapshot_id})
        bounds = {"start-snapshot-id": low.snapshot_id, "end-snapshot-id": high.snapshot_id}
        return self.frames.whole(session, dataset, bounds)

    def _chain(self, session: Any, dataset: str) -> list[Any]:
        """Return the newest snapshot and its ancestors that still exist, newest first."""
        refs = self.frames.metadata(session, dataset, "refs").where("name = 'main'").select("snapshot_id").collect()
        columns = ("snapshot_id", "parent_id", "operation", "committed_at", "summary")
        rows = self.frames.metadata(session, dataset, "snapshots").select(*columns).collect()
        by_id = {row["snapshot_id"]: row for row in rows}
        chain = []
        at = refs[0]["snapshot_id"] if refs else None
        while at in by_id:
            chain.append(by_id[at])
            at = by_id[at]["parent_id"]
        return chain


def _refused_snapshot(row: Any) -> str:
    return f"snapshot {row['snapshot_id']} of {row['committed_at']} is `{row['operation']}`"


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The versions of a Delta table; position 7 means that versions 0 to 6 were read.

    Added rows come from the table's change data feed, which must be on (`delta.enableChangeDataFeed`). A version with
    changes other than inserts is refused.
    """

    frames: Frames
    watermark_type: type[Watermark] = LongWatermark

    def beginning(self) -> Watermark:
        return LongWatermark(0)

    def identity(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[str, str]:
        detail = session.sql(f"describe detail {self.frames.sql_name(dataset)}")
        ((identity, made),) = detail.selectExpr("id", "unix_micros(createdAt)").collect()
        if state is None:
            return identity, ""
        if state.is_other(_TABLE, identity):
            return identity, f"its id is {identity}, what was read had {state.origin[_TABLE]}"
        # States written by older versions of this package have no id, only the time of writing.
        is_later = made is not None and made > (state.updated_at + _CLOCKS_APART).timestamp() * 1_000_000
        if is_later and _TABLE not in state.origin:
            return identity, f"it was made after the dataset was committed up to version {_last(state) - 1}"
        return identity, ""

    def newest(self, session: Any, dataset: str, state: DatasetState | None) -> tuple[Watermark, int | None] | None:
        (version,), last = self._newest_versions(session, dataset, 1), _last(state)
        if last is not None and version + 1 < last:
            raise ValueError(
                f"its newest version is {version}, the dataset is committed up to {last - 1}: {_MADE_ANEW}"
            )
        return LongWatermark(version + 1), None

    def steps(self, session: Any, dataset: str, low: LongWatermark, high: LongWatermark) -> list[Step]:
        untold = self._untold_versions(session, dataset, low.value, high.value)
        changes = self._feed(session, dataset, low, high).groupBy("_commit_version", "_change_type").count().collect()
        rows = {row["_commit_version"]: row["count"] for row in changes if row["_change_type"] == "insert"}
        other = {row["_commit_version"]: row["_change_type"] for row in changes if row["_change_type"] != "insert"}
        for version in untold - rows.keys() - other.keys():
            self._require_contents(session, dataset, version)
        return [
            Step(
                LongWatermark(version + 1),
                rows.get(version, 0),
                f"version {version} holds rows of kind `{other[version]}`" if version in other else "",
            )
            for version in range(low.value, high.value)
        ]

    def frame(self, session: Any, dataset: str, low: LongWatermark, high: LongWatermark) -> Any:
        if low.value == 0:
            return self.frames.whole(session, dataset, {"versionAsOf": high.value - 1})
        feed = self._feed(session, dataset, low, high).where("_change_type = 'insert'")
        return feed.drop("_change_type", "_commit_version", "_commit_timestamp")

    def _untold_versions(self, session: Any, dataset: str, low: int, high: int) -> set[int]:
        """Return the versions between two others whose log does not tell what was done: it may hold nothing at all.

        Raises:
            ValueError: the log lacks a version between them: the feed passes over it.
        """
        count = high - low
        there = self._newest_versions(session, dataset, count)
        while (needed := max(there) + 1 - low) > count:  # others wrote meanwhile, and may go on
            count = 2 * needed
            there = self._newest_versions(session, dataset, count)
        if missing := sorted({*range(low, high)}.difference(there)):
            raise _lost(missing[0], "its log lacks it")
        return {version for version in range(low, high) if there[version] is None}

    def _require_contents(self, session: Any, dataset: str, version: int) -> None:
        """Raise ValueError if the file of a version in the log is empty: the feed passes over it."""
        folder = session.sql(f"describe detail {self.frames.sql_name(dataset)}").collect()[0]["location"]
        if not session.read.text(f"{folder}/_delta_log/{version:020}.json").take(1):
            raise _lost(version, "its file in the log is empty")

    def _newest_versions(self, session: Any, dataset: str, count: int) -> dict[int, str | None]:
        """Return the newest versions in the log, each with the operation that made it, None if that is not told."""
        rows = session.sql(f"describe history {self.frames.sql_name(dataset)} limit {count}").collect()
        return {row["version"]: row["operation"] for row in rows}

    def _feed(self, session: Any, dataset: str, low: LongWatermark, high: LongWatermark) -> Any:
        bounds = {"readChangeFeed": "true", "startingVersion": low.value, "endingVersion": high.value - 1}
        return self.frames.whole(session, dataset, bounds)


def _lost(version: int, why: str) -> ValueError:
    return ValueError(
        f"version {version} cannot be read: {why}, and the feed passes over the rows that it added; {_RESET}"
    )
