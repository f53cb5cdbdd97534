"""Split batches by the values of their partition levels, for folders in Hive style: `origin=EWR/date=2013-01-05`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gobblin_dagster.constructs.writers.levels import (
    ClassPartition,
    Level,
    SqlPartition,
    TimePartition,
    bound,
    names_of,
)
from gobblin_dagster.core.constructs import ConstructContext

NULL_SEGMENT = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of null, and of empty text, which Hive and Spark cannot distinguish from null in a folder name."""
_MAX_FOLDER = 255
"""Most bytes of a folder name in file systems."""


class Partitioner:
    """Split batches of one schema by partition folder.

    Shape: the parts of a batch have all its rows, each once, in the same order inside a part. A part owns its memory,
    or is the whole batch.
    """

    def __init__(
        self,
        levels: Sequence[str | TimePartition | SqlPartition | ClassPartition],
        schema: pa.Schema,
        keep_columns: bool,
        context: ConstructContext,
    ) -> None:
        names = names_of(levels)
        if len(set(names)) < len(names):
            raise ValueError(f"partition_by names a level twice: {', '.join(names)}")
        by_value = {level for level in levels if isinstance(level, str)}
        for name in names:
            if name in schema.names and name not in by_value:
                raise ValueError(f"partition level {name!r} is also a column; give the level another `name`")
        self._levels = [bound(level, schema, context) for level in levels]
        kept = [name for name in schema.names if keep_columns or name not in by_value]
        if not schema.names:
            raise ValueError(
                "the rows have no columns, so there is nothing to write; maybe the source has only empty objects"
            )
        if not kept:
            raise ValueError("every column is a partition column; nothing would be left in the files")
        self._kept = kept
        self.schema = pa.schema([schema.field(name) for name in kept])

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (folder, rows) for each folder in the batch; without levels, the folder is empty."""
        if not self._levels or not batch.num_rows:
            yield "", batch
            return
        codes, folders = self._encode(batch)
        visible = batch.select(self._kept)
        if len(folders) == 1:
            yield folders[0], visible
            return
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            yield folders[codes[order[start]]], visible.take(pa.array(order[start:stop]))

    def _encode(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Return the index of each row's folder, and the folders of this batch."""
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        folders = [""]
        for level in self._levels:
            name, values, segments = self._level(level, batch)
            combined = codes * len(segments) + values
            present, codes = np.unique(combined, return_inverse=True)
            prefix = quote(name, safe="")
            folders = [
                f"{folders[code // len(segments)]}{prefix}={segments[code % len(segments)]}/"
                for code in present.tolist()
            ]
        # Null and empty text have the same folder.
        unique = list(dict.fromkeys(folders))
        if len(unique) < len(folders):
            codes = np.array([unique.index(folder) for folder in folders], dtype=np.int64)[codes]
        return codes, unique

    @staticmethod
    def _level(level: Level, batch: pa.RecordBatch) -> tuple[str, npt.NDArray[np.int64], list[str]]:
        """Return a level's name, the code of each row, and the folder value of each code."""
        column = level.values(batch)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode(null_encoding="encode")
        texts = level.texts(column.dictionary)
        if NULL_SEGMENT in texts:
            raise ValueError(f"partition level {level.name!r} has the text {NULL_SEGMENT}, which is the folder of null")
        segments = [quote(text, safe="") if text else NULL_SEGMENT for text in texts]
        longest = max((len(segment) for segment in segments), default=0) + len(quote(level.name, safe="")) + 1
        if longest > _MAX_FOLDER:
            problem = (
                f"a folder of {longest} bytes, file systems allow {_MAX_FOLDER}; partition by a part of the text, with "
                "`sql`"
            )
            raise ValueError(f"partition level {level.name!r} would make {problem}")
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(segments))
            segments.append(NULL_SEGMENT)
        return level.name, indices.to_numpy(zero_copy_only=False).astype(np.int64), segments


def folder_values(path: str) -> dict[str, str | None]:
    """Return the values of levels by name, as text, from the folders of a path; null for null and empty text.

    Example:
        >>> folder_values("origin=EWR/day=__HIVE_DEFAULT_PARTITION__/1.parquet")
        {'origin': 'EWR', 'day': None}
    """
    values: dict[str, str | None] = {}
    for segment in path.split("/")[:-1]:
        name, mark, value = segment.partition("=")
        if mark:
            values[unquote(name)] = None if value == NULL_SEGMENT else unquote(value)
    return values
