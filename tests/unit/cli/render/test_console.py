"""The width of what commands print: of the terminal, of the environment, or 120 columns; and their styles."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from gobblin_dagster.cli.render.console import PIPE_WIDTH, console, print_facts, print_table


@pytest.mark.parametrize(("columns", "width"), [("0", PIPE_WIDTH), ("", PIPE_WIDTH), ("50", 50)])
def test_width_of_zero_columns_is_unknown_and_hides_nothing(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    out = console(stream)
    out.print("1 dataset with new data")
    assert (out.width, stream.getvalue()) == (width, "1 dataset with new data\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "has_styles"), [("1", False), ("", True)])
def test_without_colours_nothing_is_bold_or_dim_either(
    no_color: str, has_styles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NO_COLOR": no_color, "TERM": "xterm-256color", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    out = console(stream)
    print_table(out, {"dataset": "left", "rows": "right"}, [("orders", "3")])
    print_facts(out, {"lag": "none"})
    out.print("ends", style="bold")
    assert "orders" in stream.getvalue()
    assert ("\x1b" in stream.getvalue()) == has_styles


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_control_characters_of_what_is_printed_are_shown(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    shown = stream()
    out = console(shown)
    told = "größe\x1b[2J \u202ev\nnext"
    out.print(f"expected v, the file has {told}")
    out.print(Text(told))
    print_facts(out, {"why": told})
    print_table(out, {"why": "left", "by": "left"}, [(told, "me"), (Text(told), "me")])
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    escaped = r"größe\x1b[2J \u202ev"
    assert lines[:6] == [f"expected v, the file has {escaped}", "next", escaped, "next", f"why  {escaped}", "next"]
    assert lines[7] == f"{escaped} next  me"
    assert not {"\x1b", "\u202e"} & set(shown.getvalue())
