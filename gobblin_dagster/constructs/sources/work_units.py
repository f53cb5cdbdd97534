"""Plan work units for sources with one position: first each gap that failed work units left, then the new range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit


def open_units(
    dataset_urn: str,
    state: DatasetState | None,
    start: Watermark,
    end: Watermark | None,
    *,
    read: Mapping[str, JsonValue],
    unit_size: int | None = None,
) -> list[WorkUnit]:
    """Return work units for all that is not committed before `end`, as intervals of `start`'s watermark type.

    Args:
        dataset_urn: the dataset of the work units.
        state: what is committed of it.
        start: where a dataset without state begins (inclusive).
        end: end of what there is to read (exclusive); None if there is nothing.
        read: what the extractor needs.
        unit_size: most positions of one work unit, for whole numbers only. None: one work unit per range.
    """
    kind: Any = type(start)
    known: Any = state.committed.ranges.get("", ()) if state is not None else ()
    committed = state.committed if state is not None else None
    ranges: list[tuple[Any, Any]] = list(committed.gaps()) if committed is not None else []
    low: Any = known[-1][1] if known else start.components()[""]
    if end is not None:
        ranges.append((low, end.components()[""]))
    opened = [
        WatermarkInterval(kind.from_components({"": begin}), kind.from_components({"": stop}))
        for begin, stop in ranges
        if begin < stop
    ]
    parts = [part for one in opened for part in (one.partition(unit_size) if unit_size is not None else [one])]
    return [
        WorkUnit(f"{dataset_urn}-{number}", dataset_urn, part.low, part.high, read=read)
        for number, part in enumerate(parts)
    ]


def require_replacement(job: str, option: str, extract: Extract) -> None:
    """Raise UsageError unless the job replaces its output: a source without `option` reads everything in each run."""
    if not extract.is_full:
        raise UsageError(
            problem=f"Job {job!r}: without a `{option}` everything is read in each run, and `extract.type: "
            f"{extract.type}` would publish it again and again.",
            hint=f"Give a `{option}`, or set `extract.type: snapshot_only`, which replaces what is published.",
        )


def state_problem(state: DatasetState | None, kind: type[Watermark], source: str) -> str:
    """Return the problem if a state has watermarks of another type than the source's; else an empty text."""
    if state is None or state.committed.watermark_type is kind:
        return ""
    return (
        f"its stored watermark is of type {state.committed.watermark_type.type_name!r}, this source `{source}` needs "
        f"{kind.type_name!r}; give the job another name, or its former source again."
    )
