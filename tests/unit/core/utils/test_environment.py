from __future__ import annotations

from gobblin_dagster.core.utils.environment import lasting


def test_variables_of_a_terminal_do_not_last_and_all_others_do() -> None:
    assert lasting({"TERM": "dumb", "PWD": "/", "SALT": "x", "AWS_REGION": "eu"}) == {"SALT": "x", "AWS_REGION": "eu"}
