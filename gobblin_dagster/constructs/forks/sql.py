"""SqlForkOperator: give each branch the rows for which its SQL expression is true."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Discriminator, Field, Tag, field_validator

from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import SpecModel


class Rest(SpecModel):
    """`{rest: true}`: the rows that no other branch takes."""

    rest: Literal[True]
    """Always `true`."""


def _kind(condition: object) -> str:
    return "rest" if isinstance(condition, dict | Rest) else "expression"


Condition = Annotated[
    Annotated[SqlExpression, Tag("expression")] | Annotated[Rest, Tag("rest")],
    Discriminator(_kind),
]
"""The condition of a branch."""


class SqlForkOperator:
    """Give each branch the rows for which its condition is true; null counts as false.

    Conditions may overlap: a row then goes to several branches. A row that no branch takes is counted as untaken; with
    a branch `{rest: true}` there is none.

    Raises:
        UsageError: (when made) conditions and branches differ.
        ConvertError: a condition does not fit the rows.

    Source: none; Gobblin has no `ForkOperator` that decides by rows, only the interface.
    """

    class Options(SpecModel):
        """Options of `type: sql`."""

        branches: dict[str, Condition] = Field(min_length=1)
        """Condition by branch name, for every branch: a boolean SQL expression, or `{rest: true}` for one of them."""

        @field_validator("branches", mode="before")
        @classmethod
        def _no_bare_flag(cls, branches: object) -> object:
            # `rest: true` could mean "every row" or "the rest"; a wrong guess would lose rows silently.
            if isinstance(branches, dict):
                flags = sorted(str(name) for name, condition in branches.items() if isinstance(condition, bool))
                if flags:
                    raise ValueError(
                        f"branch {', '.join(flags)}: expected a SQL text or {{rest: true}}; write {{rest: true}} for "
                        'the rows that no other branch takes, "true" in quotes for every row'
                    )
            return branches

        @field_validator("branches")
        @classmethod
        def _one_rest(cls, branches: dict[str, str | Rest]) -> dict[str, str | Rest]:
            rests = sorted(name for name, condition in branches.items() if isinstance(condition, Rest))
            if len(rests) > 1:
                raise ValueError(f"only one branch can take the rest, got {', '.join(rests)}")
            if len(rests) == len(branches):
                raise ValueError("expected a condition beside the rest; for one branch that takes all use `identity`")
            return branches

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        if set(options.branches) != set(branches):
            lacking = sorted(set(branches) - set(options.branches))
            unknown = sorted(set(options.branches) - set(branches))
            raise UsageError(
                problem=f"Fork operator 'sql' of job {context.job!r} expects one condition per branch: "
                f"without condition: {', '.join(lacking) or 'none'}; without branch: {', '.join(unknown) or 'none'}.",
                hint='A branch that takes nothing says "false".',
            )
        self._branches = tuple(branches)
        conditions = {name: text for name, text in options.branches.items() if isinstance(text, str)}
        self._named = tuple(conditions)
        self._masks = SqlMasks(list(conditions.values()), "fork operator 'sql'", context)

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        self._masks.check(schema)
        return (True,) * len(self._branches)

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        masks = self._masks.masks(batch)
        taken = dict(zip(self._named, masks, strict=True))
        rest = pc.invert(functools.reduce(pc.or_, masks))
        return [taken.get(name, rest) for name in self._branches]
