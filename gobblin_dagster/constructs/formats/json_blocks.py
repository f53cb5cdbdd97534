"""Cut a text of JSON lines into blocks of whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gobblin_dagster.constructs.formats.base import FormatError

Split: TypeAlias = Callable[[Any, int], Iterator[list[bytes]]]
"""Cuts a stream into lists of texts with one object each; the number is the bytes to read at once."""
SIGNATURE = b"\xef\xbb\xbf"
"""Signature that some programs write before UTF-8; not a part of the text."""
MAX_BLOCKS = 16
"""Most blocks of one line: a file without line breaks, e.g. with one array, must not fill the memory."""


def blocks(stream: Any, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of lines that are not blank, each about one block long."""
    rest = b""
    skipped = SIGNATURE
    while data := stream.read(block_bytes):
        data, skipped = data.removeprefix(skipped), b""
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_BLOCKS * block_bytes:
            raise FormatError(
                f"a line is longer than {len(rest)} bytes; expected one object per line. Raise `execution.block_bytes` "
                "if rows are that long."
            )
        whole = [line for line in lines if line.strip()]
        if whole:
            yield whole
    if rest.strip():
        yield [rest]
