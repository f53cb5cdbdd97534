"""Regular expressions of RE2 in options, which match a column in one go: checked when a job file is read."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator


def _known(pattern: str) -> str:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected a regular expression (RE2), got {pattern!r}: {error}") from None
    return pattern


ColumnRegex: TypeAlias = Annotated[str, AfterValidator(_known)]
"""A regular expression in an options model."""


def match_whole(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Return whether each text matches from end to end; null for null."""
    return pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
