"""The words of `catch_up`; what `cron` and `time_zone` refuse stands in the tests of definitions."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gobblin_dagster.spec.schedule import CatchUp, ScheduleSpec


@pytest.mark.parametrize(("word", "meant"), [("all", "all"), ("latest", "latest"), ("skip", "skip"), ("none", "skip")])
def test_catch_up_has_the_words_of_the_service_and_none(word: str, meant: str) -> None:
    assert ScheduleSpec.model_validate({"cron": "@daily", "catch_up": word}).catch_up == meant


def test_catch_up_that_is_no_such_word_is_refused() -> None:
    assert ScheduleSpec(cron="@daily").catch_up is CatchUp.LATEST
    with pytest.raises(ValidationError, match="'all', 'latest' or 'skip'"):
        ScheduleSpec.model_validate({"cron": "@daily", "catch_up": "never"})
