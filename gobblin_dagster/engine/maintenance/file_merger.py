"""Merge published files of one folder into one: rows and their order stay, and the result is read again to check that.

Files of a format that `MergesColumns` are rewritten batch by batch; files of one that `MergesBytes` are joined byte by
byte. Memory does not grow with the files. Files of other formats are not merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.published import MergesBytes, MergesColumns, ending_of
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.arrow import decoded
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, DataWriter, WriterContext
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.spec.job import ConstructSpec

_OWN_LAYOUT = frozenset({"partition_by", "keep_partition_columns", "file_name", "max_file_rows", "max_file_bytes"})
"""Options of writers that choose a row's file; the rows here are already in their files."""


def likeness(storage: Storage, file: PublishedFile, options: Mapping[str, Any]) -> str | None:
    """Return a key that files must share to be merged: their schema or header; None if the file cannot be merged.

    Args:
        storage: holds the file.
        file: the file.
        options: options of the branch's writer.

    Raises:
        CorruptRecordError: the file is damaged.
        OSError: it cannot be read.
    """
    form = registry.published_format(file.path, options)
    if isinstance(form, MergesColumns):
        if storage.size(file.path) is None:  # opening a pipe in its place would wait for ever
            raise CorruptRecordError(what=f"Published file {file.path}", problem="it is gone, or no regular file")
        with _opened(file.path) as opened:
            return hashlib.sha256(form.schema(opened).serialize().to_pybytes()).hexdigest()
    return form.likeness(storage, file) if isinstance(form, MergesBytes) else None


class FileMerger:
    """Merges files with equal `likeness` into one staged file.

    Args:
        storage: files are read and staged here.
        where: folder and name of the staged file; its schema is ignored.
        writer: the branch's writer; its options apply if it writes the format of the files.
    """

    def __init__(self, storage: Storage, where: WriterContext, writer: ConstructSpec) -> None:
        self._storage = storage
        self._where = where
        self._writer = writer

    def merge(self, files: Sequence[PublishedFile]) -> list[StagedFile]:
        """Stage one file with the rows of all files, in their order, and compare it with them.

        Raises:
            CorruptRecordError: the staged rows differ from the published ones, or a published file is damaged.
            OSError, StorageError: the storage refused.
        """
        form = registry.published_format(files[0].path, self._writer.options)
        if isinstance(form, MergesColumns):
            staged = self._merge_columns(form, files)
        elif isinstance(form, MergesBytes):
            staged = [self._merge_bytes(form, files)]
        else:
            raise TypeError(f"files that have no likeness, as {files[0].path}, cannot be merged")
        if sum(file.rows for file in staged) != sum(file.rows for file in files):
            raise _differs(files, "their numbers")
        return staged

    # -- columns -------------------------------------------------------------------------------------------------------
    def _merge_columns(self, form: MergesColumns, files: Sequence[PublishedFile]) -> list[StagedFile]:
        paths = [file.path for file in files]
        writer: DataWriter | None = None
        try:
            for batch in _batches(form, paths):
                writer = writer or self._columns_writer(batch.schema, files)
                writer.write(batch)
            staged = list(writer.finish()) if writer else []
        except BaseException:
            if writer is not None:
                writer.abort()
            raise
        _require_same(files, _batches(form, paths), _batches(form, [file.path for file in staged]))
        return staged

    def _columns_writer(self, schema: pa.Schema, files: Sequence[PublishedFile]) -> DataWriter:
        kind, _ = ending_of(files[0].path)
        options = self._writer.options if self._writer.type == kind else {}
        spec = ConstructSpec(
            type=kind,
            **{name: value for name, value in options.items() if name not in _OWN_LAYOUT},
            max_file_bytes=max(1 << 16, 2 * sum(file.size_bytes for file in files)),
        )
        context = ConstructContext(job="", base_dir="", dataset_urn=self._where.dataset_urn, branch=self._where.branch)
        where = replace(self._where, schema=schema)
        writer: DataWriter = registry.create(ConstructKind.WRITER, spec, context, writer_context=where)
        return writer

    # -- bytes ---------------------------------------------------------------------------------------------------------
    def _merge_bytes(self, form: MergesBytes, files: Sequence[PublishedFile]) -> StagedFile:
        ending = ".".join(filter(None, ending_of(files[0].path)))
        name = f"{self._where.file_stem}-0000.{ending}"
        path = f"{self._where.staging_dir}/{self._where.branch}-{name}"
        sink = self._storage.open_new(path)
        expected = hashlib.sha256()
        try:
            for number, file in enumerate(files):
                content = self._storage.read(file.path)
                try:
                    part = form.part(content, ending_of(file.path)[1], is_first=not number)
                except FormatError as error:
                    raise _differs(files, error.problem) from error
                expected.update(part)
                sink.write(part)
            digest = sink.finish()
        except BaseException:
            sink.abort()
            raise
        if {digest.sha256, self._storage.sha256(path)} != {expected.hexdigest()}:
            raise _differs(files, "their bytes")
        target = f"{self._where.target_dir}/{name}"
        rows = sum(file.rows for file in files)
        return StagedFile(self._where.branch, path, target, digest.size_bytes, digest.sha256, rows)


# -- reading columns ---------------------------------------------------------------------------------------------------
@contextmanager
def _opened(path: str) -> Iterator[Any]:
    # Imported here because it is slow to load, and an idle run imports modules beside this one.
    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    filesystem, (inside,) = arrow_files([path])
    try:
        with filesystem.open_input_file(inside) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise CorruptRecordError(what=f"Published file {path}", problem=str(error)) from error


def _batches(form: MergesColumns, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in their order; only a part of one stripe or row group is in memory at a time."""
    for path in paths:
        with _opened(path) as file:
            yield from form.batches(file)


# -- comparing ---------------------------------------------------------------------------------------------------------
def _require_same(
    files: Sequence[PublishedFile], left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> None:
    """Compare two streams of rows, value by value and in order; their batches may differ."""
    one, other = _Slices(left), _Slices(right)
    while rows := min(one.ready(), other.ready()):
        expected, found = one.take(rows), other.take(rows)
        if not expected.schema.equals(found.schema):
            raise _differs(files, "their columns")
        for name, known, new in zip(expected.schema.names, expected.columns, found.columns, strict=True):
            if not known.equals(new) and not _bits(known).equals(_bits(new)):
                raise _differs(files, f"column {name!r}")
    if one.ready() or other.ready():
        raise _differs(files, "their numbers")


class _Slices:
    """Cuts a stream of batches into slices of any length."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch = pa.RecordBatch.from_arrays([], schema=pa.schema([]))

    def ready(self) -> int:
        """Return the number of rows that can be taken at once; 0 at the end."""
        while not self._batch.num_rows:
            following = next(self._batches, None)
            if following is None:
                return 0
            self._batch = following
        return int(self._batch.num_rows)

    def take(self, rows: int) -> pa.RecordBatch:
        """Return the next `rows` rows, at most as many as are ready."""
        taken, self._batch = self._batch.slice(0, rows), self._batch.slice(rows)
        return taken


def _bits(array: pa.Array) -> pa.Array:
    """Return an array with its numbers as bit patterns, because NaN is not equal to itself."""
    array = decoded(array)
    return array.view(_bits_type(array.type))


def _bits_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(kind):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bits_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_bits_type(kind.item_type)))
    for is_list, make in _LISTS.items():
        if is_list(kind):
            return make(kind, kind.value_field.with_type(_bits_type(kind.value_type)))
    return kind


_LISTS: dict[Callable[[pa.DataType], bool], Callable[[Any, pa.Field], pa.DataType]] = {
    pa.types.is_list: lambda _, field: pa.list_(field),
    pa.types.is_large_list: lambda _, field: pa.large_list(field),
    pa.types.is_fixed_size_list: lambda kind, field: pa.list_(field, kind.list_size),
}


def _differs(files: Sequence[PublishedFile], what: str) -> CorruptRecordError:
    folder = files[0].path.rpartition("/")[0]
    problem = f"the merged rows of {len(files)} files differ from the published ones: {what}"
    return CorruptRecordError(what=f"A merged file of {folder}", problem=problem)
