"""Row counts of ranges of a table: exact, or estimated by PostgreSQL's planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement, Executable

from gobblin_dagster.constructs.sources.incremental.ranges import Range
from gobblin_dagster.constructs.sources.query.relation import Relation

MOST_COUNTED = 1_000_000
"""With `count_rows: auto`, more rows than this are estimated, not counted: counting scans them all before any is
read."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected content of a range."""

    rows: int | None
    """None if the rows were neither counted nor estimated."""
    size_bytes: int | None = None
    """Set if `rows` is an estimate; else None."""

    @property
    def counted(self) -> int | None:
        """Return `rows` if they were counted; None for an estimate."""
        return None if self.size_bytes is not None else self.rows


class RowCounts:
    """Count or estimate the rows of ranges of one dataset, all in the same way."""

    def __init__(self, connection: sa.Connection, relation: Relation, how: Literal["auto"] | bool) -> None:
        self._connection = connection
        self._relation = relation
        self._how = how

    def of(self, ranges: Sequence[Range]) -> list[Expected]:
        """Return the expected content of each range; the first call decides whether rows are counted or estimated."""
        if not ranges or self._how is False:
            return [Expected(None)] * len(ranges)
        if self._how == "auto" and self._connection.dialect.name == "postgresql":
            estimates = [self._estimate(low, high) for low, high in ranges]
            if sum(estimate.rows or 0 for estimate in estimates) > MOST_COUNTED:
                return estimates
        self._how = True
        return [Expected(int(number or 0)) for number in self._connection.execute(self._relation.counts(ranges)).one()]

    def _estimate(self, low: int, high: int) -> Expected:
        rows = self._relation.rows(low, high, with_nulls=False).subquery()
        # Select `*`: SQLAlchemy would read the answer as a column of the table, with that column's type.
        explained: Any = self._connection.execute(_Explain(sa.select(sa.text("*")).select_from(rows))).scalar_one()
        plan = explained[0]["Plan"]
        return Expected(int(plan["Plan Rows"]), int(plan["Plan Rows"] * plan["Plan Width"]))


class _Explain(Executable, ClauseElement):
    """The statement `EXPLAIN` of PostgreSQL, with its result as JSON."""

    inherit_cache = False

    def __init__(self, statement: sa.Select[Any]) -> None:
        self.statement = statement


@compiles(_Explain, "postgresql")
def _explain(element: _Explain, compiler: Any, **options: Any) -> str:
    return f"EXPLAIN (FORMAT JSON) {compiler.process(element.statement, **options)}"
