"""Conformance classes."""

from gobblin_dagster.testing.conformance.storage import FolderStorageConformance, StorageConformance

__all__ = ["FolderStorageConformance", "StorageConformance"]
