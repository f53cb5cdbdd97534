"""Find the positions of startpoints for sources with one position per dataset, whose end they know when they plan."""

from __future__ import annotations

from typing import Any

from gobblin_dagster.core.errors import StartpointError
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import TimestampWatermark, Watermark


def position_before(
    end: Watermark | None, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming
) -> Watermark | None:
    """Return what `StartpointResolver.resolve_startpoint` returns, for a dataset that ends at `end` now (exclusive).

    An instant behind the end becomes the end, so that no row that comes before it is skipped.

    Args:
        end: of one component; None if the dataset has no rows yet.
        dataset_urn: the dataset, for messages.
        position: where a person wants to begin. A watermark of another type than `end` is returned as it is: the engine
            says which type it expects.

    Raises:
        StartpointError: the position lies beyond the end, there is no end yet, or positions are no times.
    """
    if isinstance(position, Oldest):
        return None
    problem = ""
    if end is None:
        problem = "the dataset has no rows, and so no end yet; `oldest` reads all rows that come"
    elif isinstance(position, Upcoming):
        return end
    elif isinstance(position, Timestamp):
        if isinstance(end, TimestampWatermark):
            return TimestampWatermark(min(position.instant, end.value))
        problem = "its positions are no times"
    elif type(position) is not type(end) or _value(position) <= _value(end):
        return position
    else:
        later = "rows before it that come later would never be read"
        problem = f"it lies beyond the end, {end}: {later}; `upcoming` begins at the end"
    raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=problem)


def _value(mark: Watermark) -> Any:
    return mark.components()[""]
