"""The schema contract of a branch: what to do if columns or types differ from those published before."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.converters.each_row import python_value
from gobblin_dagster.constructs.types.arrow import has_part
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.constructs.types.schema_text import any_type_from_text, schema_text, type_texts
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.constructs.types.wider import common_type, is_wider, widenings
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.traits import ALL_WIDENINGS, Widening
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SchemaContract

_REFUSED: dict[Widening, str] = {
    "int_to_float": "a float for whole numbers",
    "int_to_decimal": "a decimal for whole numbers",
    "decimal_scale": "a decimal with more digits behind the point",
    "date_to_timestamp": "a time for days",
    "new_fields": "a struct with more fields",
}


_REMEDY = "Convert a column back with `cast`, or give it another name with `rename`: it is a new column then"


class Contract:
    """Compare a branch's schema with the published one, and convert batches to the schema that the contract allows.

    Args:
        kind: the contract.
        previous: the schema published last, as text.
        schema: the schema of the batches.
        context: job, dataset and branch, for messages.
        widens: what the branch's writer and publisher take beyond wider types of one kind (`WriterTraits`,
            `PublisherTraits`).
        expected: what `previous` is, for messages.

    Raises:
        ConvertError: (when made) the contract is broken; (in `conform`) a value does not fit. The message has column,
            expected and got.

    Source: none; Gobblin publishes any schema. The modes are those of dlt's schema contracts, for files.
    """

    def __init__(
        self,
        kind: SchemaContract,
        previous: str,
        schema: pa.Schema,
        context: ConstructContext,
        *,
        widens: Collection[Widening] = ALL_WIDENINGS,
        expected: str = "the columns published before",
    ) -> None:
        self._name = f"schema contract '{kind}'"
        self._expected = expected
        self._context = context
        before, now = type_texts(previous), type_texts(schema_text(schema))
        self._gone = {name: text for name, text in before.items() if name not in now}
        self._new = [name for name in now if name not in before]
        self._changed = {name: text for name, text in before.items() if name in now and now[name] != text}
        self.notes: tuple[str, ...] = differences(previous, schema, context.branch)
        """Differences from the published schema, one line per column."""
        self.rejects = kind is SchemaContract.DISCARD_ROW
        """Whether rows that `unfit` names must be put aside before `conform`."""
        self._given = schema
        self._widens = frozenset(widens)
        self.schema: pa.Schema = self._settled(kind)
        """Schema to write."""

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the contract's schema."""
        if self.schema is self._given:
            return batch
        columns = [self._column(field, batch) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def unfit(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.BooleanArray, str]]:
        """Yield the rows with a value that the published schema does not take, and the reason; for `discard_row`."""
        for name in self._new:
            if (mask := pc.is_valid(batch[name])).true_count:
                yield mask, f"column {name!r} is new"
        for field in self.schema:
            if field.name in self._changed and not _fits(values := batch[field.name], field.type):
                mask = pa.array([not _fits(values.slice(at, 1), field.type) for at in range(len(values))])
                yield mask, f"column {field.name!r}: expected {field.type} as published before, got {values.type}"

    def _settled(self, kind: SchemaContract) -> pa.Schema:
        if kind in {SchemaContract.DISCARD, SchemaContract.DISCARD_ROW}:
            return pa.schema(
                [self._as_published(f) for f in self._given if f.name not in self._new] + self._filled_in()
            )
        broken = self.notes if kind is SchemaContract.FREEZE else self._unreadable(kind)
        if broken:
            remedy = "" if kind is SchemaContract.FREEZE else f". {_REMEDY}"
            raise self._error(f"expected {self._expected}; got a difference: {'; '.join(broken)}{remedy}")
        if kind is SchemaContract.EVOLVE:
            return pa.schema([self._wider(field) for field in self._given] + self._filled_in())
        return self._given

    def _unreadable(self, kind: SchemaContract) -> list[str]:
        """Return the differences that readers of published rows cannot read.

        `evolve` repairs missing and narrower columns.
        """
        mends = kind is SchemaContract.EVOLVE
        problems = [] if mends else [f"{name!r} is gone" for name in self._gone]
        for name, text in self._changed.items():
            before, now = any_type_from_text(text), self._given.field(name).type
            wide = None if before is None else common_type(before, now) if mends else now
            if before is None or wide is None or not (wide == before or is_wider(wide, before)):
                problems.append(f"{name!r} was {text}, is {now}, which is no wider type")
            elif refused := widenings(wide, before) - self._widens:
                why = ", ".join(_REFUSED[one] for one in ALL_WIDENINGS if one in refused)
                problems.append(f"{name!r} was {text}, is {now}, but what is published cannot become {why}")
        return problems

    def _wider(self, field: pa.Field) -> pa.Field:
        return pa.field(field.name, common_type(self._before(field), field.type))

    def _as_published(self, field: pa.Field) -> pa.Field:
        return pa.field(field.name, self._before(field))

    def _before(self, field: pa.Field) -> pa.DataType:
        """Return the published type of a column; its own type if it is new or unchanged."""
        text = self._changed.get(field.name)
        return field.type if text is None else self._type(field.name, text)

    def _filled_in(self) -> list[pa.Field]:
        return [pa.field(name, self._type(name, text)) for name, text in self._gone.items()]

    def _type(self, name: str, text: str) -> pa.DataType:
        kind = any_type_from_text(text)
        if kind is None:
            raise self._error(f"column {name!r}: expected {text} as published before; this type cannot be restored")
        return kind

    def _column(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            return pa.nulls(batch.num_rows, field.type)
        values = batch.column(at)
        try:
            return strict_cast(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            got = shown(python_value(values[0])) if len(values) == 1 else values.type
            raise self._error(f"column {field.name!r}: expected {field.type} as published before, got {got}") from error

    def _error(self, problem: str) -> ConvertError:
        return convert_error(problem, self._name, self._context)


def _fits(values: pa.Array, kind: pa.DataType) -> bool:
    """Return whether a type holds the values; one that lacks fields of structs holds those with null there."""
    try:
        cast = strict_cast(values, kind)
        return not pa.types.is_nested(kind) or _is_same(strict_cast(cast, values.type), values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Return whether nested values are the same; for Arrow, no value with a NaN inside is."""
    if one.equals(other):
        return True
    return has_part(other.type, pa.types.is_floating) and repr(one.to_pylist()) == repr(other.to_pylist())


def differences(previous: str, schema: pa.Schema, branch: str | None) -> tuple[str, ...]:
    """Return the differences between a schema and the published one, one line per column."""
    before, now = type_texts(previous), type_texts(schema_text(schema))
    return (
        *(f"branch {branch!r}: column {name!r} ({kind}) is new" for name, kind in now.items() if name not in before),
        *(f"branch {branch!r}: column {name!r} ({kind}) is gone" for name, kind in before.items() if name not in now),
        *(
            f"branch {branch!r}: column {name!r} was {kind}, is {now[name]}"
            for name, kind in before.items()
            if name in now and now[name] != kind
        ),
    )
