"""Reading published files with pyarrow, wherever they lie. Imported only where data is read: pyarrow.fs is slow to load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import pyarrow.fs as pafs

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.storage._s3_client import s3_client
from gobblin_dagster.storage.hdfs import HdfsStorage
from gobblin_dagster.storage.local import LocalStorage
from gobblin_dagster.storage.s3 import S3Storage
from gobblin_dagster.storage.urls import open_storage, storage_path


def arrow_files(paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Return the pyarrow file system that holds some files, and their paths as it knows them.

    Args:
        paths: absolute paths or URLs of one storage, as `PublishedFile.path` has them; none means local ones.

    Raises:
        UsageError: the storage cannot be read by pyarrow (`memory://`).
        EnvironmentFaultError: the storage's package is not installed.

    Example:
        >>> arrow_files(["/lake/a.parquet"])[1]
        ['/lake/a.parquet']
    """
    storage = open_storage(paths[0]) if paths else LocalStorage()
    inside = [storage_path(path) for path in paths]
    match storage:
        case LocalStorage():
            return pafs.LocalFileSystem(), inside
        case HdfsStorage(authority=authority):
            return _hdfs(authority, os.getpid()), inside
        case S3Storage(bucket=bucket):
            return arrow_s3(), [bucket + path for path in inside]
        case _:
            raise UsageError(problem=f"pyarrow cannot read {paths[0]!r}.")


@cache
def _hdfs(authority: str, _process: int) -> pafs.FileSystem:
    # Kept for good, in forked children too: fsspec drops its own there, and a client that goes waits for ever for the
    # threads that only its process has.
    HdfsStorage(authority).connect()
    # An optional package, which `connect` has asked for in words.
    with optional_package("hdfs-native", "paths that begin with hdfs://", extra="hdfs"):
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415

    return pafs.PyFileSystem(pafs.FSSpecHandler(HdfsFileSystem(authority or None)))


def arrow_s3() -> pafs.FileSystem:
    """Return S3 as pyarrow reads it; raises EnvironmentFaultError where boto3 is not installed."""
    # Arrow finds credentials as boto3 does, but neither endpoint nor region in all the places where boto3 looks.
    where = s3_client(os.getpid()).meta
    is_amazon = ".amazonaws.com" in where.endpoint_url
    return pafs.S3FileSystem(region=where.region_name, endpoint_override=None if is_amazon else where.endpoint_url)
