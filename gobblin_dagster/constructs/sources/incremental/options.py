"""Checks of options that sources with a watermark column share: values, distances, and NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor
from gobblin_dagster.constructs.sources.incremental.partial_query import cut_of
from gobblin_dagster.core.work_unit import WorkUnit

_SPANS = ("lag", "overlap", "partition_interval")
_VALUES = ("start", "end")


def null_problem(nulls: int, column: str) -> str:
    """Return the problem of rows with NULL in the watermark column, under `nulls: fail`."""
    return f"{nulls} row(s) have NULL in the watermark column {column}; set `nulls: exclude` or `nulls: include`"


def null_notes(how: str, nulls: int, column: str, units: Sequence[WorkUnit], *, is_first: bool) -> list[str]:
    """Return a note on rows with NULL in the watermark column.

    `how` is the option `nulls`, `units` are those planned; `is_first`: nothing of the dataset was read before.
    """
    if not nulls:
        return []
    what = f"{nulls} row(s) have NULL in {column}"
    if how == "exclude":
        return [f"{what} and are not read (`nulls: exclude`)."]
    if any("nulls" in unit.read for unit in units):
        return [f"{what} and are read now, once (`nulls: include`)."]
    if is_first:
        return [f"{what} and wait for the first row with a position: `nulls: include` reads them with it."]
    return [f"{what} and are not read: `nulls: include` reads only those that exist at the first read."]


def held_back(column: str) -> str:
    """Return why a full extract up to the end of a watermark column may lack rows (`SourceTraits.holds_back`)."""
    return f"rows that change while it reads are beyond the end of watermark column {column!r}; read without one"


def check_cursor_options(cursor: Cursor, zone: ZoneInfo, options: Mapping[str, Any]) -> None:
    """Check options that must fit the watermark column.

    Args:
        cursor: cursor of the column.
        zone: zone of `max_watermark`.
        options: options of the source that are set, by name.

    Raises:
        ValueError: a value does not fit; the message names the option.
    """
    for name, parse, value in _declared(cursor, zone, options):
        try:
            parse(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
    if options.get("watermark") is not None:
        _require_all_rows(str(options["query"]))
    start, end = options.get("start"), options.get("end")
    if start is not None and end is not None and cursor.parse(end) <= cursor.parse(start):
        raise ValueError(f"end: expected a position after `start`, {start}, got {end}")
    interval = options.get("partition_interval")
    if interval is not None and not cursor.span(interval):
        raise ValueError("partition_interval: expected more than nothing")
    if options.get("max_watermark") is not None and not cursor.is_time:
        raise ValueError("max_watermark: is for times; give a `long` watermark an `end` or a `lag`")


def _require_all_rows(query: str) -> None:
    """Raise ValueError for a query that takes a part of its rows: the watermark moves past the others."""
    if cut := cut_of(query):
        raise ValueError(
            f"query: {cut[:60]!r} takes a part of its rows; the others would never be read: the watermark moves past "
            "them. `execution: {limit: {rows: ...}}` reads a part in each run, `start` and `end` bound it"
        )


def _declared(
    cursor: Cursor, zone: ZoneInfo, options: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[Any], int], Any]]:
    """Yield for each option that is set: its name, the function that parses it, and its value."""
    for name in _SPANS:
        if options.get(name) not in (0, None):
            yield name, cursor.span, options[name]
    for name in _VALUES:
        if options.get(name) is not None:
            yield name, cursor.parse, options[name]
    for point in options.get("split_points", ()):
        yield "split_points", cursor.parse, point
    if options.get("max_watermark") is not None and cursor.is_time:
        now = datetime.now(UTC)  # only the form of the text is checked
        yield "max_watermark", lambda text: cursor.limit(text, now, zone, True), options["max_watermark"]


Value = int | datetime | date | str
"""A value of the watermark column in a job file."""
