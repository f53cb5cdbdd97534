"""PublishedFormat: how files that a writer published are counted, merged and read back.

A class of kind `FORMAT` names its `PublishedFormat` in the attribute `Published`; `registry.published` finds it by a file's
name. Audits, compaction and readers of snapshots ask it, and know no format themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.storage import Storage

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

Types: TypeAlias = Mapping[str, pa.DataType | None]
"""Types of columns as the writer got them; None for lists, structs and other types made of types."""


class PublishedFormat(ABC):
    """Files of one format, as its writer published them.

    Every format counts. One whose files can be merged is a `MergesColumns` or a `MergesBytes` besides, one that pyarrow and
    Spark read back a `DatasetFormat`. Each method opens files for itself and keeps nothing.

    Args:
        options: those of the branch's writer today. An older file may have been written with others, or by a writer of another
            format, so take the keys you know, and what is missing as its default.
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
        """Return a file's schema; only files of one schema are merged. Raises ArrowInvalid where it is damaged."""

    @abstractmethod
    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows in their order, a part of it in memory at a time; raises ArrowInvalid where it is damaged."""


class MergesBytes(PublishedFormat):
    """A format whose files are merged by putting their bytes one behind the other."""

    @abstractmethod
    def likeness(self, storage: Storage, file: PublishedFile) -> str | None:
        """Return what files must have in common to be merged, e.g. a header; None where this one cannot be merged.

        Raises:
            OSError: the file cannot be read.
        """

    @abstractmethod
    def part(self, content: bytes, codec: str, *, is_first: bool) -> bytes:
        """Return what of a file's content goes into the merged file.

        Args:
            content: the file's bytes, packed where it is packed.
            codec: its ending after the format's, e.g. `gz`; empty where it is not packed.
            is_first: whether no other file stands before it.

        Raises:
            FormatError: the content cannot stand before or after another; its `problem` names what would be lost.
        """


class DatasetFormat(PublishedFormat):
    """A format that pyarrow reads as a dataset and Spark by a name of its own.

    The defaults are those of files that hold the names and types of their columns.
    """

    spark_name: ClassVar[str]
    """As `spark.read.format` takes it."""

    @abstractmethod
    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        """Return how pyarrow reads the files; `names` are those of `column_names`."""

    def column_names(self, types: Types, levels: Sequence[str]) -> list[str]:
        """Return the names of the columns in files that do not hold them; none where they do.

        Args:
            types: types of all columns, in order.
            levels: columns that became folders.
        """
        return []

    def arrow_schema(self, found: pa.Schema, types: Types) -> pa.Schema:
        """Return the schema with which pyarrow is to read files in which it found another."""
        return found

    def spark_options(self) -> dict[str, str]:
        """Return the options with which Spark reads the files as the writer wrote them."""
        return {"mergeSchema": "true"}

    def spark_types(self, types: Types) -> Types:
        """Return the types of the columns whose types Spark must be told."""
        return {}


def ending_of(path: str) -> tuple[str, str]:
    """Return the name of a file's format and the ending of its codec, by the file's name.

    Example:
        >>> ending_of("/lake/v1.2/0a1b-0000.jsonl.gz"), ending_of("0a1b-0000.parquet")
        (('jsonl', 'gz'), ('parquet', ''))
    """
    name, _, codec = path.rpartition("/")[2].partition(".")[2].partition(".")
    return name, codec


def in_64_bits(types: Types) -> Types:
    """Return types with whole numbers as wide as they may have been once."""
    return {name: pa.int64() if kind and pa.types.is_integer(kind) else kind for name, kind in types.items()}


def is_inferred(kind: pa.DataType | None) -> bool:
    """Return whether readers of text must find a type by themselves: it is not known, or was wider once perhaps."""
    return kind is None or pa.types.is_null(kind) or bool(pa.types.is_integer(kind) and kind != pa.uint64())
