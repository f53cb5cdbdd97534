"""Parts: long packed texts inside of stored bodies, which many bodies have in common and a store writes once.

A body is stored with the names of its parts in their place. A name is the digest of its part, so a part that is there
need not be written again; the digest of a body is that of the whole one. A part of states and of commit sequences is
stored twice, by one name for each, so that one copy can be damaged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from gobblin_dagster.core.errors import CorruptRecordError

_LONG = re.compile(r'"([A-Za-z0-9+/=]{1024,})"')
"""A packed text: base64 in a JSON string."""
_NAME = re.compile("\x01([0-9a-f]{32})\x01")
"""The name of a part; JSON has no such character but escaped."""
_OF_STATES = "state:"
"""Put before a part of a state when its name is made."""


def take_apart(body: str, *, is_state: bool = False) -> tuple[str, dict[str, str]]:
    """Return a body with names in place of its parts, and the parts by name.

    With `is_state` the names are those of parts of states, which no commit sequence has.

    Example:
        >>> short, parts = take_apart('{"packed":"' + 2000 * "A" + '"}')
        >>> len(short), len(parts), len(put_together(short, parts, "it"))
        (45, 1, 2013)
    """
    parts: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        digest = _name(match[1], _OF_STATES if is_state else "")
        parts[digest] = match[1]
        return f"\x01{digest}\x01"

    return _LONG.sub(name, body), parts


def mend(parts: Mapping[str, str]) -> dict[str, str]:
    """Return stored parts without damaged ones, each by the name for states and by the name for commit sequences."""
    mended: dict[str, str] = {}
    for stored_name, part in parts.items():
        both = (_name(part, ""), _name(part, _OF_STATES))
        if stored_name in both:
            mended |= dict.fromkeys(both, part)
    return mended


def part_names(stored: Iterable[str]) -> set[str]:
    """Return the names of the parts of stored bodies."""
    return {name for body in stored for name in _NAME.findall(body)}


def put_together(stored: str, parts: Mapping[str, str], what: str) -> str:
    """Return the whole body; raises CorruptRecordError, about `what`, if a part is missing."""
    missing = part_names([stored]) - parts.keys()
    if missing:
        raise CorruptRecordError(what=what, problem=f"its part {min(missing)} is missing")
    return _NAME.sub(lambda match: f'"{parts[match[1]]}"', stored)


def _name(part: str, prefix: str) -> str:
    return hashlib.sha256(f"{prefix}{part}".encode()).hexdigest()[:32]
