"""What users import: the names that are meant to stay, each loaded when it is asked for.

    from gobblin_dagster import open_project

All of them are names of the package `gobblin_dagster` too. A converter needs no engine, and a reader of published
data no commit protocol, so importing this module loads nothing else. Modules inside of the package never import it.
The Dagster layer is `gobblin_dagster.orchestration`, tools for tests are in `gobblin_dagster.testing`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobblin_dagster.constructs.formats.base import FileFormat, FileReader, FormatError, InputFile, OpenStream
    from gobblin_dagster.constructs.formats.published import DatasetFormat, MergesBytes, MergesColumns, PublishedFormat
    from gobblin_dagster.constructs.formats.typed_files import TypedFileFormat, TypedFileOptions, TypedFileReader
    from gobblin_dagster.constructs.registry import ConstructKind, registry
    from gobblin_dagster.constructs.sources.python import ReadUnit, ReadUpTo
    from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
    from gobblin_dagster.core.commit import CommitSequence, CommitStep, PublishedFile, SequenceState, StoredSequence
    from gobblin_dagster.core.constructs import (
        BatchObserver,
        BranchView,
        ChecksExtract,
        ChecksPositions,
        ChoosesFolder,
        Chunk,
        ConstructContext,
        Converter,
        DataPublisher,
        DatasetOffer,
        DataWriter,
        DeclaresSchema,
        Extractor,
        ForkOperator,
        FrameSource,
        JudgesExtract,
        JudgesRows,
        JudgesTargets,
        JudgesWriter,
        KeepsLedger,
        MarksRows,
        NamesTargets,
        NotedCommit,
        PartitionStartpointResolver,
        PositionedExtractor,
        PositionedSource,
        PreviewsSchema,
        Publication,
        PublishView,
        ReadsPaths,
        RewritesFiles,
        Rewritten,
        RowLevelPolicy,
        Source,
        SourceContext,
        StartpointResolver,
        TaskLevelPolicy,
        TellsNotes,
        WriterContext,
    )
    from gobblin_dagster.core.dataset_state import DatasetState, Totals
    from gobblin_dagster.core.errors import (
        CommitConflictError,
        CommitStateUnknownError,
        ConvertError,
        CopyNotSupportedError,
        CorruptRecordError,
        DataQualityError,
        DatasetBusyError,
        EnvironmentFaultError,
        ExtractError,
        ForkBranchMismatchError,
        GobblinDagsterError,
        GroupHeldBackError,
        InvalidSpecError,
        InvalidUrnError,
        QuarantinedError,
        RangeOverlapError,
        SequenceChangedError,
        SourceError,
        SparkLostError,
        SpecError,
        SpecFault,
        StagedFileLostError,
        StaleEpochError,
        StartpointError,
        StepRefusedError,
        StorageError,
        StoreVersionError,
        TaskLostError,
        TerminalError,
        TransientError,
        UnfinishedSequenceError,
        UsageError,
        WatermarkMovedError,
        WatermarkTypeError,
        WorkerDiedError,
        WorkingStateError,
    )
    from gobblin_dagster.core.extract import Extract, ExtractType
    from gobblin_dagster.core.row_mark import RowMark
    from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
    from gobblin_dagster.core.startpoint import (
        ALL_JOBS,
        Oldest,
        Specific,
        Startpoint,
        StartpointEvent,
        StartpointKey,
        StartpointPosition,
        Timestamp,
        Upcoming,
    )
    from gobblin_dagster.core.startpoint_types import CustomPosition, register_startpoint_type
    from gobblin_dagster.core.step_registry import register_commit_step
    from gobblin_dagster.core.storage import Sink, Storage
    from gobblin_dagster.core.task_state import PolicyOutcome, PolicyResult, TaskFailure, TaskState
    from gobblin_dagster.core.traits import (
        FormatTraits,
        PackageTraits,
        PublisherTraits,
        SourceTraits,
        StepTraits,
        WriterTraits,
    )
    from gobblin_dagster.core.utils.table import Listing
    from gobblin_dagster.core.watermark import (
        CompositeWatermark,
        DateWatermark,
        HourWatermark,
        LongWatermark,
        NameWatermark,
        Position,
        Ranges,
        SingleWatermark,
        TimestampWatermark,
        Watermark,
        register_watermark_type,
    )
    from gobblin_dagster.core.watermark.file_set import FileSetWatermark
    from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
    from gobblin_dagster.core.watermark.table_snapshot import TableSnapshotWatermark
    from gobblin_dagster.core.work_unit import WorkUnit
    from gobblin_dagster.demo.project import add_day, write_demo
    from gobblin_dagster.engine.check import CheckedFile, ProjectCheck
    from gobblin_dagster.engine.commit.inspect import StepStatus
    from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
    from gobblin_dagster.engine.listener import RunListener
    from gobblin_dagster.engine.maintenance.abandon import Abandonment
    from gobblin_dagster.engine.maintenance.clean import CleanResult, ExpiredSnapshots, StagingFolder
    from gobblin_dagster.engine.maintenance.compact import Compaction, Merge
    from gobblin_dagster.engine.maintenance.replay import Replay
    from gobblin_dagster.engine.maintenance.rollback import RollbackPlan
    from gobblin_dagster.engine.maintenance.sequence_status import SequenceStatus
    from gobblin_dagster.engine.maintenance.startpoint_history import StartpointHistoryEntry
    from gobblin_dagster.engine.maintenance.state_change import Change
    from gobblin_dagster.engine.maintenance.state_export import ImportPlan
    from gobblin_dagster.engine.maintenance.state_history import HistoryEntry
    from gobblin_dagster.engine.maintenance.verify import Difference, Differs, Verification, VerifiedDataset
    from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, Leftover
    from gobblin_dagster.engine.project import Project
    from gobblin_dagster.engine.results import Audit, DatasetResult, RecoveredDataset, RunResult
    from gobblin_dagster.engine.snapshots.history import SnapshotInfo
    from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, read_published
    from gobblin_dagster.engine.snapshots.rejected_rows import QuarantineCount, QuarantinedRow
    from gobblin_dagster.engine.task.runner import SessionRunner, TaskRunner
    from gobblin_dagster.face.commit import CommitMethods
    from gobblin_dagster.face.project import GobblinProject, check, open_project
    from gobblin_dagster.face.quarantine import QuarantineMethods
    from gobblin_dagster.face.startpoint import SetStartpoint, StartpointMethods
    from gobblin_dagster.face.state import StateListing, StateMethods
    from gobblin_dagster.spec.job import ConstructSpec, JobSpec
    from gobblin_dagster.spec.project import ProjectSpec
    from gobblin_dagster.state import open_store
    from gobblin_dagster.state.startpoints import StartpointManager
    from gobblin_dagster.state.store import StateStore
    from gobblin_dagster.storage import LocalStorage, MemoryStorage, Scheme, open_storage, register_scheme, storage_path
    from gobblin_dagster.storage.hdfs import HdfsStorage
    from gobblin_dagster.storage.s3 import S3Storage

__all__ = [
    "ALL_JOBS",
    "Abandonment",
    "Audit",
    "BatchObserver",
    "BranchView",
    "Change",
    "CheckedFile",
    "ChecksExtract",
    "ChecksPositions",
    "ChoosesFolder",
    "Chunk",
    "CleanResult",
    "CommitConflictError",
    "CommitListener",
    "CommitMethods",
    "CommitSequence",
    "CommitStateUnknownError",
    "CommitStep",
    "CommittedRanges",
    "Compaction",
    "CompositeWatermark",
    "ConstructContext",
    "ConstructKind",
    "ConstructSpec",
    "ConvertError",
    "Converter",
    "CopyNotSupportedError",
    "CorruptRecordError",
    "CustomPosition",
    "DataPublisher",
    "DataQualityError",
    "DataWriter",
    "DatasetBusyError",
    "DatasetFormat",
    "DatasetOffer",
    "DatasetOutcome",
    "DatasetPlan",
    "DatasetResult",
    "DatasetRunRecord",
    "DatasetState",
    "DateWatermark",
    "DeclaresSchema",
    "Difference",
    "Differs",
    "Encoder",
    "EnvironmentFaultError",
    "ExpiredSnapshots",
    "Extract",
    "ExtractError",
    "ExtractType",
    "Extractor",
    "FileFormat",
    "FileOptions",
    "FileReader",
    "FileSetWatermark",
    "FileWriter",
    "ForkBranchMismatchError",
    "ForkOperator",
    "FormatError",
    "FormatTraits",
    "FrameSource",
    "GobblinDagsterError",
    "GobblinProject",
    "GroupHeldBackError",
    "HdfsStorage",
    "HistoryEntry",
    "HourWatermark",
    "ImportPlan",
    "InputFile",
    "InvalidSpecError",
    "InvalidUrnError",
    "JobPlan",
    "JobSpec",
    "JudgesExtract",
    "JudgesRows",
    "JudgesTargets",
    "JudgesWriter",
    "KeepsLedger",
    "Leftover",
    "Listing",
    "LocalStorage",
    "LongWatermark",
    "MarksRows",
    "MemoryStorage",
    "Merge",
    "MergesBytes",
    "MergesColumns",
    "NameWatermark",
    "NamesTargets",
    "NotedCommit",
    "Oldest",
    "OpenStream",
    "PackageTraits",
    "PartitionStartpointResolver",
    "PolicyOutcome",
    "PolicyResult",
    "Position",
    "PositionedExtractor",
    "PositionedSource",
    "PreviewsSchema",
    "Project",
    "ProjectCheck",
    "ProjectSpec",
    "Publication",
    "PublishView",
    "PublishedFile",
    "PublishedFormat",
    "PublishedSnapshot",
    "PublisherTraits",
    "QuarantineCount",
    "QuarantineMethods",
    "QuarantinedError",
    "QuarantinedRow",
    "RangeOverlapError",
    "Ranges",
    "ReadUnit",
    "ReadUpTo",
    "ReadsPaths",
    "RecoveredDataset",
    "Replay",
    "RewritesFiles",
    "Rewritten",
    "RollbackPlan",
    "RowLevelPolicy",
    "RowMark",
    "RunListener",
    "RunRecord",
    "RunResult",
    "RunStatus",
    "S3Storage",
    "Scheme",
    "SequenceChangedError",
    "SequenceState",
    "SequenceStatus",
    "SessionRunner",
    "SetStartpoint",
    "SilentListener",
    "SingleWatermark",
    "Sink",
    "SnapshotInfo",
    "Source",
    "SourceContext",
    "SourceError",
    "SourceTraits",
    "SparkLostError",
    "SpecError",
    "SpecFault",
    "Specific",
    "StagedFileLostError",
    "StagingFolder",
    "StaleEpochError",
    "Startpoint",
    "StartpointError",
    "StartpointEvent",
    "StartpointHistoryEntry",
    "StartpointKey",
    "StartpointManager",
    "StartpointMethods",
    "StartpointPosition",
    "StartpointResolver",
    "StateListing",
    "StateMethods",
    "StateStore",
    "StepRefusedError",
    "StepStatus",
    "StepTraits",
    "Storage",
    "StorageError",
    "StoreVersionError",
    "StoredSequence",
    "TableSnapshotWatermark",
    "TaskFailure",
    "TaskLevelPolicy",
    "TaskLostError",
    "TaskRunner",
    "TaskState",
    "TellsNotes",
    "TerminalError",
    "Timestamp",
    "TimestampWatermark",
    "Totals",
    "TransientError",
    "TypedFileFormat",
    "TypedFileOptions",
    "TypedFileReader",
    "UnfinishedSequenceError",
    "Upcoming",
    "UsageError",
    "Verification",
    "VerifiedDataset",
    "Watermark",
    "WatermarkInterval",
    "WatermarkMovedError",
    "WatermarkTypeError",
    "WorkUnit",
    "WorkerDiedError",
    "WorkingStateError",
    "WriterContext",
    "WriterTraits",
    "add_day",
    "check",
    "open_project",
    "open_storage",
    "open_store",
    "read_published",
    "register_commit_step",
    "register_scheme",
    "register_startpoint_type",
    "register_watermark_type",
    "registry",
    "storage_path",
    "write_demo",
]

_HOMES: Mapping[str, str] = {
    "constructs.formats.base": "FileFormat FileReader FormatError InputFile OpenStream",
    "constructs.formats.published": "DatasetFormat MergesBytes MergesColumns PublishedFormat",
    "constructs.formats.typed_files": "TypedFileFormat TypedFileOptions TypedFileReader",
    "constructs.registry": "ConstructKind registry",
    "constructs.sources.python": "ReadUnit ReadUpTo",
    "constructs.writers.files": "Encoder FileOptions FileWriter",
    "core.commit": "CommitSequence CommitStep PublishedFile SequenceState StoredSequence",
    "core.constructs": (
        "BatchObserver BranchView ChecksExtract ChecksPositions ChoosesFolder Chunk ConstructContext Converter "
        "DataPublisher DataWriter DatasetOffer DeclaresSchema Extractor ForkOperator FrameSource JudgesExtract "
        "JudgesRows JudgesTargets JudgesWriter KeepsLedger MarksRows NamesTargets NotedCommit "
        "PartitionStartpointResolver PositionedExtractor PositionedSource PreviewsSchema Publication PublishView "
        "ReadsPaths RewritesFiles Rewritten RowLevelPolicy Source SourceContext StartpointResolver TaskLevelPolicy "
        "TellsNotes WriterContext"
    ),
    "core.dataset_state": "DatasetState Totals",
    "core.errors": (
        "CommitConflictError CommitStateUnknownError ConvertError CopyNotSupportedError CorruptRecordError "
        "DataQualityError DatasetBusyError EnvironmentFaultError ExtractError ForkBranchMismatchError "
        "GobblinDagsterError GroupHeldBackError InvalidSpecError InvalidUrnError QuarantinedError "
        "RangeOverlapError SequenceChangedError SourceError SparkLostError SpecError SpecFault StagedFileLostError "
        "StaleEpochError StartpointError StepRefusedError StorageError StoreVersionError TaskLostError TerminalError "
        "TransientError UnfinishedSequenceError UsageError WatermarkMovedError WatermarkTypeError WorkerDiedError "
        "WorkingStateError"
    ),
    "core.extract": "Extract ExtractType",
    "core.row_mark": "RowMark",
    "core.run_record": "DatasetOutcome DatasetRunRecord RunRecord RunStatus",
    "core.startpoint": (
        "ALL_JOBS Oldest Specific Startpoint StartpointEvent StartpointKey StartpointPosition Timestamp Upcoming"
    ),
    "core.startpoint_types": "CustomPosition register_startpoint_type",
    "core.step_registry": "register_commit_step",
    "core.storage": "Sink Storage",
    "core.task_state": "PolicyOutcome PolicyResult TaskFailure TaskState",
    "core.traits": "FormatTraits PackageTraits PublisherTraits SourceTraits StepTraits WriterTraits",
    "core.utils.table": "Listing",
    "core.watermark": (
        "CompositeWatermark DateWatermark HourWatermark LongWatermark NameWatermark Position Ranges "
        "SingleWatermark TimestampWatermark Watermark register_watermark_type"
    ),
    "core.watermark.file_set": "FileSetWatermark",
    "core.watermark.ranges": "CommittedRanges WatermarkInterval",
    "core.watermark.table_snapshot": "TableSnapshotWatermark",
    "core.work_unit": "WorkUnit",
    "demo.project": "add_day write_demo",
    "engine.check": "CheckedFile ProjectCheck",
    "engine.commit.inspect": "StepStatus",
    "engine.commit.listener": "CommitListener SilentListener",
    "engine.listener": "RunListener",
    "engine.maintenance.abandon": "Abandonment",
    "engine.maintenance.clean": "CleanResult ExpiredSnapshots StagingFolder",
    "engine.maintenance.compact": "Compaction Merge",
    "engine.maintenance.replay": "Replay",
    "engine.maintenance.rollback": "RollbackPlan",
    "engine.maintenance.sequence_status": "SequenceStatus",
    "engine.maintenance.startpoint_history": "StartpointHistoryEntry",
    "engine.maintenance.state_change": "Change",
    "engine.maintenance.state_export": "ImportPlan",
    "engine.maintenance.state_history": "HistoryEntry",
    "engine.maintenance.verify": "Difference Differs Verification VerifiedDataset",
    "engine.plan.model": "DatasetPlan JobPlan Leftover",
    "engine.project": "Project",
    "engine.results": "Audit DatasetResult RecoveredDataset RunResult",
    "engine.snapshots.history": "SnapshotInfo",
    "engine.snapshots.reader": "PublishedSnapshot read_published",
    "engine.snapshots.rejected_rows": "QuarantineCount QuarantinedRow",
    "engine.task.runner": "SessionRunner TaskRunner",
    "face.commit": "CommitMethods",
    "face.project": "GobblinProject check open_project",
    "face.quarantine": "QuarantineMethods",
    "face.startpoint": "SetStartpoint StartpointMethods",
    "face.state": "StateListing StateMethods",
    "spec.job": "ConstructSpec JobSpec",
    "spec.project": "ProjectSpec",
    "state": "open_store",
    "state.startpoints": "StartpointManager",
    "state.store": "StateStore",
    "storage": "LocalStorage MemoryStorage Scheme open_storage register_scheme storage_path",
    "storage.hdfs": "HdfsStorage",
    "storage.s3": "S3Storage",
}
"""Modules and the names that they hold, as imported above for type checkers; a test compares both."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker would take any name for one that there is

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"gobblin_dagster.{_HOME_OF[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
