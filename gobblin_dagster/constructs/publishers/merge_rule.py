"""Merge rows into a table by key: the options, the columns that they need, and the newest row of each key.

What `mode: merge` means is the same for every table. How rows are replaced is a matter of each table's step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from gobblin_dagster.constructs.publishers.tables import (
    TableCommit,
    TablePublisher,
    batches_of,
    unified_schema,
)
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.constructs.types.columns import HIDDEN_PREFIX
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.errors import ConvertError, StepRefusedError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.spec.model import SpecModel

DELETED = f"{HIDDEN_PREFIX}deleted"
"""Column of `Changes.batches`: true for a row that deletes the one with its key."""
_ROW = f"{HIDDEN_PREFIX}row"
_BATCH_ROWS = 50_000


def is_older(new: str, old: str, names: Sequence[str]) -> str:
    """Return the SQL condition that a row is older than another one, by the first column in which they differ.

    Args:
        new: the row's alias.
        old: the other row's alias.
        names: columns, quoted as the database wants it; null is less than all values.
    """
    older = "false"
    for name in reversed(names):
        ours, theirs = f"{new}.{name}", f"{old}.{name}"
        less = f"coalesce({ours} < {theirs}, {ours} IS NULL AND {theirs} IS NOT NULL)"
        same = f"coalesce({ours} = {theirs}, {ours} IS NULL AND {theirs} IS NULL)"
        older = f"{less} OR ({same} AND ({older}))"
    return older


class MergeOptions(SpecModel):
    """Options of publishers that can merge."""

    mode: Literal["append", "merge"] = "append"
    """`append`: add rows. `merge`: a row replaces the one with its `key`, unless that one is newer by the job's
    `extract.delta_fields`; if they are equal, the last one is kept."""
    key: tuple[str, ...] = ()
    """Columns that identify a row, for `merge`. Default: `extract.primary_keys`."""
    delete_when: SqlExpression | None = None
    """For `merge`: a condition on the new rows, e.g. `is_deleted` or `op = 'D'`. A row for which it holds deletes the
    one with its key. Default: nothing is deleted."""

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        for name in ("key", "delete_when"):
            if getattr(self, name) and self.mode != "merge":
                raise ValueError(f"`{name}` belongs to `mode: merge`")
        return self


MergeOptionsT = TypeVar("MergeOptionsT", bound=MergeOptions)


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the rows of a publication are merged; stored in its step."""

    key: tuple[str, ...]
    newest_by: tuple[str, ...] = ()
    """Of the rows with one key, the one with the greatest values of these counts; null is less than all values."""
    delete_when: str | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MergeRule:
        """Parse the result of `dataclasses.asdict`, also after a round trip through JSON."""
        return cls(tuple(fields["key"]), tuple(fields["newest_by"]), fields["delete_when"])

    @property
    def compared(self) -> list[str]:
        """The columns that decide, each once."""
        return list(dict.fromkeys((*self.key, *self.newest_by)))

    def unfit(self, schema: pa.Schema, context: ConstructContext) -> str:
        """Return why rows of a schema cannot be merged; empty if they can."""
        if missing := [name for name in self.compared if name not in schema.names]:
            what = "`key`" if missing[0] in self.key else "`extract.delta_fields`"
            return f"there is no column {', '.join(missing)}, which {what} names; there are {', '.join(schema.names)}"
        for name in self.compared:
            kind = _plain(schema.field(name).type)
            if pa.types.is_nested(kind):
                return f"column {name!r} is {kind}, which cannot be compared; name columns with plain values"
            if name in self.key and (pa.types.is_floating(kind) or pa.types.is_null(kind)):
                return f"column {name!r} of the key is {kind}; a key takes integers, text, times, booleans or decimals"
        if self.delete_when is not None:
            try:
                self.masks(context).check(schema)
            except ConvertError as error:
                return f"`delete_when` does not fit: {error.problem}"
        return ""

    def masks(self, context: ConstructContext) -> SqlMasks:
        """Return what evaluates `delete_when`."""
        return SqlMasks([self.delete_when or "false"], "publisher's `delete_when`", context)


class MergingPublisher(TablePublisher[MergeOptionsT]):
    """Publish Parquet files to a table: as they are, or, with `mode: merge`, row by row from staging."""

    def __init__(self, options: MergeOptionsT, context: ConstructContext) -> None:
        super().__init__(options, context)
        self.merges = options.mode == "merge"
        self.publishes_files = not self.merges
        self.on_again = "upsert" if self.merges else "append"

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        levels = options.get("partition_by") or ()
        if self.merges and levels:
            if lost := [level for level in levels if not isinstance(level, str)]:
                return f"`mode: merge` reads rows, not folders: `partition_by` must name columns, got {lost[0]}"
            if not options.get("keep_partition_columns"):
                return "`mode: merge` reads rows, not folders; set the writer's `keep_partition_columns: true`"
        return super().unfit_writer(type_name, options)

    def unfit_extract(self, extract: Extract) -> str:
        """Return why the extraction cannot be merged: there is no key; empty if it can."""
        if self.merges and not self.rule(extract).key:
            return "`mode: merge` needs `key`, or `extract.primary_keys` for all publishers"
        return ""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why rows of a schema cannot be merged; empty if they can."""
        return self.rule(extract).unfit(schema, self._context) if self.merges else ""

    def key_columns(self, extract: Extract) -> Sequence[str]:
        """Return the columns that must not be null."""
        return self.rule(extract).key if self.merges else ()

    def rule(self, extract: Extract) -> MergeRule:
        """Return how rows of the extraction are merged."""
        options = self._options
        return MergeRule(options.key or extract.primary_keys, extract.delta_fields, options.delete_when)

    @staticmethod
    def partition_columns(view: PublishView) -> tuple[str, ...]:
        """Return the columns that name the folders of the published files, outermost first."""
        inside = view.files[0].path.removeprefix(view.folder + "/").split("/")[:-1]
        return tuple(segment.partition("=")[0] for segment in inside)


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

    def batches(self, schema: pa.Schema, wanted: npt.NDArray[np.bool_] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the newest rows, in the order of `compared`, with `DELETED` as last column.

        Args:
            schema: the columns to yield, in their types; null where the files lack one. `DELETED` is added.
            wanted: one value per row of `compared`; default: all.
        """
        chosen = self._chosen
        if wanted is not None:
            chosen = chosen.copy()
            chosen[np.flatnonzero(self._chosen)[~wanted]] = False
        at = 0
        for batch in batches_of(self._paths, _BATCH_ROWS):
            here = slice(at, at := at + batch.num_rows)
            if chosen[here].any():
                rows = conform(batch, schema).append_column(DELETED, pa.array(self._deleted[here]))
                yield rows.filter(pa.array(chosen[here]))


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
    schema = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    if why := rule.unfit(schema, context):
        raise StepRefusedError(step=step, problem=why)
    masks = rule.masks(context) if rule.delete_when is not None else None
    parts: list[pa.RecordBatch] = []
    try:
        for path in paths:
            rows = 0
            for batch in batches_of([path], _BATCH_ROWS):
                batch = conform(batch, schema)  # noqa: PLW2901  # the other one is never needed
                _require_keys(step, path, rows, batch.select(rule.key))
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


def bounds(rows: pa.Table, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return least and greatest value of the columns of integers and text, by which files can be left out."""
    found = {}
    for name in names:
        kind = rows.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            ends = pc.min_max(rows[name]).as_py()
            found[name] = (ends["min"], ends["max"])
    return found


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of `schema`, in its order and types; null where they lack one.

    Raises:
        ArrowInvalid: a value does not fit its type.
    """
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
    last = rows.group_by([*dict.fromkeys(rule.key)], use_threads=False).aggregate([(_ROW, "last")])
    found: npt.NDArray[np.int64] = last[f"{_ROW}_last"].to_numpy()
    return found
