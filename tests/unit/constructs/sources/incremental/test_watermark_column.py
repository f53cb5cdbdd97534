"""Whether stored positions still mean the same: in the same watermark column, and of times with or without a zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin, column_problem
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges

ZONED, LOCAL = column_origin("at", has_zone=True), column_origin("at", has_zone=False)


def state(origin: Mapping[str, str]) -> DatasetState:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    return DatasetState(
        "shop", "t", 1, CommittedRanges(TimestampWatermark, {}), 1, run_id="run", updated_at=now, origin=origin
    )


@pytest.mark.parametrize(
    ("known", "now"),
    [(ZONED, ZONED), (LOCAL, LOCAL), ({}, ZONED), (LOCAL, column_origin("at")), (LOCAL, {}), ({"table": "7"}, LOCAL)],
    ids=["with", "without", "state of an earlier version", "unknown now", "no column now", "another origin"],
)
def test_same_or_unknown_clock_is_read_on(known: Mapping[str, str], now: Mapping[str, str]) -> None:
    assert column_problem(state(known), now) == ""


def test_first_run_has_no_clock_to_compare() -> None:
    assert column_problem(None, ZONED) == ""


@pytest.mark.parametrize(("known", "now"), [(ZONED, LOCAL), (LOCAL, ZONED)], ids=["lost", "got"])
def test_other_clock_is_named(known: Mapping[str, str], now: Mapping[str, str]) -> None:
    problem = column_problem(state(known), now)
    assert f"its watermark column `at` holds {now['watermark column']}, it held {known['watermark column']}" in problem
    # Under a startpoint alone, rows before the first stored position would be read again.
    assert problem.index("`gobblin state reset`") < problem.index("`gobblin startpoint set` says after it")


def test_other_column_is_named() -> None:
    problem = column_problem(state(ZONED), column_origin("seq"))
    assert "its watermark column is `seq`, it was `at` when the dataset was committed up to None" in problem
    assert "If the column was only renamed, `gobblin startpoint set` with that position goes on from there" in problem


def test_column_after_none_is_refused_and_none_after_a_column_reads_everything() -> None:
    """A job that reads everything has a position too, which is none of the column's."""
    none = column_origin("")
    assert "its watermark column is `seq`, it had none when" in column_problem(state(none), column_origin("seq"))
    assert "its watermark column is `at`, it had none when" in column_problem(state(none), ZONED)
    assert column_problem(state(ZONED), none) == column_problem(state(none), none) == ""
