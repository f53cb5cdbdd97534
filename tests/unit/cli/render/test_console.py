"""The width of what commands print: of the terminal, of the environment, or 120 columns."""

from __future__ import annotations

import io

import pytest

from gobblin_dagster.cli.render.console import PIPE_WIDTH, console


@pytest.mark.parametrize(("columns", "width"), [("0", PIPE_WIDTH), ("", PIPE_WIDTH), ("50", 50)])
def test_width_of_zero_columns_is_unknown_and_hides_nothing(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    out = console(stream)
    out.print("1 dataset with new data")
    assert (out.width, stream.getvalue()) == (width, "1 dataset with new data\n")
