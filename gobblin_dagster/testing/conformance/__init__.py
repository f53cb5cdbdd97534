"""Conformance classes: tests of each protocol, to inherit by its implementers. Read `docs/how-to/test-your-own.md`.

One module for each protocol. They import pytest and this package, nothing else; pytest is installed by the extra
`conformance`. A test that fails says which sentence of the protocol was broken.
"""

from gobblin_dagster.core.utils.optional_packages import optional_package

with optional_package("pytest"):
    import pytest

_MODULES = (
    "commit_step",
    "construct",
    "converter",
    "extractor",
    "file_format",
    "fork",
    "published_format",
    "publisher",
    "quality",
    "source",
    "state_store",
    "step_store",
    "storage",
    "writer",
)
# Before they are imported: an assertion that is not rewritten shows no values when it fails.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

# ruff: noqa: E402
from gobblin_dagster.testing.conformance.commit_step import CommitStepConformance
from gobblin_dagster.testing.conformance.converter import ConverterConformance
from gobblin_dagster.testing.conformance.extractor import ExtractorConformance
from gobblin_dagster.testing.conformance.file_format import FileFormatConformance
from gobblin_dagster.testing.conformance.fork import ForkConformance
from gobblin_dagster.testing.conformance.published_format import PublishedFormatConformance
from gobblin_dagster.testing.conformance.publisher import PublisherConformance
from gobblin_dagster.testing.conformance.quality import BranchOutput, RowPolicyConformance, TaskPolicyConformance
from gobblin_dagster.testing.conformance.source import PlanConformance, SourceConformance
from gobblin_dagster.testing.conformance.state_store import QuickStateStoreConformance, StateStoreConformance
from gobblin_dagster.testing.conformance.step_store import StepStoreConformance
from gobblin_dagster.testing.conformance.storage import FolderStorageConformance, StorageConformance
from gobblin_dagster.testing.conformance.writer import FileWriterConformance, WriterConformance

__all__ = [
    "BranchOutput",
    "CommitStepConformance",
    "ConverterConformance",
    "ExtractorConformance",
    "FileFormatConformance",
    "FileWriterConformance",
    "FolderStorageConformance",
    "ForkConformance",
    "PlanConformance",
    "PublishedFormatConformance",
    "PublisherConformance",
    "QuickStateStoreConformance",
    "RowPolicyConformance",
    "SourceConformance",
    "StateStoreConformance",
    "StepStoreConformance",
    "StorageConformance",
    "TaskPolicyConformance",
    "WriterConformance",
]
