"""QuarantineWriter: rows that a row-level policy rejected, with the reason and the place they came from.

The engine opens one per work unit, for all stages and branches; its files are committed with the dataset's data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import QUARANTINE_BRANCH

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_row", pa.int64()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)
"""One row per rejected row: which policy, why, whence (row from 1; null where no single row is to blame), the stage
(`pre_fork` or a branch's name) and the row itself as JSON. The same for every dataset, whatever its schema."""


class QuarantineWriter:
    """Stages rejected rows as Parquet of `QUARANTINE_SCHEMA`.

    Raises: as `FileWriter`.

    Source: the error file of gobblin-core `RowLevelPolicyChecker` (ERR_FILE). Differs: rows stay readable one by one,
    carry their reason and origin, and are published with the dataset or not at all.
    """

    def __init__(self, writer_context: WriterContext) -> None:
        context = ConstructContext(
            job="", base_dir="", dataset_urn=writer_context.dataset_urn, branch=QUARANTINE_BRANCH
        )
        where = dataclasses.replace(writer_context, branch=QUARANTINE_BRANCH, schema=QUARANTINE_SCHEMA)
        self._json = JsonRows("quarantine", context)
        self._writer = ParquetWriter(ParquetWriter.Options(), context, writer_context=where)

    def write(
        self, batch: pa.RecordBatch, *, policy: str, reason: str, source_file: str, source_rows: pa.Array, stage: str
    ) -> None:
        """Take rows that broke one policy.

        Args:
            batch: The rejected rows, of any schema.
            policy: Name of the policy that they broke.
            reason: What they violate, in one line.
            source_file: The file that they came from.
            source_rows: int64, their row numbers in that file, from 1; may hold nulls.
            stage: `pre_fork` or the branch's name.
        """
        count = batch.num_rows

        def repeated(text: str) -> pa.Array:
            return pa.repeat(pa.scalar(text, pa.string()), count)

        columns = [
            repeated(policy),
            repeated(reason),
            repeated(source_file),
            source_rows,
            repeated(stage),
            self._json.texts(batch),
        ]
        self._writer.write(pa.RecordBatch.from_arrays(columns, schema=QUARANTINE_SCHEMA))

    def finish(self) -> Sequence[StagedFile]:
        """Close and sync; no rejected rows means no files."""
        return self._writer.finish()

    def abort(self) -> None:
        """Delete what was staged; never raises."""
        self._writer.abort()
