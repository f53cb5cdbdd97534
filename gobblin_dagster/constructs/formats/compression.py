"""Streams of bz2 and xz, one behind the other in one file, as `cat` and parallel packers leave them."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable

import pyarrow as pa

_MOST_PACKED = 1 << 16
"""Packed bytes that are taken at a time."""


class PackedStreams:
    """Unpacks them, for `pa.PythonFile`.

    Python's own files of bz2 and xz end without a word before a stream whose first bytes are damaged; this one raises
    LZMAError or OSError there, and EOFError where the last stream is cut off.
    """

    def __init__(self, raw: pa.NativeFile, unpacker: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self.closed = False
        self._raw = raw
        self._unpacker = unpacker
        self._stream = unpacker()

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most so many; none at the end."""
        while True:
            packed = b""
            if self._stream.eof:
                packed = self._next_stream()
                if not packed:
                    return b""
                self._stream = self._unpacker()
            elif self._stream.needs_input:
                packed = self._raw.read(_MOST_PACKED)
                if not packed:
                    raise EOFError("it ends inside of a packed stream")
            if data := self._stream.decompress(packed, size):
                return data

    def _next_stream(self) -> bytes:
        """Return where the next stream begins, behind the zeros that may fill up the one before."""
        packed = self._stream.unused_data
        while not packed.strip(b"\0"):
            packed = self._raw.read(_MOST_PACKED)
            if not packed:
                return b""
        return packed.lstrip(b"\0")

    def close(self) -> None:
        """Leave the file to whoever opened it."""
        self.closed = True
