"""JsonLinesFormat: one JSON object a line, read in blocks of whole lines.

The schema is declared, or settled once from the first block of a work unit's first file: texts that look like times stay
texts, so that it depends on the data as little as can be. Later rows must fit it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pydantic import BaseModel, ConfigDict, Field

from gobblin_dagster.constructs.arrow_types import TypeName, arrow_type, dates_as_texts, leaves
from gobblin_dagster.constructs.extractors.files import first_line
from gobblin_dagster.constructs.extractors.format import FileReader, FormatError, InputFile, NoColumnsError
from gobblin_dagster.core.constructs import ConstructContext

_EXACT = float(1 << 53)
"""Up to here a float holds every whole number."""
_TOO_LARGE = 3.4028235677973366e38
"""From here on a float of 32 bits is infinite."""
_SIGNATURE = b"\xef\xbb\xbf"
"""What some programs put before UTF-8; it is no part of the text."""
_MAX_BLOCKS_A_LINE = 16
"""Blocks that one line may span: what is no JSON lines, as one array without line ends, must not fill the memory."""


class JsonLinesOptions(BaseModel):
    """Options of the format `jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    columns: Mapping[str, TypeName] = Field(default_factory=dict)
    """Types by field name; then only these fields are read, and a row without one of them has no value there. Default: the
    fields and types of the first block of each work unit, which all rows must keep to."""


class JsonLinesFormat:
    """Reads JSON lines.

    Source: gobblin-core `JsonStringToJsonIntermediateConverter` on `TextFileBasedSource`. Differs: typed columns.
    """

    Options = JsonLinesOptions

    def __init__(self, options: JsonLinesOptions, context: ConstructContext) -> None:
        self._declared = pa.schema([(name, arrow_type(kind)) for name, kind in options.columns.items()])
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return JsonLinesReader(file, self._declared, self._block_bytes, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(file.open_text()) as text:
            return sum(len(lines) for lines in _blocks(text.stream, self._block_bytes))


class JsonLinesReader:
    """Reads one file of JSON lines."""

    def __init__(self, file: InputFile, declared: pa.Schema, block_bytes: int, schema: pa.Schema | None) -> None:
        self._unexpected = "ignore" if declared.names else "error"
        self._text = file.open_text()
        try:
            self._blocks = _blocks(self._text.stream, block_bytes)
            self._first = next(self._blocks, [])
            self.schema: pa.Schema = declared if declared.names else schema or self._settled_schema()
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
            if self._unexpected == "error":
                _require_exact(table, lines, rows)
            _refuse_overflow(table, lines, rows)
            if table.num_rows != len(lines):
                raise FormatError(
                    f"expected one object a line, got {table.num_rows} in the {len(lines)} lines from here.", rows + 1
                )
            yield from table.to_batches()
            rows += len(lines)
            lines = next(self._blocks, [])

    def close(self) -> None:
        self._text.close()

    def _settled_schema(self) -> pa.Schema:
        if not self._first:
            raise NoColumnsError("holds no line to take the columns from; declare `columns`, or remove the file.")
        found = self._parse(self._first, None, 0)
        return pa.schema([(field.name, _settled(field.type)) for field in found.schema])

    def _parse(self, lines: list[bytes], schema: pa.Schema | None, rows_before: int) -> pa.Table:
        text = b"\n".join(lines)
        _require_text(text, rows_before)
        if not text.startswith(b"{") or text.count(b"\n{") != len(lines) - 1:
            _require_objects(lines, rows_before)
        try:
            return self._read(text, schema)
        except pa.ArrowInvalid as error:
            number = self._first_misfit(lines, schema)
            hint = "" if self._unexpected == "ignore" else " Declare `columns` where rows differ."
            raise FormatError(f"{_plain(error)}: {lines[number][:80]!r}.{hint}", rows_before + number + 1) from error

    def _read(self, text: bytes, schema: pa.Schema | None) -> pa.Table:
        if schema is None or not any(pa.types.is_date(kind) for kind in schema.types):
            return self._read_as(text, schema)
        try:
            return self._read_as(text, schema)
        except pa.ArrowInvalid:
            return self._read_as(text, pa.schema(dates_as_texts(schema))).cast(schema)

    def _read_as(self, text: bytes, schema: pa.Schema | None) -> pa.Table:
        block = pa.BufferReader(text)
        return arrow_json.read_json(
            block,
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size() + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else self._unexpected
            ),
        )

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


def _require_text(text: bytes, rows_before: int) -> None:
    """Refuse what is no UTF-8: Arrow hands it on as it is, and no Parquet reader takes what would be published."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        row = rows_before + text.count(b"\n", 0, error.start) + 1
        raise FormatError(f"is no text in UTF-8: {error.reason}.", row) from error


def _require_objects(lines: list[bytes], rows_before: int) -> None:
    """Refuse what is no object: of `null` Arrow makes a row without values, and the process ends where it comes first."""
    for number, line in enumerate(lines, start=rows_before + 1):
        if not line.lstrip().startswith(b"{"):
            raise FormatError(f"expected one object a line, got {line[:80]!r}.", number)


def _require_exact(table: pa.Table, lines: list[bytes], rows_before: int) -> None:
    """Refuse whole numbers that only a float came near: a column of ids would be rounded by one that is too large."""
    parts = (part for column in table.columns for part in leaves(column) if pa.types.is_floating(part.type))
    if not any((pc.max(pc.abs(part)).as_py() or 0) >= _EXACT for part in parts):
        return
    kind = pa.struct(list(table.schema))
    for number, line in enumerate(lines, start=rows_before + 1):
        if rounded := _rounded(json.loads(line), kind, ""):
            raise FormatError(f"{rounded}, which no column of numbers holds as it stands. Declare `columns`.", number)


def _refuse_overflow(table: pa.Table, lines: list[bytes], rows_before: int) -> None:
    """Refuse numbers too large for a declared float of 32 bits: Arrow makes them infinite."""
    for name in table.schema.names:
        values = table.column(name)
        if values.type != pa.float32() or not pc.any(pc.is_inf(values)).as_py():
            continue
        for number, line in enumerate(lines, start=rows_before + 1):
            value = json.loads(line).get(name)
            if isinstance(value, int | float) and _TOO_LARGE <= abs(value) < math.inf:
                raise FormatError(f"{name} is {value}, which is too large for float32.", number)


def _rounded(value: Any, kind: pa.DataType, name: str) -> str:
    """Say which whole number a float would not hold; nothing where there is none."""
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
    """Yield lists of whole lines that are not blank, of about one block together."""
    rest = b""
    skipped = _SIGNATURE
    while data := stream.read(block_bytes):
        data, skipped = data.removeprefix(skipped), b""
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_BLOCKS_A_LINE * block_bytes:
            raise FormatError(
                f"a line is longer than {len(rest)} bytes; expected one object a line. Raise `execution.block_bytes` if "
                "rows are that long."
            )
        whole = [line for line in lines if line.strip()]
        if whole:
            yield whole
    if rest.strip():
        yield [rest]


def _settled(kind: pa.DataType) -> pa.DataType:
    """Return the type to keep to, given the type that one block suggests."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind


def _plain(error: pa.ArrowInvalid) -> str:
    """Return what pyarrow says, without its row number, which counts from the block's beginning."""
    return first_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0].rstrip(".")
