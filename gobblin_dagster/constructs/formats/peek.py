"""Streams whose beginning can be read twice, so that remote files are opened once, or left out."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class LookedAt(io.RawIOBase):
    """Reads a stream, and keeps what it read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._refuse_beyond: tuple[int, Exception] | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    @contextmanager
    def bounded(self, size: int, error: Exception) -> Iterator[None]:
        """Raise an error in place of reading on, once so many bytes have been read."""
        self._refuse_beyond = size, error
        try:
            yield
        finally:
            self._refuse_beyond = None

    @property
    def size(self) -> int:
        """How many bytes were read so far."""
        return len(self._kept)

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, and keep them."""
        if self._refuse_beyond is not None and self.size >= self._refuse_beyond[0]:
            raise self._refuse_beyond[1]
        view = memoryview(buffer).cast("B")
        data = self._stream.read(len(view))
        view[: len(data)] = data
        self._kept += data
        return len(data)

    @property
    def beginning(self) -> bytes:
        """Bytes read so far."""
        return bytes(self._kept)

    def again(self) -> Again:
        """Return the whole stream, from its beginning."""
        return Again(bytes(self._kept), self._stream)


class Again:
    """The kept bytes, then the rest of the stream; for `pa.PythonFile`."""

    def __init__(self, kept: bytes, stream: Any) -> None:
        self.closed = False
        self._kept = kept
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        kept, self._kept = self._kept[:size], self._kept[size:]
        # Fill up to `size`, so that blocks end where they would have ended.
        rest: bytes = self._stream.read(size - len(kept)) if len(kept) < size else b""
        return kept + rest if kept else rest

    def close(self) -> None:
        """Do not close the stream: its opener does."""
        self.closed = True


_MOST_COMMENTS = 1 << 20
"""Bytes of comments at most: a file whose lines all begin with the character must not be read into memory."""


def without_comments(stream: Any, comment: str, encoding: str) -> Again:
    r"""Return a stream that begins behind the lines at its beginning that are comments.

    Args:
        stream: the text's bytes.
        comment: first character of a comment.
        encoding: of the text; what it writes before the first line, such as a mark of UTF-16, stays.

    Example:
        >>> without_comments(io.BytesIO(b"# made by R\nid,n\n#1,2\n"), "#", "utf-8").read(100)
        b'id,n\n#1,2\n'
    """
    mark, kept = b"", b""
    if encoding.replace("_", "-") in {"utf-8", "utf-16", "utf-32"}:
        kept = stream.read(4)
        mark = next((one for one in _MARKS if kept.startswith(one)), b"")
        encoding = _MARKS.get(mark, encoding)
        kept = kept[len(mark) :]
    begin, end = comment.encode(encoding), "\n".encode(encoding)
    while len(kept) < _MOST_COMMENTS:
        if len(kept) < len(begin) or (kept.startswith(begin) and end not in kept):
            if not (more := stream.read(1 << 16)):
                break
            kept += more
        elif kept.startswith(begin):
            kept = kept[kept.index(end) + len(end) :]
        else:
            break
    return Again(mark + kept, stream)
