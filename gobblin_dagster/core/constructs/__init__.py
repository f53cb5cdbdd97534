"""The protocols that sources, converters, policies, forks, writers and publishers implement. All work on Arrow record batches.

Each class is registered by a short name with an `Options` model (pydantic, frozen, unknown keys refused) and is made with
`cls(options, context)`. Driver-side: `Source.plan`, `Source.count_rows`, publishers. Everything else runs in a Spark task,
one object per work unit (and branch), in one thread; after a failure a fresh object is made, never the old one used again.
"""

from __future__ import annotations

from gobblin_dagster.core.constructs.context import Chunk, ConstructContext
from gobblin_dagster.core.constructs.converter import Converter
from gobblin_dagster.core.constructs.extractor import Extractor, PositionedExtractor
from gobblin_dagster.core.constructs.fork import ForkOperator
from gobblin_dagster.core.constructs.publisher import (
    ChoosesFolder,
    DataPublisher,
    JudgesExtract,
    JudgesWriter,
    KeepsLedger,
    NamesTargets,
    NotedCommit,
    Publication,
    PublishView,
)
from gobblin_dagster.core.constructs.quality import BatchObserver, BranchView, RowLevelPolicy, TaskLevelPolicy
from gobblin_dagster.core.constructs.source import (
    ChecksExtract,
    DatasetOffer,
    ForeseesSchema,
    FrameSource,
    PositionedSource,
    ReadsPaths,
    Source,
    SourceContext,
    StartpointResolver,
)
from gobblin_dagster.core.constructs.writer import DataWriter, WriterContext

__all__ = [
    "BatchObserver",
    "BranchView",
    "ChecksExtract",
    "ChoosesFolder",
    "Chunk",
    "ConstructContext",
    "Converter",
    "DataPublisher",
    "DataWriter",
    "DatasetOffer",
    "Extractor",
    "ForeseesSchema",
    "ForkOperator",
    "FrameSource",
    "JudgesExtract",
    "JudgesWriter",
    "KeepsLedger",
    "NamesTargets",
    "NotedCommit",
    "PositionedExtractor",
    "PositionedSource",
    "Publication",
    "PublishView",
    "ReadsPaths",
    "RowLevelPolicy",
    "Source",
    "SourceContext",
    "StartpointResolver",
    "TaskLevelPolicy",
    "WriterContext",
]
