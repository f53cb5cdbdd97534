"""Regular expressions in options, checked when a job file is read: Python's for names, RE2's for the texts of columns."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator


def _python(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression, got {pattern!r}: {error}") from None
    return pattern


def _re2(pattern: str) -> str:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected a regular expression (RE2), got {pattern!r}: {error}") from None
    return pattern


Regex: TypeAlias = Annotated[str, AfterValidator(_python)]
"""A regular expression of Python."""
ColumnRegex: TypeAlias = Annotated[str, AfterValidator(_re2)]
"""A regular expression of RE2, which a column is matched with in one go."""


def match_whole(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Return whether each text matches a `ColumnRegex` from end to end; null for null."""
    return pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
