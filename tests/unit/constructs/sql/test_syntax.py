from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.sql.syntax import SqlExpression, SqlSelectList


@pytest.mark.parametrize(
    ("kind", "text"), [(SqlExpression, "a > 1 -- as agreed"), (SqlSelectList, "* EXCLUDE (a), b AS c")]
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
    ],
)
def test_text_that_is_not_one_expression_is_refused(kind: Any, text: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TypeAdapter(kind).validate_python(text)
