"""Files that several small work units of one dataset share: one writer per branch, one quarantine."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gobblin_dagster.core.constructs import DataWriter, WriterContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.engine.task.quarantine import Quarantine


class SharedFiles:
    """The writers of a group; its work units write one after the other."""

    def __init__(self, writer_context: Callable[[str, pa.Schema], WriterContext]) -> None:
        self.quarantine = Quarantine(writer_context)
        self._writer_context = writer_context
        self._writers: dict[str, tuple[pa.Schema, DataWriter]] = {}

    def writer(self, branch: str, schema: pa.Schema, make: Callable[[WriterContext], DataWriter]) -> DataWriter:
        """Return the branch's writer; raises UsageError if a work unit has other columns than those before it."""
        if branch not in self._writers:
            self._writers[branch] = (schema, make(self._writer_context(branch, schema)))
        known, writer = self._writers[branch]
        if not known.equals(schema, check_metadata=True):
            raise UsageError(problem=f"Work units of branch {branch!r} differ in their columns: they share no files.")
        return writer

    def finish(self) -> dict[str, tuple[StagedFile, ...]]:
        """Close and sync all files; return them by branch."""
        return {branch: tuple(writer.finish()) for branch, (_, writer) in self._writers.items()}

    def abort(self) -> None:
        """Delete what was staged."""
        for _, writer in self._writers.values():
            writer.abort()
        self.quarantine.abort()
