"""Values nested too deep are found without recursion, and shared ones are looked at once for each level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gobblin_dagster.constructs.types.nesting import MAX_LEVELS, deep_problem, first_deep


def _nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [1, 199, 200, 20_000])
def test_first_deep_counts_the_row_as_a_level(levels: int) -> None:
    assert first_deep([None, "text", _nested(levels)]) == (2 if levels >= MAX_LEVELS else None)


def test_first_deep_looks_into_arrays_of_objects_and_sets() -> None:
    assert first_deep([np.zeros(5), {1, 2}, [np.array([_nested(199), None], dtype=object)]]) == 2


def test_value_in_many_places_takes_no_time() -> None:
    value: Any = 1
    for _ in range(150):
        value = [value, value]
    assert first_deep([value]) is None


def test_problem_of_a_value_that_holds_itself_is_short() -> None:
    value: list[Any] = []
    value += [value] * 9
    assert "nested more than 200 levels deep: [[" in deep_problem(value)
    assert len(deep_problem(value)) < 200
