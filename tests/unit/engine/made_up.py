"""Parts that the package does not have, as a package of a user's would bring them: file formats, a storage, a commit
step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.formats.lines_published import PublishedLines
from gobblin_dagster.constructs.formats.published import DatasetFormat, MergesColumns, Types
from gobblin_dagster.constructs.formats.text import TextFormat
from gobblin_dagster.constructs.formats.typed_files import TypedFileFormat, TypedFileReader
from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage.memory import MemoryStorage
from gobblin_dagster.storage.scheme import Scheme


# -- a format of columns -----------------------------------------------------------------------------------------------
class FeatherWriter(FileWriter):
    """Writes Arrow IPC files."""

    class Options(FileOptions):
        """Options of `type: feather`."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "feather")

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _Columns(pa.ipc.new_file(stream, schema))


class _Columns:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class PublishedFeather(DatasetFormat, MergesColumns):
    """Arrow IPC files as they are published."""

    spark_name = "feather"

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        return sum(batch.num_rows for path in paths for batch in self.batches(filesystem.open_input_file(path)))

    def schema(self, file: pa.NativeFile) -> pa.Schema:
        return pa.ipc.open_file(file).schema

    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        opened = pa.ipc.open_file(file)
        yield from (opened.get_batch(number) for number in range(opened.num_record_batches))

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        return ds.IpcFileFormat()


class FeatherReader(TypedFileReader):
    """Reads one Arrow IPC file."""

    def count_rows(self) -> int:
        return sum(self._file.get_batch(number).num_rows for number in range(self._file.num_record_batches))

    def _open(self) -> pa.Schema:
        self._file = pa.ipc.open_file(self._raw)
        return self._file.schema

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from (self._file.get_batch(number) for number in range(self._file.num_record_batches))


class FeatherFormat(TypedFileFormat):
    """Reads Arrow IPC files."""

    reader = FeatherReader
    Published = PublishedFeather


# -- a format of text --------------------------------------------------------------------------------------------------
class PipesWriter(FileWriter):
    """Writes values between bars, without a header."""

    class Options(FileOptions):
        """Options of `type: pipes`."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "pipes")

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _Columns(
            pacsv.CSVWriter(stream, schema, write_options=pacsv.WriteOptions(include_header=False, delimiter="|"))
        )


class PublishedPipes(PublishedLines, DatasetFormat):
    """Lines of bars as they are published."""

    spark_name = "csv"

    def column_names(self, types: Types, levels: Sequence[str]) -> list[str]:
        return list(types)

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        return ds.CsvFileFormat(
            parse_options=pacsv.ParseOptions(delimiter="|"), read_options=pacsv.ReadOptions(column_names=list(names))
        )


class PipesFormat(TextFormat):
    """Reads lines."""

    Published = PublishedPipes


FORMATS: Mapping[str, Mapping[str, Any]] = {
    "feather": {"reading": f"{__name__}:FeatherFormat", "writing": f"{__name__}:FeatherWriter"},
    "pipes": {"reading": f"{__name__}:PipesFormat", "writing": f"{__name__}:PipesWriter"},
}
"""What one call of `registry.register_format` says of each."""


# -- a storage ---------------------------------------------------------------------------------------------------------
class ShelfStorage:
    """Files of one shelf, by URL or by absolute path."""

    is_move_atomic = True

    def __init__(self, name: str) -> None:
        self._files = MemoryStorage(name)
        self._root = f"shelf://{name}"

    def walk_files(self, path: str) -> Iterator[str]:
        return (self._root + found for found in self._files.walk_files(path.removeprefix(self._root)))

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            return method(*(one.removeprefix(self._root) if isinstance(one, str) else one for one in given))

        method = getattr(self._files, name)
        return call


SHELVES: dict[str, ShelfStorage] = {}


class ShelfScheme(Scheme):
    """`shelf://name/path`: files of this process. What pyarrow needs to read them is left to `Scheme`."""

    packages = ("shelf_client",)
    example = "shelf://name/path"

    def url_problem(self, host: str, path: str) -> str:
        return "" if host else "names no shelf"

    def storage(self, host: str, *, durable: bool) -> Storage:
        return cast("Storage", SHELVES.setdefault(host, ShelfStorage(host)))


# -- a commit step -----------------------------------------------------------------------------------------------------
class MarkStep:
    """Puts a file beside the published ones, which a traits says is undone with them."""

    type_name: ClassVar[str] = "made_up_mark"
    version: ClassVar[int] = 1
    reads_staging: ClassVar[bool] = False

    class Options(BaseModel):
        """Options of the step."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        name: str

    def __init__(self, path: str) -> None:
        self.path = path
        self.output_paths = (path,)

    @classmethod
    def plan(cls, options: Options, sequence: CommitSequence) -> MarkStep:
        return cls(f"{sequence.output_root}/{options.name}")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MarkStep:
        return cls(fields["path"])

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path}

    def verify(self, storage: Storage) -> bool:
        return storage.size(self.path) is not None

    def execute(self, storage: Storage) -> None:
        storage.put_if_absent(self.path, b"published")

    def describe(self) -> str:
        return f"mark {self.path}"
