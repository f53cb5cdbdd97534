"""Task-level policies on a branch's output: size of files, age of the newest row, aggregates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from decimal import localcontext
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.quality.ages import Age, age_text, before
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import BranchView, ConstructContext
from gobblin_dagster.spec.job import SpecModel


class FileSizePolicy:
    """Hold if each file of the branch has a size in a range; a branch without files holds.

    Source: gobblin-core `FileSizePolicy`. Differs: bounds in bytes; Gobblin compares bytes copied with bytes read,
    which the checksums of the commit do here.
    """

    class Options(SpecModel):
        """Options of `type: file_size`; `min_bytes`, `max_bytes` or both."""

        min_bytes: int | None = Field(default=None, ge=0)
        """Smallest allowed size of a file, in bytes (inclusive). Default: no bound."""
        max_bytes: int | None = Field(default=None, ge=1)
        """Largest allowed size of a file, in bytes (inclusive). Default: no bound."""

        @model_validator(mode="after")
        def _is_range(self) -> Self:
            if self.min_bytes is None and self.max_bytes is None:
                raise ValueError("expected min_bytes or max_bytes")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._low, self._high = options.min_bytes, options.max_bytes

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        low, high = self._low, self._high
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        expected = f"expected {' and '.join(bounds)} bytes in each file"
        wrong = [
            file
            for file in view.files
            if (low is not None and file.size_bytes < low) or (high is not None and file.size_bytes > high)
        ]
        if wrong:
            name = wrong[0].target.rpartition("/")[2]
            return False, f"{expected}; got {wrong[0].size_bytes} in {name}, {len(wrong)} of {len(view.files)} files"
        return True, f"{expected}; got that in {len(view.files)} files"


class FreshnessPolicy:
    """Hold if the newest time written is no older than an age, counted back from the beginning of the attempt.

    A branch without rows holds. A branch with rows, but without any time, does not: a check that cannot be made must
    fail.

    Source: none.
    """

    class Options(SpecModel):
        """Options of `type: freshness`."""

        column: str
        """Column with timestamps or dates; without a zone they are read as UTC."""
        max_age: Age
        """Greatest allowed age: months, days and hours, e.g. `2d`, `1m`."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._newest: datetime | None = None

    def observe(self, batch: pa.RecordBatch) -> None:
        """Remember the newest time."""
        name = self._options.column
        require_columns([name], batch.schema, "task policy 'freshness'", self._context)
        values = batch.column(name)
        if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
            problem = f"column {name!r}: expected a timestamp or date, got {values.type}"
            raise convert_error(problem, "task policy 'freshness'", self._context)
        newest = pc.max(values).as_py()
        if newest is not None:
            instant = _instant(newest)
            self._newest = instant if self._newest is None else max(self._newest, instant)

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        bound = before(self._context.load_time, self._options.max_age)
        expected = f"expected {self._options.column} at most {age_text(self._options.max_age)} old"
        if self._newest is None:
            rows = view.counts.rows_written
            return not rows, f"{expected}; got {rows} rows, none of them with a time"
        return (
            self._newest >= bound,
            f"{expected} ({bound:%Y-%m-%dT%H:%MZ} or later); newest {self._newest:%Y-%m-%dT%H:%MZ}",
        )


def _instant(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_DIGITS = 76
"""More digits than any decimal type has, so that no sum is rounded."""
_AGGREGATE = re.compile(r"\s*(count|sum|min|max)\s*\((.+)\)\s*", re.IGNORECASE | re.DOTALL)


class SqlAggregatePolicy:
    """Hold if a SQL rule over aggregates of all written rows is true.

    Exact, in one pass and constant memory: the aggregates `count`, `sum`, `min` and `max` are combined from partial
    results of batches; for an average, divide a sum by a count. Without rows, a count is 0 and the others are null; a
    rule that is null does not hold. The last digits of sums of floating numbers depend on the order of rows.

    Source: none.
    """

    class Options(SpecModel):
        """Options of `type: sql_aggregate`."""

        aggregates: dict[str, SqlExpression] = Field(min_length=1)
        """Aggregates by name: `count(*)`, `count(x)`, `sum(x)`, `min(x)` or `max(x)`, where x is an SQL expression on a
        row."""
        rule: SqlExpression = Field(min_length=1)
        """Boolean SQL expression over these names, e.g. `total / rows < 100`."""

        @field_validator("aggregates")
        @classmethod
        def _known(cls, aggregates: dict[str, str]) -> dict[str, str]:
            for name, text in aggregates.items():
                if not re.fullmatch(r"[A-Za-z_]\w*", name):
                    raise ValueError(f"expected a name of letters, digits and _, got {name!r}")
                if _AGGREGATE.fullmatch(text) is None:
                    raise ValueError(f"{name}: expected count(...), sum(...), min(...) or max(...), got {text!r}")
            return aggregates

    def __init__(self, options: Options, context: ConstructContext) -> None:
        construct = "task policy 'sql_aggregate'"
        self._names = list(options.aggregates)
        self._kinds = [_kind(text) for text in options.aggregates.values()]
        parts = ", ".join(f'{text}\nAS "{name}"' for name, text in options.aggregates.items())
        self._select = SqlSelect(parts, construct, context, shown="; ".join(options.aggregates.values()))
        self._rule = SqlMasks([options.rule], construct, context)
        self._text = " ".join(options.rule.split())
        self._values: list[Any] = [0 if kind == "count" else None for kind in self._kinds]

    def observe(self, batch: pa.RecordBatch) -> None:
        """Add a batch to the partial results."""
        partial = self._select.run(batch)
        if partial.num_rows != 1:
            raise self._select.error(
                f"expected aggregates, got {partial.num_rows} rows for a batch of {batch.num_rows}"
            )
        values = [column[0].as_py() for column in partial.columns]
        self._values = [_merged(*three) for three in zip(self._kinds, self._values, values, strict=True)]

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        # Types come from the rows' schema, so that the rule is also checked without rows.
        types = self._select.schema(view.schema).types
        columns = [pa.array([value], kind) for value, kind in zip(self._values, types, strict=True)]
        holds = self._rule.masks(pa.RecordBatch.from_arrays(columns, names=self._names))[0][0].as_py()
        got = ", ".join(f"{name} {value}" for name, value in zip(self._names, self._values, strict=True))
        return holds, f"expected {self._text}; got {got}"


def _kind(text: str) -> str:
    match = _AGGREGATE.fullmatch(text)
    return match[1].lower() if match else ""


def _merged(kind: str, before_: Any, now: Any) -> Any:
    """Return two partial results combined; null is ignored."""
    known = [value for value in (before_, now) if value is not None]
    if len(known) < 2:
        return known[0] if known else None
    with localcontext(prec=_DIGITS):
        return {"min": min, "max": max}.get(kind, sum)(known)
