"""OrcFormat: ORC files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import pyarrow as pa
from pyarrow import orc
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.extractors.files import first_line
from gobblin_dagster.constructs.extractors.format import FileReader, FormatError, InputFile, chosen_columns
from gobblin_dagster.core.constructs import ConstructContext


class OrcOptions(BaseModel):
    """Options of the format `orc`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    include: tuple[str, ...] = ()
    """Columns to read, in this order; default: all. The others are not even read from disk."""


class OrcFormat:
    """Reads ORC; a stripe at a time is held in memory.

    Source: none in Gobblin, which copies ORC files without reading them.
    """

    Options = OrcOptions
    has_schema: ClassVar[bool] = True

    def __init__(self, options: OrcOptions, context: ConstructContext) -> None:
        self._include = options.include
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return OrcReader(file, self._include, self._block_bytes, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(OrcReader(file, (), self._block_bytes, None)) as reader:
            return reader.rows


class OrcReader:
    """Reads one ORC file."""

    def __init__(self, file: InputFile, include: tuple[str, ...], block_bytes: int, schema: pa.Schema | None) -> None:
        self._raw = file.open_raw()
        try:
            self._size, self._rows_read = int(self._raw.size()), 0
            self._file = _opened(self._raw)
            self.schema: pa.Schema = chosen_columns(self._file.schema.remove_metadata(), include, schema)
        except BaseException:
            self._raw.close()
            raise
        self._block_bytes = block_bytes

    @property
    def rows(self) -> int:
        """Rows of the file, from its footer."""
        return int(self._file.nrows)

    @property
    def bytes_read(self) -> int:
        return self._size * self._rows_read // max(self.rows, 1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        for number in range(self._file.nstripes):
            stripe = self._file.read_stripe(number, columns=names).select(names).replace_schema_metadata(None)
            step = max(1, min(1 << 15, self._block_bytes * stripe.num_rows // max(stripe.nbytes, 1)))
            for start in range(0, stripe.num_rows, step):
                batch = stripe.slice(start, step)
                self._rows_read += batch.num_rows
                yield batch

    def close(self) -> None:
        self._raw.close()


def _opened(raw: pa.NativeFile) -> orc.ORCFile:
    try:
        return orc.ORCFile(raw)
    except (pa.ArrowException, OSError) as error:
        problem = f"is no complete ORC file ({first_line(error).rstrip('.')}). Was its upload interrupted?"
        raise FormatError(problem) from error
