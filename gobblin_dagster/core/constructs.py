"""The protocols that sources, converters, policies, forks, writers and publishers implement. All work on Arrow record batches.

Each class is registered by a short name with an `Options` model (pydantic, frozen, unknown keys refused) and is made with
`cls(options, context)`. Driver-side: `Source.plan`, `Source.count_rows`, publishers. Everything else runs in a Spark task,
one object per work unit (and branch), in one thread; after a failure a fresh object is made, never the old one used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.ranges import CommittedRanges
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import BranchCounts, StagedFile
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit


@dataclass(frozen=True, slots=True)
class ConstructContext:
    """Where a construct works."""

    job: str
    base_dir: str
    """Absolute folder that relative paths of the job file start from."""
    dataset_urn: str = ""
    """Empty on the driver, and for a job without datasets."""
    branch: str | None = None
    """None before the fork."""
    block_bytes: int = 1 << 20
    """Bytes that readers take at a time: the lever on memory."""
    run_id: str = ""
    """Empty where nothing runs."""
    load_time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the attempt on the work unit began: one instant for all of its rows, aware and in UTC."""
    in_order: bool = False
    """Whether a part of a work unit may be published, so that an extractor that can should read in order of its positions."""
    name: str = ""
    """What the job file calls the construct, for messages; set for row-level policies."""
    limit_rows: int | None = None
    """Rows after which the reading of a work unit may end (`execution.limit.rows`): an extractor that can ends a chunk there."""
    spark: Callable[[], Any] | None = None
    """Starts Spark where it is not started yet and returns the session; for sources on the driver that plan or count with
    Spark, None everywhere else."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch on its way through a task, with the place that each row came from.

    Shape: `rows` is int64, one per row of `batch`: the row's number in `file`, from 1, header not counted; null where a
    converter made the row from several or from none.
    """

    batch: pa.RecordBatch
    file: str
    rows: pa.Array

    def filter(self, mask: pa.BooleanArray) -> Chunk:
        """Return the rows for which the mask is true; null counts as false."""
        return Chunk(self.batch.filter(mask), self.file, self.rows.filter(mask))

    def slice(self, offset: int, length: int | None = None) -> Chunk:
        """Return so many rows from a position on, copying nothing; default: all the rest."""
        return Chunk(self.batch.slice(offset, length), self.file, self.rows.slice(offset, length))


@dataclass(frozen=True, slots=True)
class DatasetOffer:
    """What a source found for one dataset: the work units to come, in order of their low watermarks.

    Work units carry ids of the source's choice, unique inside the dataset; the plan replaces them. `problem` fails the
    dataset alone and leaves the others; `notes` are shown in the plan (late files and the like).
    """

    dataset_urn: str
    low: Watermark | None
    expected_high: Watermark | None
    work_units: Sequence[WorkUnit] = ()
    problem: str = ""
    notes: Sequence[str] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the things that the work units read, by name, where they have any: what is committed keeps them
    (`DatasetState.origin`), and the next plan can tell a thing that was made anew. No secrets."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may know when it plans."""

    extract: Extract
    states: Mapping[str, DatasetState]
    """State by dataset.urn; datasets never committed are absent."""
    is_selected: Callable[[str], bool]
    """Whether the user asked for a dataset.urn."""
    clock: Clock
    previous_runs: Callable[[], Sequence[RunRecord]] = tuple
    """Loads the job's last runs, newest first: what became of each dataset that had work, and which ranges failed. Costs a
    query; where a dataset stands, and what of it is left to read, is in `states`.
    Source: gobblin-api `SourceState.getPreviousWorkUnitStates`."""
    publishes_parts: bool = False
    """Whether what succeeded of a dataset is published beside what failed: `commit.policy` is not `full`."""


class Extractor(Protocol):
    """Reads one work unit, batch by batch.

    Source: gobblin-api `Extractor`. Differs: batches, not records; no upper bound on what one object buffers but
    `block_bytes`.
    """

    schema: pa.Schema
    """Schema of every chunk; known once the extractor was made."""
    bytes_read: int
    """Bytes of input read so far."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows of the work unit; raises ExtractError (file, row) or TransientError."""

    def close(self) -> None:
        """Release files and connections; called once, also after a failure."""


@runtime_checkable
class PositionedExtractor(Protocol):
    """What an extractor also implements where it knows how far it got, so that a part of a work unit can be published.

    Source: gobblin-runtime `Task` asks `Extractor.getHighWatermark` once, at the end. Differs: a position that is not exact is
    no position.
    """

    def position(self) -> Watermark | None:
        """Return the end, exclusive, of what the chunks so far hold: all below it, nothing at or above it; else None.

        Called between chunks, and after `chunks` raised; cheap. It has all components of the work unit's low. An extractor
        may hand out an empty chunk to be asked.
        """


class Source(Protocol):
    """Finds datasets and cuts what is new of them into work units.

    May say more of itself: `core.traits.SourceTraits`.

    Source: gobblin-api `Source`. Differs: planning is pure (listing and reading metadata only) and needs no Spark.
    """

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Yield one offer per selected dataset, also where nothing is new; raises SourceError where nothing can be listed."""

    def extractor(self, unit: WorkUnit) -> Extractor:
        """Open a work unit; raises as `Extractor.chunks`."""

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        """Count the source's rows in committed ranges anew, for the audit; None where the source cannot."""


@runtime_checkable
class PositionedSource(Protocol):
    """What a source also implements where its extractors may be PositionedExtractors.

    Source: none; see `PositionedExtractor`.
    """

    def tells_positions(self) -> bool:
        """Return whether, with the options given, extractors tell positions."""


@runtime_checkable
class ChecksExtract(Protocol):
    """What a source also implements where not every kind of extraction fits its options; `gobblin check` asks it.

    Source: none; Gobblin's sources take any `extract.table.type`.
    """

    def check_extract(self, extract: Extract) -> None:
        """Raise UsageError where such extractions would publish rows twice; `plan` begins with it."""


@runtime_checkable
class FrameSource(Protocol):
    """What a source also implements where Spark itself reads: each work unit becomes a Spark job of its own.

    `Source.extractor` is not called; every partition of the DataFrame runs through the task of the lane.

    Source: none; Gobblin has no Spark source.
    """

    def frame(self, session: Any, unit: WorkUnit) -> Any:
        """Return the rows of a work unit as a DataFrame, unread; on the driver, once per attempt and in several threads.

        Raises as `Extractor.chunks`, and what Spark raises, which fails the work unit.
        """


@runtime_checkable
class ForeseesSchema(Protocol):
    """What a source also implements where it knows the schema of its rows before it reads any; for notes in plans."""

    def foresee_schema(self, unit: WorkUnit) -> pa.Schema | None:
        """Return the schema that the extractor of a work unit will have; None where it takes reading rows to know.

        Called on the driver. May read a file's footer, raises as `Source.extractor`.
        """


@runtime_checkable
class StartpointResolver(Protocol):
    """What a source also implements where it can look positions up for startpoints; called on the driver, when planning.

    Source: samza-api `SystemAdmin.resolveStartpointToOffset`.
    """

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | CommittedRanges | None:
        """Return the first position to read, or all that counts as read; None: nothing does, begin as the first time.

        A position that is given as a watermark is checked and returned.

        Raises:
            StartpointError: the dataset has no such position.
            SourceError, TransientError: the source cannot be asked now.
        """


class Converter(Protocol):
    """Turns chunks into other chunks: one to none, one or many rows.

    Source: gobblin-core `Converter`.
    """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema after conversion; raises ConvertError naming a missing or unfit column."""

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield converted chunks, all of the converted schema; raises ConvertError."""


class RowLevelPolicy(Protocol):
    """Judges rows.

    Source: gobblin-core `RowLevelPolicy`. Differs: dropped and quarantined rows are always counted and shown.
    """

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for each row that passes; null counts as false."""

    def reason(self) -> str:
        """Say in one line what a rejected row violates."""


@dataclass(frozen=True, slots=True)
class BranchView:
    """What a task-level policy may look at: one branch of one work unit, whole but unpublished."""

    branch: str
    counts: BranchCounts
    rows_read: int
    rows_expected: int | None
    schema: pa.Schema
    previous_schema: str | None
    """Schema last published for the branch, as text; None the first time."""
    files: Sequence[StagedFile] = field(default_factory=tuple)


class TaskLevelPolicy(Protocol):
    """Judges the output of one branch before it may be published.

    Source: gobblin-core `TaskLevelPolicy`.
    """

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        """Return whether it holds, and one line with expected and got."""


@runtime_checkable
class BatchObserver(Protocol):
    """What a task-level policy also implements where it must see the rows: one object per branch and work unit."""

    def observe(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch that was written; keep no batch. Raises ConvertError, which fails the branch."""


class ForkOperator(Protocol):
    """Says which branch takes which rows.

    Source: gobblin-api `ForkOperator`. Differs: flags for a whole batch at once.
    """

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        """Return one flag per branch: whether the branch exists at all for this schema."""

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        """Return one flag per branch: true (all rows), false (none) or a mask; raises ForkBranchMismatchError upstream."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Where a writer stages and how it names: target `<target_dir>/.../<file_stem>-<n>.<ext>`, staged flat in `staging_dir`."""

    storage: Storage
    staging_dir: str
    """Absolute, of this dataset and commit; attempts differ by `file_stem`, branches by their name."""
    target_dir: str
    """Relative to the output root; every target starts with it."""
    file_stem: str
    """Unique for ever: holds commit id, work unit and attempt."""
    branch: str
    dataset_urn: str
    schema: pa.Schema


class DataWriter(Protocol):
    """Writes one branch of one work unit to staging. May say more of its class: `core.traits.WriterTraits`.

    Source: gobblin-api `DataWriter`.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises ConvertError (values that the format cannot hold) or StorageError (no space)."""

    def finish(self) -> Sequence[StagedFile]:
        """Close and sync all files; no rows written means no files."""

    def abort(self) -> None:
        """Delete what was staged; never raises."""


@dataclass(frozen=True, slots=True)
class PublishView:
    """One branch of one dataset in one publication: the files of all work units that are published together."""

    job: str
    run_id: str
    commit_id: str
    """128 random bits in hex, in the name of every file of `files`; a redo has the same."""
    dataset_urn: str
    branch: str
    extract: Extract
    output_root: str
    """Absolute."""
    folder: str
    """Absolute folder of the branch's files of this dataset; folders below it are those of the writer's partitions."""
    now: datetime
    """Aware, UTC."""
    files: Sequence[PublishedFile] = ()
    """What this publication adds; paths are absolute targets. Empty where the work units read no rows for the branch."""
    staged: Mapping[str, str] = field(default_factory=dict)
    """Absolute path in staging of each path of `files`: where it lies until it is moved, and stays if it is not published."""
    current: Sequence[PublishedFile] = ()
    """What the branch holds now; empty unless the publisher says `reads_current = True`."""
    schema: str | None = None
    """Arrow schema of the branch as `name: type` lines; None where nothing was ever written."""
    low: str = ""
    """Where this publication began to read; empty where nothing was committed before and the plan had no low."""
    high: str = ""
    """The dataset's watermark once this is committed."""
    joins: bool = False
    """True where the rows belong to what is published already (a replay of the quarantine): nothing may be replaced."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publisher wants done besides moving the files into place."""

    removed: tuple[str, ...] = ()
    """Paths of `PublishView.current` that the new snapshot no longer holds. Older snapshots still do, so nothing is
    deleted before they expire."""
    steps: tuple[CommitStep, ...] = ()
    """Run in order after all files are in place and before COMMIT. Each is idempotent and verified by content; its class is
    registered (`core.step_registry.register_commit_step`) when the publisher's module is imported. They are stored: no
    secrets in them."""
    publishes_files: bool = True
    """False leaves the files of this publication in staging, which is deleted after COMMIT; steps may read them there."""


class DataPublisher(Protocol):
    """Decides how a branch is published; one object per dataset, branch and publication, on the driver.

    Made with `cls(options, context)` as every construct. May say more of itself: `core.traits.PublisherTraits`.

    Source: gobblin-core-base `DataPublisher`. Differs: one per branch, not one per job; it plans what others do, so a
    crash in the middle is made good by whoever comes next.
    """

    def publish(self, view: PublishView) -> Publication:
        """Return what is to be done. Pure; raises UsageError or SourceError, which fail the dataset alone."""


@runtime_checkable
class JudgesWriter(Protocol):
    """What a publisher also implements where not every writer serves it; asked when the job file is checked."""

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        """Return why the branch's writer cannot serve it; empty where it can."""


@runtime_checkable
class JudgesExtract(Protocol):
    """What a publisher also implements where it cannot publish every extraction; asked when the job file is checked."""

    def unfit_extract(self, extract: Extract) -> str:
        """Return why it cannot publish what the job extracts; empty where it can."""


@dataclass(frozen=True, slots=True)
class NotedCommit:
    """A commit, as the target that holds its rows notes it."""

    commit_id: str
    published_at: datetime | None
    """Aware, UTC; None if an earlier version noted it, without its time."""


@runtime_checkable
class KeepsLedger(Protocol):
    """A publisher whose target itself names the commits that it holds, and holds a row twice if it is published twice.

    Asked once per target before a run reads anything, so that a state store that was lost or set back is noticed.
    """

    ledger: str
    """What names the commits, for messages: `"table gobblin_commits"`."""

    def newest_commits(self, datasets: Collection[str]) -> Mapping[str, Collection[NotedCommit]]:
        """Return the newest commits by dataset.urn, whatever branch of the job; without datasets that the target does not know.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@runtime_checkable
class ChoosesFolder(Protocol):
    """What a publisher also implements where its files lie in a folder of their own."""

    def subfolder(self, view: PublishView) -> str:
        """Return a relative folder between `view.folder` and the files (and their partition folders); empty for none.

        Called before `publish`, with a view whose `files` are empty.
        """
