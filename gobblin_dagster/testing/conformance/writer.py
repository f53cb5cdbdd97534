"""Tests that every writer must pass."""

from __future__ import annotations

import errno
import hashlib
import posixpath
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.constructs import ConstructContext, DataWriter, WriterContext
from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.core.traits import WriterTraits, traits_of
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.base import to_override
from gobblin_dagster.testing.conformance.construct import ConstructConformance, inside_another
from gobblin_dagster.testing.faults import Fault, FaultPoints, counted_storage, fail_with

STAGING = "/lake/_gobblin/staging/commit"
TARGET = "raw/orders/main/a/b"


class WriterConformance(ConstructConformance):
    """Tests of a writer; `FileWriterConformance` adds those of a writer that stages files.

    Example:
        ::

            class TestLines(FileWriterConformance):
                spec = {"type": "my_parts:LinesWriter"}
                rows = pa.record_batch({"text": ["a", "b"]})

                def read(self, content: bytes) -> list[dict[str, Any]]:
                    return [{"text": line} for line in content.decode().splitlines()]
    """

    protocol = "gobblin_dagster.core.constructs.DataWriter"
    kind = ConstructKind.WRITER
    rows: pa.RecordBatch
    """Rows that it can write, at least two."""

    def writer(self, context: ConstructContext, storage: Storage, stem: str = "commit-wu-1") -> DataWriter:
        """Make a fresh writer, as each branch of a work unit gets one."""
        where = WriterContext(storage, STAGING, TARGET, stem, "main", context.dataset_urn, self.rows.schema)
        made: DataWriter = self.make(context, writer_context=where)
        return made

    def written(self, context: ConstructContext, storage: Storage, *batches: pa.RecordBatch) -> Sequence[StagedFile]:
        """Write batches and finish."""
        writer = self.writer(context, storage)
        for batch in batches:
            writer.write(batch)
        return writer.finish()

    def test_no_rows_make_no_files(self, context: ConstructContext) -> None:
        """`finish` without rows stages nothing, also after empty batches."""
        for batches in ((), (self.rows.slice(0, 0),)):
            storage = MemoryStorage()
            assert list(self.written(context, storage, *batches)) == []
            assert list(storage.walk_files("/")) == []

    def test_abort_leaves_nothing(self, context: ConstructContext) -> None:
        """`abort` deletes what was staged, may be repeated, and does nothing where nothing was written."""
        for batches in ((), (self.rows, self.rows)):
            storage = MemoryStorage()
            writer = self.writer(context, storage)
            for batch in batches:
                writer.write(batch)
            writer.abort()
            writer.abort()
            assert list(storage.walk_files("/")) == []

    def test_stages_files_says_whether_files_are_staged(self, context: ConstructContext) -> None:
        """The trait `stages_files` of the class says whether rows become files; an audit counts them by it."""
        is_staged = bool(self.written(context, MemoryStorage(), self.rows))
        assert traits_of(type(self.writer(context, MemoryStorage())), WriterTraits).stages_files is is_staged


class FileWriterConformance(WriterConformance):
    """Tests of a writer that stages files."""

    def read(self, content: bytes) -> list[dict[str, Any]]:
        """Return the rows of a file, by a reader that is not the writer's own; to be overridden."""
        to_override(self, "a method `read`", "the rows of a file")

    def test_staged_files_are_as_they_are_described(self, context: ConstructContext) -> None:
        """`finish` names every file that is there: size, SHA-256 and rows are those of the finished file."""
        storage = MemoryStorage()
        files = self.written(context, storage, self.rows, self.rows)
        assert sorted(file.path for file in files) == list(storage.walk_files("/"))
        for file in files:
            content = storage.read(file.path)
            assert (file.size_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
            assert file.branch == "main"
        assert sum(file.rows for file in files) == 2 * self.rows.num_rows

    def test_files_lie_where_the_context_says(self, context: ConstructContext) -> None:
        """Files are staged flat in `staging_dir`; each target begins with `target_dir`; its name holds `file_stem`."""
        for file in self.written(context, MemoryStorage(), self.rows):
            assert posixpath.dirname(file.path) == STAGING
            assert file.target.startswith(f"{TARGET}/")
            assert "commit-wu-1" in posixpath.basename(file.target)

    def test_rows_come_back_as_they_were_written(self, context: ConstructContext) -> None:
        """The files hold all rows, with their values."""
        storage = MemoryStorage()
        files = self.written(context, storage, self.rows, inside_another(self.rows))
        found = [row for file in files for row in self.read(storage.read(file.path))]
        assert sorted(map(repr, found)) == sorted(map(repr, self.rows.to_pylist() * 2))

    def test_attempts_do_not_meet(self, context: ConstructContext) -> None:
        """Two attempts on one work unit differ in `file_stem`: the files of one are not touched by the other."""
        storage = MemoryStorage()
        one, other = self.writer(context, storage, "commit-wu-1-0"), self.writer(context, storage, "commit-wu-1-1")
        for writer in (one, other):
            writer.write(self.rows)
        files = one.finish()
        other.abort()
        assert sorted(file.path for file in files) == list(storage.walk_files("/"))

    def test_full_disk_is_a_storage_error(self, context: ConstructContext) -> None:
        """A storage that refuses raises StorageError, from `write` or `finish`; `abort` then leaves nothing."""
        storage = MemoryStorage()
        points = FaultPoints(Fault(1, fail_with(errno.ENOSPC), "sink.write"))
        writer = self.writer(context, counted_storage(storage, points))
        with pytest.raises(StorageError):  # noqa: PT012  # which of the calls writes is the writer's affair
            writer.write(self.rows)
            writer.finish()
        writer.abort()
        assert points.is_struck
        assert list(storage.walk_files("/")) == []

    def test_abort_takes_finished_files_too(self, context: ConstructContext) -> None:
        """`abort` after `finish` deletes the finished files: another branch, or a policy, may fail the work unit."""
        storage = MemoryStorage()
        writer = self.writer(context, storage)
        writer.write(self.rows)
        writer.finish()
        writer.abort()
        assert list(storage.walk_files("/")) == []

    def test_abort_never_raises(self, context: ConstructContext) -> None:
        """`abort` does not raise where the storage refuses to delete: the failure before it must be seen."""
        for is_finished in (False, True):
            points = FaultPoints(Fault(1, fail_with(errno.EACCES), "storage.delete", calls=1000))
            writer = self.writer(context, counted_storage(MemoryStorage(), points))
            writer.write(self.rows)
            if is_finished:
                writer.finish()
            writer.abort()
