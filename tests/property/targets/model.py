"""What targets must hold: the rows of each commit, and what each publisher makes of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias


class Row(NamedTuple):
    """A row of a source; `seq` grows."""

    seq: int
    id: int
    op: str
    part: int


Publication: TypeAlias = tuple[Row, ...]
Publications: TypeAlias = tuple[Publication, ...]
REJECTED_EVERY = 7
"""Rows whose number this divides are rejected if the job has its policy."""


@dataclass(frozen=True)
class Start:
    """A startpoint that waits."""

    low: int
    until: int | None
    rewind: str


@dataclass(frozen=True)
class Held:
    """What is committed of a dataset: its position, a startpoint that waits, and what each branch was given."""

    branches: tuple[Publications, ...]
    position: int = 0
    start: Start | None = None
    rejected: Publication = ()

    def new(self, rows: Iterable[Row]) -> Publication:
        """Return the rows that the next run reads."""
        low, until = (self.start.low, self.start.until) if self.start else (self.position, None)
        return tuple(row for row in rows if row.seq >= low and (until is None or row.seq < until))

    def read(self, rows: list[Row], kinds: list[str], rejects: bool) -> Held:
        """Return what is held after a run."""
        new = self.new(rows)
        if not new and self.start is None:
            return self
        passed = tuple(row for row in new if not (rejects and row.seq % REJECTED_EVERY == 0))
        replaces = self.start is not None and self.start.rewind == "replace"
        after = []
        for kind, old in zip(kinds, self.branches, strict=True):
            cut = tuple(_without(one, new) for one in old) if replaces and KINDS[kind].is_cut else old
            after.append((*cut, passed) if new else cut)
        rejected = _without(self.rejected, new) if replaces else self.rejected
        position = self.position
        if self.start is None or self.start.until is None:
            low = self.start.low if self.start else self.position
            position = max(low, *(row.seq + 1 for row in rows)) if rows else low
        return Held(tuple(after), position, None, rejected + _without(new, passed))

    def partly(self, rows: list[Row], kinds: list[str], rejects: bool) -> Iterator[Held]:
        """Yield what may be held after a commit that was given up when some branches had its rows."""
        after = self.read(rows, kinds, rejects).branches
        for chosen in itertools.product([False, True], repeat=len(kinds)):
            some = (new if is_new else old for is_new, new, old in zip(chosen, after, self.branches, strict=True))
            yield dataclasses.replace(self, branches=tuple(some))

    def replayed(self, kinds: list[str]) -> Held:
        """Return what is held after all rejected rows passed."""
        if not self.rejected:
            return self
        after = []
        for kind, old in zip(kinds, self.branches, strict=True):
            joins = KINDS[kind].rows_of is _last and old
            after.append((*old[:-1], old[-1] + self.rejected) if joins else (*old, self.rejected))
        return dataclasses.replace(self, branches=tuple(after), rejected=())


def _without(rows: Publication, others: Publication) -> Publication:
    return tuple(row for row in rows if row not in others)


# -- what a publisher makes of publications ----------------------------------------------------------------------------
def _all(publications: Publications) -> Counter[Any]:
    return Counter(row for one in publications for row in one)


def _last(publications: Publications) -> Counter[Any]:
    return Counter(publications[-1] if publications else ())


def _parts(publications: Publications) -> Counter[Any]:
    held: Counter[Any] = Counter()
    for one in publications:
        parts = {row.part for row in one}
        held = Counter({row: count for row, count in held.items() if row.part not in parts}) + Counter(one)
    return held


def _merge(publications: Publications, leaves: Callable[[Row], bool]) -> dict[int, Row]:
    held: dict[int, Row] = {}
    for one in publications:
        for key, row in {row.id: row for row in sorted(one)}.items():
            if key in held and held[key].seq > row.seq:
                continue
            held.pop(key, None)
            if leaves(row):
                held[key] = row
    return held


def _merged(publications: Publications) -> Counter[Any]:
    return Counter(_merge(publications, lambda row: True).values())


def _merged_and_deleted(publications: Publications) -> Counter[Any]:
    return Counter(_merge(publications, lambda row: row.op != "D").values())


def _items(publications: Publications) -> Counter[Any]:
    rows = _merge(publications, lambda row: row.seq % 3 > 0)  # rows without items leave no trace
    return Counter((row.id, row.seq, number) for row in rows.values() for number in range(row.seq % 3))


def _versions(publications: Publications) -> Counter[Any]:
    by_id: dict[int, set[Row]] = defaultdict(set)
    for row in itertools.chain(*publications):
        by_id[row.id].add(row)
    found: Counter[Any] = Counter()
    for rows in map(sorted, by_id.values()):
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            found[row, row.seq, after.seq if after else None] += 1
    return found


def _nothing(publications: Publications) -> Counter[Any]:
    return Counter()


@dataclass(frozen=True)
class Kind:
    """A publisher."""

    publisher: dict[str, Any]
    rows_of: Callable[[Publications], Counter[Any]]
    is_cut: bool = False
    """Whether `--on-rewind replace` takes rows out of it."""


_KEY = {"key": ["id"]}
_SQL = {"type": "sql_table", "url_env": "STORM_WAREHOUSE"}
_DELETES = _KEY | {"mode": "merge", "delete_when": "op = 'D'"}
_HISTORY = _KEY | {"mode": "scd2", "valid_at": "at"}
_CHILD = _KEY | {"mode": "merge", "child_table": {"list": "items", "key_prefix": "of_"}}
_MERGE = _KEY | {"mode": "merge"}
_FILES, _DELTA, _ICEBERG = {"type": "merge"}, {"type": "delta"}, {"type": "iceberg"}
KINDS = {
    "append": Kind({"type": "append"}, _all, is_cut=True),
    "timestamped": Kind({"type": "timestamped"}, _all, is_cut=True),
    "newest": Kind({"type": "timestamped", "replace": True}, _last, is_cut=True),
    "replace": Kind({"type": "replace"}, _last, is_cut=True),
    "replace_partitions": Kind({"type": "replace_partitions"}, _parts, is_cut=True),
    "merge": Kind(_FILES | _MERGE, _merged),
    "merge deletes": Kind(_FILES | _DELETES, _merged_and_deleted),
    "history": Kind(_FILES | _HISTORY, _versions),
    "child": Kind(_FILES | _CHILD, _items),
    "noop": Kind({"type": "noop"}, _nothing),
    "console": Kind({"type": "append"}, _nothing),
    "delta": Kind(_DELTA, _all),
    "delta merge": Kind(_DELTA | _MERGE, _merged),
    "delta deletes": Kind(_DELTA | _DELETES, _merged_and_deleted),
    "delta history": Kind(_DELTA | _HISTORY, _versions),
    "delta child": Kind(_DELTA | _CHILD, _items),
    "iceberg": Kind(_ICEBERG, _all),
    "iceberg merge": Kind(_ICEBERG | _MERGE, _merged),
    "iceberg deletes": Kind(_ICEBERG | _DELETES, _merged_and_deleted),
    "iceberg history": Kind(_ICEBERG | _HISTORY, _versions),
    "iceberg child": Kind(_ICEBERG | _CHILD, _items),
    "sql": Kind(_SQL, _all),
    "sql replace": Kind(_SQL | {"mode": "replace"}, _last),
    "sql upsert": Kind(_SQL | {"mode": "upsert"} | _KEY, _merged),
}
