"""S3 read by others than the commit: as a source of files, and by pyarrow."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pyarrow.fs as pafs

from gobblin_dagster.storage._s3_client import s3_client, s3_errors
from gobblin_dagster.storage.file_facts import FileFacts, RemoteEntry


def arrow_s3() -> pafs.FileSystem:
    """Return pyarrow's S3 file system; raises EnvironmentFaultError if boto3 is not installed."""
    # Arrow finds credentials as boto3 does, but not always region and endpoint: these are taken from boto3.
    where = s3_client(os.getpid()).meta
    is_amazon = ".amazonaws.com" in where.endpoint_url
    return pafs.S3FileSystem(region=where.region_name, endpoint_override=None if is_amazon else where.endpoint_url)


def told_etag(url: str) -> str:
    """Return the ETag of an object as a checksum; raises OSError."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    with s3_errors(url):
        return _etag(s3_client(os.getpid()).head_object(Bucket=bucket, Key=key))


def scan_with_etags(url: str) -> Iterator[RemoteEntry]:
    """Yield the entries of a folder, with the ETags of objects as checksums; raises OSError."""
    bucket, _, folder = url.removeprefix("s3://").rstrip("/").partition("/")
    prefix, is_there = (f"{folder}/" if folder else ""), not folder
    with s3_errors(url):
        for page in (
            s3_client(os.getpid())
            .get_paginator("list_objects_v2")
            .paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
        ):
            for found in page.get("CommonPrefixes", ()):
                is_there, name = True, found["Prefix"].removeprefix(prefix).rstrip("/")
                yield RemoteEntry(name, f"{url}/{name}", None, is_folder=True)
            for found in page.get("Contents", ()):
                is_there, name = True, found["Key"].removeprefix(prefix)
                modified_us = int(found["LastModified"].timestamp()) * 1_000_000
                if name:  # an object with the folder's own name only marks that the folder exists
                    facts = FileFacts(found["Size"], modified_us, _etag(found))
                    yield RemoteEntry(name, f"{url}/{name}", facts, is_folder=False)
    if not is_there:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)


def _etag(found: dict[str, Any]) -> str:
    etag = found.get("ETag", "").strip('"')
    return f"etag={etag}" if etag else ""
