"""Find the commits that somebody took back by a RESTORE of a Delta table: its log names them for ever all the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.utils.optional_packages import optional_package

_NEWEST = 100
"""Versions of a table that are looked through; each is a file to read."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A version of a table that brought back an older one."""

    version: int
    before: Any
    """The table as it was before."""
    target: Any
    """The table as it was at the version that was brought back."""


def restores_of(table: Any, at_version: Callable[[int], Any]) -> list[Restore]:
    """Return the RESTOREs among the newest versions of a table, newest first, unless the log has lost their targets.

    Args:
        table: the newest state of a `DeltaTable`.
        at_version: returns the state of a version.

    Raises:
        DeltaError, OSError: the table's log cannot be read.
    """
    with optional_package("deltalake"):
        from deltalake.exceptions import DeltaError  # noqa: PLC0415  # optional package

    history, found = table.history(_NEWEST), []
    for entry in history:
        if entry.get("operation") == "RESTORE":
            with suppress(DeltaError):  # an old version may have been cleaned up
                if (target := _target(entry, history, at_version)) is not None:
                    found.append(Restore(entry["version"], at_version(entry["version"] - 1), target))
    return found


def _target(entry: Mapping[str, Any], history: Sequence[Mapping[str, Any]], at_version: Callable[[int], Any]) -> Any:
    """Return the table at the version that a RESTORE brought back; None if that is too long ago."""
    if str(said := entry.get("operationParameters", {}).get("version")).isdecimal():
        return at_version(int(said))
    # It names a time, in a zone that Spark does not tell: the version with the same files.
    files = {*at_version(entry["version"]).file_uris()}
    older = (at_version(one["version"]) for one in history if one["version"] < entry["version"])
    return next((one for one in older if {*one.file_uris()} == files), None)


def newest_number(table: Any, restores: Sequence[Restore], application: str) -> int | None:
    """Return the number of the newest transaction of an application whose rows a table holds; None if there is none."""
    number: int | None = table.transaction_version(application)
    oldest = math.inf
    for one in restores:
        if one.version < oldest and number is not None and number == one.before.transaction_version(application):
            number, oldest = one.target.transaction_version(application), one.target.version()
    return number
