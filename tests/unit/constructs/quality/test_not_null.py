from __future__ import annotations

import pytest

from gobblin_dagster.constructs.quality.not_null import NotNullRowPolicy
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch

ROWS = batch({"a": [1, None, 3], "b": ["x", "y", None]})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(("a",), [True, False, True]), (("b",), [True, True, False]), (("a", "b"), [True, False, False])],
)
def test_not_null_passes_rows_with_all_values(columns: tuple[str, ...], expected: list[bool]) -> None:
    policy = NotNullRowPolicy(NotNullRowPolicy.Options(columns=columns), CONTEXT)
    assert policy.check(ROWS).to_pylist() == expected
    assert policy.reason() == f"null in {' or '.join(columns)}"


def test_not_null_counts_empty_text_and_nan_as_values() -> None:
    policy = NotNullRowPolicy(NotNullRowPolicy.Options(columns=("a", "b")), CONTEXT)
    assert policy.check(batch({"a": [""], "b": [float("nan")]})).to_pylist() == [True]


def test_not_null_of_an_unknown_column_is_refused() -> None:
    with pytest.raises(ConvertError, match="row policy 'not_null': expected column 'z'; found: a, b"):
        NotNullRowPolicy(NotNullRowPolicy.Options(columns=("a", "z")), CONTEXT).check(ROWS)
