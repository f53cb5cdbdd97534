"""The log of a worker."""

from __future__ import annotations

import logging

import pytest

from gobblin_dagster.core.secrets import remember
from gobblin_dagster.warm.log import start_log


def test_lines_hide_values_of_variables_also_in_tracebacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    start_log()
    remember({"zaunkoenig-4711": "${STAMP}"})
    try:
        raise ValueError("zaunkoenig-4711")
    except ValueError:
        logging.getLogger("driver").exception("refused: zaunkoenig-4711\x1b[2J")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("refused: ${STAMP}\\x1b[2J")
    assert lines[-1] == "ValueError: ${STAMP}"
