"""Notice that the watermark column is another one, or has got a time zone or lost it, since its positions were stored.

A position means something in its own column alone. A time is an instant in UTC, or one of a wall clock that is written
as if it were one: if a column changes from one to the other, stored positions are hours away from the rows that were
read. A job that reads everything in each run, without such a column, has a position that is none of its rows. In all
cases rows would be lost, or read twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from gobblin_dagster.core.dataset_state import DatasetState

_NAME = "name of the watermark column"
_NO_COLUMN = "(none)"
_TIMES = "watermark column"
_LOSS = "that position is another one now, and rows would be lost or read twice."
_RESET = (
    "`gobblin state reset` forgets the position: the next run reads all rows, or from where `gobblin startpoint set` "
    "says after it."
)


def column_origin(column: str, *, has_zone: bool | None = None) -> Mapping[str, str]:
    """Return the `DatasetOffer.origin` of a dataset in order of a column.

    Args:
        column: name of the column; empty if there is none, and all rows are read in each run.
        has_zone: whether its times have a zone; None if it holds none, or if nobody knows.
    """
    times = {} if has_zone is None else {_TIMES: f"times {'with' if has_zone else 'without'} a time zone"}
    return {_NAME: column or _NO_COLUMN, **times}


def column_problem(state: DatasetState | None, origin: Mapping[str, str]) -> str:
    """Return why stored positions mean nothing in the watermark column; empty if they do, or if nobody knows.

    Args:
        state: the dataset's state; states of earlier versions do not say what the column was.
        origin: `column_origin` of the column now.
    """
    if state is None:
        return ""
    name, times = origin.get(_NAME, ""), origin.get(_TIMES, "")
    if name == _NO_COLUMN:
        return ""  # all rows are read, wherever the position is
    until = f"when the dataset was committed up to {state.watermark}"
    if name and state.origin.get(_NAME) == _NO_COLUMN:
        return f"its watermark column is `{name}`, it had none {until}, and each run read all rows: {_LOSS} {_RESET}"
    if state.is_other(_NAME, name):
        return (
            f"its watermark column is `{name}`, it was `{state.origin[_NAME]}` {until}: {_LOSS} If the column was only "
            f"renamed, `gobblin startpoint set` with that position goes on from there. Otherwise {_RESET}"
        )
    if state.is_other(_TIMES, times):
        held = state.origin[_TIMES]
        return f"its watermark column `{name}` holds {times}, it held {held} {until}: {_LOSS} {_RESET}"
    return ""
