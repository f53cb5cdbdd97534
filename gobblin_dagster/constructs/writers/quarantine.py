"""QuarantineWriter: stage rows that a row-level policy rejected, with the reason and their origin.

The engine opens one per work unit, for all stages and branches; its files are committed with the dataset's data.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, ConstructSpec

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_row", pa.int64()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
        pa.field("arrow", pa.binary()),
    ]
)
"""Schema of the quarantine, the same for all datasets; one row per rejected row.

Columns: name of the policy, reason, file and row number of the origin (from 1; null if no single row is at fault), the
stage (`pre_fork` or a branch's name), and the row as JSON (`{"no_json": why}` if JSON cannot hold it).

Rows with the same policy, reason, stage and schema follow each other. The first of them has all of them again in
`arrow`, as an Arrow IPC stream with their exact types, so that they can be sent through the pipeline again."""
QUARANTINE_WRITER = ConstructSpec(type="parquet")
"""Writer of the quarantine, in the form of a job file."""
BY_CONVERTER = {b"gobblin.rejected_by": b"converter"}
"""Metadata in the schema of that stream if a converter rejected the rows; without it, a policy did."""
_GATHERED_BYTES = 4 << 20
"""Bytes of rejected rows that are collected before they are written."""


@dataclass(frozen=True, slots=True)
class _Rejected:
    batch: pa.RecordBatch
    source_file: str
    source_rows: pa.Array


class QuarantineWriter:
    """Stage rejected rows as Parquet with `QUARANTINE_SCHEMA`.

    All methods but `abort` raise the errors of `FileWriter`.

    Source: the error file of gobblin-core `RowLevelPolicyChecker` (ERR_FILE). Differs: rows can be read one by one,
    have their reason and origin, and are published together with the dataset or not at all.
    """

    def __init__(self, writer_context: WriterContext) -> None:
        context = ConstructContext(
            job="", base_dir="", dataset_urn=writer_context.dataset_urn, branch=QUARANTINE_BRANCH
        )
        where = dataclasses.replace(writer_context, branch=QUARANTINE_BRANCH, schema=QUARANTINE_SCHEMA)
        self._json = JsonRows("quarantine", context)
        self._gathered: dict[tuple[str, str, str], list[_Rejected]] = {}
        self._gathered_bytes = 0
        self._writer = ParquetWriter(ParquetWriter.Options(), context, writer_context=where)

    def write(
        self, batch: pa.RecordBatch, *, policy: str, reason: str, source_file: str, source_rows: pa.Array, stage: str
    ) -> None:
        """Add rows that one policy rejected.

        Args:
            batch: rejected rows, of any schema.
            policy: name of the policy.
            reason: what the rows violate, in one line.
            source_file: file of the rows.
            source_rows: int64, row numbers in that file, from 1; may have nulls.
            stage: `pre_fork` or the branch's name.
        """
        key = (policy, reason, stage)
        if key in self._gathered and not self._gathered[key][0].batch.schema.equals(batch.schema, check_metadata=True):
            self._flush(key)
        self._gathered.setdefault(key, []).append(_Rejected(batch, source_file, source_rows))
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes > _GATHERED_BYTES:
            self._flush_all()

    def finish(self) -> Sequence[StagedFile]:
        """Write, sync and close; returns no files if no rows were rejected."""
        self._flush_all()
        return self._writer.finish()

    def _flush_all(self) -> None:
        for key in list(self._gathered):
            self._flush(key)
        self._gathered_bytes = 0

    def _flush(self, key: tuple[str, str, str]) -> None:
        parts = self._gathered.pop(key)
        count = sum(part.batch.num_rows for part in parts)
        policy, reason, stage = (pa.repeat(pa.scalar(text, pa.string()), count) for text in key)
        files = [pa.repeat(pa.scalar(part.source_file, pa.string()), part.batch.num_rows) for part in parts]
        rows = pa.Table.from_batches([part.batch for part in parts]).combine_chunks().to_batches()[0]
        columns = [
            policy,
            reason,
            pa.concat_arrays(files),
            pa.concat_arrays([part.source_rows for part in parts]),
            stage,
            self._texts(rows),
            pa.array([_stream(rows), *[None] * (count - 1)], pa.binary()),
        ]
        self._writer.write(pa.RecordBatch.from_arrays(columns, schema=QUARANTINE_SCHEMA))

    def _texts(self, rows: pa.RecordBatch) -> pa.StringArray:
        """Return the rows as JSON; if JSON cannot hold them, the reason (`arrow` has the rows in any case)."""
        try:
            return self._json.texts(rows)
        except ConvertError as error:
            return pa.array([json.dumps({"no_json": error.problem})] * rows.num_rows, pa.string())

    def abort(self) -> None:
        """Delete staged files; never raises."""
        self._writer.abort()


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
