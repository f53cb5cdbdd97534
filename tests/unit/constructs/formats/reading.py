"""How tests of this folder read files: a work unit is made of them as a source would, then extracted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FileFormat
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.files.extractor import FilesExtractor
from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import ConstructSpec


def put(root: Path, **contents: bytes) -> None:
    """Write files whose names have `_` for the last dot."""
    for name, data in contents.items():
        (root / ".".join(name.rsplit("_", 1))).write_bytes(data)


def file_format(options: Mapping[str, Any], context: ConstructContext) -> FileFormat:
    made: FileFormat = registry.create(ConstructKind.FORMAT, ConstructSpec.model_validate(options), context)
    return made


def extractor(
    root: Path, *names: str, block_bytes: int = 1 << 20, allow: AllowLists = EVERYTHING, **options: Any
) -> FilesExtractor:
    """Open the named files as one work unit of dataset `AA`."""
    start, end = (TimestampWatermark(datetime(2013, 1, number, tzinfo=UTC)) for number in (1, 2))
    files: Any = [{"path": name, "size": (root / name).stat().st_size, "date": str(start)} for name in names]
    context = ConstructContext(job="flights", base_dir=str(root), block_bytes=block_bytes, allow=allow)
    return FilesExtractor(WorkUnit("0", "AA", start, end, {"files": files}), file_format(options, context), context)


def read(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    """Read the named files whole, with the columns `_file` and `_row` behind theirs."""
    reader = extractor(root, *names, block_bytes=block_bytes, **options)
    try:
        tables = []
        for chunk in reader.chunks():
            assert chunk.batch.schema == reader.schema
            assert len(chunk.rows) == chunk.batch.num_rows
            table = pa.table(chunk.batch)
            tables.append(
                table.append_column("_file", [[chunk.file] * len(chunk.rows)]).append_column("_row", chunk.rows)
            )
        return pa.concat_tables(tables) if tables else reader.schema.empty_table()
    finally:
        reader.close()
        reader.close()


def peak_bytes(root: Path, name: str, *, block_bytes: int, **options: Any) -> int:
    """Return the most memory that is in use while a file is read for a second time; the first loads modules."""
    read(root, name, block_bytes=block_bytes, **options)
    before, peak = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        with closing(extractor(root, name, block_bytes=block_bytes, **options)) as reader:
            for chunk in reader.chunks():
                peak = max(peak, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[1])
                del chunk
    finally:
        tracemalloc.stop()
    return peak
