"""Merge rows into a table by key: the options, the columns that they need, and the newest row of each key.

What `mode: merge` means is the same for every table. How rows are replaced is a matter of each table's step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import Field, model_validator

from gobblin_dagster.constructs.converters.child_table import ChildTableConverter
from gobblin_dagster.constructs.publishers.tables import TablePublisher, unfit_type
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.constructs.types.arrow import value_type
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.spec.model import SpecModel

PUBLISHED_AT = pa.timestamp("us", "UTC")
"""Type of the times of publications."""


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


class ChildTableOptions(SpecModel):
    """Items of a nested list, as the rows of a table of their own."""

    list: str = Field(min_length=1)
    """The list: a column, or a path to a list in structs and lists, with dots: `lines`, `lines.parts`."""
    key_prefix: str = ""
    """Text before the names of the columns that items get from their row, e.g. `order_`; needed if items have fields of
    the same names."""
    drop: tuple[str, ...] = ()
    """Fields of the items that are left out, e.g. lists with tables of their own."""


class KeyOptions(SpecModel):
    """Options of all publishers that merge."""

    key: tuple[str, ...] = ()
    """Columns that identify a row. Default: `extract.primary_keys`."""
    delete_when: SqlExpression | None = None
    """A condition on the new rows, e.g. `is_deleted` or `op = 'D'`. A row for which it holds deletes the one with its
    key, or ends its newest version. Default: nothing is deleted."""
    delete_missing: bool = False
    """For full extracts: delete the rows, or end the versions, whose keys the new rows lack."""
    child_table: ChildTableOptions | None = None
    """For `merge`: the table holds the items of a list of the rows. All items of a row are replaced, deleted or kept
    together, by the row's `key`. Default: the table holds the rows."""
    mode: str = "merge"
    """How rows are merged; the modes are those of each publisher."""
    valid_at: str = ""
    """For `scd2`: column with the time since which a row is valid. Default: the time of the publication."""
    valid_from: str = Field(default="valid_from", min_length=1)
    """For `scd2`: column that is added for the beginning of a version, inclusive."""
    valid_to: str = Field(default="valid_to", min_length=1)
    """For `scd2`: column that is added for the end of a version, exclusive; null as long as it is valid."""

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        for names, modes in (
            (("key", "delete_when", "delete_missing"), ("merge", "scd2")),
            (("child_table",), ("merge",)),
            (("valid_at", "valid_from", "valid_to"), ("scd2",)),
        ):
            fields = type(self).model_fields
            given = [name for name in names if getattr(self, name) != fields[name].get_default()]
            if self.mode not in modes and given:
                raise ValueError(f"`{given[0]}` belongs to `mode: {' | '.join(modes)}`")
        if self.valid_from == self.valid_to:
            raise ValueError(f"`valid_from` and `valid_to` are both {self.valid_to!r}; name two columns")
        if self.delete_missing and self.valid_at:
            raise ValueError(
                "`delete_missing` ends versions when they are published, which `valid_at` replaces; leave out one"
            )
        return self


class MergeOptions(KeyOptions):
    """Options of publishers of tables that can merge; those of keys are for `merge` and `scd2`."""

    mode: Literal["append", "merge", "scd2"] = "append"
    """`append`: add rows. `merge`: a row replaces the one with its `key`, unless that one is newer by the job's
    `extract.delta_fields`; if they are equal, the last one is kept. `scd2`: the table keeps all versions of a row, each
    with the time from which and to which it was valid (a slowly changing dimension of type 2)."""


KeyOptionsT = TypeVar("KeyOptionsT", bound=KeyOptions)
MergeOptionsT = TypeVar("MergeOptionsT", bound=MergeOptions)


@dataclass(frozen=True, slots=True)
class History:
    """The columns by which a table keeps all versions of a row."""

    valid_at: str
    """Column of the rows with the time since which they are valid; empty: the time of the publication."""
    valid_from: str
    valid_to: str

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """Return the table's columns for rows of a schema."""
        kind = plain(schema.field(self.valid_at).type) if self.valid_at else PUBLISHED_AT
        return schema.append(pa.field(self.valid_from, kind)).append(pa.field(self.valid_to, kind))


@dataclass(frozen=True, slots=True)
class ChildTable:
    """Items of a list that are the rows of the table, see `ChildTableOptions`."""

    list: str
    key_prefix: str = ""
    drop: tuple[str, ...] = ()

    def converter(self, names: Sequence[str]) -> ChildTableConverter:
        """Return what makes rows of items; each gets the columns `names` of its row."""
        options = ChildTableConverter.Options(list=self.list, keys=tuple(names), key_prefix=self.key_prefix)
        return ChildTableConverter(options, ConstructContext(job="", base_dir=""))

    def columns(self, names: Sequence[str], schema: pa.Schema) -> pa.Schema:
        """Return the table's columns for rows of a schema; raises ConvertError."""
        converter = self.converter(names)
        made = converter.convert_schema(schema)
        needed = {*made.names[: len(names)], *converter.number_columns(schema)}
        if wrong := [name for name in self.drop if name not in made.names or name in needed]:
            there = ", ".join(name for name in made.names if name not in needed)
            problem = f"`child_table.drop` names {wrong[0]!r}; the items have {there}"
            raise ConvertError(dataset_urn="", construct="publisher", problem=problem)
        return pa.schema([field for field in made if field.name not in self.drop])


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the rows of a publication are merged; stored in its step."""

    key: tuple[str, ...]
    newest_by: tuple[str, ...] = ()
    """Of the rows with one key, the one with the greatest values of these counts; null is less than all values."""
    delete_when: str | None = None
    delete_missing: bool = False
    """Whether rows of the table whose keys the new rows lack are deleted, or their versions ended."""
    history: History | None = None
    """None: the table has one row per key."""
    comes_again: bool = False
    """Whether a key whose version ended begins another one with a row that is as old: it was only missing before."""
    children: ChildTable | None = None
    """None: the rows of the table are the rows of the source."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MergeRule:
        """Parse the result of `dataclasses.asdict`, also after a round trip through JSON."""
        history, children = fields.get("history"), fields.get("children")  # steps of earlier versions have none
        return cls(
            tuple(fields["key"]),
            tuple(fields["newest_by"]),
            fields["delete_when"],
            fields.get("delete_missing", False),
            None if history is None else History(**history),
            fields.get("comes_again", fields.get("delete_missing", False)),
            None if children is None else ChildTable(**{**children, "drop": tuple(children["drop"])}),
        )

    @property
    def version_key(self) -> tuple[str, ...]:
        """The columns by which two of the new rows are one: the key, and when the row is valid."""
        return (*self.key, self.history.valid_at) if self.history and self.history.valid_at else self.key

    @property
    def compared(self) -> list[str]:
        """The columns that decide, each once."""
        return list(dict.fromkeys((*self.version_key, *self.newest_by)))

    @property
    def keeps_rows(self) -> bool:
        """True if the rows of the table are the rows of the source, so that their files may become the table's."""
        return self.history is None and self.children is None

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """Return the table's columns for rows of a schema; raises ConvertError."""
        if self.children is not None:
            return self.children.columns(self.compared, schema)
        return schema if self.history is None else self.history.columns(schema)

    def unfit(self, schema: pa.Schema, context: ConstructContext) -> str:
        """Return why rows of a schema cannot be merged; empty if they can."""
        if missing := [name for name in self.compared if name not in schema.names]:
            what = "`extract.delta_fields`" if missing[0] in self.newest_by else "`valid_at`"
            what = "`key`" if missing[0] in self.key else what
            return f"there is no column {', '.join(missing)}, which {what} names; there are {', '.join(schema.names)}"
        for name in self.compared:
            kind = plain(schema.field(name).type)
            if pa.types.is_nested(kind):
                return f"column {name!r} is {kind}, which cannot be compared; name columns with plain values"
            if name in self.version_key and (pa.types.is_floating(kind) or pa.types.is_null(kind)):
                return f"column {name!r} of the key is {kind}; a key takes integers, text, times, booleans or decimals"
        if self.history and (both := {self.history.valid_from, self.history.valid_to} & {*schema.names}):
            return f"the rows have a column {min(both)!r} already; set `valid_from` and `valid_to` to other names"
        what = "delete_when"
        try:
            if self.delete_when is not None:
                self.masks(context).check(schema)
            what = "child_table"
            self.columns(schema)
        except ConvertError as error:
            return f"`{what}` does not fit: {error.problem}"
        return ""

    def masks(self, context: ConstructContext) -> SqlMasks:
        """Return what evaluates `delete_when`."""
        return SqlMasks([self.delete_when or "false"], "publisher's `delete_when`", context)


class JudgesMerges(Generic[KeyOptionsT]):
    """What publishers that merge need of a job and of its rows."""

    def __init__(self, options: KeyOptionsT, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self.needs_all_units = self.deletes_missing = options.delete_missing
        self.on_again = _again(options)
        self.keeps_order = bool(options.valid_at)

    @property
    def _what(self) -> str:
        """What merges, for messages."""
        return "`type: merge`"

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        """Return why the branch's writer does not fit this publisher; empty if it does."""
        if levels := options.get("partition_by") or ():
            if self._options.child_table is not None:
                return "`child_table` publishes items, which have no columns for folders; leave out `partition_by`"
            if lost := [level for level in levels if not isinstance(level, str)]:
                return f"{self._what} reads rows, not folders: `partition_by` must name columns, got {lost[0]}"
            if not options.get("keep_partition_columns"):
                return f"{self._what} reads rows, not folders; set the writer's `keep_partition_columns: true`"
        return unfit_type(type_name)

    def unfit_extract(self, extract: Extract) -> str:
        """Return why the extraction cannot be merged: there is no key, or rows may be missing; empty if it can."""
        if not self.rule(extract).key:
            return f"{self._what} needs `key`, or `extract.primary_keys` for all publishers"
        if self._options.delete_missing and not (extract.is_full or extract.type is ExtractType.SNAPSHOT_ONLY):
            return (
                "`delete_missing` needs full extracts: `extract: {type: snapshot_only}`, or all other rows are deleted"
            )
        return ""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why rows of a schema cannot be merged; empty if they can."""
        return self.rule(extract).unfit(schema, self._context)

    def key_columns(self, extract: Extract) -> Sequence[str]:
        """Return the columns that must not be null."""
        return self.rule(extract).version_key

    def rule_for(self, view: PublishView) -> MergeRule:
        """Return how rows of a publication are merged; nothing is missing if rows exist that it does not have."""
        rule = self.rule(view.extract, is_part=view.joins or view.rows_left_out > 0)
        # Rows in quarantine end no version, but the others of a full extract are in the source now.
        return replace(rule, comes_again=self.deletes_missing and not view.joins)

    def rule(self, extract: Extract, *, is_part: bool = False) -> MergeRule:
        """Return how rows of the extraction are merged; `is_part`: they are not all that it has."""
        options = self._options
        key = options.key or extract.primary_keys
        history = History(options.valid_at, options.valid_from, options.valid_to) if options.mode == "scd2" else None
        children = None if options.child_table is None else ChildTable(**options.child_table.model_dump())
        deletes = options.delete_missing and not is_part
        return MergeRule(key, extract.delta_fields, options.delete_when, deletes, history, children=children)


class MergingPublisher(JudgesMerges[MergeOptionsT], TablePublisher[MergeOptionsT]):
    """Publish Parquet files to a table: as they are, or, with `mode: merge`, row by row from staging."""

    def __init__(self, options: MergeOptionsT, context: ConstructContext) -> None:
        super().__init__(options, context)
        self.merges = options.mode != "append"
        self.publishes_files = not self.merges

    @property
    def _what(self) -> str:
        return f"`mode: {self._options.mode}`"

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        return super().unfit_writer(type_name, options) if self.merges else unfit_type(type_name)

    def unfit_extract(self, extract: Extract) -> str:
        return super().unfit_extract(extract) if self.merges else ""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        return super().unfit_columns(extract, schema) if self.merges else ""

    def key_columns(self, extract: Extract) -> Sequence[str]:
        return super().key_columns(extract) if self.merges else ()

    def targets_of(self, datasets: Collection[str]) -> Mapping[str, str]:
        """Return the one table of all datasets if none of them may share it: missing rows would be those of others."""
        return dict.fromkeys(datasets, self._shared_table()) if self._options.delete_missing else {}

    @abstractmethod
    def _shared_table(self) -> str:
        """Return the name of the table that all datasets share."""

    @staticmethod
    def partition_columns(view: PublishView) -> tuple[str, ...]:
        """Return the columns that name the folders of the published files, outermost first."""
        inside = view.files[0].path.removeprefix(view.folder + "/").split("/")[:-1]
        return tuple(segment.partition("=")[0] for segment in inside)


def _again(options: KeyOptions) -> str:
    """Return the trait `on_again`."""
    if options.mode == "append":
        return "append"
    return "history" if options.mode == "scd2" and not options.valid_at else "upsert"


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared: dictionaries are decoded, and instants are in UTC."""
    kind = value_type(kind)
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind
