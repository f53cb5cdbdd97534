"""PublishedFormat: count, merge and read back the files that a writer published.

A class of kind `FORMAT` has its `PublishedFormat` in the attribute `Published`; `registry.published_format` finds it by
a file's name. Audits, compaction and readers of snapshots use it, and know nothing about formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import pyarrow as pa

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.storage import Storage

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

Types: TypeAlias = Mapping[str, pa.DataType | None]
"""Types of columns as the writer got them; None for lists, structs and other nested types."""


class PublishedFormat(ABC):
    """Published files of one format.

    Every format can count. If its files can be merged, it is also a `MergesColumns` or a `MergesBytes`; if pyarrow and
    Spark can read them back, a `DatasetFormat`. Each method opens files itself and keeps nothing.

    Args:
        options: present options of the branch's writer. An older file may have been written with others, or by a writer
            of another format; so use only known keys, and the default for a missing one.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        del options

    @abstractmethod
    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Count the rows of files by opening them; paths are those of the file system.

        Raises:
            OSError: a file cannot be read.
            ArrowInvalid: a file is damaged.
        """


class MergesColumns(PublishedFormat):
    """A format whose files are merged by writing their rows again, with the writer of the same name."""

    @abstractmethod
    def schema(self, file: pa.NativeFile) -> pa.Schema:
        """Return a file's schema; only files with equal schemas are merged. Raises ArrowInvalid if it is damaged."""

    @abstractmethod
    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows in order, a part in memory at a time; raises ArrowInvalid if it is damaged."""


class MergesBytes(PublishedFormat):
    """A format whose files are merged by joining their bytes."""

    @abstractmethod
    def likeness(self, storage: Storage, file: PublishedFile) -> str | None:
        """Return what files to be merged must have in common, e.g. a header; None if this file cannot be merged.

        Raises:
            OSError: the file cannot be read.
        """

    @abstractmethod
    def part(self, content: bytes, codec: str, *, is_first: bool) -> bytes:
        """Return the part of a file's content that goes into the merged file.

        Args:
            content: bytes of the file, not decompressed.
            codec: ending of its name after the format's, e.g. `gz`; empty if it is not compressed.
            is_first: whether it is the first file.

        Raises:
            FormatError: the content cannot be joined with others; `problem` names what would be lost.
        """


class DatasetFormat(PublishedFormat):
    """A format that pyarrow reads as a dataset, and Spark by a name of its own.

    The defaults are for files that contain the names and types of their columns.
    """

    spark_name: ClassVar[str]
    """Name for `spark.read.format`."""
    spark_has_wall_times: ClassVar[bool] = True
    """Whether Spark has a type of its own for times without a zone in such files; else they are instants."""

    spark_has_float_texts: ClassVar[bool] = False
    """Whether NaN and infinities are texts (`nan`, `-inf`) that Spark takes for floats only in casts."""

    def fitted(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> Self:
        """Return the format as pyarrow must read these files; raises OSError if one cannot be opened."""
        return self

    @abstractmethod
    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        """Return pyarrow's format for the files; `names` is the result of `column_names`."""

    def column_names(self, types: Types, levels: Sequence[str]) -> list[str]:
        """Return the names of the columns in files that do not contain them; empty if they do.

        Args:
            types: types of all columns, in order.
            levels: columns that became folders.
        """
        return []

    def arrow_schema(self, found: pa.Schema, types: Types) -> pa.Schema:
        """Return the schema that pyarrow must use to read the files; `found` is the one that it found."""
        return found

    def written_otherwise(self, filesystem: pafs.FileSystem, paths: Sequence[str], names: Sequence[str]) -> str:
        """Return the path of a file that was written with other options than the present ones; empty if none was.

        Args:
            filesystem: where the files are.
            paths: those of the file system.
            names: names of the columns that files may have.
        """
        return ""

    def spark_options(self) -> dict[str, str]:
        """Return the options that Spark needs to read the files as they were written."""
        return {"mergeSchema": "true"}

    def spark_types(self, types: Types) -> Types:
        """Return the types of the columns whose types Spark cannot find itself."""
        return {}


def ending_of(path: str) -> tuple[str, str]:
    """Return the format and the compression in a file's name.

    Example:
        >>> ending_of("/lake/v1.2/0a1b-0000.jsonl.gz"), ending_of("0a1b-0000.parquet")
        (('jsonl', 'gz'), ('parquet', ''))
    """
    name, _, codec = path.rpartition("/")[2].partition(".")[2].partition(".")
    return name, codec


def in_64_bits(types: Types) -> Types:
    """Return types with integers in 64 bits, because older files may have wider ones."""
    return {name: pa.int64() if kind and pa.types.is_integer(kind) else kind for name, kind in types.items()}


def is_inferred(kind: pa.DataType | None) -> bool:
    """Return True if readers of text must infer a type: it is unknown, or was perhaps wider in older files."""
    return kind is None or pa.types.is_null(kind) or bool(pa.types.is_integer(kind) and kind != pa.uint64())


def as_decimal128(kind: pa.DataType) -> pa.DataType:
    """Return the type with which pyarrow reads the decimals of a type from text; other types unchanged."""
    is_short = pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind)
    return pa.decimal128(kind.precision, kind.scale) if is_short else kind
