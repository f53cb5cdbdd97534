"""Turn changes of rows into changes of a child table: the items of a list, each with the key of its row and its place.

All items of a changed row are replaced: those that it no longer has are deleted. The result is a merge by key and
place, which tables do as every other merge.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_dagster.constructs.publishers.changes import (
    DELETED,
    Changes,
    bounds,
    conform,
    older_rows,
    places_of,
    tables_of,
)
from gobblin_dagster.constructs.publishers.history import Scan
from gobblin_dagster.constructs.publishers.merge_rule import ChildTable, MergeRule
from gobblin_dagster.core.constructs import Chunk


@contextmanager
def child_changes(
    changes: Changes, rule: MergeRule, schema: pa.Schema, scan: Scan
) -> Iterator[tuple[Changes, MergeRule]]:
    """Yield the changes of a child table, and the rule by which to merge them; the same ones for any other table.

    Keys and places of the items of all changed rows are in memory; the items are in a temporary local file until the
    end of the `with`.

    Args:
        changes: the new rows.
        rule: key, order and deletions of these rows.
        schema: the table's columns, with those of the new items.
        scan: reads the table, in the types of `schema`.
    """
    if rule.children is None:
        yield changes, rule
        return
    with tempfile.TemporaryDirectory() as folder:
        yield _Items(changes, rule, rule.children, schema).merge(scan, f"{folder}/items.parquet")


class _Items:
    """The items of a publication's rows."""

    def __init__(self, changes: Changes, rule: MergeRule, children: ChildTable, schema: pa.Schema) -> None:
        self._changes = changes
        self._rule = rule
        self._schema = schema
        self._drop = children.drop
        self._converter = children.converter(rule.compared)
        self._key = [children.key_prefix + name for name in rule.key]
        self._newest_by = [children.key_prefix + name for name in rule.newest_by]
        inherited = [children.key_prefix + name for name in rule.compared]
        self._rows = changes.compared.select(rule.compared).rename_columns(inherited)
        self._item_key = (*self._key, *self._converter.number_columns(changes.schema))
        self._key_types = pa.schema([schema.field(name) for name in self._item_key])

    def merge(self, scan: Scan, path: str) -> tuple[Changes, MergeRule]:
        """Write the new items to a file, and then the keys of items to delete; return the changes and their rule."""
        there, late = self._there(scan)
        deleted = self._changes.compared[DELETED].to_numpy()
        keys = []
        with pq.ParquetWriter(path, self._schema) as writer:
            for batch in self._new(~late & ~deleted):
                writer.write_batch(batch)
                keys.append(batch.select(self._key_types.names))
            new = pa.Table.from_batches(keys, self._key_types)
            gone = there.join(new, self._key_types.names, join_type="left anti", use_threads=False)
            for batch in gone.to_batches():
                writer.write_batch(conform(batch, self._schema))
        is_gone = np.arange(new.num_rows + gone.num_rows) >= new.num_rows
        compared = pa.concat_tables([new, gone]).append_column(DELETED, pa.array(is_gone))
        every = np.ones(len(is_gone), bool)
        return Changes(self._schema, compared, [path], every, is_gone), MergeRule(self._item_key)

    def _there(self, scan: Scan) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the keys of the table's items that are replaced or deleted, and which new rows are older than theirs.

        An item has the values of its row that tell which row is newer.
        """
        deletes_missing = self._rule.delete_missing
        names = list(dict.fromkeys((*self._item_key, *self._newest_by)))
        types = pa.schema([self._schema.field(name) for name in names])
        late = np.zeros(self._rows.num_rows, bool)
        found, owners = [self._key_types.empty_table()], [np.zeros(0, np.int64)]
        for rows in tables_of(scan(names, {} if deletes_missing else bounds(self._rows, self._key)), types):
            owner = places_of(rows.select(self._key), self._rows.select(self._key))
            known = owner >= 0
            newer = self._rows.take(pa.array(owner[known])), rows.filter(pa.array(known))
            late[owner[known][older_rows(*newer, self._newest_by)]] = True
            wanted = known | deletes_missing
            found.append(rows.filter(pa.array(wanted)).select(self._key_types.names))
            owners.append(owner[wanted])
        owner = np.concatenate(owners)
        stays = (owner >= 0) & late[owner] if len(late) else np.zeros(len(owner), bool)
        return pa.concat_tables(found).filter(pa.array(~stays)), late

    def _new(self, taken: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """Yield the items of rows, with all columns of the table: an item takes no value of the one before."""
        for batch in self._changes.batches(self._changes.schema, taken):
            chunk = Chunk(batch.drop_columns([DELETED]), "", pa.array(np.arange(batch.num_rows)))
            for items in self._converter.convert(chunk):
                dropped = [name for name in self._drop if name in items.batch.schema.names]
                yield conform(items.batch.drop_columns(dropped), self._schema)
