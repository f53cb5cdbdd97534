"""What every commit must leave: ids by branch and folder. A plain model that knows no files, stores, steps or faults.

It believes what a commit says that it was (a run up to here, a replay, a rollback), and says what readers must find
then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState

Rows: TypeAlias = Counter[int]
Folders: TypeAlias = Mapping[str, Rows]
"""Rows by folder; the model's names of folders are its own."""
Content: TypeAlias = Mapping[str, Folders]
"""Folders by branch."""
Merge: TypeAlias = Callable[[Folders, Rows, str], Folders]
"""From what a branch holds and the rows of a commit, of this id, to what it holds then."""

TABLE = "table"
"""Stands among the branches for the database table of the second branch."""
PART = 8
"""Ids of one partition folder."""


# -- publishers --------------------------------------------------------------------------------------------------------
def _nothing(_held: Folders, _rows: Rows, _commit: str) -> Folders:
    return {}


def _append(held: Folders, rows: Rows, _commit: str) -> Folders:
    return {**held, "": held.get("", Counter()) + rows}


def _replace(_held: Folders, rows: Rows, _commit: str) -> Folders:
    return {"": rows}


def _upsert(held: Folders, rows: Rows, _commit: str) -> Folders:
    return {"": Counter(set(held.get("", ())) | set(rows))}


def _own_folder(held: Folders, rows: Rows, commit: str) -> Folders:
    return {**held, commit: rows}


def _only_folder(_held: Folders, rows: Rows, commit: str) -> Folders:
    return {commit: rows}


def _parts(rows: Rows) -> dict[str, Rows]:
    parts: dict[str, Rows] = {}
    for number, count in rows.items():
        parts.setdefault(str(number // PART), Counter())[number] = count
    return parts


def _replace_parts(held: Folders, rows: Rows, _commit: str) -> Folders:
    return {**held, **_parts(rows)}


def _append_parts(held: Folders, rows: Rows, _commit: str) -> Folders:
    return {**held, **{name: held.get(name, Counter()) + part for name, part in _parts(rows).items()}}


@dataclass(frozen=True, slots=True)
class Kind:
    """A publisher of the second branch: how a job declares it, and what it does in the model."""

    publish: Merge
    """What a run's rows do to what is there."""
    join: Merge
    """What replayed rows do: they belong to what is there, so nothing is replaced."""
    publisher: Mapping[str, object]
    partition_by: tuple[Mapping[str, str], ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether its rows are in a database table, and in no file."""
        return self.publisher["type"] == "sql_table"

    @property
    def is_whole(self) -> bool:
        """Whether part of a publication must never take the place of what is there."""
        return self.publish in (_replace, _only_folder, _replace_parts)

    @property
    def holder(self) -> str:
        """Where the rows of the second branch are."""
        return TABLE if self.is_table else "second"


def _sql(mode: str, **options: Any) -> dict[str, Any]:
    return {"type": "sql_table", "table": "sink_{dataset}", "mode": mode, **options}


KINDS: dict[str, Kind] = {
    "append": Kind(_append, _append, {"type": "append"}),
    "noop": Kind(_nothing, _nothing, {"type": "noop"}),
    "replace": Kind(_replace, _append, {"type": "replace"}),
    "replace_partitions": Kind(
        _replace_parts,
        _append_parts,
        {"type": "replace_partitions"},
        ({"sql": f"id - id % {PART}", "name": "part"},),
    ),
    "timestamped": Kind(_own_folder, _own_folder, {"type": "timestamped"}),
    "timestamped_replace": Kind(_only_folder, _append, {"type": "timestamped", "replace": True, "name": "commit"}),
    "table_append": Kind(_append, _append, _sql("append")),
    "table_upsert": Kind(_upsert, _upsert, _sql("upsert", key=["id"])),
    "table_replace": Kind(_replace, _append, _sql("replace")),
}


# -- one dataset -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Moment:
    """A dataset once a commit is done."""

    commit: str
    ids: frozenset[int]
    """Committed ones: those that count as read."""
    snapshot: int
    content: Content


@dataclass
class Dataset:
    """All that one dataset ever was, by version."""

    kind: Kind
    moments: list[Moment] = field(default_factory=lambda: [Moment("", frozenset(), 0, {})])

    @property
    def now(self) -> Moment:
        return self.moments[-1]

    def at(self, snapshot: int) -> Moment:
        """Return the dataset as the commit left it that made a snapshot."""
        return next(moment for moment in self.moments if moment.snapshot == snapshot)

    def learn(self, commit: CommitSequence, begin: int | None) -> None:
        """Take in the commit of the next version; `begin` is where its startpoint told it to begin."""
        ids, last = committed(commit.after), self.now
        assert commit.after.version == len(self.moments), "a version was left out"
        assert commit.after.snapshot - last.snapshot in (0, 1), "a number of a snapshot was left out"
        change = commit.report.change.action if commit.report.change is not None else ""
        if change.startswith("rollback"):
            back = self.at(commit.after.rollbacks[-1].to)
            assert ids == back.ids, "rows and watermark went back to different moments"
            content = back.content
        elif change.startswith("replay"):
            assert ids == last.ids, "a replay moved the watermark"
            content = self._after_replay(last.content, commit.id)
        else:
            assert begin is not None or ids >= last.ids, "a watermark went back, and nobody asked for it"
            assert not change or ids == last.ids, f"{change} moved the watermark"
            assert not self.kind.is_whole or ids == set(range(len(ids))), "a part took the place of the whole"
            read = ids - last.ids if begin is None else {number for number in ids if number >= begin}
            content = self._after_run(last.content, Counter(read), commit.id) if read else last.content
        self.moments.append(Moment(commit.id, ids, commit.after.snapshot, content))

    def _after_run(self, content: Content, read: Rows, commit: str) -> Content:
        """Return what is there after a run read some ids: every tenth is rejected."""
        good = Counter({number: count for number, count in read.items() if number % 10})
        second = self.kind.publish(content.get(self.kind.holder, {}), good, commit)
        return {
            **content,
            "all": _append(content.get("all", {}), good, commit),
            "quarantine": _append(content.get("quarantine", {}), read - good, commit),
            self.kind.holder: second,
        }

    def _after_replay(self, content: Content, commit: str) -> Content:
        back = content["quarantine"][""]
        return {
            **content,
            "all": _append(content["all"], back, commit),
            "quarantine": {},
            self.kind.holder: self.kind.join(content.get(self.kind.holder, {}), back, commit),
        }


def committed(state: DatasetState) -> frozenset[int]:
    """Return the ids in committed ranges."""
    ranges = state.committed.ranges.get("", ())
    return frozenset(number for low, high in ranges for number in range(int(str(low)), int(str(high))))


def seen(content: Content) -> dict[str, list[list[int]]]:
    """Return content as readers of files find it: sorted ids of each folder, empty ones left out."""
    found = {
        branch: sorted(sorted(rows.elements()) for rows in folders.values() if rows)
        for branch, folders in content.items()
        if branch != TABLE
    }
    return {branch: folders for branch, folders in found.items() if folders}
