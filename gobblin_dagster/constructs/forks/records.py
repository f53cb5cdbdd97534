"""RecordForkOperator: call a class of the user for each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, StringConstraints

from gobblin_dagster.constructs.records import load_object, records
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ForkBranchMismatchError, UsageError
from gobblin_dagster.spec.job import SpecModel

_NAME = "fork operator 'records'"
_METHODS = ("fork_record", "fork_schema")
_FLAG = (bool, np.bool_, int, np.integer, type(None))


class RecordForkOperator:
    """Call an object's `fork_record(record: dict) -> list[bool]` for each row: one flag per branch, in order.

    The object is made once per work unit, with `options` as keyword arguments. It may have a method
    `fork_schema(schema) -> list[bool]`, one flag per branch; without it every branch exists. Records are copies, so the
    object cannot change the rows of a branch.

    Raises:
        ForkBranchMismatchError: another number of flags than branches.
        ConvertError: the object raised an exception, or returned something else than a list of flags.
        UsageError: the class cannot be instantiated.

    Source: gobblin-api `ForkOperator` (`init`, `forkSchema`, `forkDataRecord`).
    """

    class Options(SpecModel):
        """Options of `type: records`."""

        operator: Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")]
        """`module:Class`; the module may be in the project folder."""
        options: dict[str, Any] = Field(default_factory=dict)
        """Keyword arguments for the class. Default: none."""

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        self._branches = len(branches)
        self._context = context
        cls = load_object(options.operator, _NAME)
        try:
            self._operator: Any = cls(**options.options)
        except TypeError as error:
            raise UsageError(problem=f"{_NAME}: {options.operator} cannot be made: {error}.") from error
        if not callable(getattr(self._operator, "fork_record", None)):
            raise UsageError(problem=f"{_NAME}: {options.operator} has no method fork_record.")
        # A misspelt `fork_schema` would be ignored.
        if unknown := [name for name in dir(self._operator) if name.startswith("fork") and name not in _METHODS]:
            raise UsageError(
                problem=f"{_NAME}: {options.operator} has {', '.join(unknown)}, which is never called.",
                hint=f"Names that begin with `fork` are {' and '.join(_METHODS)}; begin names of your own with `_`.",
            )

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        if not hasattr(self._operator, "fork_schema"):
            return (True,) * self._branches
        return self._call("fork_schema", schema)

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        flags = np.array([self._flags(record) for record in records(batch)], dtype=bool)
        return [pa.array(column) for column in flags.reshape(batch.num_rows, self._branches).T]

    def _flags(self, record: dict[str, Any]) -> list[bool]:
        flags = self._call("fork_record", record)
        if len(flags) != self._branches:
            raise ForkBranchMismatchError(what="record", flags=len(flags), branches=self._branches)
        return flags

    def _call(self, method: str, argument: Any) -> list[bool]:
        """Return the flags that a method returns; raise ConvertError if it returns something else, or raises."""
        try:
            found = getattr(self._operator, method)(argument)
            flags = list(found) if isinstance(found, list | tuple | np.ndarray | Iterator) else None
        except MemoryError:
            raise
        except Exception as error:
            problem = f"{method} raised {type(error).__name__}: {error}"
            raise convert_error(problem, _NAME, self._context) from error
        # A text "false" counts as true in Python: its rows would go to a branch that nobody chose for them.
        wrong = [found] if flags is None else [flag for flag in flags if not isinstance(flag, _FLAG)]
        if wrong:
            problem = f"{method} returned {wrong[0]!r:.60}" + (" among its flags" if flags is not None else "")
            raise convert_error(f"{problem}; expected a list of True and False", _NAME, self._context)
        return [bool(flag) for flag in flags or ()]
