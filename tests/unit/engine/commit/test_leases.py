from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from gobblin_dagster.core.errors import DatasetBusyError, StorageError, TransientError, UsageError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.store import LeaseGrant
from gobblin_dagster.storage import MemoryStorage
from tests.unit.engine.commit.world import JOB, Clock, World

TTL = timedelta(minutes=1)
FIRST, SECOND = LeaseOwner.current("first"), LeaseOwner.current("second")


def test_leases_are_held_inside_and_given_back_after() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        grant = keeper.acquire(["a", "b"])
        assert set(grant.granted) == {"a", "b"}
        assert keeper.epoch("a") == grant.granted["a"].epoch
        assert set(world.store.load_leases(JOB)) == {"a", "b"}
    assert world.store.load_leases(JOB) == {}


def test_nothing_held_gives_nothing_back() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        assert keeper.lost == frozenset()
    assert world.store.load_leases(JOB) == {}


def test_busy_datasets_are_named_and_have_no_epoch() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as first, LeaseKeeper(world.store, JOB, SECOND, TTL) as second:
        first.acquire(["a"])
        grant = second.acquire(["a", "b"])
        assert (set(grant.granted), set(grant.busy)) == ({"b"}, {"a"})
        with pytest.raises(UsageError, match="'a' was never granted to run second"):
            second.epoch("a")


def test_one_dataset_is_taken_or_its_holder_is_named() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as first, LeaseKeeper(world.store, JOB, SECOND, TTL) as second:
        assert first.take("a") == world.store.load_leases(JOB)["a"].epoch
        with pytest.raises(DatasetBusyError, match="run first"):
            second.take("a")


def test_renewal_prolongs_what_is_held() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        keeper.renew()
        keeper.acquire(["a"])
        until = world.store.load_leases(JOB)["a"].until
        world.clock.instant += TTL / 2
        keeper.renew()
        assert world.store.load_leases(JOB)["a"].until == until + TTL / 2


def test_lease_taken_over_keeps_its_stale_epoch_and_is_left_to_its_new_holder() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        stale = keeper.acquire(["a", "b"]).granted["a"].epoch
        world.clock.instant += 2 * TTL
        current = world.store.acquire_leases(JOB, ["a"], SECOND, TTL).granted["a"]
        keeper.renew()
        assert keeper.lost == {"a"}
        assert keeper.epoch("a") == stale < current.epoch
    assert world.store.load_leases(JOB) == {"a": current}


def test_lost_lease_may_be_acquired_again() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        keeper.acquire(["a"])
        world.clock.instant += 2 * TTL
        taken = world.store.acquire_leases(JOB, ["a"], SECOND, TTL).granted
        keeper.renew()
        world.store.release_leases(JOB, list(taken.values()))
        keeper.acquire(["a"])
        assert keeper.lost == frozenset()
        assert keeper.epoch("a") == taken["a"].epoch + 1


class _Flaky(FileStateStore):
    """Fails each second renewal, and the release."""

    def __init__(self) -> None:
        super().__init__("/state", MemoryStorage(), Clock())
        self.renewals = 0
        self.renewed_twice = threading.Event()

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        self.renewals += 1
        if self.renewals % 2:
            raise TransientError(problem="the store is away")
        if self.renewals >= 4:
            self.renewed_twice.set()
        return super().renew_leases(job, leases, ttl)

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        raise TransientError(problem="the store is away")


def test_background_renewal_survives_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    store = _Flaky()
    with LeaseKeeper(store, JOB, FIRST, timedelta(milliseconds=15)) as keeper:
        keeper.acquire(["a"])
        assert store.renewed_twice.wait(120)
    assert "were not renewed: the store is away" in caplog.text
    assert "were not given back and will expire: the store is away" in caplog.text


def test_leases_that_could_not_be_given_back_are_free_for_later_runs_of_the_process() -> None:
    store, owner = _Flaky(), LeaseOwner.current("ended")
    with LeaseKeeper(store, JOB, owner, TTL) as keeper:
        keeper.acquire(["a"])
        assert set(store.acquire_leases(JOB, ["a"], SECOND, TTL).busy) == {"a"}
    later = store.acquire_leases(JOB, ["a"], SECOND, TTL)
    assert (set(later.granted), later.inherited) == ({"a"}, frozenset("a"))
    with LeaseKeeper(store, JOB, owner, TTL):
        assert not owner.is_provably_dead()


def test_only_who_would_see_a_process_says_that_it_is_gone() -> None:
    here = LeaseOwner.current("here")
    boot, machine, processes = here.boot.split(";")
    gone = replace(here, pid=2**30)
    assert not here.is_provably_dead()
    assert gone.is_provably_dead()
    assert replace(gone, boot=boot).is_provably_dead()  # of an earlier version
    assert not replace(gone, boot=f"{boot};{machine};pid:[1]").is_provably_dead()  # another container
    assert replace(here, boot=f"before;{machine};{processes}").is_provably_dead()
    assert not replace(here, boot=f"before;another;{processes}").is_provably_dead()  # a machine of the same name


def test_leases_of_unfinished_work_are_left_to_the_next_holder() -> None:
    world = World()
    with LeaseKeeper(world.store, JOB, FIRST, TTL) as keeper:
        keeper.acquire(["a", "b"])
        keeper.leave(["a", "never held"])
    assert set(world.store.load_leases(JOB)) == {"a"}
    assert world.store.acquire_leases(JOB, ["a", "b"], SECOND, TTL).inherited == {"a"}


class _ForgetsWhatIsLeft(FileStateStore):
    """A store whose disk is full just when unfinished work is to be noted."""

    def __init__(self) -> None:
        super().__init__("/state", MemoryStorage(), Clock())

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        raise StorageError(operation="use the state store", path="/state", problem="No space left on device")


def test_leases_of_unfinished_work_are_not_released_if_the_store_cannot_note_it() -> None:
    store, owner = _ForgetsWhatIsLeft(), LeaseOwner.current("ended")
    with LeaseKeeper(store, JOB, owner, TTL) as keeper:
        keeper.acquire(["a"])
        keeper.leave(["a"])
    assert store.acquire_leases(JOB, ["a"], SECOND, TTL).inherited == {"a"}


class _Interrupted(FileStateStore):
    """A store during one of whose calls Ctrl-C comes, before it does its work or after."""

    def __init__(self, name: str, when: str) -> None:
        super().__init__("/state", MemoryStorage(), Clock())
        self.strike = (name, when)

    def _struck(self, name: str, when: str) -> None:
        if self.strike == (name, when):
            self.strike = ("", "")
            raise KeyboardInterrupt

    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        self._struck("acquire", "before")
        grant = super().acquire_leases(job, urns, owner, ttl)
        self._struck("acquire", "after")
        return grant

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        self._struck("release", "before")
        super().release_leases(job, leases)
        self._struck("release", "after")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["acquire", "release"])
def test_interrupt_while_leases_are_taken_or_given_back_keeps_no_dataset_from_later_runs(name: str, when: str) -> None:
    store, owner = _Interrupted(name, when), LeaseOwner.current(f"{name}-{when}")
    with pytest.raises(KeyboardInterrupt), LeaseKeeper(store, JOB, owner, TTL) as keeper:
        keeper.acquire(["a"])
    if name == "acquire":  # noted in the store, for other processes too
        assert all(lease.is_left for lease in store.load_leases(JOB).values())
    assert not store.acquire_leases(JOB, ["a"], SECOND, TTL).busy
