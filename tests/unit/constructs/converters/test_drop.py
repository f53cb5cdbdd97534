from __future__ import annotations

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.converters.drop import DropConverter
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, chunk, converted

GIVEN = chunk({"a": [1], "b": [2], "c": [3]}, first_row=5)


def test_drop_leaves_columns_out() -> None:
    result = converted(DropConverter(DropConverter.Options(columns=("b",)), CONTEXT), GIVEN)
    assert result.batch.to_pylist() == [{"a": 1, "c": 3}]
    assert result.rows.to_pylist() == [5]


def test_drop_of_an_unknown_column_is_refused() -> None:
    with pytest.raises(ConvertError, match="converter 'drop': expected column 'z'; found: a, b, c"):
        converted(DropConverter(DropConverter.Options(columns=("b", "z")), CONTEXT), GIVEN)


def test_options_without_columns_are_refused() -> None:
    with pytest.raises(ValidationError, match="columns"):
        DropConverter.Options.model_validate({"columns": []})
