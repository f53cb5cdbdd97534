"""Read published files with pyarrow from any storage. Import it only to read data: pyarrow.fs is slow to load."""

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
    """Return the pyarrow file system that holds some files, and the paths of these files in it.

    Args:
        paths: absolute paths or URLs of one storage, as in `PublishedFile.path`. If empty, the local file system is
            returned.

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
    # Cached by process, and kept in forked children too. fsspec deletes its own cached clients in a child, and
    # deleting a client waits for ever for threads that only the parent has.
    HdfsStorage(authority).connect()
    # An optional package; `connect` has already raised a helpful error if it is missing.
    with optional_package("hdfs-native", "paths that begin with hdfs://", extra="hdfs"):
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415

    return pafs.PyFileSystem(pafs.FSSpecHandler(HdfsFileSystem(authority or None)))


def arrow_s3() -> pafs.FileSystem:
    """Return pyarrow's S3 file system; raises EnvironmentFaultError if boto3 is not installed."""
    # Arrow finds credentials as boto3 does, but not always region and endpoint: these are taken from boto3.
    where = s3_client(os.getpid()).meta
    is_amazon = ".amazonaws.com" in where.endpoint_url
    return pafs.S3FileSystem(region=where.region_name, endpoint_override=None if is_amazon else where.endpoint_url)
