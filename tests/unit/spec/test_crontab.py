from __future__ import annotations

import pytest

from gobblin_dagster.spec.crontab import crontab_problem


@pytest.mark.parametrize(
    "cron",
    [
        "* * * * *", "0 6 * * 1-5", "*/15 0-23/2 1,15 jan-Mar MON,fri", "0 0 29 2 *", "0 0 L * *", "0 0 * * 5#1",
        "0 0 * * 7", "0 0 31 2,3 *", "0 0 31 2 1", "0 0 1-31 2 *", "59 23 31 12 *", "0 0 * * sat#5", "0 0 30-31 2 *",
    ],
)  # fmt: skip
def test_times_that_there_are_have_no_problem(cron: str) -> None:
    assert crontab_problem(cron) == ""


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("60 * * * *", "the minute is from 0 to 59, got '60'"),
        ("0 24 * * *", "the hour is from 0 to 23, got '24'"),
        ("0 1-24 * * *", "the hour is from 0 to 23, got '1-24'"),
        ("0 0 0 * *", "the day of month is from 1 to 31, got '0'"),
        ("0 0 * 13 *", "the month is from 1 to 12, got '13'"),
        ("0 0 * foo *", "the month is from 1 to 12, got 'foo'"),
        ("0 0 * * 8", "the day of week is from 0 to 7, got '8'"),
        ("0 0 * * 5#6", "the day of week is from 0 to 7, got '5#6'"),
        ("*/0 * * * *", "the step of the minute is at least 1, got '*/0'"),
        ("-1 * * * *", "the minute is from 0 to 59, got '-1'"),
        ("1,2,,3 * * * *", "the minute is from 0 to 59, got ''"),
        ("0 0 31 2 *", "there is no such day in these months"),
        ("0 0 31 4,jun *", "there is no such day in these months"),
    ],
)
def test_what_no_clock_shows_is_named(cron: str, problem: str) -> None:
    assert crontab_problem(cron) == problem
