"""Rows as Python records for functions and classes of users.

Always copies, so that changing them affects nothing else.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from gobblin_dagster.core.errors import CopyNotSupportedError, UsageError
from gobblin_dagster.core.utils.import_target import load_target


def records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dicts that the caller may change.

    Arrow makes new Python values in each call, except for extension types: their classes may return shared objects.
    """
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name in extension_columns(batch.schema):
        for row in rows:
            row[name] = copied(row[name], name, batch.schema.field(name).type)
    return rows


def extension_columns(schema: pa.Schema) -> list[str]:
    """Return the names of columns whose values are made by a class outside Arrow."""
    return [field.name for field in schema if isinstance(field.type, pa.BaseExtensionType)]


def copied(value: Any, column: str, kind: pa.DataType) -> Any:
    """Return a deep copy; raises CopyNotSupportedError."""
    try:
        return copy.deepcopy(value)
    except MemoryError:  # the value can be copied
        raise
    except Exception as error:
        raise CopyNotSupportedError(
            column=column, type=str(kind), problem=f"{type(error).__name__}: {error}"
        ) from error


class _Aside:
    """Redirects standard output while at least one user needs it; the last one to leave restores it, in any order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._own: Any = None

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._own, sys.stdout = sys.stdout, sys.stderr
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.stdout = self._own


_ASIDE = _Aside()


@contextmanager
def prints_aside() -> Iterator[None]:
    """Redirect what a user's code prints to standard error: standard output is for a command's JSON.

    It holds for all threads, because sources load functions in several threads at once.
    """
    _ASIDE.enter()
    try:
        yield
    finally:
        _ASIDE.leave()


def load_object(target: str, construct: str) -> Any:
    """Return the object that `module:name` names; raises UsageError if it cannot be imported or called."""
    try:
        with prints_aside():
            found = load_target(target)
    except ImportError as error:
        raise UsageError(
            problem=f"{construct} cannot load {target}: {error}.",
            hint="Correct the name; your own modules must be in the project folder.",
        ) from error
    if not callable(found):
        raise UsageError(problem=f"{construct}: {target} is no function or class, but {type(found).__name__}.")
    return found
