"""The changes of a publication that merges: the newest row of each key, and how it compares with rows of the table."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.publishers.merge_rule import MergeRule, plain
from gobblin_dagster.constructs.publishers.tables import TableCommit, batches_of, unified_schema
from gobblin_dagster.constructs.types.columns import HIDDEN_PREFIX, has_column
from gobblin_dagster.constructs.types.strict_cast import cast_rows, strict_cast
from gobblin_dagster.constructs.writers.partitions import folder_values
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.errors import ConvertError, StepRefusedError
from gobblin_dagster.core.utils.text import shown

DELETED = f"{HIDDEN_PREFIX}deleted"
"""Column of `Changes.batches`: true for a row that deletes the one with its key."""
ENDED = f"{HIDDEN_PREFIX}ended"
"""Column of what a table merges: true for the key of a version that ends."""
Bounds: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Least and greatest value, by column."""
_ROW, _FOLDER, _UNIT_NAME = (f"{HIDDEN_PREFIX}{name}" for name in ("row", "folder", "unit"))
_UNIT = re.compile(r"(?:wu|replay)-\d+-[0-9a-f]+(?=-\d)")
"""The work unit, or the one of a replay, and its attempt, in the name of a file."""
_BATCH_ROWS = 50_000
_TABLE_ROWS, _TABLE_BYTES = 500_000, 128 << 20
_SHOWN_KEYS = 5
_LONGEST_BOUND = 1_000
"""Characters."""


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The newest row of each key in the files of a publication."""

    schema: pa.Schema
    """Of the rows, without `DELETED`; dictionaries are decoded."""
    compared: pa.Table
    """One row per key, in the order of the files: key and order columns, and `DELETED`."""
    _paths: Sequence[str]
    _chosen: npt.NDArray[np.bool_]
    _deleted: npt.NDArray[np.bool_]
    periods: pa.Table | None = None
    """For tables that keep history: beginning and end of each row of `compared`."""
    ends: pa.Table | None = None
    """For tables that keep history: key, beginning and new end of versions that are in the table."""

    @property
    def is_whole(self) -> bool:
        """True if each row of the files has a key of its own."""
        return bool(self._chosen.all())

    @property
    def keys(self) -> pa.Table:
        """The columns of the key, and others, of `compared` and then of `ends`, in the types of `ends`."""
        if self.ends is None:
            return self.compared
        ours = self.compared
        for field in self.ends.schema:
            if (at := ours.schema.get_field_index(field.name)) >= 0:
                # The table's type: wider, or another form of text.
                ours = ours.set_column(at, field, strict_cast(ours.column(at), field.type))
        return pa.concat_tables([ours, self.ends], promote_options="default")

    def with_history(
        self, schema: pa.Schema, taken: npt.NDArray[np.bool_], periods: pa.Table, ends: pa.Table
    ) -> Changes:
        """Return the rows of `compared` that are `taken`, with the periods in which they are valid.

        Args:
            schema: with the columns of `periods`.
            taken: one value per row of `compared`.
            periods: beginning and end of the taken rows.
            ends: see `Changes.ends`.
        """
        compared = self.compared.filter(pa.array(taken)).append_column(periods.schema.field(0), periods.column(0))
        return replace(
            self, schema=schema, compared=compared, _chosen=self._narrowed(taken), periods=periods, ends=ends
        )

    def _narrowed(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        chosen = self._chosen.copy()
        chosen[np.flatnonzero(self._chosen)[~wanted]] = False
        return chosen

    def batches(self, schema: pa.Schema, wanted: npt.NDArray[np.bool_] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the newest rows, in the order of `compared`, with `DELETED` as last column.

        Args:
            schema: the columns to yield, in their types; null where the files lack one. `DELETED` is added.
            wanted: one value per row of `compared`; default: all.
        """
        chosen = self._chosen if wanted is None else self._narrowed(wanted)
        place = np.cumsum(self._chosen) - 1
        at = 0
        for batch in batches_of(self._paths, _BATCH_ROWS):
            here = slice(at, at := at + batch.num_rows)
            if chosen[here].any():
                rows = conform(batch, schema).append_column(DELETED, pa.array(self._deleted[here]))
                rows = rows.filter(pa.array(chosen[here]))
                yield self._with_periods(rows, place[here][chosen[here]])

    def _with_periods(self, rows: pa.RecordBatch, place: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return rows with beginning and end; `place` is the position of each in `compared`."""
        if self.periods is not None:
            for name, values in zip(self.periods.schema.names, self.periods.columns, strict=True):
                at = rows.schema.get_field_index(name)
                if at >= 0:
                    field = rows.schema.field(at)
                    rows = rows.set_column(
                        at, field, strict_cast(values.take(pa.array(place)).combine_chunks(), field.type)
                    )
        return rows


def read_changes(
    step: str, paths: Sequence[str], schema: pa.Schema, rule: MergeRule, context: ConstructContext
) -> Changes:
    """Find the newest row of each key; keeps key and order columns of all rows in memory.

    Args:
        step: name of the step, for messages.
        paths: Parquet files.
        schema: one schema for all of them.
        rule: key, order and condition for deletions.
        context: job, dataset and branch, for messages.

    Raises:
        StepRefusedError: the columns do not fit the rule, a key is null, or `delete_when` fails on a row.
    """
    schema = pa.schema([field.with_type(plain(field.type)) for field in schema])
    if why := rule.unfit(schema, context):
        raise StepRefusedError(step=step, problem=why)
    masks = rule.masks(context) if rule.delete_when is not None else None
    parts: list[pa.RecordBatch] = []
    try:
        for path in paths:
            rows = 0
            for batch in batches_of([path], _BATCH_ROWS):
                batch = conform(batch, schema)  # noqa: PLW2901  # the other one is never needed
                _require_keys(step, path, rows, batch.select(rule.version_key))
                rows += batch.num_rows
                deleted = masks.masks(batch)[0] if masks is not None else pa.array(np.zeros(batch.num_rows, bool))
                parts.append(batch.select(rule.compared).append_column(DELETED, deleted))
    except ConvertError as error:
        raise StepRefusedError(step=step, problem=error.problem) from error
    every = pa.Table.from_batches(parts)
    chosen = np.zeros(every.num_rows, bool)
    chosen[_newest(every, rule)] = True
    deleted_rows = every[DELETED].to_numpy()
    return Changes(schema, every.filter(pa.array(chosen)), paths, chosen, deleted_rows)


def staged_changes(step: str, table: str, commit: TableCommit, rule: MergeRule) -> Changes:
    """Find the newest row of each key in a commit's staged files; raises StepRefusedError as `read_changes`."""
    context = ConstructContext(job=commit.job, base_dir="", dataset_urn=commit.dataset_urn, branch=commit.branch)
    try:
        return read_changes(step, commit.paths, unified_schema(table, commit.paths), rule, context)
    except FileNotFoundError as error:
        # Not undone automatically: a run that continues late may have read the file, and may be merging it now.
        problem = f"staged file {error.filename} is gone, and the table does not know the commit"
        raise StepRefusedError(step=step, problem=problem) from error


def require_order(step: str, view: PublishView, rule: MergeRule) -> None:
    """Raise StepRefusedError if the newest rows of a key lie in several partition folders and nothing orders them.

    A work unit writes the rows of each folder to files of their own, so their order is lost; `view` has the files.
    """
    folders = {file.path: posixpath.dirname(file.path) for file in view.files}
    levels = {name for file in view.files for name in folder_values(file.path.removeprefix(f"{view.folder}/"))}
    if len({*folders.values()}) < 2 or levels <= {*rule.key}:  # one folder
        return
    schema = unified_schema(step, [*view.staged.values()])
    if why := rule.unfit(schema, ConstructContext(job=view.job, base_dir="")):
        raise StepRefusedError(step=step, problem=why)
    schema = pa.schema([pa.field(name, plain(schema.field(name).type)) for name in rule.compared])
    places = {folder: number for number, folder in enumerate(folders.values())}
    parts = []
    for file in view.files:
        unit = _UNIT.search(posixpath.basename(file.path))
        for batch in batches_of([view.staged[file.path]], _BATCH_ROWS):
            rows = conform(batch, schema)
            rows = rows.append_column(_UNIT_NAME, pa.repeat(unit[0] if unit else file.path, rows.num_rows))
            parts.append(rows.append_column(_FOLDER, pa.repeat(places[folders[file.path]], rows.num_rows)))
    every = pa.Table.from_batches(parts)
    newest = every.append_column(_ROW, pa.array(np.arange(every.num_rows)))
    alike = newest.group_by([*rule.compared, _UNIT_NAME], use_threads=False)
    found = alike.aggregate([(_FOLDER, "count_distinct"), (_ROW, "max")])
    found = found.filter(pc.greater(found[f"{_FOLDER}_count_distinct"], 1))
    unclear: npt.NDArray[np.int64] = np.intersect1d(found[f"{_ROW}_max"].to_numpy(), _newest(every, rule))
    if len(unclear):
        keys = every.select(rule.version_key).take(pa.array(unclear[:_SHOWN_KEYS])).to_pylist()
        texts = [", ".join(f"{name}={shown(value)}" for name, value in key.items()) for key in keys]
        problem = (
            f"of {len(unclear):,} key(s) the newest rows lie in several folders of `partition_by` "
            f"({', '.join(sorted(levels))}), which loses their order: {'; '.join(texts)}. Set `extract.delta_fields` "
            "to columns that tell which row is newer, or leave out `partition_by`"
        )
        raise StepRefusedError(step=step, problem=problem)


def bounds(rows: pa.Table, names: Sequence[str]) -> Bounds:
    """Return least and greatest value of the columns of integers and text, by which files can be left out.

    A column with a long text has none: the bounds become part of a query.
    """
    found = {}
    for name in names:
        kind = rows.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            ends = tuple(pc.min_max(rows[name]).as_py().values())
            if None not in ends and not any(isinstance(end, str) and len(end) > _LONGEST_BOUND for end in ends):
                found[name] = ends
    return found


class Matches:
    """Finds the rows of a table that have the key of a change; a key that the table has twice is refused.

    Args:
        step: name of the step, for messages.
        changes: `Changes.compared`.
        key: names of the columns; each has one type in the table, and the changes are compared in it.
    """

    def __init__(self, step: str, changes: pa.Table, key: Sequence[str]) -> None:
        self._step = step
        self._changes = changes
        self._key = list(key)
        self._seen = np.zeros(changes.num_rows, np.int64)

    def of(self, rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions of rows, and for each the position of its change.

        Raises:
            StepRefusedError: the table has two rows with one of the keys, in `rows` or in all rows so far.
            ArrowInvalid: a key of the changes is no value of the table's type.
        """
        types = pa.schema([(f"k{at}", rows.schema.field(name).type) for at, name in enumerate(self._key)])
        sides = [
            cast_rows(side.select(self._key), types).append_column(name, pa.array(np.arange(side.num_rows)))
            for side, name in ((rows, "row"), (self._changes, "change"))
        ]
        pairs = sides[0].join(sides[1], types.names, join_type="inner", use_threads=False)
        row, change = (pairs[name].to_numpy() for name in ("row", "change"))
        self._seen += np.bincount(change, minlength=len(self._seen))
        if (self._seen > 1).any():
            raise self._doubled()
        return row, change

    def _doubled(self) -> StepRefusedError:
        doubled = np.flatnonzero(self._seen > 1)
        keys = self._changes.select(self._key).take(pa.array(doubled[:_SHOWN_KEYS])).to_pylist()
        texts = [", ".join(f"{name}={shown(value)}" for name, value in key.items()) for key in keys]
        problem = (
            f"the table has several rows with one key ({', '.join(self._key)}), so it is not known which one to "
            f"replace: {'; '.join(texts)} ({len(doubled):,} of the {len(self._seen):,} keys). Leave one row of each "
            "key in the table, or name more columns in `key`"
        )
        return StepRefusedError(step=self._step, problem=problem)


def places_of(rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.int64]:
    """Return the position in `keys` of the key of each row; -1 if it is not there.

    Args:
        rows: the columns of the key.
        keys: the same columns, each key once; they are compared in the types of `rows`.

    Raises:
        ArrowInvalid: a key is no value of the rows' type.
    """
    types = pa.schema([(f"k{at}", kind) for at, kind in enumerate(rows.schema.types)])
    left = rows.rename_columns(types.names).append_column("row", pa.array(np.arange(rows.num_rows)))
    right = cast_rows(keys, types).append_column("key", pa.array(np.arange(keys.num_rows)))
    joined = left.join(right, types.names, join_type="inner", use_threads=False)
    found = np.full(rows.num_rows, -1)
    found[joined["row"].to_numpy()] = joined["key"].to_numpy()
    return found


def writer_of(facts: Mapping[str, Any]) -> str:
    """Return who published a commit, by its properties; empty if this package did not."""
    job, urn, branch = (facts.get(f"gobblin.{name}", "") for name in ("job", "dataset-urn", "branch"))
    return f"job {job!r}, dataset {urn!r}, branch {branch!r}" if job else ""


def require_key(step: str, rule: MergeRule, there: Collection[str]) -> None:
    """Raise StepRefusedError if a table has no column of the key: all of its rows would stay beside the new ones."""
    prefix = rule.children.key_prefix if rule.children is not None else ""
    key = [prefix + name for name in rule.key]
    if missing := [name for name in key if name not in there]:
        problem = (
            f"the table has no column {', '.join(missing)}, by which rows are merged; it has {', '.join(there)}. If it "
            "was renamed there, give it back its name, or rename it in the rows too"
        )
        raise StepRefusedError(step=step, problem=problem)


def require_alone(step: str, commit: TableCommit, writers: Iterable[str]) -> None:
    """Raise StepRefusedError if others publish to the table: their rows would count as missing.

    Args:
        step: name of the step, for the message.
        commit: ours.
        writers: who published the table's commits, as `writer_of` names them; empty ones do not count.
    """
    ours = writer_of(commit.properties)
    for writer in writers:
        if writer and writer != ours:
            problem = (
                f"the table also has rows of {writer}, and `delete_missing` would delete them; give each dataset and "
                "branch a table of its own"
            )
            raise StepRefusedError(step=step, problem=problem)


def older_rows(new: pa.Table, old: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows of `new` are less than those of `old`, by the first column in which they differ.

    Null is less than all values. NaN is greater than all numbers, as in Spark, Delta and PostgreSQL.
    """
    older, equal = np.zeros(new.num_rows, bool), np.ones(new.num_rows, bool)
    for name in names:
        ours, theirs = strict_cast(new[name], old[name].type), old[name]
        less, same = (compare(ours, theirs).fill_null(False).to_numpy() for compare in (pc.less, pc.equal))
        if pa.types.is_floating(theirs.type):
            ours_nan, theirs_nan = (pc.is_nan(side).fill_null(False).to_numpy() for side in (ours, theirs))
            less = less | (theirs_nan & ~ours_nan & pc.is_valid(ours).to_numpy())
            same = same | (theirs_nan & ours_nan)
        has_none, had_none = (column.is_null().to_numpy() for column in (ours, theirs))
        older, equal = older | (equal & (less | (has_none & ~had_none))), equal & (same | (has_none & had_none))
    return older


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of `schema`, in its order and types; null where they lack one.

    Raises:
        ArrowInvalid: a value does not fit its type.
    """
    columns = [
        strict_cast(batch.column(field.name), field.type)
        if has_column(batch.schema, field.name)
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def tables_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows in tables of many batches, because each table is compared with all changes; columns as `conform`."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(conform(batch, schema))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _TABLE_ROWS or size >= _TABLE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _require_keys(step: str, path: str, before: int, keys: pa.RecordBatch) -> None:
    """Raise StepRefusedError if a key is null; the task refuses such rows, other writers of files may not."""
    for name in keys.schema.names:
        if keys[name].null_count:
            row = before + 1 + pc.index(pc.is_null(keys[name]), True).as_py()
            problem = f"column {name!r} of the key is null in row {row} of {path}"
            raise StepRefusedError(step=step, problem=problem)


def _newest(rows: pa.Table, rule: MergeRule) -> npt.NDArray[np.int64]:
    """Return the position of each key's newest row."""
    numbers = pa.array(np.arange(rows.num_rows))
    # Whether there is a value comes first: null is less than all values.
    by = [values for name in rule.newest_by for values in (pc.is_valid(rows[name]), rows[name])]
    order = pa.table([*by, numbers], names=[str(at) for at in range(len(by) + 1)])
    rows = rows.append_column(_ROW, numbers).take(
        pc.sort_indices(order, [(name, "ascending") for name in order.schema.names])
    )
    last = rows.group_by([*dict.fromkeys(rule.version_key)], use_threads=False).aggregate([(_ROW, "last")])
    found: npt.NDArray[np.int64] = last[f"{_ROW}_last"].to_numpy()
    return found
