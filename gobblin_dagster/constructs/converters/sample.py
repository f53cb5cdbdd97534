"""SampleConverter: keep a share of the rows, the same ones in each run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.digests import KeyDigests, mixed, seed_of, shares
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'sample'"


class SampleConverter:
    """Keep about `ratio` of the rows; which ones depends only on their file and row number, or on their key.

    Shape: all columns; a part of the rows, in their order.

    Source: gobblin-core-base `SamplingConverter`. Differs: not random; a second run, and a retry, keep the same rows.
    """

    class Options(SpecModel):
        """Options of `type: sample`."""

        ratio: float = Field(ge=0, le=1)
        """Share of the rows to keep, 0-1. (Gobblin's default is 0.01; here it is required.)"""
        by: tuple[str, ...] = ()
        """Key columns: rows with the same key are all kept or all dropped. Default: decide by file and row number."""
        seed: int = 0
        """A different seed keeps different rows."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._digests = KeyDigests(options.by, _NAME, context) if options.by else None

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        if self._digests is not None:
            self._digests.check(schema)
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._digests is not None:
            numbers, seed = self._digests.of(chunk.batch), seed_of(self._options.seed)
        else:
            numbers, seed = self._row_numbers(chunk), seed_of(self._options.seed, chunk.file)
        mask = pa.array(shares(mixed(numbers, seed)) < self._options.ratio)
        if mask.true_count:
            yield chunk.filter(mask)

    def _row_numbers(self, chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        if chunk.rows.null_count:
            raise convert_error(
                "expected rows with a place in their file, got rows made by a converter; name key columns in `by`",
                _NAME,
                self._context,
                chunk.file,
            )
        numbers: np.ndarray[tuple[int], np.dtype[np.uint64]] = chunk.rows.to_numpy(zero_copy_only=False).astype(
            np.uint64
        )
        return numbers
