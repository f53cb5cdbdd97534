"""Several bz2 or xz streams in one file, as `cat` and parallel compressors write them."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable

import pyarrow as pa

_MOST_PACKED = 1 << 16
"""Compressed bytes that are read at a time."""


class PackedStreams:
    """Decompress the streams, for `pa.PythonFile`.

    Python's own bz2 and xz files end silently before a stream with damaged first bytes; this one raises OSError there,
    and EOFError if the last stream is cut off.
    """

    def __init__(self, raw: pa.NativeFile, unpacker: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self.closed = False
        self._raw = raw
        self._unpacker = unpacker
        self._stream = unpacker()

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; empty at the end."""
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
                    raise EOFError("it ends inside a compressed stream")
            try:
                data = self._stream.decompress(packed, size)
            except lzma.LZMAError as error:
                raise OSError(str(error)) from error  # as bz2 does
            if data:
                return data

    def _next_stream(self) -> bytes:
        """Return the beginning of the next stream, after any padding zeros."""
        packed = self._stream.unused_data
        while not packed.strip(b"\0"):
            packed = self._raw.read(_MOST_PACKED)
            if not packed:
                return b""
        return packed.lstrip(b"\0")

    def close(self) -> None:
        """Do not close the file: its opener does."""
        self.closed = True
