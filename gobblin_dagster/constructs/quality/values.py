"""Row-level policies on the values of one column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gobblin_dagster.constructs.options.column_regexes import ColumnRegex, match_whole
from gobblin_dagster.constructs.quality.ages import Age, age_text, before
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.spec.job import SpecModel


class ColumnOptions(SpecModel):
    """What all policies of this module take."""

    column: str
    """The column to judge."""
    allow_null: bool = False
    """Whether null passes."""


class _ColumnPolicy(ABC):
    """Judges one column; null passes only where it is allowed."""

    name: ClassVar[str]

    def __init__(self, options: ColumnOptions, context: ConstructContext) -> None:
        self._column = options.column
        self._allow_null = options.allow_null
        self._context = context

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        require_columns([self._column], batch.schema, f"row policy '{self.name}'", self._context)
        values = batch.column(self._column)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        try:
            passes = self._passes(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self._unfit(values.type) from error
        return pc.if_else(pc.is_valid(values), pc.fill_null(passes, False), pa.scalar(self._allow_null))

    @abstractmethod
    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        """Return true where a value is good; anything where it is null."""

    @abstractmethod
    def _expected(self) -> str:
        """Say what values must be."""

    def reason(self) -> str:
        return f"{self._column} is not {self._expected()}{'' if self._allow_null else ', or is null'}"

    def _unfit(self, kind: pa.DataType) -> ConvertError:
        problem = f"column {self._column!r}: expected values to compare with {self._expected()}, got {kind}"
        return convert_error(problem, f"row policy '{self.name}'", self._context)


class RangeRowPolicy(_ColumnPolicy):
    """Passes the rows whose value lies in a range; NaN lies in none.

    Source: none; the original needs a class for each rule.
    """

    name = "range"

    class Options(ColumnOptions):
        """Options of `type: range`; `min`, `max` or both, in the column's type (dates and times as ISO text)."""

        min: int | float | str | None = None
        """Least value, inclusive."""
        max: int | float | str | None = None
        """Greatest value, inclusive."""

        @model_validator(mode="after")
        def _has_bound(self) -> Self:
            if self.min is None and self.max is None:
                raise ValueError("expected min or max")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        super().__init__(options, context)
        self._options = options

    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        low, high = self._options.min, self._options.max
        tests = [pc.greater_equal(values, _scalar(low, values.type))] if low is not None else []
        tests += [pc.less_equal(values, _scalar(high, values.type))] if high is not None else []
        return pc.and_(tests[0], tests[-1])

    def _expected(self) -> str:
        low, high = self._options.min, self._options.max
        return " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))


class RegexRowPolicy(_ColumnPolicy):
    """Passes the rows whose text matches a regular expression from end to end.

    Source: none; the original needs a class for each rule.
    """

    name = "regex"

    class Options(ColumnOptions):
        """Options of `type: regex`."""

        pattern: ColumnRegex
        """Regular expression (RE2)."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        super().__init__(options, context)
        self._pattern = options.pattern

    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        return match_whole(values, self._pattern)

    def _expected(self) -> str:
        return f"like {self._pattern}"


class InSetRowPolicy(_ColumnPolicy):
    """Passes the rows whose value is one of a list.

    Source: none; the original needs a class for each rule.
    """

    name = "in_set"

    class Options(ColumnOptions):
        """Options of `type: in_set`."""

        values: tuple[int | float | str, ...] = Field(min_length=1)
        """The values allowed, in the column's type."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        super().__init__(options, context)
        self._values = options.values

    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        allowed = pa.array([_scalar(value, values.type).as_py() for value in self._values], values.type)
        return pc.is_in(values, value_set=allowed)

    def _expected(self) -> str:
        shown = ", ".join(map(str, self._values[:10]))
        return f"one of {shown}{', …' if len(self._values) > 10 else ''}"


class NotOlderRowPolicy(_ColumnPolicy):
    """Passes the rows whose time is no older than an age, counted back from when the work unit began; the bound passes.

    Source: gobblin-core `RecordTimestampLowerBoundPolicy` (`record.max.allowed.time.ago`). Differs: a row without a time
    does not pass unless null is allowed.
    """

    name = "not_older"

    class Options(ColumnOptions):
        """Options of `type: not_older`."""

        max_age: Age
        """Months, days and hours, e.g. `1m2d3h`, `36h`."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        super().__init__(options, context)
        self._age = options.max_age
        self._bound: datetime = before(context.load_time, options.max_age)

    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
            raise self._unfit(values.type)
        # A time without a zone is taken as UTC.
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        bound = pa.scalar(self._bound if zone else self._bound.replace(tzinfo=None), pa.timestamp("us", zone))
        return pc.greater_equal(values.cast(bound.type, safe=False), bound)

    def _expected(self) -> str:
        return f"at most {age_text(self._age)} old ({self._bound.isoformat(timespec='seconds')} or later)"


def _scalar(value: int | float | str, kind: pa.DataType) -> pa.Scalar:
    return strict_cast(pa.array([value]), kind)[0]
