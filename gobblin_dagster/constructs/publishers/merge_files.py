"""Merge changes into files of rows: find the files with rows of the changed keys, and the rows to write in their place.

Which files a table has, and how they are replaced, is a matter of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.publishers.changes import DELETED, Changes, Matches, conform, older_rows
from gobblin_dagster.constructs.publishers.merge_rule import MergeRule
from gobblin_dagster.constructs.types.columns import has_column
from gobblin_dagster.constructs.types.strict_cast import strict_cast

FileT = TypeVar("FileT")
Mask = npt.NDArray[np.bool_]
Read: TypeAlias = Callable[[list[str] | None], Iterator[pa.RecordBatch]]
"""Reads columns of one file (None: all), in the table's types; more columns do no harm."""


@dataclass(frozen=True, slots=True, eq=False)
class _File(Generic[FileT]):
    """A file of the table, and which of its rows have the key of a change."""

    file: FileT
    read: Read
    rows: int
    matched: npt.NDArray[np.int64]
    """Positions of rows, ascending."""
    change: npt.NDArray[np.int64]
    """The position of each one's change in `Changes.keys`."""

    def replaced(self, late: Mask) -> Mask:
        """Return which of the matched rows a change replaces or deletes: those that are not newer, and do not only end.

        Args:
            late: one value per row of `Changes.compared`.
        """
        is_row = self.change < len(late)
        is_row[is_row] = ~late[self.change[is_row]]
        return is_row

    def kept(self, late: Mask, *, only_matched: bool) -> Mask:
        """Return which rows stay; with `only_matched`, those without a change do not."""
        kept = np.full(self.rows, not only_matched)
        kept[self.matched] = ~self.replaced(late)
        return kept

    def part(self, first: int, rows: int) -> _File[FileT]:
        """Return `rows` rows of the file, from position `first` on."""
        begin, end = np.searchsorted(self.matched, [first, first + rows])
        return replace(self, rows=rows, matched=self.matched[begin:end] - first, change=self.change[begin:end])

    def ended(self, rows: pa.Table, ends: pa.Table, first: int, name: str) -> pa.Table:
        """Return the file's rows with the new ends of versions.

        Args:
            rows: all rows of the file.
            ends: `Changes.ends`.
            first: position of its first row in `Changes.keys`.
            name: column of the end.
        """
        at = np.flatnonzero(self.change >= first)
        at = at[np.argsort(self.matched[at])]
        mask = np.zeros(self.rows, bool)
        mask[self.matched[at]] = True
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        values = strict_cast(ends[name].take(pa.array(self.change[at] - first)), field.type).combine_chunks()
        return rows.set_column(place, field, pc.replace_with_mask(rows[name].combine_chunks(), pa.array(mask), values))


class _Held:
    """The values of replaced rows in columns that the changes do not have; their new rows keep them.

    Args:
        names: these columns.
        changes: number of changes.
    """

    def __init__(self, names: list[str], changes: int) -> None:
        self._names = names
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._places = np.full(changes, -1)
        """For each change, the row of all parts; -1 if it replaces none."""

    def add(self, old: pa.Table, rows: npt.NDArray[np.int64], change: npt.NDArray[np.int64]) -> None:
        """Keep the values of rows of `old`, each replaced by a change."""
        if self._names and len(rows):
            self._parts.append(old.select(self._names).take(rows))
            self._places[change] = self._rows + np.arange(len(rows))
            self._rows += len(rows)

    def filled(self, rows: pa.RecordBatch, change: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the new rows of changes, in this order, with the values of the rows that they replace."""
        if not self._parts:
            return rows
        places = self._places[change]
        values = pa.concat_tables(self._parts).take(pa.array(places, mask=places < 0))
        for name in self._names:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), values[name].combine_chunks())
        return rows


class FileMerge(Generic[FileT]):
    """A merge into the files of a table: first the columns that decide are read, then the files to replace.

    Only files with a row to replace or delete are written again, batch by batch.

    Args:
        step: name of the step, for messages.
        files: the table's files that may have rows with the keys of the changes; all files, if the rule deletes missing
            rows.
        known: the columns that the table had before.
        schema: the table's columns, with those of the changes.
        changes: what to merge.
        rule: has no history.
        end: column of the ends in `Changes.ends`.

    Raises:
        StepRefusedError: the table has two rows with one of the keys.
        ValueError: the table has no column of the key.
    """

    def __init__(
        self,
        step: str,
        files: Iterable[tuple[FileT, Read]],
        known: Collection[str],
        schema: pa.Schema,
        changes: Changes,
        rule: MergeRule,
        end: str = "",
    ) -> None:
        self._schema = schema
        self._changes = changes
        self._end = end
        self._late = np.zeros(changes.compared.num_rows, bool)
        found = list(self._matched(step, files, known, rule))
        self._touched = [
            (file, kept)
            for file in found
            if not (kept := file.kept(self._late, only_matched=rule.delete_missing)).all()
            or (file.change >= len(self._late)).any()
        ]

    @property
    def touched(self) -> list[FileT]:
        """The files whose rows are among `rows`, and that must leave the table."""
        return [file.file for file, _ in self._touched]

    @property
    def only_adds(self) -> bool:
        """True if each row of the changes is new, and nothing leaves the table."""
        is_new = self._changes.is_whole and not (self._late | self._changes.compared[DELETED].to_numpy()).any()
        return not self._touched and is_new

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the touched files that stay, and the new rows, with the columns of the table."""
        changes, schema = self._changes, self._schema
        wanted = ~self._late & ~changes.compared[DELETED].to_numpy()
        held = _Held([name for name in schema.names if not has_column(changes.schema, name)], len(wanted))
        for file, kept in self._touched:
            at = 0
            for batch in file.read(None):
                old = pa.Table.from_batches([conform(batch, schema)])
                part = file.part(at, old.num_rows)
                replaced = part.replaced(self._late)
                held.add(old, part.matched[replaced], part.change[replaced])
                if changes.ends is not None:
                    old = part.ended(old, changes.ends, len(wanted), self._end)
                yield from old.filter(pa.array(kept[at : (at := at + old.num_rows)])).to_batches()
        numbers, at = np.flatnonzero(wanted), 0
        for batch in changes.batches(schema, wanted):
            yield held.filled(batch.select(schema.names), numbers[at : (at := at + batch.num_rows)])

    def _matched(
        self, step: str, files: Iterable[tuple[FileT, Read]], known: Collection[str], rule: MergeRule
    ) -> Iterator[_File[FileT]]:
        """Yield the files that have rows; sets `_late` for changes that are older than a row of the table."""
        late, compared = self._late, self._changes.compared
        newest_by = [name for name in rule.newest_by if name in known]
        names = list(dict.fromkeys((*rule.key, *newest_by)))
        types = pa.schema([self._schema.field(name) for name in names])
        matches = Matches(step, self._changes.keys, rule.key)
        for file, read in files:
            if missing := [name for name in rule.key if name not in known]:
                lacks = f"the table has no column {', '.join(missing)} of the key"
                raise ValueError(f"{lacks}, so its rows cannot be compared")
            batches = [conform(batch, types) for batch in read(names)]
            if not batches:
                continue  # delete files delete all of its rows
            rows = pa.Table.from_batches(batches)
            matched, change = matches.of(rows)
            order = np.argsort(matched)
            matched, change = matched[order], change[order]
            is_row = change < len(late)
            theirs = change[is_row]
            late[theirs[older_rows(compared.take(theirs), rows.take(matched[is_row]), newest_by)]] = True
            yield _File(file, read, rows.num_rows, matched, change)
