"""JsonLinesWriter: write one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.constructs.writers.output import Codec
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.traits import ALL_WIDENINGS

_JOINED_BYTES = 1 << 20
"""Rows of so many bytes are made into text together."""


class JsonLinesWriter(FileWriter):
    """Write one JSON object per line, in UTF-8; for the form of values, see `JsonRows`.

    Source: gobblin-core `SimpleDataWriterBuilder` after `JsonToStringConverter`.
    """

    widens: ClassVar = ALL_WIDENINGS

    class Options(FileOptions):
        """Options of `type: jsonl`."""

        compression: Codec = "none"
        """Compression of the whole file: `none`, `gzip` or `zstd`; the file's name ends accordingly."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "jsonl", options.compression)
        self._json = JsonRows("writer 'jsonl'", context)

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _JsonEncoder(stream, self._json)


class _JsonEncoder:
    def __init__(self, stream: pa.NativeFile, json: JsonRows) -> None:
        self._stream = stream
        self._json = json

    def write(self, table: pa.Table) -> None:
        for batch in _joined(table.to_batches()):
            texts = self._json.texts(batch)
            lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
            self._stream.write(pc.binary_join(lines, "\n")[0].as_buffer())
            self._stream.write(b"\n")

    def close(self) -> None:
        """Write nothing: lines end with their own line break."""


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches that follow each other: each would be a query of its own, which takes over a millisecond."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if small and size > _JOINED_BYTES:
            yield from pa.Table.from_batches(small).combine_chunks().to_batches()
            small, size = [], batch.nbytes
        small.append(batch)
    if len(small) < 2:
        yield from small
    else:
        yield from pa.Table.from_batches(small).combine_chunks().to_batches()
