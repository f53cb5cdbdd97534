"""Implementations of `core.storage.Storage`: the file operations that the commit needs. Imports `core` only.

Read first: `local.py`; `schemes.py` is the map from a URL's scheme to all that is known of its files.
"""

from gobblin_dagster.storage.hdfs import HdfsStorage
from gobblin_dagster.storage.local import TEMP_PREFIX, LocalSink, LocalStorage
from gobblin_dagster.storage.memory import MemorySink, MemoryStorage
from gobblin_dagster.storage.s3 import S3Storage
from gobblin_dagster.storage.schemes import Scheme, register_scheme
from gobblin_dagster.storage.urls import open_storage, storage_path

__all__ = [
    "TEMP_PREFIX",
    "HdfsStorage",
    "LocalSink",
    "LocalStorage",
    "MemorySink",
    "MemoryStorage",
    "S3Storage",
    "Scheme",
    "open_storage",
    "register_scheme",
    "storage_path",
]
