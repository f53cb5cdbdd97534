"""OrcFormat: read ORC files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import orc

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.columns_published import PublishedColumns
from gobblin_dagster.constructs.formats.published import Types
from gobblin_dagster.constructs.formats.typed_files import TypedFileFormat, TypedFileReader, incomplete
from gobblin_dagster.storage.os_errors import raise_if_passing

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class OrcReader(TypedFileReader):
    """Reads one ORC file."""

    def count_rows(self) -> int:
        return int(self._file.nrows)

    def _open(self) -> pa.Schema:
        try:
            self._file = orc.ORCFile(self._raw)
        except (pa.ArrowException, OSError) as error:
            raise_if_passing(error)
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
                    "has a time before 1677-09-21 or after 2262-04-11, which nanoseconds cannot hold; choose other "
                    "columns in "
                    "`include`, or read such files with the source `spark`.",
                    self._rows_read + 1,
                ) from error
            step = self._rows_a_block(stripe.num_rows, stripe.nbytes)
            for start in range(0, stripe.num_rows, step):
                yield stripe.slice(start, step)


class PublishedOrc(PublishedColumns):
    """ORC files of the writer `orc`."""

    spark_name = "orc"
    spark_has_wall_times = False

    def schema(self, file: pa.NativeFile) -> pa.Schema:
        return orc.ORCFile(file).schema

    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        opened = orc.ORCFile(file)
        yield from (opened.read_stripe(number) for number in range(opened.nstripes))

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        import pyarrow.dataset as ds  # noqa: PLC0415  # slow to load

        return ds.OrcFileFormat()


class OrcFormat(TypedFileFormat):
    """Reads ORC; one stripe at a time is in memory.

    Source: none; Gobblin copies ORC files without reading them.
    """

    reader = OrcReader
    Published = PublishedOrc
