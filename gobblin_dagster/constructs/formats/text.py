"""TextFormat: read plain text, one row per line, block by block."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.formats.base import FileReader, FormatError, InputFile
from gobblin_dagster.constructs.formats.encodings import EncodingName, without_signature
from gobblin_dagster.constructs.formats.lines_published import PublishedLines
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_MAX_BLOCKS_A_LINE = 16
"""Most blocks of one line: a file without line breaks must not fill the memory."""


class TextOptions(SpecModel):
    """Options of the format `text`."""

    column: str = Field(default="line", min_length=1)
    """Name of the column; it has the lines without their ends (`\\n` or `\\r\\n`)."""
    encoding: EncodingName = "utf-8"
    """Encoding of the text, by its Python name."""
    line_end: Literal["line_feed", "any"] = "line_feed"
    """`line_feed`: lines end with `\\n`, or with `\\r\\n`; `any`: with a single `\\r` too, as in Java."""
    empty_first_line: bool = True
    """Whether an empty line at the beginning of a file is a row; Gobblin's `TextFileBasedSource` leaves it out."""


class TextFormat:
    """Reads lines.

    Source: gobblin-core `TextFileBasedSource`, `TokenizedFileDownloader`. Differs: the line ends cannot be configured.
    """

    Options = TextOptions
    Published = PublishedLines

    def __init__(self, options: TextOptions, context: ConstructContext) -> None:
        self._options = options
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return TextReader(file, self._options, self._block_bytes)

    def count_rows(self, file: InputFile) -> int:
        with closing(TextReader(file, self._options, self._block_bytes)) as reader:
            return sum(batch.num_rows for batch in reader.batches())


class TextReader:
    """Reads the lines of one file."""

    def __init__(self, file: InputFile, options: TextOptions, block_bytes: int) -> None:
        self.schema = pa.schema([(options.column, pa.string())])
        self._block_bytes = block_bytes
        self._encoding = without_signature(options.encoding)
        self._ends_with_any = options.line_end == "any"
        self._has_empty_first = options.empty_first_line
        self._text = file.open_text()

    @property
    def bytes_read(self) -> int:
        return self._text.bytes_read

    def batches(self) -> Iterator[pa.RecordBatch]:
        rest, rows = "", 0
        for text in self._decoded():
            *lines, rest = (rest + text).split("\n")
            if len(rest) > _MAX_BLOCKS_A_LINE * self._block_bytes:
                raise FormatError(
                    f"a line is longer than {len(rest)} characters. Raise `execution.block_bytes` if lines are that "
                    "long.",
                    rows + 1,
                )
            if not rows and lines[:1] == [""] and not self._has_empty_first:
                del lines[0]
                rows = 1
            rows += len(lines)
            if lines:
                yield self._batch(lines)
        if rest:
            yield self._batch([rest])

    def close(self) -> None:
        self._text.close()

    def _decoded(self) -> Iterator[str]:
        plain = codecs.getincrementaldecoder(self._encoding)()
        decoder = io.IncrementalNewlineDecoder(plain, translate=self._ends_with_any)
        lines = 0
        while True:
            data = self._text.stream.read(self._block_bytes)
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                row = lines + error.object[: error.start].decode(self._encoding, "replace").count("\n") + 1
                raise FormatError(f"is no text in {error.encoding}: {error.reason}; set `encoding`.", row) from error
            lines += text.count("\n")
            yield text
            if not data:
                return

    def _batch(self, lines: list[str]) -> pa.RecordBatch:
        values = pa.array([line.removesuffix("\r") for line in lines], pa.string())
        return pa.RecordBatch.from_arrays([values], schema=self.schema)
