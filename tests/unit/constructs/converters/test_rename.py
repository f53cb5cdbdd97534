from __future__ import annotations

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.converters.rename import RenameConverter
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, chunk, converted

GIVEN = chunk({"a": [1], "b": [2], "c": [3]}, first_row=5)


def test_rename_changes_names_only() -> None:
    result = converted(RenameConverter(RenameConverter.Options(columns={"a": "x", "b": "a"}), CONTEXT), GIVEN)
    assert result.batch.to_pylist() == [{"x": 1, "a": 2, "c": 3}]
    assert result.rows.to_pylist() == [5]


def test_rename_may_swap() -> None:
    result = converted(RenameConverter(RenameConverter.Options(columns={"a": "b", "b": "a"}), CONTEXT), GIVEN)
    assert result.batch.to_pylist() == [{"b": 1, "a": 2, "c": 3}]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [({"z": "y"}, "expected column 'z'; found: a, b, c"), ({"a": "c"}, "more than one column would be named 'c'")],
)
def test_rename_that_cannot_be_is_refused(columns: dict[str, str], problem: str) -> None:
    with pytest.raises(ConvertError, match=problem):
        converted(RenameConverter(RenameConverter.Options(columns=columns), CONTEXT), GIVEN)


def test_options_without_columns_are_refused() -> None:
    with pytest.raises(ValidationError, match="columns"):
        RenameConverter.Options.model_validate({"columns": []})
