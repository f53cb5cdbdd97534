"""Upload: write an object in parts. It becomes visible only when complete, and never replaces another object."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from gobblin_dagster.storage._s3_client import ABSENT, MARK, s3_errors


def mark_of(client: Any, bucket: str, key: str) -> str:
    """Return the mark of an object (`MARK`); empty if the object has no mark or does not exist."""
    with suppress(FileNotFoundError), s3_errors(key):
        found: str = client.head_object(Bucket=bucket, Key=key)["Metadata"].get(MARK, "")
        return found
    return ""


class Upload:
    """A multipart upload of one object. All methods but `abort` raise OSErrors that name `path`."""

    def __init__(self, client: Any, bucket: str, key: str, path: str) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        self._path = path
        self._mark = secrets.token_hex(16)
        self._parts: list[dict[str, Any]] = []
        with s3_errors(path):
            begun = client.create_multipart_upload(**self._where, Metadata={MARK: self._mark})
            self._upload = {**self._where, "UploadId": begun["UploadId"]}

    @property
    def parts(self) -> int:
        """Number of parts so far."""
        return len(self._parts)

    def add(self, data: bytes | bytearray) -> None:
        """Append bytes as the next part: at least 5 MiB, except for the last part."""
        number = len(self._parts) + 1
        with s3_errors(self._path):
            part = self._client.upload_part(**self._upload, PartNumber=number, Body=bytes(data))
            self._parts.append({"PartNumber": number, "ETag": part["ETag"]})

    def copy(self, source: str, etag: str, start: int, end: int) -> None:
        """Append the bytes `[start, end)` of another object of the bucket, if that still has this ETag."""
        number = len(self._parts) + 1
        with s3_errors(self._path):
            part = self._client.upload_part_copy(
                **self._upload,
                PartNumber=number,
                CopySource={"Bucket": self._where["Bucket"], "Key": source},
                CopySourceIfMatch=etag,
                CopySourceRange=f"bytes={start}-{end - 1}",
            )
            self._parts.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})

    def complete(self) -> None:
        """Make the object visible.

        Raises:
            FileExistsError: another object exists under this key; it was not changed.
            FileNotFoundError: the upload was aborted meanwhile.
        """
        try:
            with s3_errors(self._path):
                self._client.complete_multipart_upload(
                    **self._upload, MultipartUpload={"Parts": self._parts}, IfNoneMatch=ABSENT
                )
        except (FileExistsError, FileNotFoundError):
            # If the answer to the first request was lost, boto3 repeats it: the object exists then, or the upload is
            # gone.
            if not self.is_visible():
                raise

    def is_visible(self) -> bool:
        """Return whether the object exists and was written by this upload."""
        return mark_of(self._client, self._where["Bucket"], self._where["Key"]) == self._mark

    def abort(self) -> None:
        """End the upload and delete its parts; never raises."""
        with suppress(OSError), s3_errors(self._path):
            self._client.abort_multipart_upload(**self._upload)
