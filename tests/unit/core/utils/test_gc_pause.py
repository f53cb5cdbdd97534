from __future__ import annotations

import gc

import pytest

from gobblin_dagster.core.utils.gc_pause import collector_paused


def test_collector_rests_inside_and_runs_after_an_error_too() -> None:
    assert gc.isenabled()
    seen = []

    def work() -> None:
        with collector_paused():
            seen.append(gc.isenabled())
            raise ValueError("broke off")

    with pytest.raises(ValueError, match="broke off"):
        work()
    assert seen == [False]
    assert gc.isenabled()


def test_collector_that_rested_before_rests_after_it() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
