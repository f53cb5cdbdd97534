"""Conformance classes."""

from gobblin_dagster.testing.conformance.state_store import QuickStateStoreConformance, StateStoreConformance
from gobblin_dagster.testing.conformance.step_store import StepStoreConformance
from gobblin_dagster.testing.conformance.storage import FolderStorageConformance, StorageConformance

__all__ = [
    "FolderStorageConformance",
    "QuickStateStoreConformance",
    "StateStoreConformance",
    "StepStoreConformance",
    "StorageConformance",
]
