"""Implementations of `core.storage.Storage`: the file operations that the commit needs. Imports `core` only.

Read first: `local.py`; `scheme.py` is all that is known of the files of a scheme of URLs, `schemes.py` finds it by its
name. `hdfs.py` and `s3.py` are imported when a URL of theirs is used.
"""

from gobblin_dagster.storage.local import TEMP_PREFIX, LocalSink, LocalStorage
from gobblin_dagster.storage.memory import MemorySink, MemoryStorage
from gobblin_dagster.storage.scheme import Scheme
from gobblin_dagster.storage.schemes import register_scheme
from gobblin_dagster.storage.urls import open_storage, storage_path

__all__ = [
    "TEMP_PREFIX",
    "LocalSink",
    "LocalStorage",
    "MemorySink",
    "MemoryStorage",
    "Scheme",
    "open_storage",
    "register_scheme",
    "storage_path",
]
