"""A stream whose beginning can be read twice, so that remote files are opened once."""

from __future__ import annotations

import io
from typing import Any


class LookedAt(io.RawIOBase):
    """Reads a stream, and keeps what it read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._kept = bytearray()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, and keep them."""
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
