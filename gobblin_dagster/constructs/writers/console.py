"""ConsoleWriter: print a few rows for people; stage and publish nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import SpecModel


class ConsoleWriter:
    """Print the first rows of each work unit to stderr as JSON (see `JsonRows`), with the number of all rows.

    It is the stderr of the process that runs the task: `gobblin run` stores it in `.gobblin/spark.log`. Mask values
    that no log should contain. The work unit counts as done: its rows are not read again for this branch.

    Raises:
        ConvertError: a type has no JSON form.

    Source: gobblin-core `ConsoleWriter`. Differs: bounded; stderr, because stdout is for `--output json`.
    """

    stages_files: ClassVar[bool] = False

    class Options(SpecModel):
        """Options of `type: console`."""

        max_rows: int = Field(default=20, ge=0, le=10_000)
        """Most rows printed of a work unit; the others are only counted."""
        max_chars: int = Field(default=1000, ge=10)
        """Most characters printed of a row."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        self._options = options
        self._json = JsonRows("writer 'console'", context)
        self._prefix = f"{writer_context.dataset_urn or context.job} [{writer_context.branch}]"
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        shown = batch.slice(0, max(self._options.max_rows - self._rows, 0))
        self._rows += batch.num_rows
        if shown.num_rows:
            limit = self._options.max_chars
            for text in self._json.texts(shown).to_pylist():
                end = "..." if len(text) > limit else ""
                sys.stderr.write(f"{self._prefix} {text[:limit]}{end}\n")

    def finish(self) -> Sequence[StagedFile]:
        more = self._rows - self._options.max_rows
        if more > 0:
            sys.stderr.write(f"{self._prefix} ... {more:,} more of {self._rows:,} rows\n")
        sys.stderr.flush()
        return ()

    def abort(self) -> None:
        """Do nothing: printed rows cannot be taken back."""
