"""Leases of machines whose clocks went wrong, in the stores that have no clock of their own."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.state import open_store
from gobblin_dagster.testing.conformance.state_store import ManualClock

ELSEWHERE = LeaseOwner("run-1", "elsewhere", "boot", 1, "1")
HERE = LeaseOwner("run-2", "here", "boot", 2, "2")
TTL = timedelta(minutes=1)


@pytest.mark.parametrize("url", ["sqlite:///state.db", "files:state"], ids=["sqlite", "files"])
@pytest.mark.parametrize(
    ("set_back", "is_free"),
    [(timedelta(seconds=30), False), (timedelta(hours=1), False), (timedelta(days=3650), True)],
    ids=["a little", "an hour", "ten years"],
)
def test_lease_of_a_clock_that_was_ahead_is_free_once_no_lease_can_be_so_long(
    tmp_path: Path, url: str, set_back: timedelta, is_free: bool
) -> None:
    clock = ManualClock()
    with closing(open_store(url, tmp_path, clock)) as store:
        old = store.acquire_leases("j", ["a"], ELSEWHERE, TTL).granted["a"]
        clock.advance(-set_back)
        grant = store.acquire_leases("j", ["a"], HERE, TTL)
        assert ("a" in grant.granted, "a" in grant.busy) == (is_free, not is_free)
        assert ("a" in store.renew_leases("j", [old], TTL)) is not is_free
