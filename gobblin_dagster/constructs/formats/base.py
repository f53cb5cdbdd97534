"""FileFormat: read one file of the `files` source as record batches; the extractor reads one file after the other.

A format knows nothing about work units, watermarks or datasets: it opens a file, has its schema and yields batches.
Text files that end in `.gz`, `.bz2`, `.zst` or `.xz` are decompressed.
"""

from __future__ import annotations

import bz2
import lzma
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from gobblin_dagster.constructs.formats.compression import PackedStreams
from gobblin_dagster.constructs.types.json_shapes import OPEN
from gobblin_dagster.constructs.types.wider import is_wider
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.utils.regular_file import open_regular
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.storage.file_facts import FileFacts, lies_at
from gobblin_dagster.storage.remote import look_at, remote_files

_ARROW_CODECS = {"gz": "gzip", "zst": "zstd"}
_UNPACKERS = {"bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}
_KINDS = {
    b"PAR1": "Parquet (`format: parquet`)",
    b"ORC": "ORC (`format: orc`)",
    b"Obj\x01": "Avro (`format: avro`)",
    b"\x1f\x8b": "gzip; let its name end in `.gz`",
    b"BZh": "bzip2; let its name end in `.bz2`",
    b"\xfd7zXZ": "xz; let its name end in `.xz`",
    b"\x28\xb5\x2f\xfd": "zstd; let its name end in `.zst`",
    b"PK\x03\x04": "a zip archive, as those of Excel are",
    b"\xd0\xcf\x11\xe0": "an old file of Excel or Word",
    b"\xff\xfe": "a text in UTF-16 (`encoding: utf-16`)",
    b"\xfe\xff": "a text in UTF-16 (`encoding: utf-16`)",
    b"%PDF": "PDF",
    b"SQLite format 3": "a database of SQLite",
}
REQUEST_BYTES = 8 << 20
"""Bytes that one request to a remote file system fetches."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read."""

    path: str
    """Absolute path, or a URL."""
    real: str = ""
    """Where a local file must lie when it is opened, without links; empty: anywhere."""

    def look(self) -> FileFacts:
        """Return its size and time of change; raises OSError."""
        return look_at(self.path)

    def open_raw(self) -> pa.NativeFile:
        """Open the bytes of the file, for reading at any position; raises OSError, and FormatError if it moved."""
        if "://" in self.path:
            return remote_files(self.path).open(self.path)
        file = _opened(self.path)
        if self.real and not lies_at(file.fileno(), self.real):
            file.close()
            raise FormatError("leads to another file than a moment ago; run again when nobody changes its links")
        return file

    def open_text(self) -> OpenStream:
        """Open the text of the file, decompressed according to the file's name; raises OSError."""
        return OpenStream(self.open_raw(), self.path.rpartition(".")[2].lower(), is_far="://" in self.path)


class OpenStream:
    """A file that is read from beginning to end."""

    def __init__(self, raw: pa.NativeFile, ending: str, *, is_far: bool) -> None:
        if ending in (*_ARROW_CODECS, *_UNPACKERS) and not raw.size():
            raw.close()
            raise FormatError("is empty; a compressed file has at least a few bytes. Was its upload interrupted?")
        self._raw = raw
        # Kept together: deleting a stream would close the file below it.
        self._buffered = pa.BufferedInputStream(raw, REQUEST_BYTES) if is_far else raw
        self.stream = _unpacked(self._buffered, ending)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the file, before decompression."""
        return int(self._raw.tell())

    def close(self) -> None:
        """Close the file."""
        self.stream.close()
        self._buffered.close()
        self._raw.close()


def _opened(path: str) -> pa.OSFile:
    """Open a regular file, so that reading it never waits: pyarrow takes no descriptor, and would wait for a pipe."""
    checked = open_regular(path)
    try:
        here = f"/proc/self/fd/{checked}"
        file = pa.OSFile(here if os.path.exists(here) else path)  # noqa: PTH110 - a Path costs more, for each file
    finally:
        os.close(checked)
    os.set_blocking(file.fileno(), False)
    if not file.size() and _has_content(file.fileno()):
        file.close()
        raise FormatError("says that it is empty, and is not: a file of the kernel, or one that just changes")
    return file


def _has_content(handle: int) -> bool:
    try:
        return bool(os.pread(handle, 1, 0))
    except OSError:
        return True


def _unpacked(raw: pa.NativeFile, ending: str) -> pa.NativeFile:
    if unpacker := _UNPACKERS.get(ending):
        return pa.PythonFile(PackedStreams(raw, unpacker), mode="r")
    return pa.CompressedInputStream(raw, _ARROW_CODECS[ending]) if ending in _ARROW_CODECS else raw


class FormatError(Exception):
    """A file is not valid in its format; the extractor adds dataset and file, and raises ExtractError."""

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.row = row
        """Number of the bad row in the file, from 1, without the header; None if it is no single row."""


class NoColumnsError(FormatError):
    """A file has nothing to get columns from; another file of its work unit may."""

    def __init__(self, problem: str, declared: pa.Schema | None = None) -> None:
        super().__init__(problem)
        self.declared = declared
        """Columns of a work unit if all its files are like this; None if that is an error."""


class FileReader(Protocol):
    """Reads one file from beginning to end."""

    schema: pa.Schema
    """Schema of every batch."""

    @property
    def bytes_read(self) -> int:
        """Bytes read from the file so far, before decompression."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of the file; raises FormatError, OSError or ArrowInvalid."""

    def close(self) -> None:
        """Close the file."""


class FileFormat(Protocol):
    """Makes readers of one format; made with `cls(options, context)`, used in one thread.

    It may have more traits: `core.traits.FormatTraits`. If a writer of the same name publishes such files, the
    attribute `Published` is the class that counts, merges and reads them back (`formats.published.PublishedFormat`).
    Without it, their lines are counted, and they are neither merged nor read back.
    """

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        """Open a file; `schema` is that of the work unit's first file, which later files must have, or None.

        Raises:
            FormatError: the file lacks a column, or is not in this format.
        """

    def count_rows(self, file: InputFile) -> int:
        """Count the file's rows without keeping them; raises as `open`."""


class TypeSample(Protocol):
    """Types guessed from the files looked at so far."""

    files: int
    """Number of files that had something to guess from."""
    rows: int
    bytes_read: int

    def open_columns(self, may_be_open: Callable[[str], bool]) -> Collection[str] | None:
        """Return the columns that were null in all rows and may stay `OPEN`.

        None if rows of the files were not looked at, no other column would be left in the published files, or the
        format gives every column a type. `may_be_open`: as `SourceContext.may_be_open`.
        """

    def look(self, file: InputFile, most_bytes: int) -> None:
        """Look at the first bytes of a file; pass over a file that cannot be read, reading it tells why."""

    def types(self) -> dict[str, str]:
        """Return the types by column, as texts that `InfersTypes.with_types` takes; `string` if none is known."""

    def hints(self) -> Sequence[str]:
        """Return sentences on options that would give other types."""


@runtime_checkable
class InfersTypes(Protocol):
    """Optional addition to `FileFormat`: its files do not tell types, and the source infers them from a sample."""

    @property
    def infers(self) -> bool:
        """Whether types of new columns are to be inferred."""

    def sample(self, settled: Collection[str]) -> TypeSample:
        """Return an empty sample; the columns `settled` are not guessed."""

    def with_types(self, types: Mapping[str, str]) -> FileFormat:
        """Return the format with inferred types of columns, by name; columns with a declared type keep it."""


@runtime_checkable
class WidensTypes(Protocol):
    """Optional addition to `InfersTypes`: inferred types can become wider, if values of later files do not fit them."""

    def widening(self, known: Mapping[str, str], allowed: Collection[Widening]) -> TypeSample:
        """Return an empty sample whose types are `known`, and wider ones as soon as it has looked at such values.

        Args:
            known: inferred types by column.
            allowed: how types may become wider.
        """


T = TypeVar("T")


def columns_of(
    dataset_urn: str, columns: Mapping[str, T], dataset_columns: Mapping[str, Mapping[str, T]]
) -> dict[str, T]:
    """Return the declared types of a dataset: `columns`, and those of the globs that match; later ones win."""
    declared = dict(columns)
    for more in matching(dataset_urn, dataset_columns):
        declared |= more
    return declared


def matching(dataset_urn: str, by_glob: Mapping[str, T]) -> list[T]:
    """Return the values of the globs that match a dataset, in their order."""
    return [value for glob, value in by_glob.items() if dataset_urn == glob or fnmatchcase(dataset_urn, glob)]


_SHOWN = {"string": "text", OPEN: "no value yet"}
_MOST_NAMES = 12
"""Most columns that a message names; where it tells types, of each type."""
_MOST_LETTERS = 80
"""Most letters of a name in a message: one that is longer is seldom a name."""


def listed_names(columns: Iterable[str]) -> str:
    """Return the names of columns for a message, of many the first few, of long ones the beginning."""
    names = list(columns)
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    cut = (name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}…" for name in names[:_MOST_NAMES])
    return ", ".join(map(printable, cut)) + more


def listed_types(types: Mapping[str, str]) -> str:
    """Return `int64: id, qty; date: day`; of a type with many columns, the first few."""
    by_type: dict[str, list[str]] = {}
    for name, kind in types.items():
        by_type.setdefault(_SHOWN.get(kind, kind), []).append(name)
    return "; ".join(f"{kind}: {listed_names(columns)}" for kind, columns in by_type.items())


def kind_of(beginning: bytes) -> str:
    """Return what a file is by its first bytes, for messages; empty if unknown."""
    return next((what for first, what in _KINDS.items() if beginning.startswith(first)), "")


def require_columns(wanted: Iterable[str], found: Iterable[str], why: str) -> None:
    """Raise FormatError if the file lacks columns; the message names them."""
    names = dict.fromkeys(found)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise FormatError(
            f"expected the column(s) {listed_names(missing)} ({why}), the file has {listed_names(names)}."
        )


def require_columns_of_first(first: Collection[str], found: Collection[str], include: Collection[str]) -> None:
    """Raise FormatError if a later file of a work unit has other columns than its first file.

    Args:
        first: columns that are read of the first file.
        found: columns of the later one.
        include: columns to read; empty for all.
    """
    alone = "set `files_per_work_unit: 1` so that every file (or date) has its own columns."
    of_first, of_file = {*first}, {*found}
    if missing := [name for name in first if name not in of_file]:
        raise FormatError(
            f"expected the column(s) {listed_names(missing)} (as in the first file of its work unit), the file has "
            f"{listed_names(found)}; {alone}"
        )
    new = [name for name in found if name not in of_first]
    if new and not include:
        raise FormatError(
            f"has the column(s) {listed_names(new)}, which the first file of its work unit lacks; name the columns to "
            f"read in `include`, or {alone}"
        )


def chosen_columns(found: pa.Schema, include: tuple[str, ...], first: pa.Schema | None) -> pa.Schema:
    """Return the columns to read from a file with typed columns.

    Args:
        found: columns of the file.
        include: columns to read, in this order; empty for all.
        first: schema of the work unit's first file, which later ones must fit; None for the first file itself.

    Raises:
        FormatError: the file lacks a column, has one twice, has one more than the first file, or one of a type whose
            values that of the first file does not hold.
    """
    if twice := repeated(found.names):
        raise FormatError(f"has the column(s) {', '.join(twice)} more than once.")
    require_columns(include, found.names, "named in `include`")
    if first is None:
        return pa.schema([found.field(name) for name in include]) if include else found
    require_columns_of_first(first.names, found.names, include)
    for field in first:
        kind = found.field(field.name).type
        if not _fits(field.type, kind):
            raise FormatError(
                f"column {field.name!r} is of type {kind}, in the first file of its work unit it is {field.type}; "
                "set `files_per_work_unit: 1` so that every file (or date) has its own schema."
            )
    return first


def _fits(known: pa.DataType, found: pa.DataType) -> bool:
    """Return whether a type holds the values of another; pandas has no type for columns of nulls, and two for text."""
    known, found = _small(known), _small(found)
    return known == found or is_wider(known, found)


def _small(kind: pa.DataType) -> pa.DataType:
    """Return the type for values of less than 2 GB, as those of a batch are: only Polars writes large lists."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_small(field.type)) for field in kind])
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
