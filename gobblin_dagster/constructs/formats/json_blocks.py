"""Cut a text of JSON lines into blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gobblin_dagster.constructs.formats.base import FormatError

_SIGNATURE = b"\xef\xbb\xbf"
"""Signature that some programs write before UTF-8; not a part of the text."""
_MAX_BLOCKS_A_LINE = 16
"""Most blocks of one line: a file without line breaks, e.g. with one array, must not fill the memory."""


def blocks(stream: Any, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of lines that are not blank, each about one block long."""
    rest = b""
    skipped = _SIGNATURE
    while data := stream.read(block_bytes):
        data, skipped = data.removeprefix(skipped), b""
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_BLOCKS_A_LINE * block_bytes:
            raise FormatError(
                f"a line is longer than {len(rest)} bytes; expected one object per line. Raise `execution.block_bytes` "
                "if rows are that long."
            )
        whole = [line for line in lines if line.strip()]
        if whole:
            yield whole
    if rest.strip():
        yield [rest]
