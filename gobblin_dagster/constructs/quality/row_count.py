"""Task-level policies on the number of rows."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gobblin_dagster.core.constructs import BranchView, ConstructContext
from gobblin_dagster.spec.job import SpecModel


class RowCountPolicy:
    """Hold if every row is accounted for.

    Three sums must be equal: rows taken by the branch = filtered + rejected + written; rows written = rows in its
    files; rows read = rows announced by the source, if it announced any.

    Source: gobblin-core `RowCountPolicy`. Differs: Gobblin compares announced and written rows, which fails with a
    filter, a fork, or a source without counts.
    """

    class Options(SpecModel):
        """`type: row_count` has no options."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        """Ignore both arguments."""

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        counts = view.counts
        accounted = counts.rows_filtered + counts.rows_rejected + counts.rows_written
        parts = f"{counts.rows_filtered} filtered + {counts.rows_rejected} rejected + {counts.rows_written} written"
        if accounted != counts.rows_in:
            return False, f"expected {counts.rows_in} rows taken by the branch; got {parts} = {accounted}"
        in_files = sum(file.rows for file in view.files)
        if in_files != counts.rows_written:
            return False, f"expected {counts.rows_written} rows in {len(view.files)} files; got {in_files}"
        if view.rows_expected is not None and view.rows_expected != view.rows_read:
            return False, f"expected {view.rows_expected} rows from the source; got {view.rows_read}"
        return True, f"expected {counts.rows_in} rows; got {parts}"


class RowCountRangePolicy:
    """Hold if the number of rows written is in a range.

    With `tolerance`, the range is relative to the rows announced by the source. If it announced none, the policy fails:
    a check that cannot be made must fail.

    Source: gobblin-core `RowCountRangePolicy` (`qualitychecker.row.count.range`). Differs: also absolute bounds.
    """

    class Options(SpecModel):
        """Options of `type: row_count_range`; at least one is required, and all given ones must hold."""

        min: int | None = Field(default=None, ge=0)
        """Fewest rows (inclusive). Default: no bound."""
        max: int | None = Field(default=None, ge=0)
        """Most rows (inclusive). Default: no bound."""
        tolerance: float | None = Field(default=None, ge=0, le=1)
        """Greatest allowed difference from the announced rows, as a ratio of them, 0-1 (0.05: 5%). Default: not
        checked."""

        @model_validator(mode="after")
        def _is_range(self) -> Self:
            if self.min is None and self.max is None and self.tolerance is None:
                raise ValueError("expected min, max or tolerance")
            if self.min is not None and self.max is not None and self.min > self.max:
                raise ValueError(f"min {self.min} is above max {self.max}")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        low, high, tolerance = self._options.min, self._options.max, self._options.tolerance
        written, announced = view.counts.rows_written, view.rows_expected
        holds = (low is None or written >= low) and (high is None or written <= high)
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        if tolerance is not None:
            if announced is None:
                return (
                    False,
                    f"expected rows within {tolerance:g} of the source's count, which the source does not know",
                )
            # Divided as there: 0.29 times 100 is less than 29.
            missed = abs(written - announced)
            holds = holds and (missed / announced <= tolerance if announced else not missed)
            bounds.append(f"{announced} ± {tolerance * 100:g}%")
        return holds, f"expected {' and '.join(bounds)} rows; got {written}"
