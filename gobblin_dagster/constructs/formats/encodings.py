"""Encodings of text files, by their Python names: checked when a job file is read."""

from __future__ import annotations

import codecs
from typing import Annotated, TypeAlias

from pydantic import AfterValidator


def _known(name: str) -> str:
    try:
        "".encode(name)  # Python knows codecs that make no text too
    except LookupError:
        raise ValueError(f"there is no encoding {name!r}; expected a name like utf-8 or latin-1") from None
    return codecs.lookup(name).name


EncodingName: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Name of an encoding; whichever of its names was written, Python's own comes out."""


def without_signature(encoding: str) -> str:
    """Return the encoding that leaves out the signature which some programs put before UTF-8; it is no part of the text."""
    return "utf-8-sig" if encoding == "utf-8" else encoding
