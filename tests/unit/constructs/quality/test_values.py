"""Row-level policies on values, and the ages that they are given."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.quality.ages import before
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import RowLevelPolicy
from gobblin_dagster.core.errors import ConvertError, InvalidSpecError
from gobblin_dagster.spec.job import ConstructSpec
from tests.unit.constructs.samples import CONTEXT, batch

NOW = dt.datetime(2013, 3, 31, 12, tzinfo=dt.UTC)
BEGAN = dataclasses.replace(CONTEXT, load_time=NOW)


def _policy(spec: dict[str, Any]) -> RowLevelPolicy:
    made: RowLevelPolicy = registry.create(
        ConstructKind.ROW_POLICY, ConstructSpec.model_validate({"column": "a"} | spec), BEGAN
    )
    return made


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("spec", "values", "passes"),
    [
        ({"type": "range", "min": 1, "max": 3}, [0, 1, 3, 4, None], [False, True, True, False, False]),
        ({"type": "range", "min": 1, "allow_null": True}, [0, 1, None], [False, True, True]),
        ({"type": "range", "max": 1.5}, [1.5, float("nan"), 2.0], [True, False, False]),
        ({"type": "range", "min": "2013-01-02"}, [dt.date(2013, 1, 1), dt.date(2013, 1, 2)], [False, True]),
        ({"type": "regex", "pattern": "[A-Z]{3}"}, ["JFK", "JFKX", "", None], [True, False, False, False]),
        ({"type": "regex", "pattern": "a|b", "allow_null": True}, ["a", "ab", None], [True, False, True]),
        ({"type": "in_set", "values": ["a", "b"]}, ["a", "c", None], [True, False, False]),
        ({"type": "in_set", "values": [1, 2], "allow_null": True}, [1, 3, None], [True, False, True]),
        ({"type": "in_set", "values": ["a"]}, pa.array(["a", "b"]).dictionary_encode(), [True, False]),
        (
            {"type": "not_older", "max_age": "1d"},
            [_at("2013-03-30T12:00"), _at("2013-03-30T11:59"), None],
            [True, False, False],
        ),
        (
            {"type": "not_older", "max_age": "1m1h"},
            [dt.datetime(2013, 2, 28, 11), dt.datetime(2013, 2, 28, 10)],
            [True, False],
        ),
        ({"type": "not_older", "max_age": "1m"}, [dt.date(2013, 3, 1), dt.date(2013, 2, 28)], [True, False]),
    ],
    ids=str,
)
def test_which_rows_pass(spec: dict[str, Any], values: Any, passes: list[bool]) -> None:
    assert _policy(spec).check(batch({"a": values})).to_pylist() == passes


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"type": "range", "min": 1, "max": 3}, "a is not at least 1 and at most 3, or is null"),
        ({"type": "regex", "pattern": "x+", "allow_null": True}, "a is not like x+"),
        ({"type": "in_set", "values": list(range(12))}, "a is not one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, or is null"),
        ({"type": "not_older", "max_age": "1m2d"}, "a is not at most 1 month 2 days old "
            "(2013-02-26T12:00:00+00:00 or later), or is null"),
    ],
    ids=str,
)  # fmt: skip
def test_reason_says_what_values_must_be(spec: dict[str, Any], reason: str) -> None:
    assert _policy(spec).reason() == reason


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "range", "min": "x"}, "column 'a': expected values to compare with at least x, got int64"),
        ({"type": "regex", "pattern": "x"}, "column 'a': expected values to compare with like x, got int64"),
        ({"type": "in_set", "values": ["x"]}, "column 'a': expected values to compare with one of x, got int64"),
        ({"type": "not_older", "max_age": "1d"}, "column 'a': expected values to compare with at most 1 day old"),
    ],
    ids=str,
)
def test_column_of_another_type_is_named_with_expected_and_got(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConvertError, match=f"row policy '{spec['type']}': {problem}"):
        _policy(spec).check(batch({"a": [1]}))


def test_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ConvertError, match="row policy 'range': expected column 'a'; found: b"):
        _policy({"type": "range", "min": 1}).check(batch({"b": [1]}))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "range"}, "expected min or max"),
        ({"type": "regex", "pattern": "("}, "expected a regular expression"),
        ({"type": "in_set", "values": []}, "at least 1"),
        ({"type": "not_older", "max_age": "1y"}, "expected months, days and hours, e.g. 1m2d3h or 36h; got '1y'"),
        ({"type": "not_older", "max_age": ""}, "got ''"),
    ],
    ids=str,
)
def test_options_that_say_nothing_clear_are_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpecError, match=problem):
        _policy(spec)


@pytest.mark.parametrize(
    ("age", "instant"),
    [
        ("1m", "2013-02-28T12:00:00+00:00"),
        ("13m", "2012-02-29T12:00:00+00:00"),
        ("3m", "2012-12-31T12:00:00+00:00"),
        ("1m2d3h", "2013-02-26T09:00:00+00:00"),
        ("36h", "2013-03-30T00:00:00+00:00"),
        ("0h", "2013-03-31T12:00:00+00:00"),
    ],
)
def test_age_is_counted_back_by_the_calendar(age: str, instant: str) -> None:
    assert before(NOW, age).isoformat() == instant


def test_nanoseconds_are_compared_too() -> None:
    values = pa.array([NOW, NOW - dt.timedelta(days=2)], pa.timestamp("ns", "UTC"))
    assert _policy({"type": "not_older", "max_age": "1d"}).check(batch({"a": values})).to_pylist() == [True, False]
