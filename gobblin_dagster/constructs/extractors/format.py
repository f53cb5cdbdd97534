"""FileFormat: how one file of the `files` source becomes record batches; the extractor puts files one behind the other.

A format knows nothing of work units, watermarks or datasets: it opens a file, says its schema and yields batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read."""

    path: str
    """Absolute, or a URL that fsspec knows."""
    label: str
    """The path as people know it, relative to the project where it lies inside."""


class FormatError(Exception):
    """A file does not hold what its format promises; the extractor adds dataset and file and raises ExtractError."""

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.row = row
        """Number of the faulty row in the file, from 1, header not counted; None where it is no single row."""


class FileReader(Protocol):
    """Reads one file from its beginning to its end."""

    schema: pa.Schema
    """Schema of every batch."""
    bytes_read: int
    """Bytes of the file taken so far, compressed where it is compressed."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of the file; raises FormatError, OSError or ArrowInvalid."""

    def close(self) -> None:
        """Release the file."""


class FileFormat(Protocol):
    """Makes readers of one format; made with `cls(options, context)`, used in one thread."""

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        """Open a file; `schema` is that of the work unit's first file, which later ones must deliver, or None.

        Raises FormatError where the file lacks a column or is none of this format.
        """

    def count_rows(self, file: InputFile) -> int:
        """Count the file's rows without keeping them; raises as `open`."""
