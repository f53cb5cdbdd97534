"""Find rows that a converter refuses, by halving the batch, so that all other rows go on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from gobblin_dagster.constructs.converters.blame import unsearched
from gobblin_dagster.core.constructs import Chunk, Converter
from gobblin_dagster.core.errors import ConvertError

MEMORY_SEARCH_S = 60.0
"""Seconds that parts of one batch may take which end for want of memory."""


class TolerantConverter:
    """Converts all rows that can be converted; gives every other row to `drop`, with the reason.

    A batch that raises ConvertError is tried again in halves, so a bad row costs about log2(rows) more calls on ever
    smaller parts. Only ConvertError is an error of rows; any other error fails the work unit. So does a batch whose
    parts take too much memory for longer than MEMORY_SEARCH_S.

    Source: `task.skip.error.records` of gobblin-api `ConfigurationKeys`. Differs: per converter; rows can be
    quarantined.
    """

    def __init__(self, converter: Converter, max_errors: int, drop: Callable[[Chunk, str], None]) -> None:
        self._converter = converter
        self._max_errors = max_errors
        self._drop = drop
        self._errors = 0
        self._lost_s = 0.0

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._converter.convert_schema(schema)

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        self._lost_s = 0.0
        return self._convert(chunk)

    def _convert(self, chunk: Chunk) -> Iterator[Chunk]:
        began = time.monotonic()
        try:
            with unsearched():
                # Convert the whole chunk before yielding any part of it: a part that was yielded cannot be taken back.
                converted = list(self._converter.convert(chunk))
        except ConvertError as error:
            rows = chunk.batch.num_rows if error.is_of_rows else 0
            if error.is_of_memory:
                self._lost_s += time.monotonic() - began
            if self._lost_s > MEMORY_SEARCH_S:
                problem = f"{error.problem}; its bad rows were looked for during {MEMORY_SEARCH_S:g} s"
                raise dataclasses.replace(error, problem=problem) from error
            if rows > 1:
                yield from self._convert(chunk.slice(0, rows // 2))
                yield from self._convert(chunk.slice(rows // 2))
            elif rows:
                self._give_up(chunk, error)
            else:
                raise
        else:
            yield from converted

    def _give_up(self, chunk: Chunk, error: ConvertError) -> None:
        self._errors += 1
        if self._errors > self._max_errors:
            problem = f"expected at most {self._max_errors} bad rows (max_errors), got one more: {error.problem}"
            raise dataclasses.replace(error, problem=problem) from error
        self._drop(chunk, error.problem)
