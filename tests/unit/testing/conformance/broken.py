"""Implementations that break their protocols, each in one point; `test_broken.py` runs this file as an implementer
would."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.constructs.formats.lines_published import PublishedLines
from gobblin_dagster.constructs.formats.published import DatasetFormat, Types
from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import CommitEffect, CommitStep
from gobblin_dagster.core.constructs import (
    BranchView,
    Chunk,
    ConstructContext,
    DatasetOffer,
    Extractor,
    Publication,
    PublishView,
    SourceContext,
    WriterContext,
)
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance import (
    BranchOutput,
    CommitStepConformance,
    ConverterConformance,
    ExtractorConformance,
    FileFormatConformance,
    FileWriterConformance,
    ForkConformance,
    PublishedFormatConformance,
    PublisherConformance,
    RowPolicyConformance,
    SourceConformance,
    StateStoreConformance,
    StepStoreConformance,
    StorageConformance,
    TaskPolicyConformance,
)


class OverwritingStorage(MemoryStorage):
    def move(self, source: str, target: str) -> None:
        self.delete(target)
        super().move(source, target)


class TestOverwritingStorage(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return OverwritingStorage()


class ForgetfulStore(FileStateStore):
    """Gives leases back under the same epoch, and loses what a commit takes out."""

    def renew_leases(self, job: str, leases: object, ttl: timedelta) -> dict[str, Lease]:
        return {}

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        super().commit(sequence_id, epoch, replace(effect, removed=()))


class TestForgetfulStore(StateStoreConformance):
    @pytest.fixture
    def open_one(self) -> Callable[[Clock], ForgetfulStore]:
        storage = MemoryStorage()
        return lambda clock: ForgetfulStore("/state", storage, clock)


class TestNothingGiven(StepStoreConformance):
    pass


class NoOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part:
    """Made as every construct."""

    Options = NoOptions

    def __init__(self, options: NoOptions, context: ConstructContext, **more: Any) -> None:
        self.context = context
        self.more = more


class SloppyConverter(Part):
    """Announces another type than it yields, and reads the buffer of a batch as if it always began there."""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([("id", pa.int32())])

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        buffer = chunk.batch.column(0).buffers()[1]
        ids = pa.Array.from_buffers(pa.int64(), chunk.batch.num_rows, [None, buffer])
        yield Chunk(pa.record_batch({"id": ids}), chunk.file, chunk.rows)


class TestSloppyConverter(ConverterConformance):
    spec = {"type": f"{__name__}:SloppyConverter"}
    rows = pa.record_batch({"id": [1, 2]})
    unfit_schemas = [pa.schema([("other", pa.string())])]


class ListPolicy(Part):
    """Returns a list of Python, which is no Arrow array."""

    def check(self, batch: pa.RecordBatch) -> Any:
        return [True] * batch.num_rows

    def reason(self) -> str:
        return ""


class TestListPolicy(RowPolicyConformance):
    spec = {"type": f"{__name__}:ListPolicy"}
    rows = pa.record_batch({"id": [1, 2]})
    passes = [True, False]


class TalkativePolicy(Part):
    """Writes several lines, and remembers outputs."""

    seen: ClassVar[list[str]] = []

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        self.seen.append(view.branch)
        return view.rows_read > 1, f"expected two rows\ngot {view.rows_read} of {len(self.seen)}"


class TestTalkativePolicy(TaskPolicyConformance):
    spec = {"type": f"{__name__}:TalkativePolicy"}
    holds = [BranchOutput(pa.record_batch({"id": [1, 2]}))]
    breaks = [BranchOutput(pa.record_batch({"id": [1]}))]


class FirstFork(Part):
    """Gives the first row of each batch to the first branch, wherever batches are cut, and forgets the other branch."""

    def fork_schema(self, schema: pa.Schema) -> list[bool]:
        return [True]

    def fork_batch(self, batch: pa.RecordBatch) -> list[pa.BooleanArray]:
        first = pa.array([at == 0 for at in range(batch.num_rows)], pa.bool_())
        return [first, pc.invert(first)]


class TestFirstFork(ForkConformance):
    spec = {"type": f"{__name__}:FirstFork"}
    rows = pa.record_batch({"id": [1, 2]})
    takes = {"first": [True, False], "others": [False, True]}


class LinesReader:
    schema = pa.schema([("line", pa.string())])
    bytes_read = 0

    def __init__(self, path: str) -> None:
        self.lines = Path(path).read_text(encoding="utf-8").splitlines()

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"line": self.lines})

    def close(self) -> None:
        """Nothing is open."""


class LinesFormat(Part):
    """Counts one row too many, never says what it read, and takes any schema."""

    def open(self, file: InputFile, schema: pa.Schema | None) -> LinesReader:
        return LinesReader(file.path)

    def count_rows(self, file: InputFile) -> int:
        return len(LinesReader(file.path).lines) + 1


class TestLinesFormat(FileFormatConformance):
    spec = {"type": f"{__name__}:LinesFormat"}
    file_name = "lines.txt"
    content = b"a\nb\n"
    rows = pa.table({"line": ["a", "b"]})


class PublishedBackwards(PublishedLines, DatasetFormat):
    """Counts one row too many, loses the last byte of what is joined, and reads nothing but text."""

    spark_name = "csv"

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        return super().count_rows(filesystem, paths) + 1

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        return ds.CsvFileFormat()


class TestPublishedBackwards(PublishedFormatConformance):
    published = PublishedBackwards
    writer = {"type": "jsonl"}
    rows = pa.record_batch({"line": ["a", "b"]})


class LeavingWriter(Part):
    """Leaves its file behind when it is aborted, and names it outside of the target."""

    def write(self, batch: pa.RecordBatch) -> None:
        where: WriterContext = self.more["writer_context"]
        if batch.num_rows and not hasattr(self, "sink"):
            self.path = f"{where.staging_dir}/{where.file_stem}.txt"
            self.sink = where.storage.open_new(self.path)
            self.rows = 0
        for line in batch.column(0).to_pylist():
            self.sink.write(f"{line}\n".encode())
            self.rows += 1

    def finish(self) -> list[StagedFile]:
        if not hasattr(self, "sink"):
            return []
        digest = self.sink.finish()
        return [StagedFile("main", self.path, "elsewhere.txt", digest.size_bytes, digest.sha256, self.rows)]

    def abort(self) -> None:
        """Forget to delete."""


class TestLeavingWriter(FileWriterConformance):
    spec = {"type": f"{__name__}:LeavingWriter"}
    rows = pa.record_batch({"line": ["a", "b"]})

    def read(self, content: bytes) -> list[dict[str, Any]]:
        return [{"line": line} for line in content.decode().splitlines()]


class HastyPublisher(Part):
    """Writes while it plans, and removes what the branch does not hold."""

    def publish(self, view: PublishView) -> Publication:
        Path(self.context.base_dir, f"{id(self)}.done").touch()
        return Publication(removed=("/lake/foreign.parquet",))

    def subfolder(self, view: PublishView) -> str:
        return "../other"


class TestHastyPublisher(PublisherConformance):
    spec = {"type": f"{__name__}:HastyPublisher"}


@dataclass(frozen=True)
class AppendStep:
    """Puts one file after another: done twice, there are two; killed between them, it never ends."""

    folder: str
    type_name: ClassVar[str] = "test_broken_append"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        return len(storage.list_names(self.folder)) == 2

    def execute(self, storage: Storage) -> None:
        for _ in range(2):
            storage.put_if_absent(f"{self.folder}/{uuid.uuid4()}", b"")

    def to_json(self) -> dict[str, Any]:
        return {"folder": self.folder}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AppendStep:
        return cls(fields["folder"])

    def describe(self) -> str:
        return f"append to {self.folder}"


class TestAppendStep(CommitStepConformance):
    def prepare(self, storage: Storage) -> CommitStep:
        storage.make_dirs("/lake")
        return AppendStep("/lake")


class ForgetfulExtractor:
    """Reads two rows and numbers one."""

    schema = pa.schema([("id", pa.int64())])
    bytes_read = 0

    def chunks(self) -> Iterator[Chunk]:
        yield Chunk(pa.record_batch({"id": [1, 2]}), "in", pa.array([1]))

    def close(self) -> None:
        """Nothing is open."""


class ForgetfulSource(Part):
    """Offers the same for ever, to everybody, and twice."""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        units = [WorkUnit(f"{at}", "a", LongWatermark(0), LongWatermark(2)) for at in range(2)]
        yield DatasetOffer("a", LongWatermark(0), LongWatermark(2), units)

    def extractor(self, unit: WorkUnit) -> ForgetfulExtractor:
        return ForgetfulExtractor()

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int:
        return 7


class TestForgetfulSource(SourceConformance):
    spec = {"type": f"{__name__}:ForgetfulSource"}
    expected = {"a": [{"id": 1}, {"id": 2}]}


class TestForgetfulExtractor(ExtractorConformance):
    expected = [{"id": 1}, {"id": 2}]

    @pytest.fixture
    def open_extractor(self) -> Callable[[], Extractor]:
        return ForgetfulExtractor
