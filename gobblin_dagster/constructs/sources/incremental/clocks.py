"""Notice that a watermark column of times has got a time zone, or lost it, since its positions were stored.

A position is an instant in UTC, or a time of a wall clock that is written as if it were one. If a column changes from
one to the other, stored positions are hours away from the rows that were read: rows would be lost, or read twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from gobblin_dagster.core.dataset_state import DatasetState

_NAME = "watermark column"
"""Name of the origin, the same for all columns: a column may be renamed, together with the job."""


def clock_origin(*, has_zone: bool) -> Mapping[str, str]:
    """Return the `DatasetOffer.origin` of a dataset in order of a column of times."""
    return {_NAME: f"times {'with' if has_zone else 'without'} a time zone"}


def clock_problem(state: DatasetState | None, column: str, origin: Mapping[str, str]) -> str:
    """Return why stored positions mean nothing in the watermark column; empty if they do, or if nobody knows.

    Args:
        state: the dataset's state; states of earlier versions do not say what the column held.
        column: name of the column.
        origin: `clock_origin` of the column now; empty if unknown.
    """
    now = origin.get(_NAME, "")
    if state is None or not state.is_other(_NAME, now):
        return ""
    return (
        f"its watermark column `{column}` holds {now}, it held {state.origin[_NAME]} when the dataset was committed up "
        f"to {state.watermark}: that position is another one now, and rows would be lost or read twice. Forget it by "
        "`gobblin state reset`: the next run reads all rows, or from where `gobblin startpoint set` says after it."
    )
