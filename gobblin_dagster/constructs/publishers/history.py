"""Keep all versions of a row in a table (slowly changing dimension of type 2): which are new, and when which one ends.

A version is valid from a time, inclusive, to the time of the next point of its key: a newer version or a deletion. The
result is a merge by key and `valid_from`, which tables do as every other merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.digests import KeyDigests
from gobblin_dagster.constructs.publishers.changes import (
    DELETED,
    Bounds,
    Changes,
    bounds,
    older_rows,
    places_of,
    tables_of,
)
from gobblin_dagster.constructs.publishers.merge_rule import PUBLISHED_AT, History, MergeRule
from gobblin_dagster.constructs.types.strict_cast import cast_rows, strict_cast
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import StepRefusedError

Scan: TypeAlias = Callable[[Sequence[str], Bounds], Iterator[pa.RecordBatch]]
"""Takes columns, and bounds by column, and returns the table's rows between them; more rows do no harm."""
_Numbers: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]
_CODE, _DIGEST = "code", "digest"
_GAP, _BEGIN, _EVENT = range(3)
"""Kinds of points of a key's time, the strongest last: an end, the beginning of a version, a new row."""


def keep_history(
    step: str,
    changes: Changes,
    rule: MergeRule,
    columns: History,
    schema: pa.Schema,
    scan: Scan,
    published_at: datetime,
) -> tuple[Changes, MergeRule]:
    """Return the changes of a table that keeps history, and the rule by which to merge them.

    The versions of the changed keys are in memory, without columns that decide nothing.

    Args:
        step: name of the step, for messages.
        changes: the new rows.
        rule: key, order and deletions.
        columns: of the history.
        schema: the table's columns, with those of the new rows and of the history.
        scan: reads the table, in the types of `schema`.
        published_at: aware; when rows without `valid_at` become valid. A version never begins before the one that it
            replaces: then it begins one microsecond after that one.

    Raises:
        StepRefusedError: the table has versions without a beginning, or two of one key with the same one.
    """
    key = list(rule.key)
    table = _Table(step, changes, rule, columns, schema, scan)
    versions, missing = table.versions()
    code = versions[_CODE].to_numpy()
    begin, end = (versions[name].combine_chunks() for name in (columns.valid_from, columns.valid_to))
    event, deleted = table.code_of(changes.compared), changes.compared[DELETED].to_numpy()
    if columns.valid_at:
        at = strict_cast(changes.compared[columns.valid_at], begin.type).combine_chunks()
        taken = np.ones(len(at), bool)
    else:
        at, taken = _at_publication(versions, changes, rule, columns, event, table.digests(), published_at)
    timeline = _Timeline(pa.concat_arrays([begin, end, at]), code, event, len(code))
    late = timeline.late(versions, changes.compared, [name for name in rule.newest_by if name in versions.schema.names])
    taken = taken & ~late
    ends_of_versions, ends_of_events = timeline.ends(taken, deleted)

    moved = timeline.stays(taken) & ~_is_same(ends_of_versions, end)
    ended = versions.select([*key, columns.valid_from]).append_column(columns.valid_to, ends_of_versions)
    ends = [ended.filter(pa.array(moved))]
    if missing.num_rows:
        last = _not_before(published_at, _micros(missing[columns.valid_from]) + 1)
        ends.append(missing.append_column(columns.valid_to, last))
    periods = pa.table({columns.valid_from: at, columns.valid_to: ends_of_events}).filter(pa.array(taken))
    merged = replace(rule, key=(*key, columns.valid_from), delete_missing=False, history=None)
    return changes.with_history(columns.columns(changes.schema), taken, periods, pa.concat_tables(ends)), merged


def _is_same(one: pa.Array, other: pa.Array) -> _Mask:
    both = pc.and_(one.is_null(), other.is_null())
    same: _Mask = pc.or_(pc.equal(one, other).fill_null(False), both).to_numpy(zero_copy_only=False)
    return same


def _at_publication(
    versions: pa.Table,
    changes: Changes,
    rule: MergeRule,
    columns: History,
    event: _Numbers,
    digests: _Numbers,
    published_at: datetime,
) -> tuple[pa.Array, _Mask]:
    """Return when each new row becomes valid, and which of them change anything."""
    newest = _last_of_each(versions, [columns.valid_from])
    by_code = np.full(int(event.max(initial=-1)) + 1, -1)
    by_code[versions[_CODE].to_numpy()[newest]] = newest
    at = by_code[event]
    known = at >= 0
    before = versions.take(pa.array(np.where(known, at, 0), mask=~known))
    newest_by = [name for name in rule.newest_by if name in versions.schema.names]
    late = np.zeros(len(event), bool)
    late[known] = older_rows(changes.compared.filter(pa.array(known)), before.filter(pa.array(known)), newest_by)
    is_open = known & before[columns.valid_to].is_null().to_numpy()
    if newest_by and not (rule.delete_missing or rule.comes_again):
        # A row as old as a version that a deletion ended was read again: the deletion is newer than both.
        ended = known & ~is_open
        newer = older_rows(before.filter(pa.array(ended)), changes.compared.filter(pa.array(ended)), newest_by)
        late[ended] = ~newer
    deleted = changes.compared[DELETED].to_numpy()
    same = before[_DIGEST].fill_null(0).to_numpy() == digests
    is_new = np.where(deleted, is_open, ~(is_open & same)) & ~late
    # A version that was ended later than this one begins, by another clock, ends before it all the same.
    begins = np.maximum(_micros(before[columns.valid_from]) + 1, _micros(before[columns.valid_to]))
    return _not_before(published_at, begins), is_new


def _not_before(published_at: datetime, least: _Numbers) -> pa.Array:
    """Return the time of the publication, or `least` (microseconds since the epoch) where that is later."""
    (now,) = _micros(pa.chunked_array([pa.array([published_at], PUBLISHED_AT)]))
    return strict_cast(pa.array(np.maximum(least, now)), PUBLISHED_AT)


def _micros(times: pa.ChunkedArray) -> _Numbers:
    """Return times as microseconds since the epoch; null is before all."""
    found: _Numbers = strict_cast(times, PUBLISHED_AT).cast(pa.int64()).fill_null(-(1 << 62)).to_numpy()
    return found


def _last_of_each(versions: pa.Table, names: list[str]) -> _Numbers:
    """Return the position of the greatest row of each key by the columns `names`."""
    order = pc.sort_indices(versions, [(name, "ascending") for name in [_CODE, *names]]).to_numpy()
    code = versions[_CODE].to_numpy()[order]
    found: _Numbers = order[np.append(code[1:] != code[:-1], True)] if len(code) else order
    return found


class _Timeline:
    """The points in time of each key: beginnings and ends of its versions, and its new rows.

    Args:
        times: beginnings of versions, their ends, and times of new rows, one after the other.
        code: number of each version's key.
        event: number of each new row's key.
        versions: number of versions.
    """

    def __init__(self, times: pa.Array, code: _Numbers, event: _Numbers, versions: int) -> None:
        self._times = times
        self._rank = pc.rank(times, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        self._code = np.concatenate([code, code, event])
        self._kind = np.repeat([_BEGIN, _GAP, _EVENT], [versions, versions, len(event)])
        self._versions = versions
        self._is_point = times.is_valid().to_numpy(zero_copy_only=False)

    def late(self, versions: pa.Table, events: pa.Table, newest_by: list[str]) -> _Mask:
        """Return the new rows that are older than the version that begins at the same time."""
        late = np.zeros(events.num_rows, bool)
        place = self._code * (int(self._rank.max(initial=0)) + 1) + self._rank
        begins, news = place[: self._versions], place[2 * self._versions :]
        _, event, version = np.intersect1d(news, begins, return_indices=True)
        late[event] = older_rows(events.take(pa.array(event)), versions.take(pa.array(version)), newest_by)
        return late

    def stays(self, taken: _Mask) -> _Mask:
        """Return the versions that no new row replaces or deletes."""
        points = self._points(taken)
        stays = np.zeros(self._versions, bool)
        begins = points[self._kind[points] == _BEGIN]
        stays[begins] = True
        return stays

    def ends(self, taken: _Mask, deleted: _Mask) -> tuple[pa.Array, pa.Array]:
        """Return the end of each version and of each new row, null if it has none, or does not count."""
        points = self._points(taken)
        code = self._code[points]
        following = np.full(len(self._code), -1)
        following[points[:-1]] = np.where(code[1:] == code[:-1], points[1:], -1)
        found = self._times.take(pa.array(np.maximum(following, 0), mask=following < 0))
        return found.slice(0, self._versions), found.slice(2 * self._versions)

    def _points(self, taken: _Mask) -> _Numbers:
        """Return the points in the order of keys and time; of several at once, the strongest."""
        counts = self._is_point.copy()
        counts[2 * self._versions :] &= taken
        points = np.flatnonzero(counts)
        points = points[np.lexsort((self._kind[points], self._rank[points], self._code[points]))]
        place = np.stack([self._code[points], self._rank[points]])
        is_last = np.append((place[:, 1:] != place[:, :-1]).any(axis=0), True) if len(points) else np.zeros(0, bool)
        found: _Numbers = points[is_last]
        return found


class _Table:
    """Reads the versions of the changed keys."""

    def __init__(
        self, step: str, changes: Changes, rule: MergeRule, columns: History, schema: pa.Schema, scan: Scan
    ) -> None:
        self._step = step
        self._changes = changes
        self._rule = rule
        self._history = columns
        self._schema = schema
        self._scan = scan
        self._types = pa.schema([schema.field(name) for name in rule.key])
        keys = cast_rows(changes.compared.select(rule.key), self._types)
        self._keys = keys.group_by([*rule.key], use_threads=False).aggregate([])
        self._compares_values = not columns.valid_at
        context = ConstructContext(job="", base_dir="")
        self._digests = KeyDigests(changes.schema.names, "publisher's history", context)

    def code_of(self, rows: pa.Table) -> _Numbers:
        """Return the number of each row's key; -1 if no new row has it."""
        return places_of(cast_rows(rows.select(self._rule.key), self._types), self._keys)

    def digests(self) -> _Numbers:
        """Return a number for the values of each new row, in the table's types."""
        rows = pa.schema([self._schema.field(name) for name in self._changes.schema.names])
        parts = [self._digests.of(batch.select(rows.names)) for batch in self._changes.batches(rows)]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def versions(self) -> tuple[pa.Table, pa.Table]:
        """Return the versions of changed keys, and key and beginning of valid versions whose key no new row has.

        The second table is empty unless missing rows are to be ended.
        """
        rule, history = self._rule, self._history
        period = [history.valid_from, history.valid_to]
        values = self._changes.schema.names if self._compares_values else []
        names = list(dict.fromkeys((*rule.key, *period, *rule.newest_by, *values)))
        wanted = pa.schema([self._schema.field(name) for name in names])
        kept = list(dict.fromkeys((*rule.key, *period, *rule.newest_by)))
        empty = wanted.empty_table()
        versions = [empty.select(kept).append_column(_CODE, pa.array([], pa.int64()))]
        if self._compares_values:
            versions = [versions[0].append_column(_DIGEST, pa.array([], pa.uint64()))]
        missing = [empty.select([*rule.key, history.valid_from])]
        ends = {} if rule.delete_missing else bounds(self._changes.compared, rule.key)
        for rows in tables_of(self._scan(names, ends), wanted):
            code = self.code_of(rows)
            if rule.delete_missing:
                gone = pc.and_(pa.array(code < 0), rows[history.valid_to].is_null().combine_chunks())
                missing.append(rows.filter(gone).select(missing[0].schema.names))
            known = rows.filter(pa.array(code >= 0))
            if not known.num_rows:
                continue
            found = known.select(kept).append_column(_CODE, pa.array(code[code >= 0]))
            if self._compares_values:
                parts = [self._digests.of(part) for part in known.select(values).to_batches()]
                found = found.append_column(_DIGEST, pa.array(np.concatenate(parts)))
            versions.append(found)
        every = pa.concat_tables(versions).combine_chunks()
        self._require_beginnings(every)
        return every, pa.concat_tables(missing).combine_chunks()

    def _require_beginnings(self, versions: pa.Table) -> None:
        name = self._history.valid_from
        single = versions.group_by([_CODE, name], use_threads=False).aggregate([([], "count_all")])
        if versions[name].null_count:
            problem = f"the table has rows without {name!r}: they were not written with `mode: scd2`. Fill it in"
        elif (doubled := single.filter(pc.greater(single["count_all"], 1))).num_rows:
            first = versions.filter(pc.equal(versions[_CODE], doubled[_CODE][0])).select([*self._rule.key, name])
            problem = (
                f"the table has several versions of one key with one beginning: {first.slice(0, 1).to_pylist()[0]}"
            )
        else:
            return
        raise StepRefusedError(step=self._step, problem=problem)
