from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.options.column_regexes import ColumnRegex
from gobblin_dagster.constructs.options.regexes import Regex


@pytest.mark.parametrize("kind", [Regex, ColumnRegex])
def test_expression_is_kept_and_one_that_does_not_parse_is_refused(kind: Any) -> None:
    field: TypeAdapter[str] = TypeAdapter(kind)
    assert field.validate_python("[A-Z]{3}") == "[A-Z]{3}"
    with pytest.raises(ValidationError, match="expected a regular expression"):
        field.validate_python("[A-Z")


def test_python_knows_what_the_engine_of_columns_does_not() -> None:
    assert TypeAdapter(Regex).validate_python(r"(?=a)a") == r"(?=a)a"
    with pytest.raises(ValidationError, match="expected a regular expression"):
        TypeAdapter(ColumnRegex).validate_python(r"(?=a)a")


def test_message_holds_no_part_of_the_pattern_beside_the_whole() -> None:
    """A part of a variable's value would not be hidden."""
    with pytest.raises(ValidationError, match=r"got '\(x\[a-z': Invalid regular expression: missing \] \["):
        TypeAdapter(ColumnRegex).validate_python("(x[a-z")
