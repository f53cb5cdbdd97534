"""Published files with one row per line: text, and JSON lines for counting and merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.published import MergesBytes, ending_of
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.storage import Storage

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_CHUNK_BYTES = 1 << 20


class PublishedLines(MergesBytes):
    """Lines, each ended by a line break.

    Compressed files are merged as they are, because streams may follow each other.
    """

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Count line breaks; compressed files are decompressed, according to their names."""
        return sum(_count(filesystem.open_input_stream(path)) for path in paths)

    def likeness(self, storage: Storage, file: PublishedFile) -> str | None:
        """Return the format: lines can follow any lines of the same format; the file is not read."""
        return ending_of(file.path)[0]

    def part(self, content: bytes, codec: str, *, is_first: bool) -> bytes:
        """Return the content unchanged.

        Raises FormatError if its last line would be joined with the next file's first.
        """
        return require_line_end(content) if not codec else content


def require_line_end(content: bytes) -> bytes:
    """Return the content; raises FormatError if its last line has no line break."""
    if not content.endswith(b"\n"):
        raise FormatError("the end of a line")
    return content


def _count(stream: pa.NativeFile) -> int:
    with stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""))
