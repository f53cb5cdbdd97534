"""Random schedules: two to four runners, mixed faults, seeds in order; all are drawn from the seed alone."""

from __future__ import annotations

import pytest

from gobblin_dagster.testing.protocol.crash_table import run_parts, storm_parts
from gobblin_dagster.testing.protocol.random_faults import draw

STORMS = 150  # `make crash` makes 200, `make crash-table` 2,000 or as many as one likes
SEED = 100


@pytest.mark.slow
def test_storms_harm_nobody() -> None:
    rows = run_parts(storm_parts(STORMS, SEED), processes=2)
    table = "\n".join(map(str, rows))
    print(table)  # noqa: T201  # shown where the test fails, and with -s
    assert sum(row.report.schedules for row in rows) >= STORMS, table
    assert [str(row.report) for row in rows if row.report.broken] == [], table


def test_storm_is_the_same_each_time_and_storms_meet_every_fault() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert drawn == [draw(seed) for seed in range(200)]
    told = str(drawn)
    for what in (
        "crash before",
        "crash after",
        "EIO",
        "ENOSPC",
        "answer lost",
        "power",
        "half of the bytes",
        "meanwhile=(",
        "r4",
    ):
        assert what in told, what
