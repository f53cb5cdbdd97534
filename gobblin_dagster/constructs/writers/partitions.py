"""Splitting batches by the values of columns, for folders in Hive style: `origin=EWR/date=2013-01-05`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.zones import ZoneName
from gobblin_dagster.spec.job import SpecModel

NULL_SEGMENT = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of null, and of empty text, which Hive and Spark cannot tell from null in a folder name."""
Granularity = Literal["year", "month", "day", "hour"]
_FORMATS: dict[Granularity, str] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}


class TimePartition(SpecModel):
    """A folder level cut from a date or timestamp column.

    Source: gobblin-core `TimeBasedWriterPartitioner`. Differs: null goes to a folder of its own, not to "now".
    """

    column: str
    """A date or timestamp column; it stays in the file."""
    granularity: Granularity = "day"
    """`year`, `month`, `day` or `hour`."""
    name: str = Field(default="date", min_length=1)
    """Name of the folder level; must not be a column of the file."""
    timezone: ZoneName = "UTC"
    """Zone in which a timestamp's day or hour is taken; timestamps without a zone and dates are taken as they stand."""


class Partitioner:
    """Splits batches of one schema by partition folder.

    Shape: the parts of a batch hold its rows, each once, in their order inside each part; a part owns its memory or is
    the whole batch.
    """

    def __init__(self, levels: Sequence[str | TimePartition], schema: pa.Schema, keep_columns: bool) -> None:
        self._levels = levels
        by_value = {level for level in levels if isinstance(level, str)}
        self._check(schema, levels)
        kept = [name for name in schema.names if keep_columns or name not in by_value]
        if not kept:
            raise ValueError("every column is a partition column; nothing would be left in the files")
        self._kept = kept
        self.schema = pa.schema([schema.field(name) for name in kept])

    @staticmethod
    def _check(schema: pa.Schema, levels: Sequence[str | TimePartition]) -> None:
        names = [level if isinstance(level, str) else level.name for level in levels]
        if len(set(names)) < len(names):
            raise ValueError(f"partition_by names a level twice: {', '.join(names)}")
        for level in levels:
            column = level if isinstance(level, str) else level.column
            if column not in schema.names:
                raise ValueError(f"partition_by expects column {column!r}; found: {', '.join(schema.names)}")
            kind = schema.field(column).type
            if isinstance(level, TimePartition):
                if level.name in schema.names:
                    raise ValueError(f"partition level {level.name!r} is also a column; give the level another `name`")
                if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                    raise ValueError(f"partition column {column!r} is {kind}; a granularity needs a date or timestamp")
            elif pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
                raise ValueError(f"partition column {column!r} is {kind}, which makes no good folder name")

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (folder, rows) for each folder in the batch; the folder is empty where there are no levels."""
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
        """Return for each row the position of its folder among the folders of this batch."""
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
        # Null and empty text have one folder.
        unique = list(dict.fromkeys(folders))
        if len(unique) < len(folders):
            codes = np.array([unique.index(folder) for folder in folders], dtype=np.int64)[codes]
        return codes, unique

    @staticmethod
    def _level(level: str | TimePartition, batch: pa.RecordBatch) -> tuple[str, npt.NDArray[np.int64], list[str]]:
        """Return a level's name, the code of each row and the folder value of each code."""
        if isinstance(level, str):
            column = batch.column(level)
        else:
            column = batch.column(level.column)
            if pa.types.is_timestamp(column.type) and column.type.tz is not None:
                column = column.cast(pa.timestamp(column.type.unit, level.timezone))
            column = pc.floor_temporal(column, unit=level.granularity)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode(null_encoding="encode")
        values = column.dictionary
        if isinstance(level, str):
            texts = values.cast(pa.string()).to_pylist()
            name = level
        else:
            texts = pc.strftime(values, format=_FORMATS[level.granularity]).to_pylist()
            name = level.name
        segments = [quote(text, safe="") if text else NULL_SEGMENT for text in texts]
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(segments))
            segments.append(NULL_SEGMENT)
        return name, indices.to_numpy(zero_copy_only=False).astype(np.int64), segments
