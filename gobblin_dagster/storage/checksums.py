"""Checksums of input files: what their store tells of them, else the SHA-256 of their bytes.

A checksum is `kind=value`. Two of one kind tell whether contents are equal; two of different kinds tell nothing, so a file is
compared in the kind of the checksum that is known of it:

- `sha256`, `md5`: of the bytes, read in pieces. Google tells the MD5 of objects that were not composed.
- `etag`: what S3 tells. Of an object put in one piece, and not encrypted with a key of its own, it is the MD5 of the bytes,
  and is compared as such where two differ. Of one put in parts it depends on the parts: there only equal ones tell anything.
- `crc32c`: what Google tells of composed objects; 32 bits, and the size.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gobblin_dagster.storage._s3_client import s3_client, s3_errors
from gobblin_dagster.storage.remote import FileFacts, RemoteEntry, remote_files

_PIECE_BYTES = 4 << 20
"""Bytes in memory at a time; each piece of a far file is a request."""
_ETAG_OF_ONE_PIECE = re.compile(r"etag=([0-9a-f]{32})")


def take_checksum(path: str) -> str:
    """Return what tells the content of a file: its store's word, or the SHA-256 of its bytes; raises OSError."""
    return told_checksum(path) or _digest(path, "sha256")


def told_checksum(path: str) -> str:
    """Return the checksum that a file's store tells without handing it out; empty where it tells none; raises OSError."""
    if path.startswith("s3://"):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        with s3_errors(path):
            return _etag(s3_client(os.getpid()).head_object(Bucket=bucket, Key=key))
    if path.startswith(("gs://", "gcs://")):
        return _told_by_google(path)
    return ""


def has_content(path: str, known: str, told: str = "") -> bool:
    """Tell whether a file has the content of which a checksum is known; False where that cannot be told.

    Args:
        path: absolute, or a URL.
        known: checksum of the content.
        told: what the store said of the file, where it was asked already.

    Raises:
        OSError: the file is gone, or cannot be read.
    """
    told = told or told_checksum(path)
    if told == known:
        return True
    if known.startswith("sha256=") or (known.startswith("md5=") and not told.startswith("md5=")):
        return _digest(path, known.partition("=")[0]) == known
    etag = _ETAG_OF_ONE_PIECE.fullmatch(known)
    return etag is not None and _digest(path, "md5") == f"md5={etag[1]}"


def scan_with_checksums(url: str) -> Iterable[RemoteEntry]:
    """Return the names in a far folder, with the checksums that its lists hold: those of S3 do; raises OSError."""
    return _scan_s3(url) if url.startswith("s3://") else remote_files(url).scan(url)


def _scan_s3(url: str) -> Iterator[RemoteEntry]:
    # By boto3: Arrow, which lists faster, does not hand out ETags.
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
                if name:  # one of the folder's own name only says that the folder is there
                    facts = FileFacts(found["Size"], modified_us, _etag(found))
                    yield RemoteEntry(name, f"{url}/{name}", facts, is_folder=False)
    if not is_there:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)


def _etag(found: dict[str, Any]) -> str:
    etag = found.get("ETag", "").strip('"')
    return f"etag={etag}" if etag else ""


def _told_by_google(url: str) -> str:
    files: Any = remote_files(url)
    with files.files.open_input_stream(url.partition("://")[2]) as file:
        told = {name: value.decode() for name, value in file.metadata().items()}
    if told.get("md5Hash"):
        return f"md5={base64.b64decode(told['md5Hash']).hex()}"
    return f"crc32c={told['crc32c']}" if told.get("crc32c") else ""


def _digest(path: str, kind: str) -> str:
    # It tells versions apart, and guards against nobody who would forge one.
    digest = hashlib.new(kind, usedforsecurity=False)
    with remote_files(path).open(path) if "://" in path else Path(path).open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return f"{kind}={digest.hexdigest()}"
