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

import hashlib
import os
import re
from collections.abc import Iterable

from gobblin_dagster.core.utils.regular_file import open_regular
from gobblin_dagster.storage.file_facts import RemoteEntry
from gobblin_dagster.storage.remote import remote_files
from gobblin_dagster.storage.schemes import scheme_of

_PIECE_BYTES = 4 << 20
"""Bytes read at a time; each piece of a remote file is a request."""
_ETAG_OF_ONE_PIECE = re.compile(r"etag=([0-9a-f]{32})")


def take_checksum(path: str) -> str:
    """Return the checksum of a file: the one of its store, else the SHA-256 of its bytes; raises OSError."""
    return stored_checksum(path) or _digest(path, "sha256")


def stored_checksum(path: str) -> str:
    """Return the checksum that the store keeps of a file, without reading the file.

    Empty if the store keeps none. Raises OSError.
    """
    return scheme_of(path).stored_checksum(path) if "://" in path else ""


def has_content(path: str, known: str, stored: str = "") -> bool:
    """Return True if the file's checksum equals `known`; False if it differs or cannot be computed.

    Args:
        path: absolute path or URL.
        known: checksum of the expected content.
        stored: checksum of the file by `stored_checksum`, if the caller has it already; empty otherwise.

    Raises:
        OSError: the file is gone, or cannot be read.
    """
    stored = stored or stored_checksum(path)
    if stored == known:
        return True
    if known.startswith("sha256=") or (known.startswith("md5=") and not stored.startswith("md5=")):
        return _digest(path, known.partition("=")[0]) == known
    etag = _ETAG_OF_ONE_PIECE.fullmatch(known)
    return etag is not None and _digest(path, "md5") == f"md5={etag[1]}"


def scan_with_checksums(url: str) -> Iterable[RemoteEntry]:
    """Return the entries of a remote folder, with checksums if the store lists them (S3 does); raises OSError."""
    return scheme_of(url).scan_with_checksums(url)


def _digest(path: str, kind: str) -> str:
    # MD5 is fine here: it detects changes, it does not protect against forged files.
    digest = hashlib.new(kind, usedforsecurity=False)
    with remote_files(path).open(path) if "://" in path else os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return f"{kind}={digest.hexdigest()}"
