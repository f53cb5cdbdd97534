"""Writers over a memory storage, and a storage that refuses, for tests of writers."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.writers.avro import AvroWriter
from gobblin_dagster.constructs.writers.csv import CsvWriter
from gobblin_dagster.constructs.writers.files import FileWriter
from gobblin_dagster.constructs.writers.jsonl import JsonLinesWriter
from gobblin_dagster.constructs.writers.orc import OrcWriter
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.storage import FileDigest, Sink, Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.storage.memory import MemoryStorage
from tests.unit.constructs.samples import CONTEXT

WRITERS: tuple[type[Any], ...] = (ParquetWriter, CsvWriter, JsonLinesWriter, OrcWriter, AvroWriter)


def where(schema: pa.Schema, storage: Storage | None = None) -> WriterContext:
    return WriterContext(
        storage=MemoryStorage() if storage is None else storage,
        staging_dir="/lake/_gobblin/staging/attempt",
        target_dir="raw/flights/main/AA",
        file_stem="commit-wu-1",
        branch="main",
        dataset_urn="AA/EWR",
        schema=schema,
    )


def make(cls: type[Any], context: WriterContext, **options: Any) -> FileWriter:
    writer: FileWriter = cls(cls.Options.model_validate(options), CONTEXT, writer_context=context)
    return writer


def write_all(writer: FileWriter, rows: pa.Table, batch_rows: int = 1000) -> Sequence[StagedFile]:
    for batch in rows.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    return writer.finish()


class RefusingSink:
    """Passes `bytes_left` bytes on, then the disk is full."""

    def __init__(self, sink: Sink, bytes_left: int) -> None:
        self._sink = sink
        self._bytes_left = bytes_left

    def write(self, data: bytes | memoryview) -> int:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._sink.write(data)

    def finish(self) -> FileDigest:
        return self._sink.finish()

    def abort(self) -> None:
        self._sink.abort()


class _CountedSink:
    def __init__(self, sink: Sink, storage: CountingStorage) -> None:
        self._sink, self._storage = sink, storage

    def write(self, data: bytes | memoryview) -> int:
        return self._sink.write(data)

    def finish(self) -> FileDigest:
        self._storage.open_now -= 1
        return self._sink.finish()

    def abort(self) -> None:
        self._storage.open_now -= 1
        self._sink.abort()


class CountingStorage(MemoryStorage):
    """A storage that counts its open files."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = self.most_open = 0

    def open_new(self, path: str) -> Any:
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        return _CountedSink(super().open_new(path), self)


class RefusingStorage(MemoryStorage):
    """A storage whose files are limited to a few bytes, or that refuses to create or delete files."""

    def __init__(self, bytes_per_file: int | None = None, refuse_delete: bool = False) -> None:
        super().__init__()
        self._bytes_per_file = bytes_per_file
        self._refuse_delete = refuse_delete

    def open_new(self, path: str) -> Any:
        if self._bytes_per_file is None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return RefusingSink(super().open_new(path), self._bytes_per_file)

    def delete(self, path: str) -> None:
        if self._refuse_delete:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        super().delete(path)
