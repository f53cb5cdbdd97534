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
from gobblin_dagster.constructs.types.arrow import decoded
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.spec.job import SpecModel


class ColumnOptions(SpecModel):
    """Options of all policies in this module."""

    column: str
    """Column to check."""
    allow_null: bool = False
    """Whether null passes. Default: null is a violation."""


class _ColumnPolicy(ABC):
    """Check one column; null passes only if `allow_null` is set."""

    name: ClassVar[str]

    def __init__(self, options: ColumnOptions, context: ConstructContext) -> None:
        self._column = options.column
        self._allow_null = options.allow_null
        self._context = context

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        require_columns([self._column], batch.schema, f"row policy '{self.name}'", self._context)
        values = decoded(batch.column(self._column))
        try:
            passes = self._passes(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self._unfit(values.type) from error
        return pc.if_else(pc.is_valid(values), pc.fill_null(passes, False), pa.scalar(self._allow_null))

    @abstractmethod
    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        """Return true for each good value; the result for null is ignored."""

    @abstractmethod
    def _expected(self) -> str:
        """Return a text for messages on what values must be."""

    def reason(self) -> str:
        return f"{self._column} is not {self._expected()}{'' if self._allow_null else ', or is null'}"

    def _unfit(self, kind: pa.DataType) -> ConvertError:
        problem = f"column {self._column!r}: expected values to compare with {self._expected()}, got {kind}"
        return convert_error(problem, f"row policy '{self.name}'", self._context)


class RangeRowPolicy(_ColumnPolicy):
    """Pass the rows whose value is in a range; NaN never passes.

    Source: none; in Gobblin each rule needs a class.
    """

    name = "range"

    class Options(ColumnOptions):
        """Options of `type: range`; `min`, `max` or both, in the column's type (dates and times as ISO text)."""

        min: int | float | str | None = None
        """Smallest allowed value (inclusive). Default: no bound."""
        max: int | float | str | None = None
        """Greatest allowed value (inclusive). Default: no bound."""

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
    """Pass the rows whose whole text matches a regular expression.

    Source: none; in Gobblin each rule needs a class.
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
    """Pass the rows whose value is in a list.

    Source: none; in Gobblin each rule needs a class.
    """

    name = "in_set"

    class Options(ColumnOptions):
        """Options of `type: in_set`."""

        values: tuple[int | float | str, ...] = Field(min_length=1)
        """Allowed values, in the column's type."""

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
    """Pass the rows whose time is at most an age before the beginning of the attempt.

    Source: gobblin-core `RecordTimestampLowerBoundPolicy` (`record.max.allowed.time.ago`). Differs: a row without a
    time is a violation unless `allow_null` is set.
    """

    name = "not_older"

    class Options(ColumnOptions):
        """Options of `type: not_older`."""

        max_age: Age
        """Greatest allowed age: months, days and hours, e.g. `1m2d3h`, `36h`."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        super().__init__(options, context)
        self._age = options.max_age
        self._bound: datetime = before(context.load_time, options.max_age)

    def _passes(self, values: pa.Array) -> pa.BooleanArray:
        if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
            raise self._unfit(values.type)
        # A time without a zone is read as UTC.
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        bound = pa.scalar(self._bound if zone else self._bound.replace(tzinfo=None), pa.timestamp("us", zone))
        return pc.greater_equal(values.cast(bound.type, safe=False), bound)

    def _expected(self) -> str:
        return f"at most {age_text(self._age)} old ({self._bound.isoformat(timespec='seconds')} or later)"


def _scalar(value: int | float | str, kind: pa.DataType) -> pa.Scalar:
    return strict_cast(pa.array([value]), kind)[0]
