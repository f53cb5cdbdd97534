"""Option type for regular expressions (RE2) that match whole columns; checked when the job file is read."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator


def _known(pattern: str) -> str:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        # The rest of the message is a part of the pattern, which may be a part of a variable's value.
        why = ": ".join(str(error).split(": ")[:2])
        raise ValueError(f"expected a regular expression (RE2), got {pattern!r}: {why}") from None
    return pattern


ColumnRegex: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Option type: a regular expression for columns."""


def match_whole(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Return for each text whether all of it matches; null for null."""
    return pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
