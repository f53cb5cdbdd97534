"""A role is held by one node at a time, and goes over when its holder is silent or gives it back."""

from __future__ import annotations

from datetime import timedelta

from gobblin_dagster.service.store.role_rows import RoleLease
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import OwnClock

TTL = timedelta(seconds=15)


def renew(store: ServiceStore, role: RoleLease) -> bool:
    with store.write() as transaction:
        return role.renew(transaction, store.now(transaction))


def test_silent_holder_loses_the_role_and_is_told_so(store: ServiceStore, clock: OwnClock) -> None:
    one, two = RoleLease("leader", "one", TTL), RoleLease("leader", "two", TTL)
    assert renew(store, one)
    assert not renew(store, two)
    clock.move(seconds=14)
    assert renew(store, one)
    clock.move(seconds=14)
    assert not renew(store, two)
    clock.move(seconds=2)
    assert renew(store, two)
    assert not renew(store, one), "the one that was paused finds the role taken"
    assert not one.is_held


def test_clock_that_is_put_back_keeps_no_role_from_others(store: ServiceStore, clock: OwnClock) -> None:
    one, two = RoleLease("leader", "one", TTL), RoleLease("leader", "two", TTL)
    assert renew(store, one)
    clock.move(minutes=-10)
    assert renew(store, two), "the first is silent, and its lease would last for ten minutes"
    assert not renew(store, one)


def test_role_that_is_given_back_is_free_at_once(store: ServiceStore) -> None:
    one, two = RoleLease("leader", "one", TTL), RoleLease("leader", "two", TTL)
    assert renew(store, one)
    with store.write() as transaction:
        one.give_back(transaction)
    assert renew(store, two)
