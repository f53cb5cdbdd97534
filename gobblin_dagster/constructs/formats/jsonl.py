"""JsonLinesFormat: read one JSON object per line, in blocks of whole lines.

Declared fields have their declared types. The types of all others are set once, by the first block of a work unit's
first file; texts that look like times stay texts, so that the schema depends on the data as little as possible. Later
rows must fit.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pydantic import Field, model_validator

from gobblin_dagster.constructs.formats.base import (
    FileReader,
    FormatError,
    InputFile,
    NoColumnsError,
    columns_of,
    listed_names,
)
from gobblin_dagster.constructs.formats.json_blocks import Split, blocks
from gobblin_dagster.constructs.formats.json_sample import JsonSample, JsonWidening
from gobblin_dagster.constructs.formats.jsonl_published import PublishedJsonLines
from gobblin_dagster.constructs.types.arrow import dates_as_texts, has_part, holds_infinite, leaves
from gobblin_dagster.constructs.types.arrow_json import (
    first_unfit,
    json_problem,
    read_days,
    require_kept,
    spelled,
    too_large,
)
from gobblin_dagster.constructs.types.columns import has_column
from gobblin_dagster.constructs.types.json_shapes import JSON, OPEN, dump_exactly, load_exactly, shape_of_text
from gobblin_dagster.constructs.types.nesting import MAX_LEVELS
from gobblin_dagster.constructs.types.shapes import JsonShape, json_type
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.spec.job import SpecModel

_EXACT = float(1 << 53)
"""A float of 64 bits holds every integer up to this one."""
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")
_MAX_NAMED = 5
"""Most fields in a message."""


class JsonLinesOptions(SpecModel):
    """Options of the format `jsonl`."""

    columns: Mapping[str, JsonShape] = Field(default_factory=dict)
    """Types by field name, e.g. `{id: int64, at: timestamp, tags: [string], place: {city: string}}`: `[...]` is a list,
    `{...}` an object, and `json` any value, as text with its JSON. A row without such a field has null. Types of other
    fields are inferred."""
    dataset_columns: Mapping[str, Mapping[str, JsonShape]] = Field(default_factory=dict)
    """More `columns` for the datasets whose urn matches a glob; of several globs that match, later ones win."""
    infer: bool = True
    """Whether types of undeclared fields are inferred, for each dataset once, from a sample of its first files; the
    plan says which. false: they have the types of the first block of each work unit."""
    include: tuple[str, ...] = ()
    """Fields to read, in this order; others are dropped. Default: all, the declared ones first."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if twice := repeated(self.include):
            raise ValueError(f"`include` names {', '.join(twice)} more than once")
        declared = [*self.columns, *(name for columns in self.dataset_columns.values() for name in columns)]
        if self.include and (unread := [name for name in declared if name not in self.include]):
            raise ValueError(f"`columns` declares {', '.join(unread)}, which `include` leaves out")
        return self


class JsonLinesFormat:
    """Reads JSON lines.

    Source: gobblin-core `JsonStringToJsonIntermediateConverter` on `TextFileBasedSource`. Differs: typed columns.
    """

    Options = JsonLinesOptions
    Published = PublishedJsonLines
    fields_vary = True

    def __init__(self, options: JsonLinesOptions, context: ConstructContext) -> None:
        self._options, self._context = options, context
        declared = columns_of(context.dataset_urn, options.columns, options.dataset_columns)
        self._texts = {name for name, shape in declared.items() if shape == JSON}
        self._declared = pa.schema([(name, json_type(shape)) for name, shape in declared.items()])
        self._known: pa.Schema | None = None
        """All columns, if types were inferred."""
        self._open: frozenset[str] = frozenset()
        """Columns that have had no value yet; they are left out."""
        self._include = options.include
        self._block_bytes = context.block_bytes

    @property
    def infers(self) -> bool:
        return self._options.infer

    def sample(self, settled: Collection[str]) -> JsonSample:
        return JsonSample(self._split, self._block_bytes, settled, self._declared.names, self._include)

    def widening(self, known: Mapping[str, str], allowed: Collection[Widening]) -> JsonWidening:
        wanted = self._include or known
        may_grow = "new_fields" in allowed
        inferred = {
            name: text for name, text in known.items() if name in wanted and not has_column(self._declared, name)
        }
        return JsonWidening(self._split, self._block_bytes, inferred if may_grow else {})

    def with_types(self, types: Mapping[str, str]) -> JsonLinesFormat:
        typed = type(self)(self._options, self._context)
        typed._open = frozenset(
            name for name, text in types.items() if text == OPEN and not has_column(self._declared, name)
        )
        wanted = [name for name in self._include or (*self._declared.names, *types) if name not in typed._open]
        shapes = {name: shape_of_text(text) for name, text in types.items() if name in wanted}
        inferred = {name: shape for name, shape in shapes.items() if not has_column(self._declared, name)}
        typed._texts = self._texts | {name for name, shape in inferred.items() if shape == JSON}
        fields = [*self._declared, *(pa.field(name, json_type(shape)) for name, shape in inferred.items())]
        by_name = {field.name: field for field in fields}
        if all(name in by_name for name in wanted):
            typed._known = pa.schema([by_name[name] for name in dict.fromkeys(wanted)])
        return typed

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        known = schema or self._known
        return JsonLinesReader(
            file,
            self._declared,
            self._include,
            self._block_bytes,
            known,
            frozenset(self._texts),
            self._split,
            self._open,
        )

    def count_rows(self, file: InputFile) -> int:
        with closing(file.open_text()) as text:
            return sum(len(lines) for lines in self._split(text.stream, self._block_bytes))

    @property
    def _split(self) -> Split:
        return blocks


class JsonLinesReader:
    """Reads one file of JSON lines."""

    def __init__(
        self,
        file: InputFile,
        declared: pa.Schema,
        include: tuple[str, ...],
        block_bytes: int,
        schema: pa.Schema | None,
        texts: frozenset[str],
        split: Split,
        open_columns: Collection[str] = (),
    ) -> None:
        self._declared, self._include, self._texts = declared, include, texts
        self._open = [pa.field(name, pa.null()) for name in open_columns]
        self._unexpected = "ignore" if include else "error"
        self._text = file.open_text()
        try:
            self._blocks = split(self._text.stream, block_bytes)
            self._first = next(self._blocks, [])
            self.schema: pa.Schema = schema or self._settled_schema()
        except BaseException:
            self._text.close()
            raise

    @property
    def bytes_read(self) -> int:
        return self._text.bytes_read

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows, lines = 0, self._first
        names, schema = self.schema.names, pa.schema([*self.schema, *self._open])
        while lines:
            lines = self._with_texts(lines, rows)
            table = self._parse(lines, schema, rows).select(names)
            if table.num_rows != len(lines):
                raise FormatError(
                    f"expected one object per line, got {table.num_rows} in the {len(lines)} lines from here.", rows + 1
                )
            try:
                self._require_exact(table, lines, rows)
                _refuse_overflow(table, lines, rows)
            except json.JSONDecodeError as error:  # as many objects as lines, but not one in each
                raise FormatError("expected one object per line in the lines from here.", rows + 1) from error
            yield from table.to_batches()
            rows += len(lines)
            lines = next(self._blocks, [])

    def close(self) -> None:
        self._text.close()

    def _settled_schema(self) -> pa.Schema:
        declared = self._declared
        if self._include and len(declared) == len(self._include):
            return pa.schema([declared.field(name) for name in self._include])
        if not self._first:
            problem = "has no line to get the columns from; declare `columns`, or remove the file."
            raise NoColumnsError(problem, declared if declared.names and not self._include else None)
        lines = self._with_texts(self._first, 0)
        lines = [_only(self._include, line, number) for number, line in enumerate(lines, start=1)]
        _refuse_deep(lines)
        found = self._parse(lines, None, 0).schema
        if missing := [name for name in self._include if not has_column(found, name)]:
            raise FormatError(
                f"its first rows lack the field(s) {listed_names(missing)}, named in `include`; declare their types in "
                "`columns`."
            )
        fields = [found.field(name) for name in self._include or found.names]
        return pa.schema([self._settled_field(field) for field in fields])

    def _with_texts(self, lines: list[bytes], rows_before: int) -> list[bytes]:
        """Return lines in which the fields of the shape `json` are texts with their JSON."""
        if not self._texts:
            return lines
        numbered = enumerate(lines, start=rows_before + 1)
        return [_with_json_texts(line, self._texts, number) for number, line in numbered]

    def _settled_field(self, field: pa.Field) -> pa.Field:
        is_declared = has_column(self._declared, field.name)
        return self._declared.field(field.name) if is_declared else field.with_type(_settled(field.type))

    def _parse(self, lines: list[bytes], schema: pa.Schema | None, rows_before: int) -> pa.Table:
        text = b"\n".join(lines)
        _require_text(text, rows_before)
        if not text.startswith(b"{") or text.count(b"\n{") != len(lines) - 1:
            _require_objects(lines, rows_before)
        try:
            return self._read(text, schema)
        except pa.ArrowInvalid as error:
            number = self._first_misfit(lines, schema)
            row, shown = rows_before + number + 1, repr(lines[number][:80])
            if schema is not None and not self._include and (new := _new_fields(lines[number], schema)):
                raise FormatError(
                    f"unexpected field(s) {listed_names(new)}, which the first rows lack: {shown}. Declare `columns` "
                    "for them, or name the fields to read in `include`.",
                    row,
                ) from error
            hint = "" if self._include else " Declare `columns` if rows differ."
            problem = json_problem(error)
            field = "" if problem.startswith("field ") else self._misfit_field(lines[number], schema)
            raise FormatError(f"{field}{problem}: {shown}.{hint}", row) from error

    def _read(self, text: bytes, schema: pa.Schema | None) -> pa.Table:
        """Read a block with a schema; without one, with the declared columns, and infer the others."""
        known = self._declared if schema is None else schema
        unexpected = "infer" if schema is None else self._unexpected
        try:
            return _read_as(text, known, unexpected)
        except pa.ArrowInvalid:
            if not (days := [field.name for field in known if has_part(field.type, pa.types.is_date)]):
                raise
        if schema is None:
            with suppress(pa.ArrowInvalid):  # an object's days are numbers, those of another one texts
                return _read_as(text, pa.schema(dates_as_texts(known)), unexpected)
            return _read_as(b"\n".join(_without(days, line) for line in text.split(b"\n")), known, unexpected)
        lines = text.split(b"\n")

        def read(mask: pa.BooleanArray | None, kind: pa.StructType) -> pa.StructArray:
            wanted = lines if mask is None else list(itertools.compress(lines, mask.to_pylist()))
            table = _read_as(b"\n".join(wanted), pa.schema(list(kind)), unexpected)
            if table.num_rows != len(wanted):
                raise pa.ArrowInvalid("it is not one object")
            return table.to_struct_array().combine_chunks()

        return pa.Table.from_struct_array(read_days(read, pa.struct(list(schema)), lambda: lines))

    def _require_exact(self, table: pa.Table, lines: list[bytes], rows_before: int) -> None:
        """Raise FormatError for integers that a float cannot hold.

        One large number would round a whole column of ids.
        """
        fields = [field for field in table.schema if not has_column(self._declared, field.name)]
        parts = (part for field in fields for part in leaves(table[field.name]) if pa.types.is_floating(part.type))
        if not any((pc.max(pc.abs(part)).as_py() or 0) >= _EXACT for part in parts):
            return
        kind = pa.struct(fields)
        for number, line in enumerate(lines, start=rows_before + 1):
            if rounded := first_unfit(_parsed(line, number), kind, "", _is_rounded):
                problem = f"{rounded}, which no column of numbers can hold exactly. Declare `columns`."
                raise FormatError(problem, number)

    def _misfit_field(self, line: bytes, schema: pa.Schema | None) -> str:
        """Return `field 'id' (int64): ` for the first field of a line that does not fit its type; empty if unknown."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return ""
        for field in schema or ():
            if not isinstance(record, dict) or field.name not in record:
                continue
            try:
                self._read(json.dumps({field.name: record[field.name]}).encode(), pa.schema([field]))
            except pa.ArrowInvalid:
                return f"field {field.name!r} ({field.type}): "
        return ""

    def _first_misfit(self, lines: list[bytes], schema: pa.Schema | None) -> int:
        """Return the index of the first line that cannot be read together with those before it."""
        low, high = 0, len(lines)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._read(b"\n".join(lines[:middle]), schema)
            except pa.ArrowInvalid:
                high = middle
            else:
                low = middle
        return low


def _read_as(text: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    block = pa.BufferReader(text)
    table = arrow_json.read_json(
        block,
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size() + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )
    # What types are inferred from is read again with them.
    return table if unexpected == "infer" else require_kept(table, text)


def _require_text(text: bytes, rows_before: int) -> None:
    """Raise FormatError for text that is not UTF-8: Arrow accepts it, but readers of Parquet do not."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        row = rows_before + text.count(b"\n", 0, error.start) + 1
        raise FormatError(f"is no text in UTF-8: {error.reason}.", row) from error


def _require_objects(lines: list[bytes], rows_before: int) -> None:
    """Raise FormatError for a line without object.

    For `null`, Arrow makes an empty row, or crashes on the first line.
    """
    for number, line in enumerate(lines, start=rows_before + 1):
        if not line.lstrip().startswith(b"{"):
            hint = " If the file is a list, read it with `format: json`." if line[:1] == b"[" else ""
            raise FormatError(f"expected one object per line, got {line[:80]!r}.{hint}", number)


def _refuse_overflow(table: pa.Table, lines: list[bytes], rows_before: int) -> None:
    """Raise FormatError for numbers that are too large for their float: Arrow makes them infinite."""
    floats = (pa.float32(), pa.float64())
    names = [name for name in table.column_names if any(holds_infinite(table.column(name), kind) for kind in floats)]
    fields = pa.struct([table.schema.field(name) for name in names])
    for number, line in enumerate(lines if names else (), start=rows_before + 1):
        if large := too_large(line, fields):
            raise FormatError(f"{large}.", number)


def _refuse_deep(lines: list[bytes]) -> None:
    """Raise FormatError for deeply nested values before Arrow infers their types, which takes minutes, or crashes."""
    for number, line in enumerate(lines, start=1):
        # Only long lines can have so many opening and closing brackets.
        if len(line) <= 2 * MAX_LEVELS or line.count(b"[") + line.count(b"{") <= MAX_LEVELS:
            continue
        levels = deepest = 0
        for bracket in _BRACKETS.findall(_TEXTS.sub(b"", line)):
            levels += 1 if bracket in b"[{" else -1
            deepest = max(deepest, levels)
        if deepest > MAX_LEVELS:
            problem = f"values nested {deepest} levels deep, at most {MAX_LEVELS} are read: {line[:80]!r}."
            raise FormatError(problem, number)


def _parsed(line: bytes, number: int) -> Any:
    """Return the object of a line; raises ValueError if it is no JSON."""
    with _explained(line, number):
        return json.loads(spelled(line))


@contextmanager
def _explained(line: bytes, number: int) -> Iterator[None]:
    """Raise FormatError for JSON that Python cannot hold; not for text that is no JSON, which Arrow explains better."""
    try:
        yield
    except RecursionError:
        raise FormatError(f"values nested more than {MAX_LEVELS} levels deep: {line[:80]!r}.", number) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except UnicodeEncodeError as error:
        raise FormatError(f"half of a surrogate pair, which is no character: {line[:80]!r}.", number) from error
    except ValueError as error:
        raise FormatError(f"{str(error).partition('; use')[0]}: {line[:80]!r}.", number) from error


def _with_json_texts(line: bytes, names: Collection[str], number: int) -> bytes:
    """Return an object whose named fields are texts with their JSON; Arrow refuses a line that is no object."""
    try:
        with _explained(line, number):
            record = load_exactly(line)
            if not isinstance(record, dict):
                return line
            texts = {name: dump_exactly(value) for name, value in record.items() if name in names and value is not None}
            return dump_exactly({**record, **texts}, allow_nan=True).encode()
    except ValueError:
        return line


def _without(names: Collection[str], line: bytes) -> bytes:
    """Return an object without some of its fields; Arrow refuses a line that is no object."""
    try:
        record = load_exactly(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(record, dict):
        return line
    return dump_exactly({name: one for name, one in record.items() if name not in names}, allow_nan=True).encode()


def _only(include: tuple[str, ...], line: bytes, number: int) -> bytes:
    """Return an object with only the included fields; others need no type. Arrow refuses a line that is no object."""
    try:
        record = _parsed(line, number) if include else None
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    return json.dumps({name: record[name] for name in include if name in record}).encode()


def _new_fields(line: bytes, schema: pa.Schema) -> list[str]:
    """Return at most five fields of a line that a schema lacks, as dotted paths."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # Arrow's message reports lines that are no JSON or nested too deep
        return []
    return list(itertools.islice(_unknown(record, pa.struct(list(schema)), ""), _MAX_NAMED))


def _unknown(value: Any, kind: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        for key, one in value.items():
            place = f"{name}.{key}".lstrip(".")
            if key in fields:
                yield from _unknown(one, fields[key], place)
            else:
                yield place
    elif pa.types.is_list(kind) and isinstance(value, list):
        for one in value:
            yield from _unknown(one, kind.value_type, name)


def _is_rounded(value: Any, kind: pa.DataType) -> bool:
    is_whole = pa.types.is_floating(kind) and isinstance(value, int)
    return is_whole and (abs(value) > sys.float_info.max or float(value) != value)


def _settled(kind: pa.DataType) -> pa.DataType:
    """Return the type to use, given the type of the first block."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind
