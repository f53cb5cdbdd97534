"""One connection per process to an S3 store, its errors as OSError, and the check that it honours conditions."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.utils.optional_packages import optional_package

MARK = "gobblin-write"
"""Metadata of every object that we write: 128 random bits, so that after a lost answer we know our own work again."""
ABSENT = "*"
"""The condition `If-None-Match: *`: write only where nothing stands."""
_CODES = {
    401: errno.EACCES,
    403: errno.EACCES,
    404: errno.ENOENT,
    409: errno.EAGAIN,
    412: errno.EEXIST,
    503: errno.EAGAIN,
}
_BUSY_CONNECTIONS = 64


@cache
def s3_client(process: int) -> Any:
    """Return the client of this process; credentials, region and endpoint come from boto3's own chain.

    Raises:
        EnvironmentFaultError: boto3 is not installed.
    """
    with optional_package("boto3", "paths that begin with s3://", extra="s3"):
        from boto3.session import Session  # noqa: PLC0415  # asked for where a job uses it
        from botocore.config import Config  # noqa: PLC0415  # as above
    # A session of its own: the shared default one must not be used by several threads at once.
    return Session().client("s3", config=Config(max_pool_connections=_BUSY_CONNECTIONS))


@contextmanager
def s3_errors(path: str, target: str | None = None) -> Iterator[None]:
    """Turn what boto3 raises into what the operating system would raise for a local file."""
    with optional_package("boto3", "paths that begin with s3://", extra="s3"):
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415  # optional, as above

    try:
        yield
    except ClientError as error:
        problem = error.response.get("Error", {})
        code = _CODES.get(status_of(error), errno.EIO)
        is_told = code in (errno.ENOENT, errno.EEXIST) and problem.get("Code") != "NoSuchBucket"
        words = os.strerror(code) if is_told else f"{problem.get('Code')}: {problem.get('Message')}"
        raise OSError(code, words, path, None, target) from error
    except BotoCoreError as error:
        code = errno.EACCES if isinstance(error, NoCredentialsError) else errno.EIO
        raise OSError(code, str(error), path, None, target) from error


def status_of(error: Any) -> int:
    """Return the HTTP status of a ClientError."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class ConditionCheck:
    """Makes sure, once per process and bucket, that a store refuses to write where something stands.

    Everything that is exact here rests on it, and a store that ignores the header does so without a word.
    """

    def __init__(self) -> None:
        self._checked: set[tuple[int, str, str]] = set()
        self._lock = threading.Lock()

    def require(self, client: Any, bucket: str, folder: str) -> None:
        """Write an object below a folder twice, in both ways that we write, and delete it.

        Raises:
            EnvironmentFaultError: the store overwrote it.
        """
        key = (os.getpid(), client.meta.endpoint_url, bucket)
        with self._lock:
            if key not in self._checked:
                _check(client, bucket, folder)
                self._checked.add(key)


def _check(client: Any, bucket: str, folder: str) -> None:
    where = {"Bucket": bucket, "Key": f"{folder}{secrets.token_hex(16)}"}
    try:
        client.put_object(**where, Body=b"", IfNoneMatch=ABSENT)
        upload = {**where, "UploadId": client.create_multipart_upload(**where)["UploadId"]}
        part = {"PartNumber": 1, "ETag": client.upload_part(**upload, PartNumber=1, Body=b"")["ETag"]}
        with _refusing(bucket, "PutObject"):
            client.put_object(**where, Body=b"", IfNoneMatch=ABSENT)
        with _refusing(bucket, "CompleteMultipartUpload"):
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]}, IfNoneMatch=ABSENT)
        client.abort_multipart_upload(**upload)
    finally:
        client.delete_object(**where)


@contextmanager
def _refusing(bucket: str, operation: str) -> Iterator[None]:
    """Expect that the store refuses because something stands there."""
    with optional_package("boto3", "paths that begin with s3://", extra="s3"):
        from botocore.exceptions import ClientError  # noqa: PLC0415  # optional, as above

    try:
        yield
    except ClientError as error:
        if status_of(error) != 412:
            raise
        return
    raise EnvironmentFaultError(
        problem=f"The S3 store of bucket {bucket!r} ignores the condition `If-None-Match: *` of {operation}: "
        "it overwrote an object that it had been told to keep, so nothing can be published exactly once there.",
        hint="Use a store that honours conditional writes (Amazon S3, newer MinIO or Ceph), or HDFS or a local disk.",
    )
