from __future__ import annotations

from datetime import timedelta

import pytest

from gobblin_dagster.constructs.options.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("6h", 21_600), ("6 h", 21_600), ("2d", 172_800), ("0s", 0)]
)
def test_durations_are_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["", "6", "h", "-6h", "1.5h", "6 weeks", "6h 30m", 6, True, None])
def test_anything_else_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration like 90s, 30m, 6h or 2d, got"):
        parse_duration(value)


def test_duration_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(ValueError, match="'1000000000d' is longer than any calendar"):
        parse_duration("1000000000d")
