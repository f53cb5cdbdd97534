"""Collect the names of fields of JSON records that no column is declared for, so that a run can name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gobblin_dagster.constructs.types.shapes import JsonShape

_MAX_KEPT = 100
"""Most names that are remembered; names can be data, such as ids."""
_MAX_NAMED = 5
_MAX_LENGTH = 60


class LeftOutFields:
    """Names of the fields that `columns` lacks, with dots for fields of objects.

    Args:
        columns: shapes by field name.
        what: whose fields they are, for the note: `the value`.
    """

    def __init__(self, columns: Mapping[str, JsonShape], what: str) -> None:
        self._columns, self._what = columns, what
        self._names: set[str] = set()

    def add(self, record: Any) -> None:
        """Look at one parsed record."""
        self._walk(record, self._columns, "")

    def notes(self) -> tuple[str, ...]:
        """Return one sentence with at most five names; none if all fields are declared."""
        if not self._names:
            return ()
        names = sorted(self._names)
        shown = ", ".join(map(_shown, names[:_MAX_NAMED]))
        more = len(names) - _MAX_NAMED
        others = f" and {more}{' or more' if len(names) == _MAX_KEPT else ''} other(s)" if more > 0 else ""
        return (f"field(s) of {self._what} that `columns` does not declare were left out: {shown}{others}.",)

    def _walk(self, value: Any, shape: Any, path: str) -> None:
        match value, shape:
            case list(), [item]:
                for one in value:
                    self._walk(one, item, path)
            case dict(), Mapping():
                for name, one in value.items():
                    if name in shape:
                        self._walk(one, shape[name], f"{path}{name}.")
                    elif len(self._names) < _MAX_KEPT:
                        self._names.add(f"{path}{name}")


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MAX_LENGTH else f"{name[:_MAX_LENGTH]}...")
