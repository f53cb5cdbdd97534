from __future__ import annotations

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.quality.row_sql import SqlRowPolicy
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch

ROWS = batch({"a": [1, None, 3], "b": ["x", "y", None]})


def test_sql_rule_passes_true_rows_only() -> None:
    policy = SqlRowPolicy(SqlRowPolicy.Options(rule="a > 1"), CONTEXT)
    assert policy.check(ROWS).to_pylist() == [False, False, True]


def test_sql_rule_works_on_batches_of_another_schema() -> None:
    policy = SqlRowPolicy(SqlRowPolicy.Options(rule="a > 1"), CONTEXT)
    policy.check(ROWS)
    assert policy.check(batch({"a": [2.5]})).to_pylist() == [True]


def test_sql_reason_is_one_line() -> None:
    policy = SqlRowPolicy(SqlRowPolicy.Options(rule="a > 1\n  AND b = 'x'"), CONTEXT)
    assert policy.reason() == "not true: a > 1 AND b = 'x'"


def test_sql_rule_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(ConvertError, match="row policy 'sql': 'a': expected one boolean, got int64; columns: a, b"):
        SqlRowPolicy(SqlRowPolicy.Options(rule="a"), CONTEXT).check(ROWS)


def test_sql_rule_that_aggregates_is_refused() -> None:
    with pytest.raises(ConvertError, match="conditions must not aggregate"):
        SqlRowPolicy(SqlRowPolicy.Options(rule="count(*) > 0"), CONTEXT).check(ROWS)


def test_sql_rule_is_required() -> None:
    with pytest.raises(ValidationError, match="rule"):
        SqlRowPolicy.Options.model_validate({})
