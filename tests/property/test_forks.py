"""Laws of fork operators: every row goes where its conditions say, and the rest is exactly what is left."""

from __future__ import annotations

import functools
import operator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.forks.identity import IdentityForkOperator
from gobblin_dagster.constructs.forks.sql import Rest, SqlForkOperator
from gobblin_dagster.core.constructs import ConstructContext

CONTEXT = ConstructContext(job="j", base_dir="/")
values = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=30)
thresholds = st.lists(st.integers(-4, 4), min_size=1, max_size=4)


def _batch(column: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column, pa.int64())], names=["a"])


def _flags(fork: SqlForkOperator, column: list[int | None]) -> list[list[bool]]:
    return [flag.to_pylist() for flag in fork.fork_batch(_batch(column)) if not isinstance(flag, bool)]


@given(values, thresholds)
def test_each_branch_takes_exactly_the_rows_of_its_condition(column: list[int | None], limits: list[int]) -> None:
    names = [f"b{at}" for at in range(len(limits))]
    conditions = {name: f"a > {limit}" for name, limit in zip(names, limits, strict=True)}
    fork = SqlForkOperator(SqlForkOperator.Options(branches=conditions), CONTEXT, branches=names)
    expected = [[value is not None and value > limit for value in column] for limit in limits]
    assert _flags(fork, column) == expected


@given(values, thresholds)
def test_conditions_and_rest_cover_every_row_and_rest_overlaps_none(
    column: list[int | None], limits: list[int]
) -> None:
    names = [f"b{at}" for at in range(len(limits))]
    conditions: dict[str, str | Rest] = {name: f"a = {limit}" for name, limit in zip(names, limits, strict=True)}
    options = SqlForkOperator.Options(branches={**conditions, "rest": Rest(rest=True)})
    *taken, rest = _flags(SqlForkOperator(options, CONTEXT, branches=[*names, "rest"]), column)
    by_a_condition = [functools.reduce(operator.or_, flags) for flags in zip(*taken, strict=True)]
    assert rest == [not flag for flag in by_a_condition]


@given(values, st.integers(1, 6))
def test_identity_covers_every_row_in_every_branch(column: list[int | None], count: int) -> None:
    fork = IdentityForkOperator(IdentityForkOperator.Options(), CONTEXT, branches=[f"b{at}" for at in range(count)])
    assert list(fork.fork_batch(_batch(column))) == [True] * count
    assert list(fork.fork_schema(_batch(column).schema)) == [True] * count


@given(values, st.integers(1, 10))
def test_flags_do_not_depend_on_how_rows_are_batched(column: list[int | None], size: int) -> None:
    options = SqlForkOperator.Options(branches={"odd": "a % 2 <> 0", "rest": Rest(rest=True)})
    fork = SqlForkOperator(options, CONTEXT, branches=["odd", "rest"])
    parts = [_flags(fork, column[at : at + size]) for at in range(0, len(column), size)]
    joined = [[flag for part in parts for flag in part[branch]] for branch in range(2)]
    assert joined == _flags(fork, column)
