"""Whether stored positions still mean the same times, if the watermark column gets a time zone or loses it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gobblin_dagster.constructs.sources.incremental.clocks import clock_origin, clock_problem
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges

ZONED, LOCAL = clock_origin(has_zone=True), clock_origin(has_zone=False)


def state(origin: Mapping[str, str]) -> DatasetState:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    return DatasetState(
        "shop", "t", 1, CommittedRanges(TimestampWatermark, {}), 1, run_id="run", updated_at=now, origin=origin
    )


@pytest.mark.parametrize(
    ("known", "now"),
    [(ZONED, ZONED), (LOCAL, LOCAL), ({}, ZONED), (LOCAL, {}), ({"table": "7"}, LOCAL)],
    ids=["with", "without", "state of an earlier version", "unknown now", "another origin"],
)
def test_same_or_unknown_clock_is_read_on(known: Mapping[str, str], now: Mapping[str, str]) -> None:
    assert clock_problem(state(known), "at", now) == ""


def test_first_run_has_no_clock_to_compare() -> None:
    assert clock_problem(None, "at", ZONED) == ""


@pytest.mark.parametrize(("known", "now"), [(ZONED, LOCAL), (LOCAL, ZONED)], ids=["lost", "got"])
def test_other_clock_is_named(known: Mapping[str, str], now: Mapping[str, str]) -> None:
    problem = clock_problem(state(known), "at", now)
    assert f"its watermark column `at` holds {now['watermark column']}, it held {known['watermark column']}" in problem
    # Under a startpoint alone, rows before the first stored position would be read again.
    assert problem.index("`gobblin state reset`") < problem.index("`gobblin startpoint set` says after it")
