"""One file being staged: the bridge between Arrow's encoders and a storage Sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa

from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.storage import FileDigest, Sink

Codec = Literal["none", "gzip", "zstd"]
"""Compression of a whole file."""
BUFFER_BYTES = 64 << 10
"""Encoders write in small pieces; each would cost a call into Python."""


class _SinkFile:
    """A Sink with the methods that `pa.PythonFile` expects of a file."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.size_bytes = 0
        self.is_discarded = False

    def write(self, data: bytes) -> int:
        if self.is_discarded:
            return len(data)  # an encoder that is thrown away still writes its footer
        written = self.sink.write(data)
        self.size_bytes += written
        return written

    def flush(self) -> None:
        """Leave it to the Sink's `finish`."""

    def close(self) -> None:
        """Leave it to the Sink's `finish` or `abort`."""


class StagedOutput:
    """A new file in staging, written through `stream`.

    Raises (all methods but `discard`): StorageError naming dataset and path, for any OSError below.
    """

    def __init__(self, context: WriterContext, target: str, codec: Codec = "none") -> None:
        self.target = target
        # One flat folder: each level of a tree would cost a sync when it is made and a call when it is deleted.
        self.path = f"{context.staging_dir}/{context.branch}-{target.rpartition('/')[2]}"
        self._dataset_urn = context.dataset_urn
        with self.guarded("create"):
            self._file = _SinkFile(context.storage.open_new(self.path))
        stream = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), BUFFER_BYTES)
        self.stream: pa.NativeFile = stream if codec == "none" else pa.CompressedOutputStream(stream, codec)

    @property
    def size_bytes(self) -> int:
        """Bytes that reached the storage; up to `BUFFER_BYTES` more are on their way."""
        return self._file.size_bytes

    def finish(self) -> FileDigest:
        """Flush, sync and close."""
        with self.guarded("write"):
            self.stream.close()
            return self._file.sink.finish()

    def discard(self) -> None:
        """Delete the file; what is written afterwards goes nowhere."""
        self._file.is_discarded = True
        self._file.sink.abort()
        self.stream.close()

    @contextmanager
    def guarded(self, operation: str) -> Iterator[None]:
        """Turn an OSError of the storage into a StorageError."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                operation=operation,
                path=self.path,
                problem=error.strerror or str(error),
                dataset_urn=self._dataset_urn,
            ) from error
