"""OrcFormat: ORC files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import orc

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.typed_files import TypedFileFormat, TypedFileReader, incomplete


class OrcReader(TypedFileReader):
    """Reads one ORC file."""

    def count_rows(self) -> int:
        return int(self._file.nrows)

    def _open(self) -> pa.Schema:
        try:
            self._file = orc.ORCFile(self._raw)
        except (pa.ArrowException, OSError) as error:
            raise incomplete("ORC", error) from error
        return self._file.schema

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number in range(self._file.nstripes):
            try:
                stripe = self._file.read_stripe(number, columns=names)
            except pa.ArrowInvalid as error:
                if "out of range for nanosecond" not in str(error):
                    raise
                raise FormatError(
                    "holds a time before 1677-09-21 or after 2262-04-11, which ORC's nanoseconds do not reach here; choose other "
                    "columns in `include`, or read such files with the source `spark`.",
                    self._rows_read + 1,
                ) from error
            step = self._rows_a_block(stripe.num_rows, stripe.nbytes)
            for start in range(0, stripe.num_rows, step):
                yield stripe.slice(start, step)


class OrcFormat(TypedFileFormat):
    """Reads ORC; a stripe at a time is held in memory.

    Source: none in Gobblin, which copies ORC files without reading them.
    """

    reader = OrcReader
