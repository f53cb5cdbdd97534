"""What every fork operator promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.testing.conformance import ForkConformance

USER_CODE = "tests.unit.constructs.user_code"
T, F = True, False
CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, Sequence[bool]]]] = {
    "hash": ({"by": ["n"], "seed": 6}, {"one": [F, T, T, F], "two": [T, F, F, T]}),
    "identity": ({}, {"one": [T] * 4, "two": [T] * 4}),
    "records": ({"operator": f"{USER_CODE}:ByParity"}, {"one": [F, T, F, T], "two": [F, F, F, T]}),
    "round_robin": ({}, {"one": [T, F, T, F], "two": [F, T, F, T]}),
    "sample": ({"ratios": {"one": 1, "two": 0}}, {"one": [T] * 4, "two": [F] * 4}),
    "sql": ({"branches": {"one": "n > 2", "two": {"rest": True}}}, {"one": [F, F, T, T], "two": [T, T, F, F]}),
}
"""Options, and which of the rows 1, 2, 3 and 12 each branch takes, by type."""


class TestForks(ForkConformance):
    rows = pa.record_batch({"n": [1, 2, 3, 12]})

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        options, self.takes = CASES[request.param]
        self.spec = {"type": request.param, **options}


def test_every_fork_operator_is_tested_here() -> None:
    assert set(CASES) == set(registry.types(ConstructKind.FORK))
