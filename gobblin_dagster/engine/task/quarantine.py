"""Stage rejected rows: one quarantine for all pipelines and branches of a work unit, or of a group of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from gobblin_dagster.constructs.writers.quarantine import QuarantineWriter
from gobblin_dagster.core.constructs import Chunk, WriterContext
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import QUARANTINE_BRANCH


class Quarantine:
    """Stages rejected rows; makes no file if there are none. Branches write from their threads."""

    def __init__(self, writer_context: Callable[[str, pa.Schema], WriterContext]) -> None:
        self._writer_context = writer_context
        self._lock = threading.Lock()
        self._writer: QuarantineWriter | None = None

    def write(self, chunk: Chunk, policy: str, reason: str, stage: str) -> None:
        """Stage the rows that a policy or converter of a pipeline rejected."""
        with self._lock:
            if self._writer is None:
                self._writer = QuarantineWriter(self._writer_context(QUARANTINE_BRANCH, pa.schema([])))
            self._writer.write(
                chunk.batch,
                policy=policy,
                reason=hidden(reason),
                source_file=chunk.file,
                source_rows=chunk.rows,
                stage=stage,
            )

    def finish(self) -> tuple[StagedFile, ...]:
        """Close and sync the files, and return them."""
        return tuple(self._writer.finish()) if self._writer is not None else ()

    def abort(self) -> None:
        """Delete what was staged."""
        if self._writer is not None:
            self._writer.abort()
