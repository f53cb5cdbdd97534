"""The protocols that sources, converters, policies, forks, writers and publishers implement, on Arrow record batches.

Register each class under a short name, with an `Options` model (pydantic, frozen, unknown keys refused); the engine
makes objects with `cls(options, context)`.

On the driver run: all methods of a source except `extractor`, and publishers. In a Spark task run: extractors,
converters, forks, policies and writers, one object per work unit (and branch), in one thread. After a failure the
engine makes new objects; it never uses an object of a failed attempt again.

A protocol whose docstring begins with "Optional" is an addition: implement its methods beside those of the main
protocol. The engine finds them with `isinstance`.
"""

from __future__ import annotations

from gobblin_dagster.core.constructs.context import Chunk, ConstructContext
from gobblin_dagster.core.constructs.converter import Converter
from gobblin_dagster.core.constructs.extractor import Extractor, MarksRows, PositionedExtractor, TellsNotes
from gobblin_dagster.core.constructs.fork import ForkOperator
from gobblin_dagster.core.constructs.publisher import (
    ChoosesFolder,
    DataPublisher,
    HeldFile,
    JudgesExtract,
    JudgesRows,
    JudgesTargets,
    JudgesWriter,
    KeepsLedger,
    ListsTableFiles,
    NamesTargets,
    NotedCommit,
    Publication,
    PublishView,
    RewritesFiles,
    Rewritten,
)
from gobblin_dagster.core.constructs.quality import BatchObserver, BranchView, RowLevelPolicy, TaskLevelPolicy
from gobblin_dagster.core.constructs.source import (
    AsksServer,
    ChecksExtract,
    ChecksPositions,
    DatasetOffer,
    DeclaresSchema,
    FrameSource,
    PartitionStartpointResolver,
    PositionedSource,
    PreviewsSchema,
    ReadsPaths,
    Source,
    SourceContext,
    StartpointResolver,
)
from gobblin_dagster.core.constructs.writer import DataWriter, WriterContext

__all__ = [
    "AsksServer",
    "BatchObserver",
    "BranchView",
    "ChecksExtract",
    "ChecksPositions",
    "ChoosesFolder",
    "Chunk",
    "ConstructContext",
    "Converter",
    "DataPublisher",
    "DataWriter",
    "DatasetOffer",
    "DeclaresSchema",
    "Extractor",
    "ForkOperator",
    "FrameSource",
    "HeldFile",
    "JudgesExtract",
    "JudgesRows",
    "JudgesTargets",
    "JudgesWriter",
    "KeepsLedger",
    "ListsTableFiles",
    "MarksRows",
    "NamesTargets",
    "NotedCommit",
    "PartitionStartpointResolver",
    "PositionedExtractor",
    "PositionedSource",
    "PreviewsSchema",
    "Publication",
    "PublishView",
    "ReadsPaths",
    "RewritesFiles",
    "Rewritten",
    "RowLevelPolicy",
    "Source",
    "SourceContext",
    "StartpointResolver",
    "TaskLevelPolicy",
    "TellsNotes",
    "WriterContext",
]
