from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.sql.syntax import SqlExpression, SqlSelectList


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SqlExpression, "a > 1 -- as agreed"),
        (SqlSelectList, "* EXCLUDE (a), b AS c"),
        (SqlExpression, "over = 'row_number() over ()'"),
        # the rows of a list
        (
            SqlSelectList,
            "(SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY x) AS n FROM unnest(items) t(x))) AS n",
        ),
    ],
)
def test_text_that_parses_is_kept(kind: Any, text: str) -> None:
    assert TypeAdapter(kind).validate_python(text) == text


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (SqlExpression, "a >", "is no SQL"),
        (SqlExpression, "1); DROP TABLE t; SELECT (1", "several statements"),
        (SqlSelectList, "a b c", "is no SQL"),
        (SqlSelectList, "1; SELECT 2", "several statements"),
        (
            SqlExpression,
            "row_number() OVER (PARTITION BY id ORDER BY seen DESC) = 1",
            "window function .row_number. needs",
        ),
        (SqlSelectList, "a, coalesce(1 + LAG(b) over (), 0) AS c", "window function .lag. needs all rows"),
    ],
)
def test_text_that_is_not_one_expression_is_refused(kind: Any, text: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TypeAdapter(kind).validate_python(text)
