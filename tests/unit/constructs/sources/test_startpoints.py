"""Startpoints of sources with one position per dataset: `python`, over whole runs, and what `rest` shares with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.sources.startpoints import position_before
from gobblin_dagster.core.errors import StartpointError
from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark, Watermark
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import run
from tests.unit.engine.plan.test_startpoints import planned, waiting, wish

NOON = datetime(2026, 1, 4, 12, tzinfo=UTC)
LATER = NOON.replace(year=2130)
ENDS: dict[str, Any] = {}


def ends() -> dict[str, Any]:
    return dict(ENDS)


def read(unit: Any) -> list[dict[str, Any]]:
    return [{"low": str(unit.low), "high": str(unit.high)}]


def job() -> JobSpec:
    source = {"type": "python", "read": f"{__name__}:read", "datasets": f"{__name__}:ends"}
    body = {"job": "made", "source": source, "extract": {"namespace": "test", "table": "made"}}
    return JobSpec.model_validate(body | {"output": {"path": "lake"}})


@pytest.mark.parametrize(
    ("end", "position", "begins"),
    [
        (10, Specific("4"), "4"),
        (10, Specific("10"), ""),
        (10, Oldest(), "0"),
        (10, Upcoming(), ""),
        (NOON, Timestamp(NOON.replace(day=3)), "2026-01-03T12:00:00Z"),
        (NOON, Timestamp(LATER), ""),
    ],
    ids=str,
)
def test_run_begins_where_the_startpoint_says(
    tmp_path: Path, end: int | datetime, position: StartpointPosition, begins: str
) -> None:
    ENDS.update(a=end)
    wish(tmp_path, job(), position)
    assert [str(unit.low) for unit in planned(tmp_path, job()).work_units] == ([begins] if begins else [])
    assert run(tmp_path, job()).exit_code == 0
    assert waiting(tmp_path, job()) == {}
    ENDS.update(a=end + 1 if isinstance(end, int) else end.replace(hour=13))
    (unit,) = planned(tmp_path, job()).work_units
    assert unit.low.components()[""] == end, "what comes behind the end is read, all of it"


@pytest.mark.parametrize(
    ("end", "position", "problem"),
    [
        (10, Specific("1000"), "it lies beyond the end, 10: rows before it that come later would never be read"),
        (NOON, Specific("2130-01-01"), "it lies beyond the end, 2026-01-04"),
        (10, Timestamp(NOON), "its positions are no times"),
        ("ten", Upcoming(), "expected a whole number or a datetime with a time zone, got 'ten'"),
    ],
    ids=str,
)
def test_position_that_the_dataset_does_not_have_is_refused_and_waits(
    tmp_path: Path, end: Any, position: StartpointPosition, problem: str
) -> None:
    ENDS.update(a=end)
    wish(tmp_path, job(), position)
    assert problem in planned(tmp_path, job()).problem
    assert run(tmp_path, job()).exit_code == 1
    assert "a" in waiting(tmp_path, job())


@pytest.mark.parametrize("position", [LongWatermark(1), Timestamp(NOON), Upcoming()], ids=str)
def test_dataset_without_an_end_has_no_position_but_its_oldest(position: Any) -> None:
    assert position_before(None, "a", Oldest()) is None
    with pytest.raises(StartpointError, match="no end yet; `oldest` reads all rows that come"):
        position_before(None, "a", position)


def test_watermark_of_another_type_is_left_to_the_engine() -> None:
    other: Watermark = TimestampWatermark(LATER)
    assert position_before(LongWatermark(10), "a", other) is other
