from __future__ import annotations

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.converters.sql import SqlConverter
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, FILE, chunk, converted


def _converter(select: str | None = None, where: str | None = None) -> SqlConverter:
    return SqlConverter(SqlConverter.Options(select=select, where=where), CONTEXT)


def test_where_keeps_true_rows_with_their_place_in_the_source() -> None:
    result = converted(_converter(where="a > 1"), chunk({"a": [1, 2, None, 3]}, first_row=10))
    assert result.batch.to_pylist() == [{"a": 2}, {"a": 3}]
    assert result.rows.to_pylist() == [11, 13]
    assert result.file == FILE


def test_where_that_keeps_nothing_yields_no_chunk() -> None:
    assert list(_converter(where="a > 9").convert(chunk({"a": [1]}))) == []


def test_select_computes_columns_and_keeps_rows() -> None:
    result = converted(_converter(select="* EXCLUDE (b), a * 2 AS double"), chunk({"a": [1, 2], "b": ["x", "y"]}))
    assert result.batch.to_pylist() == [{"a": 1, "double": 2}, {"a": 2, "double": 4}]
    assert result.rows.to_pylist() == [1, 2]


def test_where_looks_at_columns_before_select() -> None:
    result = converted(_converter(select="a", where="b = 'y'"), chunk({"a": [1, 2], "b": ["x", "y"]}))
    assert result.batch.to_pylist() == [{"a": 2}]
    assert result.rows.to_pylist() == [2]


def test_empty_chunk_yields_nothing() -> None:
    given = chunk({"a": pa.array([], pa.int64())})
    assert list(_converter(select="a + 1 AS b").convert(given)) == []


def test_columns_may_be_named_with_their_table() -> None:
    assert converted(_converter(select="batch.a AS b"), chunk({"a": [1]})).batch.to_pylist() == [{"b": 1}]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("count(*) AS n", "it aggregates; each row must be computed from that row alone"),
        ("sum(a) AS n", "it aggregates"),
        ("unnest([1, 2]) AS n", "2 rows|4 rows|6 rows"),
        ("DISTINCT a", "syntax error"),
        ("a, a", "columns named twice: a"),
        ("a, A", "columns named twice"),
        ("* EXCLUDE (a)", "it selects no column"),
        ("missing", "missing"),
    ],
)
def test_select_that_is_not_row_by_row_is_refused(select: str, problem: str) -> None:
    converter = _converter(select=select)
    given = chunk({"a": [1, 2, 3]})
    with pytest.raises(ConvertError, match=problem) as caught:
        converted(converter, given)
    assert "__gobblin" not in str(caught.value)


def test_schema_error_comes_before_any_row() -> None:
    with pytest.raises(ConvertError, match="expected one boolean, got int64"):
        _converter(where="a").convert_schema(pa.schema([("a", pa.int64())]))


def test_error_of_a_chunk_without_rows_has_no_row() -> None:
    with pytest.raises(ConvertError, match="'missing'") as caught:
        list(_converter(where="missing").convert(chunk({"a": pa.array([], pa.int64())})))
    assert "row 1" not in str(caught.value)


@pytest.mark.parametrize("field", ["select", "where"])
def test_failing_row_is_named(field: str) -> None:
    given = chunk({"a": ["1"] * 50 + ["x"] + ["1"] * 49}, first_row=1000)
    text = {"select": "a::INTEGER AS n", "where": "a::INTEGER = 1"}[field]
    with pytest.raises(ConvertError, match=r"file in/flights.csv.*row 1050: .*Could not convert string 'x'"):
        list(SqlConverter(SqlConverter.Options(**{field: text}), CONTEXT).convert(given))


def test_options_need_select_or_where() -> None:
    with pytest.raises(ValidationError, match="expected select, where or both"):
        SqlConverter.Options()


def test_clause_after_the_select_list_is_refused_with_the_options() -> None:
    with pytest.raises(ValidationError, match=r"is no SQL: .*syntax error"):
        _converter(select="a FROM batch WHERE a > 1")
