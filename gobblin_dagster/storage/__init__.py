"""Implementations of `core.storage.Storage`. Imports `core` only.

Read first: `local.py`.
"""

from gobblin_dagster.storage.local import LocalSink, LocalStorage

__all__ = ["LocalSink", "LocalStorage"]
