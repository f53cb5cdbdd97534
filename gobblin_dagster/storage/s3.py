"""S3Storage: objects of one bucket through boto3 (extra `s3`), in Amazon S3 or in a store with the same API.

S3 cannot rename: a move copies the object and then deletes the source. The copy becomes visible only when complete,
and only if the target does not exist (`If-None-Match: *`). S3 has no folders: a folder exists while an object is below
it. Confirmed writes are durable, so nothing needs a sync. Needs the permissions s3:GetObject, PutObject, DeleteObject,
AbortMultipartUpload, ListBucket and ListBucketMultipartUploads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gobblin_dagster.core.storage import FileDigest
from gobblin_dagster.storage._s3_client import ABSENT, MARK, ConditionCheck, s3_client, s3_errors
from gobblin_dagster.storage._s3_upload import Upload, mark_of
from gobblin_dagster.storage.local import TEMP_PREFIX
from gobblin_dagster.storage.scheme import Scheme

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from gobblin_dagster.storage.file_facts import RemoteEntry, RemoteFiles

PART_BYTES = 8 << 20
"""Bytes that a sink collects before it sends them as a part."""
COPY_BYTES = 512 << 20
"""Bytes that one request copies inside the store. Up to 5 GiB are allowed, but the request would be silent for
minutes."""
_PARTS_PER_SIZE = 1000
"""Number of parts after which parts grow by `PART_BYTES`, because an object can have at most 10,000 parts."""
_TRIES = 5

_conditions = ConditionCheck()


class S3Sink:
    """A new object, sent in parts; it becomes visible with `finish`."""

    def __init__(self, upload: Upload, storage: S3Storage, path: str) -> None:
        self._upload = upload
        self._storage = storage
        self._path = path
        self._buffer = bytearray()
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._buffer += view
        self._size_bytes += view.nbytes
        while len(self._buffer) >= (size := PART_BYTES * (1 + self._upload.parts // _PARTS_PER_SIZE)):
            self._upload.add(self._buffer[:size])
            del self._buffer[:size]
        return view.nbytes

    def finish(self) -> FileDigest:
        # If the folder was deleted meanwhile, the upload is gone too and stays so, like a local file.
        with suppress(FileNotFoundError):
            if self._buffer or not self._upload.parts:
                self._upload.add(self._buffer)
            self._upload.complete()
        self._buffer.clear()
        return FileDigest(self._size_bytes, self._hash.hexdigest())

    def abort(self) -> None:
        self._upload.abort()
        with suppress(OSError):
            if self._upload.is_visible():
                self._storage.delete(self._path)


@dataclass
class S3Storage:
    """Objects of one bucket, by `s3://bucket/key` or by `/key`. Percent signs in keys are not decoded.

    Credentials, region and endpoint come from boto3's usual places: environment, `~/.aws`, instance or web identity.
    Set `AWS_ENDPOINT_URL_S3` to use a store other than Amazon's.

    Each object holds a mark of the write that made it. So if the answer to a write is lost, a second try that finds the
    object can see whether it is our own or another process was first.

    Args:
        bucket: name of the bucket, which must exist.

    Raises:
        EnvironmentFaultError: boto3 is not installed, or the store ignores `If-None-Match` (checked before the first
            write of a process).
    """

    bucket: str
    is_move_atomic: bool = field(default=False, init=False, repr=False)

    @property
    def _s3(self) -> Any:
        return s3_client(os.getpid())

    def _key(self, path: str) -> str:
        root = f"s3://{self.bucket}"
        if path != root and not path.startswith((root + "/", "/")):
            raise OSError(errno.EINVAL, f"not a path of {root}", path)
        return path.removeprefix(root).strip("/")

    def _where(self, path: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self._key(path)}

    def _writer(self, path: str) -> Any:
        """Return the client, after checking once that the store supports `If-None-Match`."""
        folder = self._key(path).rpartition("/")[0]
        with s3_errors(path):
            _conditions.require(self._s3, self.bucket, f"{folder}/{TEMP_PREFIX}".lstrip("/"))
        return self._s3

    def _upload(self, path: str) -> Upload:
        return Upload(self._writer(path), self.bucket, self._key(path), path)

    def _head(self, path: str) -> dict[str, Any]:
        with s3_errors(path):
            found: dict[str, Any] = self._s3.head_object(**self._where(path))
            return found

    def open_new(self, path: str) -> S3Sink:
        if self.size(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return S3Sink(self._upload(path), self, path)

    def size(self, path: str) -> int | None:
        try:
            return int(self._head(path)["ContentLength"])
        except FileNotFoundError:
            return None

    def sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        with s3_errors(path):
            for piece in self._s3.get_object(**self._where(path))["Body"].iter_chunks(1 << 20):
                digest.update(piece)
        return digest.hexdigest()

    def read(self, path: str) -> bytes:
        with s3_errors(path):
            content: bytes = self._s3.get_object(**self._where(path))["Body"].read()
            return content

    def move(self, source: str, target: str) -> None:
        found = self._head(source)
        size = int(found["ContentLength"])
        upload = self._upload(target)
        try:
            for start in range(0, size, COPY_BYTES):
                upload.copy(self._key(source), found["ETag"], start, min(start + COPY_BYTES, size))
            if not upload.parts:
                upload.add(b"")
            upload.complete()
        except BaseException:
            upload.abort()
            raise
        if self.size(target) != size:
            raise OSError(errno.EIO, f"the store made {self.size(target)} of {size} bytes; the source is kept", target)
        self.delete(source)

    def is_leftover(self, source: str, target: str) -> bool:
        """Return True if a source is what a move left whose target is complete, so that it can be deleted.

        Such a source is not younger than the target, whose time is at the earliest that of the begin of its copy. Times
        may be whole seconds.
        """
        old, new = self._written(source), self._written(target)
        return self._key(source) != self._key(target) and old is not None and new is not None and old <= new

    def _written(self, path: str) -> datetime | None:
        """Return when an object was written; None if there is none. Listings have parts of seconds more often."""
        key = self._key(path)
        with s3_errors(path):
            found = self._s3.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1).get("Contents", ())
        return next((one["LastModified"] for one in found if one["Key"] == key), None)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        mark = secrets.token_hex(16)
        for _ in range(_TRIES - 1):
            # S3 answers 409 if two writes come at the same moment; it may have done neither.
            with suppress(BlockingIOError):
                return self._put(path, data, mark)
        return self._put(path, data, mark)

    def _put(self, path: str, data: bytes, mark: str) -> bool:
        where, client = self._where(path), self._writer(path)
        try:
            with s3_errors(path):
                client.put_object(**where, Body=data, IfNoneMatch=ABSENT, Metadata={MARK: mark})
        except FileExistsError:
            return mark_of(client, self.bucket, self._key(path)) == mark
        return True

    def make_dirs(self, path: str) -> None:
        """Do nothing: S3 has no folders."""

    def sync_dir(self, path: str) -> None:
        """Do nothing: confirmed writes are durable."""

    def list_names(self, path: str) -> list[str]:
        found: set[str] = set()
        for page in self._pages(path, Delimiter="/"):
            found.update(one["Prefix"].rstrip("/").rpartition("/")[2] for one in page.get("CommonPrefixes", ()))
            found.update(one["Key"].rpartition("/")[2] for one in page.get("Contents", ()))
        if not found:
            self._refuse_file(path)
        return sorted(name for name in found if name and not name.startswith(TEMP_PREFIX))

    def walk_files(self, path: str) -> Iterator[str]:
        start = len(self._prefix(path))
        keys = [one["Key"][start:] for page in self._pages(path) for one in page.get("Contents", ())]
        if not keys:
            self._refuse_file(path)
        # Sort folder by folder, as all storages do: S3 itself lists `b.x` before `b/1`.
        for parts in sorted(key.split("/") for key in keys):
            if parts[-1] and not any(part.startswith(TEMP_PREFIX) for part in parts):
                yield f"{path.rstrip('/')}/{'/'.join(parts)}"

    def delete(self, path: str) -> None:
        with s3_errors(path):
            self._s3.delete_object(**self._where(path))

    def delete_tree(self, path: str) -> None:
        """Delete all objects below a folder, and end uploads to it; their writers get FileNotFoundError."""
        is_empty = True
        for page in self._pages(path):
            keys = [{"Key": one["Key"]} for one in page.get("Contents", ())]
            is_empty &= not keys
            if keys:
                with s3_errors(path):
                    failed = self._s3.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})
                for one in failed.get("Errors", ()):
                    raise OSError(errno.EIO, f"{one.get('Code')}: {one.get('Message')}", one.get("Key"))
        if is_empty:
            self._refuse_file(path)
        for key, upload in self._uploads(path, self._prefix(path)):
            self._give_up(path, key, upload)

    def delete_empty(self, path: str) -> None:
        """Do nothing: S3 has no folders, and `delete_tree` would end uploads that others make there."""

    def end_uploads(self, paths: Collection[str]) -> None:
        """End unfinished uploads of exactly these objects; their writers get FileNotFoundError."""
        wanted = {self._key(path): path for path in paths}
        for key, upload in self._uploads(next(iter(paths), ""), posixpath.commonprefix(list(wanted))):
            if key in wanted:
                self._give_up(wanted[key], key, upload)

    def _uploads(self, path: str, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield (key, upload id) of unfinished uploads."""
        with s3_errors(path):
            pages = self._s3.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket, Prefix=prefix):
                yield from ((one["Key"], one["UploadId"]) for one in page.get("Uploads", ()))

    def _give_up(self, path: str, key: str, upload: str) -> None:
        with suppress(FileNotFoundError), s3_errors(path):
            self._s3.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload)

    def _prefix(self, path: str) -> str:
        key = self._key(path)
        return f"{key}/" if key else ""

    def _pages(self, path: str, **more: str) -> Iterator[dict[str, Any]]:
        with s3_errors(path):
            pages = self._s3.get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=self.bucket, Prefix=self._prefix(path), **more)

    def _refuse_file(self, path: str) -> None:
        """Raise NotADirectoryError if the path is an object and not a folder."""
        if self._key(path) and self.size(path) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


class S3Scheme(Scheme):
    """`s3://bucket/key`."""

    packages = ("boto3",)
    example = "s3://bucket/path"
    renames = False

    def url_problem(self, host: str, path: str) -> str:
        return "" if host else "names no bucket"

    def storage(self, host: str, *, durable: bool) -> S3Storage:
        return S3Storage(host)

    def arrow(self, host: str, paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        return self.connect(""), [host + path for path in paths]

    def connect(self, authority: str) -> pafs.FileSystem:
        from gobblin_dagster.storage.s3_files import arrow_s3  # noqa: PLC0415  # slow to load

        return arrow_s3()

    def files(self, authority: str) -> RemoteFiles:
        from gobblin_dagster.storage.object_files import ArrowFiles  # noqa: PLC0415  # slow to load

        return ArrowFiles("s3://", self.client(""))

    def stored_checksum(self, url: str) -> str:
        from gobblin_dagster.storage.s3_files import told_etag  # noqa: PLC0415  # slow to load

        return told_etag(url)

    def scan_with_checksums(self, url: str) -> Iterable[RemoteEntry]:
        # boto3, because Arrow lists faster but does not return ETags.
        from gobblin_dagster.storage.s3_files import scan_with_etags  # noqa: PLC0415  # slow to load

        return scan_with_etags(url)
