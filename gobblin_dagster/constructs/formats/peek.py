"""A stream of which somebody looks at the beginning before it is read: far files are opened once, not twice."""

from __future__ import annotations

import io
from typing import Any


class LookedAt(io.RawIOBase):
    """Reads a stream, and keeps what it read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._kept = bytearray()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on."""
        view = memoryview(buffer).cast("B")
        data = self._stream.read(len(view))
        view[: len(data)] = data
        self._kept += data
        return len(data)

    @property
    def beginning(self) -> bytes:
        """What was read so far."""
        return bytes(self._kept)

    def again(self) -> Again:
        """Return the whole stream, from its beginning."""
        return Again(bytes(self._kept), self._stream)


class Again:
    """What was kept, then the rest; for `pa.PythonFile`."""

    def __init__(self, kept: bytes, stream: Any) -> None:
        self.closed = False
        self._kept = kept
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        kept, self._kept = self._kept[:size], self._kept[size:]
        # Filled up: blocks end where they would have ended.
        rest: bytes = self._stream.read(size - len(kept)) if len(kept) < size else b""
        return kept + rest if kept else rest

    def close(self) -> None:
        """Leave the stream to whoever opened it."""
        self.closed = True
