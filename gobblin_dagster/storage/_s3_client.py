"""The S3 client of a process, its errors as OSError, and the check that the store supports conditional writes."""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.utils.optional_packages import optional_package

MARK = "gobblin-write"
"""Metadata key of every object that we write; the value is 128 random bits.

If the answer to a write is lost, the value shows whether the object is the one that we wrote."""
ABSENT = "*"
"""Value of `If-None-Match`: write only if the object does not exist."""
_CODES = {
    401: errno.EACCES,
    403: errno.EACCES,
    404: errno.ENOENT,
    409: errno.EAGAIN,
    412: errno.EEXIST,
    503: errno.EAGAIN,
}
_BUSY_CONNECTIONS = 64
_WITH_ETAG = ("GetObject", "HeadObject", "PutObject", "UploadPart")
"""Operations whose answers have no XML, but always an ETag."""
_HTML = re.compile(rb"\s*<(!doctype\s+)?html\b", re.IGNORECASE)


@cache
def s3_client(process: int) -> Any:
    """Return the client of this process. Credentials, region and endpoint come from boto3's usual places.

    Raises:
        EnvironmentFaultError: boto3 is not installed.
    """
    with optional_package("boto3"):
        from boto3.session import Session  # noqa: PLC0415  # an optional package, imported only if a job uses it
        from botocore.config import Config  # noqa: PLC0415  # as above
    # Not the shared default session: several threads must not use that one at once.
    client = Session().client("s3", config=Config(max_pool_connections=_BUSY_CONNECTIONS))
    # First: boto3's own handler turns some of these answers into an internal error of the store.
    client.meta.events.register_first("before-parse.*.*", partial(_refuse_other_answers, client.meta.endpoint_url))
    return client


class _OtherAnswerError(Exception):
    """Something else than an S3 store answered."""


def _refuse_other_answers(endpoint: str, operation_model: Any, response_dict: dict[str, Any], **_: object) -> None:
    """Raise _OtherAnswerError for a success that no S3 store sends, such as the sign-in page of a proxy.

    boto3 takes it for an object of the page's size, for an empty folder or for a write that was done.
    """
    if not 200 <= response_dict["status_code"] < 300:
        return
    headers, body = response_dict["headers"], response_dict["body"]
    if operation_model.name in _WITH_ETAG:
        is_other = "ETag" not in headers
    else:
        is_other = isinstance(body, bytes) and _HTML.match(body) is not None
    if is_other:
        kind = headers.get("Content-Type", "").partition(";")[0]
        kind = "HTML" if kind == "text/html" else f"something else ({kind or 'of no type'})"
        raise _OtherAnswerError(
            f"{endpoint} answered {operation_model.name} with {kind} in the place of an S3 answer; does a proxy "
            "answer? Check AWS_ENDPOINT_URL_S3, HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
        )


@contextmanager
def s3_errors(path: str, target: str | None = None) -> Iterator[None]:
    """Turn errors of boto3 into the OSErrors that a local file would raise."""
    with optional_package("boto3"):
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415  # as above

    try:
        yield
    except ClientError as error:
        problem = error.response.get("Error", {})
        code = _CODES.get(status_of(error), errno.EIO)
        is_told = code in (errno.ENOENT, errno.EEXIST) and problem.get("Code") != "NoSuchBucket"
        words = os.strerror(code) if is_told else f"{problem.get('Code')}: {problem.get('Message')}"
        raise OSError(code, words, path, None, target) from error
    except _OtherAnswerError as error:
        raise OSError(errno.EIO, str(error), path, None, target) from error
    except KeyError as error:
        problem = f"the answer has no {error}; does a proxy answer in the place of the store?"
        raise OSError(errno.EIO, problem, path, None, target) from error
    except BotoCoreError as error:
        code = errno.EACCES if isinstance(error, NoCredentialsError) else errno.EIO
        raise OSError(code, str(error), path, None, target) from error


def status_of(error: Any) -> int:
    """Return the HTTP status of a ClientError."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class ConditionCheck:
    """Checks once per process and bucket that the store refuses to overwrite an object if told so.

    The exactly-once guarantee on S3 depends on this, and stores that ignore the header report no error.
    """

    def __init__(self) -> None:
        self._checked: set[tuple[int, str, str]] = set()
        self._lock = threading.Lock()

    def require(self, client: Any, bucket: str, folder: str) -> None:
        """Write a test object below `folder` twice, by PutObject and by CompleteMultipartUpload, then delete it.

        Raises:
            EnvironmentFaultError: the store overwrote the object.
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
    """Expect status 412 (the object exists); raise EnvironmentFaultError if the write succeeds."""
    with optional_package("boto3"):
        from botocore.exceptions import ClientError  # noqa: PLC0415  # optional, as above

    try:
        yield
    except ClientError as error:
        if status_of(error) != 412:
            raise
        return
    raise EnvironmentFaultError(
        problem=f"The S3 store of bucket {bucket!r} ignores the condition `If-None-Match: *` of {operation}: "
        "it overwrote an object that it should have kept, so nothing can be published exactly once there.",
        hint="Use a store with conditional writes (Amazon S3, newer MinIO or Ceph), or HDFS, or a local disk.",
    )
