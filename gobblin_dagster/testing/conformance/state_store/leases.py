"""What a state store promises of leases.

Expired leases are made with a negative time to live: some stores take the time from their server, which no test moves.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore
from gobblin_dagster.testing.conformance.state_store.values import (
    EXPIRED,
    JOB,
    ME,
    OTHER,
    TTL,
    URN,
    race,
    take,
)


class Leases(OpensStore):
    """Leases: one holder for each dataset, and an epoch that only rises."""

    def test_the_first_lease_of_a_dataset_is_granted_for_the_time_asked(self, store: StateStore) -> None:
        """`acquire_leases` grants a lease that nobody holds, with epoch 1; `load_leases` returns it."""
        grant = store.acquire_leases(JOB, ["a", "b"], ME, TTL)

        assert set(grant.granted) == {"a", "b"}
        assert grant.busy == {}
        assert all(lease.owner == ME and lease.epoch == 1 for lease in grant.granted.values())
        assert store.load_leases(JOB) == grant.granted
        assert store.load_leases("another") == {}

    def test_a_live_lease_is_busy_and_names_its_holder(self, store: StateStore) -> None:
        """`acquire_leases` leaves a live lease of another owner as it is and returns it in `busy`."""
        held = take(store, OTHER, "a")

        grant = store.acquire_leases(JOB, ["a", "b"], ME, TTL)

        assert set(grant.granted) == {"b"}
        assert grant.busy == {"a": held}
        assert store.load_leases(JOB)["a"] == held

    def test_acquiring_again_renews_and_keeps_the_epoch(self, store: StateStore) -> None:
        """`acquire_leases` by the owner of a lease prolongs it and keeps its epoch."""
        first = take(store, ttl=TTL)
        again = take(store, ttl=2 * TTL)

        assert again.epoch == first.epoch
        assert again.until > first.until

    def test_an_expired_lease_is_taken_over_with_a_higher_epoch(self, store: StateStore) -> None:
        """`acquire_leases` takes over an expired lease of another owner and raises its epoch by one."""
        old = take(store, OTHER, ttl=EXPIRED)

        assert take(store).epoch == old.epoch + 1
        assert store.load_leases(JOB)[URN].owner == ME

    def test_an_expired_lease_that_nobody_took_is_still_ours(self, store: StateStore) -> None:
        """`acquire_leases` by the owner of an expired lease keeps its epoch."""
        old = take(store, ttl=EXPIRED)

        assert take(store).epoch == old.epoch

    def test_the_lease_of_an_ended_process_is_taken_over_at_once(self, store: StateStore) -> None:
        """`acquire_leases` takes over a lease whose process on this host has ended, before it expires."""
        program = "from gobblin_dagster.core.lease import LeaseOwner as L; o = L.current('x'); print(o.pid, o.started)"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
        pid, started = ended.stdout.split()
        old = take(store, replace(ME, run_id="run-killed", pid=int(pid), started=started))

        assert take(store).epoch == old.epoch + 1

    def test_the_lease_of_a_process_whose_pid_was_reused_is_taken_over(self, store: StateStore) -> None:
        """`acquire_leases` compares when a process started, so a pid that was given again is not its owner."""
        old = take(store, replace(ME, run_id="run-killed", pid=os.getpid(), started="1"))

        assert take(store).epoch == old.epoch + 1

    def test_the_lease_of_another_host_is_busy_until_it_expires(self, store: StateStore) -> None:
        """`acquire_leases` takes no owner on another host for dead."""
        take(store, replace(ME, host=f"not-{socket.gethostname()}", started="1"))

        assert set(store.acquire_leases(JOB, [URN], ME, TTL).busy) == {URN}

    def test_a_release_frees_the_dataset_and_keeps_the_epoch(self, store: StateStore) -> None:
        """`release_leases` frees the dataset; the next lease has a higher epoch."""
        lease = take(store)

        store.release_leases(JOB, [lease])

        assert store.load_leases(JOB) == {}
        assert take(store, OTHER).epoch == lease.epoch + 1

    def test_a_release_leaves_a_taken_over_lease_alone(self, store: StateStore) -> None:
        """`release_leases` leaves a lease alone that another owner has taken over."""
        old = take(store, OTHER, ttl=EXPIRED)
        new = take(store)

        store.release_leases(JOB, [old])

        assert store.load_leases(JOB) == {URN: new}

    def test_renewal_prolongs_what_is_ours_and_leaves_out_what_is_not(self, store: StateStore) -> None:
        """`renew_leases` prolongs leases that are still ours, keeps epochs, and leaves out taken or released ones."""
        mine = take(store, OTHER, "mine", ttl=EXPIRED)
        lost = take(store, OTHER, "lost", ttl=EXPIRED)
        freed = take(store, OTHER, "freed")
        store.release_leases(JOB, [freed])
        new = take(store, ME, "lost")

        renewed = store.renew_leases(JOB, [mine, lost, freed, replace(mine, dataset_urn="never leased")], TTL)

        assert set(renewed) == {"mine"}
        assert renewed["mine"].epoch == mine.epoch
        assert renewed["mine"].until > mine.until
        assert store.load_leases(JOB) == {"lost": new, **renewed}

    def test_a_lease_that_was_given_back_is_not_inherited(self, store: StateStore) -> None:
        """`LeaseGrant.inherited` names no dataset whose lease was given back."""
        store.release_leases(JOB, [take(store, OTHER)])

        assert store.acquire_leases(JOB, [URN], ME, TTL).inherited == frozenset()
        assert store.acquire_leases(JOB, [URN], ME, TTL).inherited == frozenset()

    def test_a_lease_that_expired_is_inherited_and_a_busy_one_is_not(self, store: StateStore) -> None:
        """`LeaseGrant.inherited` names granted datasets whose last holder did not give the lease back."""
        take(store, OTHER, "expired", ttl=EXPIRED)
        take(store, OTHER, "busy")

        grant = store.acquire_leases(JOB, ["expired", "busy", "new"], ME, TTL)

        assert grant.inherited == {"expired"}

    def test_a_lease_that_was_left_is_over_and_keeps_its_owner(self, store: StateStore) -> None:
        """`leave_leases` ends a lease and keeps its owner; the next owner inherits it, with a higher epoch."""
        lease = take(store, OTHER)

        store.leave_leases(JOB, {URN: lease.epoch, "never leased": 1})

        (left,) = store.load_leases(JOB).values()
        assert left.is_left
        assert left.owner == OTHER
        assert store.renew_leases(JOB, [lease], TTL) == {}
        store.release_leases(JOB, [lease])
        assert store.load_leases(JOB) == {URN: left}
        grant = store.acquire_leases(JOB, [URN], ME, TTL)
        assert grant.inherited == {URN}
        assert grant.granted[URN].epoch == lease.epoch + 1

    def test_a_lease_that_its_own_run_left_and_takes_again_is_inherited(self, store: StateStore) -> None:
        """A lease that its own run left is inherited when the run takes it again."""
        lease = take(store)
        store.leave_leases(JOB, {URN: lease.epoch})

        grant = store.acquire_leases(JOB, [URN], ME, TTL)

        assert grant.inherited == {URN}
        assert not grant.granted[URN].is_left

    def test_leases_of_another_epoch_and_free_ones_cannot_be_left(self, store: StateStore) -> None:
        """`leave_leases` leaves leases of another epoch, and free ones, as they are."""
        old = take(store, OTHER, ttl=EXPIRED)
        new = take(store)
        freed = take(store, OTHER, "freed")
        store.release_leases(JOB, [freed])

        store.leave_leases(JOB, {URN: old.epoch, "freed": freed.epoch})

        assert store.load_leases(JOB) == {URN: new}

    def test_no_datasets_need_no_leases(self, store: StateStore) -> None:
        """Every method of leases accepts no datasets."""
        grant = store.acquire_leases(JOB, [], ME, TTL)

        assert (grant.granted, grant.busy, grant.inherited) == ({}, {}, frozenset())
        store.leave_leases(JOB, {})
        assert store.renew_leases(JOB, [], TTL) == {}
        store.release_leases(JOB, [])

    def test_of_two_runs_that_race_for_a_lease_one_gets_it(self, store: StateStore) -> None:
        """If two calls of `acquire_leases` race, each lease is granted to one."""
        urns = [f"d{n}" for n in range(20)]

        def acquire(owner: LeaseOwner, order: Sequence[str]) -> set[str]:
            return set(store.acquire_leases(JOB, order, owner, TTL).granted)

        one, two = race(lambda: acquire(ME, urns), lambda: acquire(OTHER, urns[::-1]))

        assert isinstance(one, set)
        assert isinstance(two, set)
        assert sorted([*one, *two]) == sorted(urns)
        assert {lease.epoch for lease in store.load_leases(JOB).values()} == {1}
