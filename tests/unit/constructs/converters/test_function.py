from __future__ import annotations

from typing import Any

import pytest

from gobblin_dagster.constructs.converters.function import FunctionConverter
from gobblin_dagster.core.errors import ConvertError, InvalidSpecError, UsageError
from tests.unit.constructs.samples import CONTEXT, chunk, converted

HERE = "tests.unit.constructs.user_code"


def _converter(name: str, **options: Any) -> FunctionConverter:
    given = FunctionConverter.Options.model_validate({"function": f"{HERE}:{name}"} | options)
    return FunctionConverter(given, CONTEXT)


def _refused(name: str, **options: Any) -> str:
    with pytest.raises(ConvertError) as caught:
        list(_converter(name, **options).convert(chunk({"n": [3, 2, 0]}, first_row=6)))
    return str(caught.value)


def test_record_becomes_none_one_or_many_rows_of_its_place() -> None:
    given = chunk({"n": [2, 0, 1], "s": ["a", "b", "c"]}, first_row=6)
    result = converted(_converter("spread"), given)
    assert result.batch.to_pylist() == [{"n": -2, "s": "a"}, {"n": -2, "s": "a"}, {"n": -1, "s": "c"}]
    assert result.rows.to_pylist() == [6, 6, 8]
    assert given.batch.column("n").to_pylist() == [2, 0, 1]


def test_records_that_all_vanish_leave_no_chunk() -> None:
    assert list(_converter("spread").convert(chunk({"n": [0, 0]}))) == []


def test_function_may_return_other_columns() -> None:
    result = converted(_converter("divide", columns={"n": "float64"}), chunk({"n": [3, 2], "x": [1, 1]}))
    assert result.batch.to_pylist() == [{"n": 4.0}, {"n": 6.0}]


def test_what_a_function_raises_names_row_and_function() -> None:
    message = _refused("divide")
    assert (
        f"'AA/EWR', file in/flights.csv, converter 'function': row 8: {HERE}:divide: it raised ZeroDivisionError"
        in message
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wrong_type", "row 7: tests.unit.constructs.user_code:wrong_type: column 'n': expected int64, got 'x'"),
        (
            "unknown_column",
            "row 6: tests.unit.constructs.user_code:unknown_column: expected columns n; it returned also 'm'",
        ),
        (
            "far_too_deep",
            "row 7: tests.unit.constructs.user_code:far_too_deep: column 'n': expected int64, got [[[[[[[",
        ),
        ("no_record", "expected a dict, a list of dicts or None, got 3"),
    ],
)
def test_what_a_function_may_not_return_is_told(name: str, problem: str) -> None:
    assert problem in _refused(name)


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        ("fraction", "int64", "it returned 1.5 in the column n, which holds whole numbers"),
        ("beyond_long", "int64", "column 'n': expected int64, got 1180591620717411303424"),
        ("no_text", "string", r"column 'n': expected string, got '\ud800'"),
        ("within", {"inner": ["int64"]}, "it returned 2.5 in the column n.inner, which holds whole numbers"),
        ("new_field", {"inner": ["int64"]}, "it returned the field(s) n.new, which its columns lack"),
        ("time_of_day", "date", "it returned 2013-01-01 05:00:00 in the column n, which holds days"),
    ],
)
def test_what_columns_would_not_hold_is_told_with_its_row(name: str, shape: Any, problem: str) -> None:
    assert f"row 7: {HERE}:{name}: {problem}" in _refused(name, columns={"n": shape})


def test_batch_function_keeps_places_where_it_keeps_rows() -> None:
    given = chunk({"n": [2, 0, 1]}, first_row=6)
    result = converted(_converter("negated", by="batch"), given)
    assert (result.batch.column("n").to_pylist(), result.rows.to_pylist()) == ([-2, 0, -1], [6, 7, 8])
    result = converted(_converter("largest", by="batch"), given)
    assert (result.batch.column("n").to_pylist(), result.rows.to_pylist()) == ([2], [None])


def test_batch_function_that_returns_no_batch_is_told_what_was_expected() -> None:
    assert "expected a RecordBatch of n: int64; got list" in _refused("no_batch", by="batch")
    assert "expected a RecordBatch of n: string; got n: int64" in _refused(
        "negated", by="batch", columns={"n": "string"}
    )


@pytest.mark.parametrize("name", ["nothing", "HERE.x", "__doc__"])
def test_function_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="converter 'function'"):
        _converter(name)


def test_function_without_module_is_refused_when_the_job_is_read() -> None:
    from gobblin_dagster.constructs.registry import ConstructKind, registry
    from gobblin_dagster.spec.job import ConverterSpec

    with pytest.raises(InvalidSpecError, match="function"):
        registry.create(ConstructKind.CONVERTER, ConverterSpec(type="function", function="f"), CONTEXT)
