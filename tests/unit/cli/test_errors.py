"""Errors of commands that are none of ours."""

from __future__ import annotations

from gobblin_dagster.cli.errors import describe


def test_a_limit_on_threads_is_no_bug() -> None:
    code, text = describe(RuntimeError("can't start new thread"))
    assert code == "environment"
    assert "ulimit -u" in text
    assert describe(RuntimeError("else"))[0] == "internal"
