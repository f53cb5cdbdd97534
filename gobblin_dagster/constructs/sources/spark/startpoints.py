"""Startpoints of source `spark`.

Find the position of an instant or of `upcoming`, in the column or the table's history.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gobblin_dagster.constructs.sources.incremental.cursor import Present, require_reached
from gobblin_dagster.constructs.sources.spark.column import column_of
from gobblin_dagster.constructs.sources.spark.column_planner import ColumnPlanner
from gobblin_dagster.constructs.sources.spark.options import SparkOptions
from gobblin_dagster.constructs.sources.spark.table_history import TableHistory
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.startpoint import Timestamp, Upcoming
from gobblin_dagster.core.watermark import Watermark


def column_start(
    frame: Any, options: SparkOptions, position: Watermark | Timestamp | Upcoming, now: datetime
) -> Watermark:
    """Return the first position to read of a column; raises ValueError if the column has no such position."""
    cursor = options.cursor
    column = column_of(frame, options.watermark.column if options.watermark else "", cursor)
    if isinstance(position, Timestamp) and not cursor.is_time:
        raise ValueError(f"the watermark column {column.name} holds no times")
    present = None
    if cursor.is_time:
        lag = cursor.span(options.lag) if options.lag else 0
        present = Present(cursor.floor(now, options.zone, column.has_zone), lag)
    if isinstance(position, Timestamp) and present is not None:
        # Instants in the future become the end: no row that comes before them may be skipped.
        lowest = cursor.lowest_from(min(position.instant, now), options.zone, column.has_zone)
        return cursor.mark(min(present.settled, lowest))
    _, highest, _ = column.bounds(frame)
    after = None if highest is None else highest + 1
    if isinstance(position, Watermark):
        planner = ColumnPlanner(options, now)
        if type(position) is cursor.watermark_type:  # else the engine says which type it expects
            require_reached(
                cursor, position, after, present, lambda: (end for end, _ in planner.caps(column, after or 0))
            )
        return position
    if highest is None:
        raise ValueError("the table has no rows, and so no end yet; `oldest` reads all rows that come")
    return cursor.mark(min([highest + 1, *(end for end, _ in ColumnPlanner(options, now).caps(column, highest + 1))]))


def snapshot_start(
    session: Any, dataset: str, history: TableHistory, position: Timestamp | Upcoming, state: DatasetState | None
) -> Watermark:
    """Return the position behind the newest snapshot; raises ValueError for instants, and if there is no snapshot."""
    if isinstance(position, Timestamp):
        raise ValueError("snapshots are not looked up by time; give a watermark, `oldest` or `upcoming`")
    newest = history.newest(session, dataset, state)
    if newest is None:
        raise ValueError("the table has no snapshot yet; `oldest` reads all that come")
    return newest[0]
