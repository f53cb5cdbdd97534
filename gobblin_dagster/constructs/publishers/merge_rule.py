"""Merge rows into a table by key: the options, the columns that they need, and the newest row of each key.

What `mode: merge` means is the same for every table. How rows are replaced is a matter of each table's step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import model_validator

from gobblin_dagster.constructs.publishers.tables import TablePublisher
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.spec.model import SpecModel


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
            kind = plain(schema.field(name).type)
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


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared: dictionaries are decoded, and instants are in UTC."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind
