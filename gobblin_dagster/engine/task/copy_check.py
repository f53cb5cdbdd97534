"""Refuse rows with values that cannot be copied, if they go to more than one branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.records import copied, extension_columns
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import CopyNotSupportedError


def require_copies(chunk: Chunk, flags: Sequence[bool | pa.BooleanArray]) -> None:
    """Raise CopyNotSupportedError if two or more branches take a row with a value that cannot be copied.

    Branches share Arrow batches, which nobody can change; only Python values of extension types can be changed by one
    branch and read by another.

    Source: gobblin-api `CopyHelper`, `CopyNotSupportedException`. Differs: the error names column, type and row.
    """
    names = extension_columns(chunk.batch.schema)
    if not names:
        return
    takers = np.zeros(chunk.batch.num_rows, dtype=np.int64)
    for flag in flags:
        takers += flag if isinstance(flag, bool) else flag.fill_null(False).to_numpy(zero_copy_only=False)
    for name in names:
        values = chunk.batch.column(name)
        for position in np.flatnonzero(takers > 1).tolist():
            try:
                copied(values[position].as_py(), name, values.type)
            except CopyNotSupportedError as error:
                raise dataclasses.replace(error, row=chunk.rows[position].as_py()) from error
