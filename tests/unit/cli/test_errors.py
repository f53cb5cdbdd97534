"""Errors of commands that are none of ours."""

from __future__ import annotations

import logging

import pytest

from gobblin_dagster.cli.errors import describe
from gobblin_dagster.core.secrets import remember
from tests.unit.cli.conftest import Cli


def test_a_limit_on_threads_is_no_bug() -> None:
    code, text = describe(RuntimeError("can't start new thread"))
    assert code == "environment"
    assert "ulimit -u" in text
    assert describe(RuntimeError("else"))[0] == "internal"


def test_warnings_on_standard_error_hide_values_and_show_control_characters(
    cli: Cli, capfd: pytest.CaptureFixture[str]
) -> None:
    cli("version")
    remember({"zaunkoenig-6143": "${STAMP}"})
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": "left: %s", "args": ("s3://b/zaunkoenig-6143\x1b[2J",)}))
    assert capfd.readouterr().err == "left: s3://b/${STAMP}\\x1b[2J\n"
