"""Printing: consoles that adapt to terminal or pipe, tables, JSON documents, and numbers for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

SCHEMA_VERSION = 1
"""Of all `--output json` documents; grows when a key changes its meaning or goes."""
MAX_ROWS = 20
"""Datasets that tables and bars show one by one."""
MANY_ROWS = 500
"""Rows from which on tables are printed plainly."""
PIPE_WIDTH = 120
WHOLE_JOB = "(whole job)"
"""Shown for the empty dataset.urn of a job without datasets."""


def console(stream: TextIO, *, quiet: bool = False) -> Console:
    """Return a console on a stream: colours on a terminal; plain, unwrapped text in a pipe."""
    is_pipe = not stream.isatty()
    width = PIPE_WIDTH if is_pipe and "COLUMNS" not in os.environ else None
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, quiet=quiet, soft_wrap=is_pipe)


def print_json(**document: Any) -> None:
    """Print one JSON document with its schema version on stdout."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, ensure_ascii=False, default=_plain)
    sys.stdout.write(text + "\n")


def print_table(console: Console, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table without lines; `columns` maps headings to `left` or `right`, cells are text or styled text."""
    cells = [list(row) for row in rows]
    if not console.is_terminal or len(cells) > MANY_ROWS:
        _print_plain(console, columns, [list(columns), *cells])
        return
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for heading, side in columns.items():
        is_number = side == "right"
        made.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in cells:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console.print(made)


def _print_plain(console: Console, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table without colours or wrapping: for pipes, and for tables that rich would take seconds to lay out."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        parts = []
        for text, width, side in zip(row, widths, columns.values(), strict=True):
            blank = " " * (width - _width(text))
            parts.append(blank + text if side == "right" else text + blank)
        lines.append("  ".join(parts).rstrip())  # no blanks at the ends of lines in files and pipes
    console.out("\n".join(lines), highlight=False)


def _width(text: str) -> int:
    """Return the columns that a text takes; most are plain, and tables may have many thousand."""
    return len(text) if text.isascii() else cell_len(text)


def print_facts(console: Console, facts: Mapping[str, str]) -> None:
    """Print names and values, one pair a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        console.print(Text(f"{name:<{width}}  ", style="dim"), Text(value), sep="")


def rows_of(number: int | None) -> str:
    """Show a count; `-` where it is not known."""
    return "-" if number is None else f"{number:,}"


def bytes_of(number: int | None) -> str:
    """Show a size in powers of 1024; `-` where it is not known."""
    if number is None:
        return "-"
    size = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"


def count(number: int, noun: str, plural: str = "") -> str:
    """Show a count with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def dataset_name(urn: str) -> str:
    """Show a dataset.urn."""
    return urn or WHOLE_JOB


def instant(value: datetime | None) -> str:
    """Show an instant in UTC, to the second."""
    return value.strftime("%Y-%m-%d %H:%M:%SZ") if value else "-"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
