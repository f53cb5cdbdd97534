"""FileWriter: what writers of files share: partition folders, bounded open files, roll-over, staging, clean-up.

Rows of a file are collected up to a row group, then encoded at once. The rows collected for all folders together are
bounded too: the fullest folders are flushed first. A file is opened at its first flush. So rows of many folders are
sorted in memory before any file is opened, and folders beyond the limit of open files cost a new file each time the
memory is full, not with each batch. Memory never depends on the size of the input.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Protocol

import pyarrow as pa
from pydantic import AfterValidator, Field, StringConstraints

from gobblin_dagster.constructs.types.arrow import has_part, levels_of
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice_inside
from gobblin_dagster.constructs.types.utf8 import refuse_bad_text
from gobblin_dagster.constructs.writers.levels import Partition
from gobblin_dagster.constructs.writers.output import Codec, StagedOutput
from gobblin_dagster.constructs.writers.partitions import Partitioner
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import SpecModel

_COLUMN_BYTES = 600
"""Memory of each column of a collected part without its values, measured; it matters for many folders with few rows."""


def _known_fields(template: str) -> str:
    rest = re.sub(r"\{(unique|job|branch|rows)\}", "", template)
    if "{unique}" not in template or not re.fullmatch(r"[\w=-]*", rest, re.ASCII) or template[0] == "_":
        raise ValueError(
            f"expected letters, digits, `_`, `=`, `-`, {{unique}} (required), {{job}}, {{branch}} and {{rows}}, and no "
            "`_` "
            f"at the beginning (readers skip such files); got {template[:80]!r}"
        )
    return template


FileName = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_known_fields)]


class FileOptions(SpecModel):
    """Options that all writers of files share."""

    partition_by: tuple[Partition, ...] = ()
    """Folder levels in Hive style, outermost first: column names, `{column, granularity, name, timezone}`, `{sql,
    name}` or `{partitioner, options, name}`. Default: no folders."""
    keep_partition_columns: bool = False
    """Whether columns named in `partition_by` also stay in the files. Default: readers get them from the folders."""
    max_open_files: int = Field(default=64, ge=1, le=4096)
    """Most open files of one branch. Beyond that, the least recently used file is closed, and its folder gets a new one
    later. Rows of other folders wait in `buffer_bytes`, so that few new files are needed."""
    file_name: FileName = "{unique}"
    """Name of files before their extension: letters, digits, `_`, `=`, `-`, and `{unique}` (required; no two files of a
    job have the same), `{job}`, `{branch}`, `{rows}` (rows of the file). Source: `writer.file.name`."""
    max_file_bytes: int = Field(default=512 << 20, ge=1 << 16)
    """Bytes after which a file is closed and the next one begins; exceeded by at most one row group and 64 KiB."""
    max_file_rows: int | None = Field(default=None, ge=1)
    """Rows after which a file is closed; default: no limit. Exceeded by at most one batch."""
    row_group_rows: int = Field(default=1 << 17, ge=1)
    """Rows collected before they are encoded (for Parquet, the rows of a row group)."""
    row_group_bytes: int = Field(default=16 << 20, ge=1 << 10)
    """Bytes collected before they are encoded, counted in memory."""
    buffer_bytes: int = Field(default=32 << 20, ge=1 << 10)
    """Bytes collected for all open files of one branch together."""


class Encoder(Protocol):
    """Writes batches of one schema to one file, in one format."""

    def write(self, table: pa.Table) -> None:
        """Encode rows; raises ArrowInvalid or ArrowNotImplementedError for values that the format cannot hold."""

    def close(self) -> None:
        """Write the end of the file to the stream; leaves the stream open."""


class _OpenFile:
    """The current file of a folder: collected rows, and the output once it is open."""

    def __init__(self) -> None:
        self.gathered: list[pa.RecordBatch] = []
        self.gathered_rows = 0
        self.gathered_bytes = 0
        self.rows = 0
        self.number = 0
        self.unique = ""
        self.output: StagedOutput | None = None
        self.encoder: Encoder | None = None

    def take(self, schema: pa.Schema) -> pa.Table:
        """Return the collected rows, and begin a new collection."""
        table = pa.Table.from_batches(self.gathered, schema=schema)
        self.rows += self.gathered_rows
        self.gathered, self.gathered_rows, self.gathered_bytes = [], 0, 0
        return table


def refuse_negative_scale(schema: pa.Schema, construct: str, context: ConstructContext) -> None:
    """Raise ConvertError for decimals with a negative scale, which binary formats lack (ORC's library would crash)."""
    for field in schema:
        if has_part(field.type, lambda kind: pa.types.is_decimal(kind) and kind.scale < 0):
            problem = f"column {field.name!r}: the format cannot hold {field.type}; cast it to a scale of 0 or more"
            raise convert_error(problem, construct, context)


def refuse_size_of_none(schema: pa.Schema, construct: str, context: ConstructContext) -> None:
    """Raise ConvertError for lists and bytes of a fixed size of 0.

    Arrow writes such lists to Parquet and cannot open the file; bytes it refuses, with a size of 0 in its words.
    """

    def has_none(kind: pa.DataType) -> bool:
        is_list = bool(pa.types.is_fixed_size_list(kind)) and kind.list_size == 0
        return is_list or (bool(pa.types.is_fixed_size_binary(kind)) and kind.byte_width == 0)

    for field in schema:
        if has_part(field.type, has_none):
            problem = f"column {field.name!r}: the format cannot hold {field.type}; leave it out, or use `to_json`"
            raise convert_error(problem, construct, context)


def refuse_deep(schema: pa.Schema, most: int, construct: str, context: ConstructContext, *, a_list: int = 1) -> None:
    """Raise ConvertError for a column nested too deep for readers; for the count of levels, see `levels_of`."""
    for field in schema:
        if (levels := levels_of([field.type], a_list=a_list)) > most:
            problem = (
                f"column {field.name!r}: the format needs {levels} levels for its lists and structs, readers open at "
                "most "
                f"{most}; convert it to text with `to_json`"
            )
            raise convert_error(problem, construct, context)


class FileWriter(ABC):
    """Write one branch of one work unit as files of one format; subclasses encode the rows.

    Shape: takes batches of `WriterContext.schema`; files have the rows in order, without columns that became folders.

    All methods but `abort` raise ConvertError for values or columns that the format or the folders cannot hold, and
    StorageError if the storage refuses (no space, no permission).

    Source: gobblin-core `FsDataWriter` and `PartitionedDataWriter`. Differs: open files are bounded.
    """

    def __init__(
        self,
        options: FileOptions,
        context: ConstructContext,
        writer_context: WriterContext,
        format_name: str,
        codec: Codec = "none",
    ) -> None:
        self._options = options
        self._construct = f"writer {format_name!r}"
        self._extension = format_name + {"none": "", "gzip": ".gz", "zstd": ".zst"}[codec]
        self._codec: Codec = codec
        self._context = context
        self._where = writer_context
        try:
            self._partitioner = Partitioner(
                options.partition_by, writer_context.schema, options.keep_partition_columns, context
            )
        except ValueError as error:
            raise convert_error(f"{error}.", self._construct, context) from error
        refuse_twice_inside(writer_context.schema, self._construct, context)
        self._files: dict[str, _OpenFile] = {}
        """Files with rows collected or written, by folder."""
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        """Files with an output, the least recently used first."""
        self._gathered_bytes = 0
        self._staged: list[tuple[tuple[str, int], StagedFile]] = []
        """Folder and number of each file, and the file."""
        self._count = 0

    @abstractmethod
    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        """Begin a file: return its encoder, which writes to `stream`."""

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for folder, part in self._split(batch):
            self._gather(folder, part)
        if self._gathered_bytes > self._options.buffer_bytes:
            self._make_room()

    def finish(self) -> Sequence[StagedFile]:
        for folder in [*self._open, *self._files]:
            if folder in self._files:
                self._close(folder)
        # In the order of the rows: by folder, and there as the files were opened; names need not sort that way.
        return tuple(file for _, file in sorted(self._staged, key=lambda one: one[0]))

    def abort(self) -> None:
        for file in self._open.values():
            if file.output is not None:
                file.output.discard()
            if file.encoder is not None:
                # The file is deleted; an encoder left open would write its footer when Python deletes it.
                with suppress(Exception):
                    file.encoder.close()
        self._open.clear()
        self._files.clear()
        for _, staged in self._staged:
            # The staging folder is deleted later; files that cannot be deleted now are deleted then.
            with suppress(OSError):
                self._where.storage.delete(staged.path)
        self._staged.clear()

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        try:
            yield from self._partitioner.split(batch)
        except ValueError as error:  # ArrowInvalid is a ValueError
            raise convert_error(f"{error}", self._construct, self._context) from error

    def _gather(self, folder: str, part: pa.RecordBatch) -> None:
        file = self._files.get(folder)
        if file is None:
            file = self._files[folder] = _OpenFile()
        elif file.output is not None:
            self._open.move_to_end(folder)
        size = part.nbytes + _COLUMN_BYTES * part.num_columns
        file.gathered.append(part)
        file.gathered_rows += part.num_rows
        file.gathered_bytes += size
        self._gathered_bytes += size
        limit = self._options.max_file_rows
        is_full = limit is not None and file.rows + file.gathered_rows >= limit
        if (
            is_full
            or file.gathered_rows >= self._options.row_group_rows
            or file.gathered_bytes >= self._options.row_group_bytes
        ):
            self._flush(folder, file)
            if is_full or (file.output is not None and file.output.size_bytes >= self._options.max_file_bytes):
                self._close(folder)

    def _make_room(self) -> None:
        """Flush the fullest folders until the collected rows fit.

        With more folders than open files, flush until half of the memory is free.
        """
        target = self._options.buffer_bytes
        if len(self._files) > self._options.max_open_files:
            target //= 2
        for folder in sorted(self._files, key=lambda name: -self._files[name].gathered_bytes):
            if self._gathered_bytes <= target:
                break
            # Opening another file may have closed this one.
            if folder in self._files:
                self._flush(folder, self._files[folder])

    def _flush(self, folder: str, file: _OpenFile) -> None:
        """Encode the collected rows; opens the file at the first call."""
        if file.output is None:
            while len(self._open) >= self._options.max_open_files:
                self._close(next(iter(self._open)))
            file.number = self._count
            file.unique = f"{self._where.file_stem}-{self._count:04d}"
            self._count += 1
            name = f"{file.unique}.{self._extension}"
            file.output = StagedOutput(self._where, f"{self._where.target_dir}/{folder}{name}", self._codec)
            self._open[folder] = file
        self._gathered_bytes -= file.gathered_bytes
        table = file.take(self._partitioner.schema)
        try:
            for field, values in zip(table.schema, table.columns, strict=True):
                for part in values.chunks:
                    refuse_bad_text(field.name, part)
            with file.output.guarded("write"):
                if file.encoder is None:
                    file.encoder = self.encoder(file.output.stream, self._partitioner.schema)
                file.encoder.write(table)
        except (ValueError, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:  # ArrowInvalid is a ValueError
            raise convert_error(self._why_not_held(table, error), self._construct, self._context) from error

    def _why_not_held(self, table: pa.Table, error: Exception) -> str:
        """Return why rows cannot be encoded; names the first column whose type the format does not have."""
        for at, field in enumerate(table.schema):
            nothing = table.select([at]).slice(0, 0)  # Arrow makes no empty table of a union
            try:
                self.encoder(pa.BufferOutputStream(), nothing.schema).write(nothing)
            except (ValueError, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                stored = getattr(field.type, "storage_type", field.type)
                into = "`to_json`" if pa.types.is_nested(stored) else "`columns`, e.g. `columns: {NAME: string}`"
                return f"column {field.name!r}: the format has no type for {field.type}; convert it to text with {into}"
        return f"the format cannot hold the rows: {error}"

    def _close(self, folder: str) -> None:
        file = self._files.pop(folder)
        if file.gathered_rows:
            self._flush(folder, file)
        if file.output is not None and file.encoder is not None:
            with file.output.guarded("write"):
                file.encoder.close()
            digest = file.output.finish()
            staged = StagedFile(
                branch=self._where.branch,
                path=file.output.path,
                target=f"{self._where.target_dir}/{folder}{self._name(file)}",
                size_bytes=digest.size_bytes,
                sha256=digest.sha256,
                rows=file.rows,
            )
            self._staged.append(((folder, file.number), staged))
        self._open.pop(folder, None)

    def _name(self, file: _OpenFile) -> str:
        name = self._options.file_name.format(
            unique=file.unique, job=self._context.job, branch=self._where.branch, rows=file.rows
        )
        return f"{name}.{self._extension}"
