"""PublishedCsv: CSV of the writer `csv`, with the writer's present `header` and `delimiter`."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyarrow import csv as arrow_csv

from gobblin_dagster.constructs.formats.lines_published import require_line_end
from gobblin_dagster.constructs.formats.published import (
    DatasetFormat,
    MergesBytes,
    Types,
    as_decimal128,
    ending_of,
    in_64_bits,
    is_inferred,
)
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.storage import Storage

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

_BLOCK_BYTES = 16 << 20
"""Bytes that pyarrow reads at once; no row may be longer."""
_LINE_BYTES = 1 << 20
"""Bytes in which the names of the columns end."""
_TRIES = 1000
"""Sizes of blocks that are tried for files with line ends everywhere."""


class PublishedCsv(DatasetFormat, MergesBytes):
    """CSV: types come from the dataset's state; inferred, `007` would become 7 and a decimal a float."""

    spark_name = "csv"
    spark_has_float_texts = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._has_header = options.get("header", True) is not False
        self._keeps_levels = bool(options.get("keep_partition_columns"))
        self._delimiter = str(options.get("delimiter", ","))
        self._block_bytes = _BLOCK_BYTES

    # -- counting ------------------------------------------------------------------------------------------------------
    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Count rows without headers; compressed files are decompressed, according to their names."""
        return sum(self._count(filesystem.open_input_stream(path)) for path in paths)

    def _count(self, stream: pa.NativeFile) -> int:
        with stream:
            reader = arrow_csv.open_csv(
                stream,
                arrow_csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK_BYTES),
                self._parse_options(),
                # One column, as bytes, so that nothing is inferred.
                arrow_csv.ConvertOptions(column_types={"f0": pa.binary()}, include_columns=["f0"]),
            )
            return sum(int(batch.num_rows) for batch in reader) - self._has_header

    # -- merging -------------------------------------------------------------------------------------------------------
    def likeness(self, storage: Storage, file: PublishedFile) -> str | None:
        """Return the header, or the number of columns.

        Return None for compressed files and for files written with other options.
        """
        if ending_of(file.path)[1]:
            return None
        content = storage.read(file.path)
        try:
            found = arrow_csv.read_csv(
                pa.BufferReader(content),
                arrow_csv.ReadOptions(autogenerate_column_names=True, block_size=len(content) + 1),
                self._parse_options(),
            )
        except pa.ArrowInvalid:
            return None
        if found.num_rows != file.rows + self._has_header:
            return None
        if not self._has_header:
            return f"csv, {found.num_columns} columns"
        header = content.partition(b"\n")[0]
        # With a line break inside a column's name, only a CSV parser could find the end of the header.
        return None if header.count(b'"') % 2 else header.decode(errors="replace")

    def part(self, content: bytes, codec: str, *, is_first: bool) -> bytes:
        """Return the content, without its header unless it is the first.

        Raises FormatError if its last line has no end.
        """
        require_line_end(content)
        return content if is_first or not self._has_header else content.partition(b"\n")[2]

    # -- reading back --------------------------------------------------------------------------------------------------
    def column_names(self, types: Types, levels: Sequence[str]) -> list[str]:
        if self._has_header:
            return []
        return [name for name in types if self._keeps_levels or name not in levels]

    def fitted(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> Self:
        r"""Return the format with blocks that end within no `\r\n`, whose `\n` pyarrow (26.0.1) leaves out there.

        It does so in values too. Files that are packed are not looked into.
        """
        large = [one.path for one in filesystem.get_file_info(list(paths)) if one.size and one.size > _BLOCK_BYTES]
        plain = [path for path in large if not ending_of(path)[1]]
        sizes = range(_BLOCK_BYTES, _BLOCK_BYTES + _TRIES)
        fit = (size for size in sizes if not any(_parts_a_line_end(filesystem, path, size) for path in plain))
        found = copy(self)
        found._block_bytes = next(fit, _BLOCK_BYTES)
        return found

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        import pyarrow.dataset as ds  # noqa: PLC0415  # slow to load

        told = {name: _told(kind) for name, kind in types.items() if kind is not None and not is_inferred(kind)}
        return ds.CsvFileFormat(
            parse_options=self._parse_options(),
            read_options=arrow_csv.ReadOptions(column_names=list(names) or None, block_size=self._block_bytes),
            # Null is an empty field, empty text is in quotes; `NA` is a text.
            convert_options=arrow_csv.ConvertOptions(
                column_types=told, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )

    def written_otherwise(self, filesystem: pafs.FileSystem, paths: Sequence[str], names: Sequence[str]) -> str:
        """Return a file without a header if all should have one, or the reverse, or with another delimiter."""
        for path in paths:
            with filesystem.open_input_stream(path) as stream:
                line = stream.read(_LINE_BYTES).partition(b"\n")[0].decode(errors="replace")
            first = next(csv.reader([line], delimiter=self._delimiter), [])
            is_other = {*first}.isdisjoint(names) if self._has_header else first == [*names][: len(first)]
            if first and is_other:
                return path
        return ""

    def spark_options(self) -> dict[str, str]:
        # Spark replaces an empty field by `nullValue`, and reads that text as null: it must not occur as a text.
        quotes = {"escape": '"', "multiLine": "true", "mode": "FAILFAST", "nullValue": "\0null\0"}
        return {"header": "true" if self._has_header else "false", "sep": self._delimiter} | quotes

    def spark_types(self, types: Types) -> Types:
        return in_64_bits(types)

    def _parse_options(self) -> arrow_csv.ParseOptions:
        return arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)


def _told(kind: pa.DataType) -> pa.DataType:
    """Return the type as which pyarrow reads all values of a type from text; for some it cannot."""
    if pa.types.is_float16(kind):
        return pa.float32()
    return pa.string() if pa.types.is_decimal256(kind) else as_decimal128(kind)


def _parts_a_line_end(filesystem: pafs.FileSystem, path: str, size: int) -> bool:
    r"""Return whether a block of so many bytes ends between the `\r` and `\n` of a file."""
    with filesystem.open_input_file(path) as file:
        ends = range(size, file.size(), size)
        return any(file.read_at(2, end - 1) == b"\r\n" for end in ends)
