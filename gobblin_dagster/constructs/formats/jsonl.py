"""JsonLinesFormat: read one JSON object per line, in blocks of whole lines.

Declared fields have their declared types. The types of all others are set once, by the first block of a work unit's
first file; texts that look like times stay texts, so that the schema depends on the data as little as possible. Later
rows must fit.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pydantic import Field, model_validator

from gobblin_dagster.constructs.formats.base import FileReader, FormatError, InputFile, NoColumnsError
from gobblin_dagster.constructs.formats.jsonl_published import PublishedJsonLines
from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type, dates_as_texts, leaves
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.spec.job import SpecModel

_EXACT = float(1 << 53)
"""A float of 64 bits holds every integer up to this one."""
_TOO_LARGE = 3.4028235677973366e38
"""Smallest number that becomes infinite in 32 bits."""
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")
_SIGNATURE = b"\xef\xbb\xbf"
"""Signature that some programs write before UTF-8; not a part of the text."""
_MAX_LEVELS = 200
"""Most lists and objects inside each other: twice what Parquet holds, and far below the limit of Python's stack."""
_MAX_NAMED = 5
"""Most fields in a message."""
_MAX_BLOCKS_A_LINE = 16
"""Most blocks of one line: a file without line breaks, e.g. with one array, must not fill the memory."""


class JsonLinesOptions(SpecModel):
    """Options of the format `jsonl`."""

    columns: Mapping[str, TypeName] = Field(default_factory=dict)
    """Types by field name, e.g. `{id: int64, at: timestamp}`; a row without such a field has null. Other fields are
    read too, with the types of the first block of each work unit, which all rows must have."""
    include: tuple[str, ...] = ()
    """Fields to read, in this order; others are dropped. Default: all, the declared ones first."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if twice := repeated(self.include):
            raise ValueError(f"`include` names {', '.join(twice)} more than once")
        if self.include and (unread := [name for name in self.columns if name not in self.include]):
            raise ValueError(f"`columns` declares {', '.join(unread)}, which `include` leaves out")
        return self


class JsonLinesFormat:
    """Reads JSON lines.

    Source: gobblin-core `JsonStringToJsonIntermediateConverter` on `TextFileBasedSource`. Differs: typed columns.
    """

    Options = JsonLinesOptions
    Published = PublishedJsonLines

    def __init__(self, options: JsonLinesOptions, context: ConstructContext) -> None:
        self._declared = pa.schema([(name, arrow_type(kind)) for name, kind in options.columns.items()])
        self._include = options.include
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return JsonLinesReader(file, self._declared, self._include, self._block_bytes, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(file.open_text()) as text:
            return sum(len(lines) for lines in _blocks(text.stream, self._block_bytes))


class JsonLinesReader:
    """Reads one file of JSON lines."""

    def __init__(
        self,
        file: InputFile,
        declared: pa.Schema,
        include: tuple[str, ...],
        block_bytes: int,
        schema: pa.Schema | None,
    ) -> None:
        self._declared, self._include = declared, include
        self._unexpected = "ignore" if include else "error"
        self._text = file.open_text()
        try:
            self._blocks = _blocks(self._text.stream, block_bytes)
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
        while lines:
            table = self._parse(lines, self.schema, rows)
            self._require_exact(table, lines, rows)
            _refuse_overflow(table, lines, rows)
            if table.num_rows != len(lines):
                raise FormatError(
                    f"expected one object per line, got {table.num_rows} in the {len(lines)} lines from here.", rows + 1
                )
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
        lines = [_only(self._include, line, number) for number, line in enumerate(self._first, start=1)]
        _refuse_deep(lines)
        found = self._parse(lines, None, 0).schema
        if missing := [name for name in self._include if name not in found.names]:
            raise FormatError(
                f"its first rows lack the field(s) {', '.join(missing)}, named in `include`; declare their types in "
                "`columns`."
            )
        fields = [found.field(name) for name in self._include or found.names]
        return pa.schema([self._settled_field(field) for field in fields])

    def _settled_field(self, field: pa.Field) -> pa.Field:
        is_declared = field.name in self._declared.names
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
                    f"unexpected field(s) {', '.join(new)}, which the first rows lack: {shown}. Declare `columns` for "
                    "them, or name the fields to read in `include`.",
                    row,
                ) from error
            hint = "" if self._include else " Declare `columns` if rows differ."
            raise FormatError(f"{_plain(error)}: {shown}.{hint}", row) from error

    def _read(self, text: bytes, schema: pa.Schema | None) -> pa.Table:
        """Read a block with a schema; without one, with the declared columns, and infer the others."""
        known = self._declared if schema is None else schema
        unexpected = "infer" if schema is None else self._unexpected
        try:
            return _read_as(text, known, unexpected)
        except pa.ArrowInvalid:
            if not any(pa.types.is_date(kind) for kind in known.types):
                raise
            table = _read_as(text, pa.schema(dates_as_texts(known)), unexpected)
            return table if schema is None else table.cast(schema)

    def _require_exact(self, table: pa.Table, lines: list[bytes], rows_before: int) -> None:
        """Raise FormatError for integers that a float cannot hold.

        One large number would round a whole column of ids.
        """
        fields = [field for field in table.schema if field.name not in self._declared.names]
        parts = (part for field in fields for part in leaves(table[field.name]) if pa.types.is_floating(part.type))
        if not any((pc.max(pc.abs(part)).as_py() or 0) >= _EXACT for part in parts):
            return
        kind = pa.struct(fields)
        for number, line in enumerate(lines, start=rows_before + 1):
            if rounded := _rounded(_parsed(line, number), kind, ""):
                problem = f"{rounded}, which no column of numbers can hold exactly. Declare `columns`."
                raise FormatError(problem, number)

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
    return arrow_json.read_json(
        block,
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size() + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


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
            raise FormatError(f"expected one object per line, got {line[:80]!r}.", number)


def _refuse_overflow(table: pa.Table, lines: list[bytes], rows_before: int) -> None:
    """Raise FormatError for numbers too large for a declared float of 32 bits: Arrow makes them infinite."""
    for name in table.schema.names:
        values = table.column(name)
        if values.type != pa.float32() or not pc.any(pc.is_inf(values)).as_py():
            continue
        for number, line in enumerate(lines, start=rows_before + 1):
            value = _parsed(line, number).get(name)
            if isinstance(value, int | float) and _TOO_LARGE <= abs(value) < math.inf:
                raise FormatError(f"{name} is {value}, which is too large for float32.", number)


def _refuse_deep(lines: list[bytes]) -> None:
    """Raise FormatError for deeply nested values before Arrow infers their types, which takes minutes, or crashes."""
    for number, line in enumerate(lines, start=1):
        # Only long lines can have so many opening and closing brackets.
        if len(line) <= 2 * _MAX_LEVELS or line.count(b"[") + line.count(b"{") <= _MAX_LEVELS:
            continue
        levels = deepest = 0
        for bracket in _BRACKETS.findall(_TEXTS.sub(b"", line)):
            levels += 1 if bracket in b"[{" else -1
            deepest = max(deepest, levels)
        if deepest > _MAX_LEVELS:
            problem = f"values nested {deepest} levels deep, at most {_MAX_LEVELS} are read: {line[:80]!r}."
            raise FormatError(problem, number)


def _parsed(line: bytes, number: int) -> Any:
    """Return the object of a line; raises ValueError if it is no JSON."""
    try:
        return json.loads(line)
    except RecursionError:
        raise FormatError(f"values nested more than {_MAX_LEVELS} levels deep: {line[:80]!r}.", number) from None


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


def _rounded(value: Any, kind: pa.DataType, name: str) -> str:
    """Return the integer that a float would not hold, with its path; empty if there is none."""
    if pa.types.is_floating(kind):
        is_rounded = isinstance(value, int) and (abs(value) > sys.float_info.max or float(value) != value)
        return f"{name} is {value}" if is_rounded else ""
    parts: list[str] = []
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        parts = [_rounded(one, fields[key], f"{name}.{key}".lstrip(".")) for key, one in value.items() if key in fields]
    elif pa.types.is_list(kind) and isinstance(value, list):
        parts = [_rounded(one, kind.value_type, name) for one in value]
    return next(filter(None, parts), "")


def _blocks(stream: Any, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of lines that are not blank, each about one block long."""
    rest = b""
    skipped = _SIGNATURE
    while data := stream.read(block_bytes):
        data, skipped = data.removeprefix(skipped), b""
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_BLOCKS_A_LINE * block_bytes:
            raise FormatError(
                f"a line is longer than {len(rest)} bytes; expected one object per line. Raise `execution.block_bytes` "
                "if rows are that long."
            )
        whole = [line for line in lines if line.strip()]
        if whole:
            yield whole
    if rest.strip():
        yield [rest]


def _settled(kind: pa.DataType) -> pa.DataType:
    """Return the type to use, given the type of the first block."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind


def _plain(error: pa.ArrowInvalid) -> str:
    """Return pyarrow's message without its row number, which counts from the block's beginning."""
    return first_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0].rstrip(".")
