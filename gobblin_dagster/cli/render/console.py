"""Print for people: consoles that adapt to terminal or pipe, tables, and numbers."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gobblin_dagster.core.utils.text import printable, visible

MAX_ROWS = 20
"""Number of datasets that tables and bars show one by one."""
MANY_ROWS = 500
"""Number of rows from which on tables are printed without layout."""
PIPE_WIDTH = 120
NARROWEST = 16
"""Smallest width of a text column, in characters; narrower cells would be cut into unreadable slices."""
GAP = 2
"""Blanks between columns."""
WHOLE_JOB = "(whole job)"
"""Shown for the empty dataset.urn of a job without datasets."""


class _Console(Console):
    """A console that shows the control characters of what it prints, in place of doing what they say.

    It tells of a closed pipe as of a full disk: rich would end the process in the middle of a run.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(_visible, objects), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(stream: TextIO, *, quiet: bool = False) -> Console:
    """Return a console on a stream: colours on a terminal; plain, unwrapped text in a pipe.

    With `NO_COLOR` nothing is bold or dim either.
    """
    is_pipe = not stream.isatty()
    known = os.environ.get("COLUMNS", "").strip("0")  # `COLUMNS=0` stands for unknown, in editors and containers
    width = None if known or not (is_pipe or "COLUMNS" in os.environ) else PIPE_WIDTH
    return _Console(
        file=stream,
        width=width,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        quiet=quiet,
        soft_wrap=is_pipe,
    )


def _visible(shown: Any) -> Any:
    if isinstance(shown, Text) and not shown.plain.isprintable():
        shown = shown.copy()
        shown.plain = visible(shown.plain)
    return visible(shown) if isinstance(shown, str) else shown


def _in_one_line(cell: Any) -> Any:
    """Return what a table shows of a cell."""
    if isinstance(cell, Text):
        return _visible(cell)
    text = str(cell)
    return text if text.isprintable() else " ".join(visible(text).split("\n"))


def print_status(good: bool, text: str) -> None:
    """Print a finding on stdout: `ok` or `FAULT` in colour, then the unchanged text."""
    out = console(sys.stdout)
    out.print("ok    " if good else "FAULT ", style="green" if good else "red", end="")
    out.print(text, soft_wrap=True)


def print_table(console: Console, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table without lines; `columns` maps headings to `left` or `right`, cells are text or styled text."""
    cells = [list(map(_in_one_line, row)) for row in rows]
    if not console.is_terminal or len(cells) > MANY_ROWS:
        _print_plain(console, columns, [list(columns), *cells])
        return
    least = _least_widths(columns, cells)
    if sum(least) + GAP * (len(least) - 1) > console.width:
        _print_blocks(console, list(columns), cells)
        return
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", show_edge=False)
    for (heading, side), width in zip(columns.items(), least, strict=True):
        is_number = side == "right"
        justify: Literal["left", "right"] = "right" if is_number else "left"
        made.add_column(heading, justify=justify, no_wrap=is_number, overflow="fold", min_width=width)
    for row in cells:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console.print(made)


def _least_widths(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return the smallest readable width of each column: numbers whole, text `NARROWEST` unless it is shorter."""
    widths = [max(map(cell_len, map(str, column))) for column in zip(columns, *rows, strict=True)]
    return [
        width if side == "right" else min(width, NARROWEST)
        for width, side in zip(widths, columns.values(), strict=True)
    ]


def _print_blocks(console: Console, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print each row as a block, if the terminal is too narrow for the table: the first cell, the others below it."""
    for row in rows:
        console.print(row[0] if isinstance(row[0], Text) else Text(str(row[0])))
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if str(cell):
                console.print(Text(f"    {heading.strip()} ", style="dim"), cell, sep="")


def _print_plain(console: Console, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table without colours or wrapping: for pipes, and for tables that rich would lay out for seconds."""
    padded = [
        _padded(list(map(str, column)), side)
        for column, side in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    # No blanks at the ends of lines in files and pipes; rich would need a tenth of a second for long text.
    lines = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
    if not console.quiet:
        console.file.write("\n".join(lines) + "\n")


def _padded(texts: Sequence[str], side: str) -> list[str]:
    """Return texts padded to the widest; fast, because most columns are plain and tables may have thousands of rows."""
    widths = list(map(len if "".join(texts).isascii() else cell_len, texts))
    widest = max(widths)
    pairs = [(text, " " * (widest - width)) for text, width in zip(texts, widths, strict=True)]
    return [blank + text if side == "right" else text + blank for text, blank in pairs]


def print_facts(console: Console, facts: Mapping[str, str]) -> None:
    """Print names and values, one pair a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        console.print(Text(f"{name:<{width}}  ", style="dim"), Text(value), sep="")


def rows_of(number: int | None) -> str:
    """Show a count; `-` if it is unknown."""
    return "-" if number is None else f"{number:,}"


def bytes_of(number: int | None) -> str:
    """Show a size in powers of 1024; `-` if it is unknown."""
    if number is None:
        return "-"
    size = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"


def dataset_name(urn: str) -> str:
    """Show a dataset.urn in one line without control characters, because sources choose the names of datasets."""
    return printable(urn) or WHOLE_JOB


def instant(value: datetime | None) -> str:
    """Show an instant in UTC, to the second."""
    return value.strftime("%Y-%m-%d %H:%M:%SZ") if value else "-"
