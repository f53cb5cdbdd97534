"""Option type for Python's regular expressions, checked when the job file is read; see also `column_regexes`."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator


def _known(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression, got {pattern!r}: {error}") from None
    return pattern


Regex: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Option type: a regular expression."""
