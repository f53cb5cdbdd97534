"""Find keys and fields in `KEYS`: by the name of a key, by a field, by a construct."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gobblin_dagster.spec.explain import nearest
from gobblin_dagster.spec.gobblin.keys import KEYS, Key

FIELD = re.compile(r"(?P<slot>[\w.]+)\((?P<type>[\w*]+)\)\.(?P<option>.+)")
"""A field that is an option of a construct."""
OWN_TABLE = "<table>"
"""Placeholder in `KEYS` for the name of the job's table (`extract.table.name`) at the beginning of a key."""
_NO_FILES = "console"
"""The only built-in writer that `writer(*)` does not include, as it writes no files."""

MAX_HINTS = 100
"""The most unknown keys whose nearest known one is looked for: messages name no more faults of a file."""
_PAGE = "see docs/reference/gobblin-keys.md"
MAX_BRANCHES = 1_000
"""The most branches of a job: an index has at most three digits."""
_INDEXED = re.compile(r"(?P<name>.+)\.(?P<index>0|[1-9]\d{0,2})")
BY_NAME: dict[str, list[Key]] = {}
for _key in KEYS:
    BY_NAME.setdefault(_key.name, []).append(_key)
_FAMILIES = tuple(name.removesuffix("*") for name in BY_NAME if name.endswith("*"))
_FIRST_KEY = {key.field: key.name for key in reversed(KEYS) if key.field}
_MISSING = {"source": "source.class", "output": "data.publisher.final.dir"}


def known(key: str) -> list[Key]:
    """Return the entries of `KEYS` for a key without its branch index; empty if there are none."""
    return BY_NAME.get(key) or next((BY_NAME[f"{one}*"] for one in _FAMILIES if key.startswith(one)), [])


def of_table(key: str, table: str) -> str:
    """Return the name in `KEYS` of a key that begins with the name of the job's table; other keys unchanged."""
    name = key.removeprefix(f"{table}.") if table else key
    return f"{OWN_TABLE}.{name}" if f"{OWN_TABLE}.{name}" in BY_NAME and name != key else key


def split(key: str) -> tuple[str, int | None]:
    """Return the name of a key, and its branch index; None for a key without one."""
    match = _INDEXED.fullmatch(key)
    if match is not None and any(one.takes_branch for one in BY_NAME.get(match["name"], ())):
        return match["name"], int(match["index"])
    return key, None


def hint_for(key: str, earlier: int) -> str:
    """Return a hint for an unknown key.

    Args:
        key: the key.
        earlier: how many other ones got a hint; beyond `MAX_HINTS`, nobody reads them, and each takes milliseconds.
    """
    if earlier >= MAX_HINTS:
        return _PAGE
    match = _INDEXED.fullmatch(key)
    name = match["name"] if match else key
    hint = nearest(name, (known for known in BY_NAME if not known.endswith("*")), 0.75)  # they share words
    return hint if hint.startswith("did") else _PAGE


def fields_of(slot: str, type_name: str) -> Iterator[str]:
    """Yield the fields that are options of a construct."""
    for name in dict.fromkeys(key.field for key in KEYS):
        match = FIELD.fullmatch(name)
        if match is None or match["slot"] != slot or match["option"] == "max_errors":
            continue
        is_any = match["type"] == "*" and ":" not in type_name and type_name != _NO_FILES
        if is_any or match["type"] == type_name:
            yield name


def names_of(name: str) -> list[str]:
    """Return the names of the keys that a field is made from."""
    return [key.name for key in KEYS if key.field == name]


def first_key(field_name: str) -> str:
    """Return the key to name in the message for a missing field; empty if there is none."""
    return _MISSING.get(field_name) or _FIRST_KEY.get(field_name, "")


def places_of(key: str) -> Iterator[tuple[str, ...]]:
    """Yield the places of a job that may be missing because a key could not be read: its fields and their parents."""
    for one in known(split(key)[0]):
        match = FIELD.fullmatch(one.field)
        place = (match["slot"], *match["option"].split(".")) if match else tuple(one.field.split("."))
        for length in range(1, len(place) + 1):
            yield place[:length]
