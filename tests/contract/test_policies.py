"""What every row-level and task-level policy promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.task_state import BranchCounts
from gobblin_dagster.testing.conformance import BranchOutput, RowPolicyConformance, TaskPolicyConformance

NOW = datetime(2013, 3, 31, 12, tzinfo=UTC)
OTHER = pa.record_batch({"b": [1]})
YOUNG, OLD = datetime(2013, 3, 31, tzinfo=UTC), datetime(2013, 3, 1, tzinfo=UTC)
ROW_POLICIES: dict[str, tuple[Mapping[str, Any], Sequence[Any], Sequence[bool]]] = {
    "in_set": ({"column": "a", "values": ["x", "y"]}, ["x", "z", None], [True, False, False]),
    "not_null": ({"columns": ["a"]}, ["x", None, ""], [True, False, True]),
    "not_older": ({"column": "a", "max_age": "2d"}, [YOUNG, OLD, None], [True, False, False]),
    "range": ({"column": "a", "min": 1, "max": 3}, [0, 1, 3, None], [False, True, True, False]),
    "regex": ({"column": "a", "pattern": "[A-Z]{3}"}, ["JFK", "jfk", None], [True, False, False]),
    "sql": ({"rule": "a > 1"}, [1, 2, None], [False, True, False]),
}
"""Options, the values of column `a`, and which of them pass, by type."""


class TestRowPolicies(RowPolicyConformance):
    unfit_rows = [OTHER]
    facts = {"load_time": NOW}

    @pytest.fixture(autouse=True, params=ROW_POLICIES)
    def case(self, request: pytest.FixtureRequest) -> None:
        options, values, self.passes = ROW_POLICIES[request.param]
        self.spec = {"type": request.param, **options}
        self.rows = pa.record_batch({"a": values})


def output(*values: Any, **facts: Any) -> BranchOutput:
    return BranchOutput(pa.record_batch({"a": list(values)}), **facts)


LOST = BranchCounts(rows_in=3, rows_written=2)
TASK_POLICIES: dict[str, tuple[Mapping[str, Any], Sequence[BranchOutput], Sequence[BranchOutput]]] = {
    "file_size": ({"max_bytes": 10}, [output(1, file_bytes=(10, 9))], [output(1, file_bytes=(1, 11))]),
    "freshness": ({"column": "a", "max_age": "2d"}, [output(OLD, YOUNG)], [output(OLD), output(OLD, None)]),
    "required_columns": ({"columns": ["a"]}, [output(1)], [BranchOutput(OTHER)]),
    "row_count": (
        {},
        [output(1, 2), output(1, rows_expected=1)],
        [output(1, 2, counts=LOST), output(1, rows_expected=2)],
    ),
    "row_count_range": ({"min": 2, "max": 3}, [output(1, 2)], [output(1), output(1, 2, 3, 4)]),
    "schema_compatible": (
        {},
        [output(1), output(1, previous_schema="a: int64")],
        [output(1, previous_schema="a: string")],
    ),
    "sql_aggregate": (
        {"aggregates": {"total": "sum(a)"}, "rule": "total > 2"},
        [output(1, 2)],
        [output(1, 1), output(None, 1)],
    ),
}
"""Options, outputs that keep the policy, and outputs that break it, by type."""


class TestTaskPolicies(TaskPolicyConformance):
    facts = {"load_time": NOW}

    @pytest.fixture(autouse=True, params=TASK_POLICIES)
    def case(self, request: pytest.FixtureRequest) -> None:
        options, self.holds, self.breaks = TASK_POLICIES[request.param]
        self.spec = {"type": request.param, **options}


def test_every_policy_is_tested_here() -> None:
    assert set(ROW_POLICIES) == set(registry.types(ConstructKind.ROW_POLICY))
    assert set(TASK_POLICIES) == set(registry.types(ConstructKind.TASK_POLICY))
