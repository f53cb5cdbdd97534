"""One staged file: connects Arrow's encoders with a storage Sink."""

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
"""Size of the buffer before Python is called: encoders write in small pieces."""


class _SinkFile:
    """A Sink with the methods of a file that `pa.PythonFile` needs."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.size_bytes = 0
        self.is_discarded = False

    def write(self, data: bytes) -> int:
        if self.is_discarded:
            return len(data)  # a discarded encoder still writes its footer
        written = self.sink.write(data)
        self.size_bytes += written
        return written

    def flush(self) -> None:
        """Do nothing: the Sink's `finish` flushes."""

    def close(self) -> None:
        """Do nothing: the Sink's `finish` or `abort` closes."""


class StagedOutput:
    """A new file in staging, written through `stream`.

    All methods but `discard` raise StorageError, with dataset and path, for an OSError of the storage.
    """

    def __init__(self, context: WriterContext, target: str, codec: Codec = "none") -> None:
        self.target = target
        # One flat folder: each level of a tree would need a sync when it is created and a call when it is deleted.
        self.path = f"{context.staging_dir}/{context.branch}-{target.rpartition('/')[2]}"
        self._dataset_urn = context.dataset_urn
        with self.guarded("create"):
            self._file = _SinkFile(context.storage.open_new(self.path))
        stream = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), BUFFER_BYTES)
        self.stream: pa.NativeFile = stream if codec == "none" else pa.CompressedOutputStream(stream, codec)

    @property
    def size_bytes(self) -> int:
        """Bytes that the storage has; up to `BUFFER_BYTES` more are still buffered."""
        return self._file.size_bytes

    def finish(self) -> FileDigest:
        """Flush, sync and close the file."""
        with self.guarded("write"):
            self.stream.close()
            return self._file.sink.finish()

    def discard(self) -> None:
        """Delete the file; later writes are ignored."""
        self._file.is_discarded = True
        self._file.sink.abort()
        self.stream.close()

    @contextmanager
    def guarded(self, operation: str) -> Iterator[None]:
        """Raise an OSError of the storage as StorageError."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                operation=operation,
                path=self.path,
                problem=error.strerror or str(error),
                dataset_urn=self._dataset_urn,
            ) from error
