from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.forks.sql import SqlForkOperator
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.errors import ConvertError, UsageError
from tests.unit.constructs.samples import CONTEXT, batch

ROWS = batch({"region": ["eu", "us", None, "eu"], "size": [1, 20, 30, 40]})


def _fork(conditions: dict[str, Any], branches: list[str] | None = None) -> SqlForkOperator:
    options = SqlForkOperator.Options.model_validate({"branches": conditions})
    return SqlForkOperator(options, CONTEXT, branches=list(conditions) if branches is None else branches)


def _flags(fork: SqlForkOperator) -> list[list[bool]]:
    flags = fork.fork_batch(ROWS)
    assert all(isinstance(flag, pa.BooleanArray) for flag in flags)
    return [flag.to_pylist() for flag in flags if not isinstance(flag, bool)]


def test_conditions_may_overlap_and_null_is_false() -> None:
    fork = _fork({"eu": "region = 'eu'", "big": "size > 10"})
    assert list(fork.fork_schema(ROWS.schema)) == [True, True]
    assert _flags(fork) == [[True, False, False, True], [False, True, True, True]]


def test_rest_takes_what_no_other_branch_takes() -> None:
    assert _flags(_fork({"eu": "region = 'eu'", "other": {"rest": True}})) == [
        [True, False, False, True],
        [False, True, True, False],
    ]


def test_flags_come_in_the_order_of_the_branches() -> None:
    conditions = {"other": {"rest": True}, "eu": "region = 'eu'", "all": "true"}
    flags = _flags(_fork(conditions, branches=["all", "eu", "other"]))
    assert flags == [[True] * 4, [True, False, False, True], [False] * 4]


def test_branches_and_conditions_must_be_the_same() -> None:
    with pytest.raises(
        UsageError, match=r"without condition: us, zz; without branch: rest\. A branch that takes nothing"
    ):
        _fork({"eu": "true", "rest": "true"}, branches=["eu", "us", "zz"])


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ({"eu": "true", "rest": True}, r'branch rest: expected a SQL text or {rest: true}.*"true" in quotes'),
        ({"a": "true", "b": {"rest": True}, "c": {"rest": True}}, "only one branch can take the rest, got b, c"),
        ({"a": {"rest": True}}, "expected a condition beside the rest"),
        ({"a": "true", "b": {"rest": False}}, "Input should be True"),
        ({}, "at least 1 item"),
        (["a"], "valid dictionary"),
    ],
    ids=str,
)
def test_bad_conditions_are_refused(conditions: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SqlForkOperator.Options.model_validate({"branches": conditions})


def test_condition_that_does_not_fit_the_schema_is_named() -> None:
    fork = _fork({"eu": "region = 'eu'", "big": "sise > 10"})
    with pytest.raises(ConvertError, match=r"fork operator 'sql': 'sise > 10': .*columns: region, size"):
        fork.fork_schema(ROWS.schema)


@pytest.mark.parametrize(
    ("branches", "place", "problem"),
    [
        ({"eu": "a = ("}, ("eu",), "is no SQL: Parser Error"),
        ({"eu": 5}, ("eu",), 'expected text, got 5; write "5", in quotes'),
        ({"eu": ["true"]}, ("eu",), "expected text, got a list of 1"),
        ({"eu": {"rest": 2}}, ("eu", "rest"), "expected True, got 2"),
        ({"eu": {"rest": True, "els": 1}}, ("eu", "els"), "unknown key; known: rest"),
        ({"eu": {}}, ("eu", "rest"), "is missing"),
        ({1: "true"}, (1,), "expected text, got 1"),
    ],
)
def test_fault_of_a_condition_stands_at_its_branch_in_words_of_the_job_file(
    branches: dict[Any, Any], place: tuple[str | int, ...], problem: str
) -> None:
    ((where, why),) = registry.check(ConstructKind.FORK, "sql", {"branches": branches})
    assert where == ("branches", *place)
    assert why.startswith(problem)
