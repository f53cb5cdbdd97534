"""Numbers computed from a row's key or place only: the same on every machine, in every run and version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.types.columns import require_columns
from gobblin_dagster.core.constructs import ConstructContext

Numbers: TypeAlias = npt.NDArray[np.uint64]


class KeyDigests:
    """Compute 64-bit digests of key columns: the lower half of the MD5 of their values as a JSON list of texts.

    Not for secrets: MD5 spreads keys evenly but hides nothing. A number and its text have the same digest; null has its
    own.
    """

    def __init__(self, columns: Sequence[str], construct: str, context: ConstructContext) -> None:
        self._columns = list(columns)
        self._construct = construct
        self._context = context
        texts = ", ".join(f"c{at}::VARCHAR" for at in range(len(columns)))
        self._select = SqlSelect(f"md5_number_lower(json_array({texts})::VARCHAR) AS digest", construct, context)

    def check(self, schema: pa.Schema) -> None:
        """Raise ConvertError if a column is missing."""
        require_columns(self._columns, schema, self._construct, self._context)

    def of(self, batch: pa.RecordBatch) -> Numbers:
        """Return one digest per row, in the order of the batch."""
        # Columns are named by position, so that the digest does not depend on their names.
        names = [f"c{at}" for at in range(len(self._columns))]
        keys = pa.RecordBatch.from_arrays([batch.column(name) for name in self._columns], names=names)
        digests: Numbers = self._select.run(keys).column(0).to_numpy(zero_copy_only=False)
        return digests


def seed_of(*parts: object) -> int:
    """Return a 64-bit number computed from texts and numbers.

    Example:
        >>> seed_of(0, "a.csv") == seed_of(0, "a.csv") != seed_of(1, "a.csv")
        True
    """
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "little")


def mixed(numbers: Numbers, seed: int) -> Numbers:
    """Return numbers spread evenly over 64 bits (the finalizer of SplitMix64)."""
    x = numbers ^ np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shares(numbers: Numbers) -> npt.NDArray[np.float64]:
    """Return 64-bit numbers scaled to the range [0, 1)."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
