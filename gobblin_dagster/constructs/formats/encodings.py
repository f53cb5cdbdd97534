"""Option type for encodings of text files, by Python's names; checked when the job file is read."""

from __future__ import annotations

import codecs
from typing import Annotated, TypeAlias

from pydantic import AfterValidator


def _known(name: str) -> str:
    try:
        "".encode(name)  # fails for codecs that encode no text
    except LookupError:
        raise ValueError(f"there is no encoding {name!r}; expected a name like utf-8 or latin-1") from None
    own = codecs.lookup(name).name
    return "utf-8" if own == "utf-8-sig" else own  # whose signature is passed over anyway


EncodingName: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Name of an encoding; aliases are replaced by Python's own name, and `utf-8-sig` by `utf-8`."""


def without_signature(encoding: str) -> str:
    """Return the encoding that skips the signature that some programs write before UTF-8."""
    return "utf-8-sig" if encoding == "utf-8" else encoding
