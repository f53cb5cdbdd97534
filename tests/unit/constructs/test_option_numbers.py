"""Options of every construct take no boolean where a number is expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from gobblin_dagster.constructs.registry import ConstructKind, dotted, registry
from gobblin_dagster.spec.numbers import ExactNumbers

BUILT_IN = [(kind, name) for kind in ConstructKind for name in registry.types(kind)]


@pytest.mark.parametrize(("kind", "name"), BUILT_IN, ids=[f"{kind}-{name}" for kind, name in BUILT_IN])
def test_option_for_a_number_given_a_boolean_is_refused_by_name(kind: ConstructKind, name: str) -> None:
    model = registry.load(kind, name).Options
    assert issubclass(model, ExactNumbers)
    for option in _numbers(model):
        assert ((option,), "expected a number, got true") in registry.check(kind, name, {option: True}), option


@pytest.mark.parametrize(
    ("kind", "name", "options", "place"),
    [
        (ConstructKind.SOURCE, "rest", {"paging": {"type": "page", "start": True}}, "paging.start"),
        (ConstructKind.SOURCE, "query", {"lag": True}, "lag"),
        (ConstructKind.SOURCE, "query", {"split_points": [1, True]}, "split_points[1]"),
        (ConstructKind.ROW_POLICY, "range", {"column": "a", "min": True}, "min"),
        (ConstructKind.ROW_POLICY, "in_set", {"column": "a", "values": [1, True]}, "values[1]"),
        (ConstructKind.FORK, "hash", {"columns": ["a"], "weights": {"x": 1, "y": True}}, "weights.y"),
    ],
    ids=["model", "number-or-text", "list", "union", "union-in-list", "mapping"],
)
def test_boolean_inside_a_value_is_refused_at_its_place(
    kind: ConstructKind, name: str, options: dict[str, Any], place: str
) -> None:
    assert (place, "expected a number, got true") in [
        (dotted(where), problem) for where, problem in registry.check(kind, name, options)
    ]


def test_option_that_takes_booleans_beside_numbers_still_takes_them() -> None:
    faults = registry.check(ConstructKind.SOURCE, "kafka", {"config": {"check.crcs": True}})
    assert [where for where, _ in faults] == [("brokers",)]


def _numbers(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if field.annotation in (int, float, int | None, float | None):
            yield name
