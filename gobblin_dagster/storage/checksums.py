"""Checksums of input files: taken from the store if it keeps one, else the SHA-256 of the bytes.

A checksum is a text `kind=value`. Only checksums of one kind can be compared, so a file is always compared by the kind
of its known checksum:

- `sha256`, `md5`: of the bytes, which are read in pieces. Google keeps the MD5 of objects that were not composed of
  others.
- `etag`: kept by S3. For an object written in one piece and not encrypted with a customer's key it is the MD5 of the
  bytes: if two such ETags differ, the MD5 is computed and compared. For an object written in parts it depends on the
  parts too: equal ETags mean equal contents, different ones mean nothing.
- `crc32c`: kept by Google for composed objects; it has only 32 bits, so the size is compared too.
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
"""Bytes read at a time; each piece of a remote file is a request."""
_ETAG_OF_ONE_PIECE = re.compile(r"etag=([0-9a-f]{32})")


def take_checksum(path: str) -> str:
    """Return the checksum of a file: the one of its store, else the SHA-256 of its bytes; raises OSError."""
    return told_checksum(path) or _digest(path, "sha256")


def told_checksum(path: str) -> str:
    """Return the checksum that the store keeps of a file, without reading the file.

    Empty if the store keeps none. Raises OSError.
    """
    if path.startswith("s3://"):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        with s3_errors(path):
            return _etag(s3_client(os.getpid()).head_object(Bucket=bucket, Key=key))
    if path.startswith(("gs://", "gcs://")):
        return _told_by_google(path)
    return ""


def has_content(path: str, known: str, told: str = "") -> bool:
    """Return True if the file's checksum equals `known`; False if it differs or cannot be computed.

    Args:
        path: absolute path or URL.
        known: checksum of the expected content.
        told: checksum of the file by `told_checksum`, if the caller has it already; empty otherwise.

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
    """Return the entries of a remote folder, with checksums if the store lists them (S3 does); raises OSError."""
    return _scan_s3(url) if url.startswith("s3://") else remote_files(url).scan(url)


def _scan_s3(url: str) -> Iterator[RemoteEntry]:
    # boto3, because Arrow lists faster but does not return ETags.
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


def _told_by_google(url: str) -> str:
    files: Any = remote_files(url)
    with files.files.open_input_stream(url.partition("://")[2]) as file:
        told = {name: value.decode() for name, value in file.metadata().items()}
    if told.get("md5Hash"):
        return f"md5={base64.b64decode(told['md5Hash']).hex()}"
    return f"crc32c={told['crc32c']}" if told.get("crc32c") else ""


def _digest(path: str, kind: str) -> str:
    # MD5 is fine here: it detects changes, it does not protect against forged files.
    digest = hashlib.new(kind, usedforsecurity=False)
    with remote_files(path).open(path) if "://" in path else Path(path).open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return f"{kind}={digest.hexdigest()}"
