"""Leases in a file store: each is in the head of its dataset. The methods of `StateStore` say what each does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import cache

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.state.files import changes
from gobblin_dagster.state.files.dataset import DatasetFiles
from gobblin_dagster.state.files.folder import StoreFolder
from gobblin_dagster.state.files.records import DatasetHead
from gobblin_dagster.state.store import LeaseGrant


def acquire(
    folder: StoreFolder, clock: Clock, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta
) -> LeaseGrant:
    """Take the free leases of some datasets; tell who holds the others."""
    is_dead = cache(LeaseOwner.is_provably_dead)
    inherited: set[str] = set()

    def take(dataset: DatasetFiles) -> Lease | None:
        now = clock.now()

        def taken(head: DatasetHead, _: int) -> DatasetHead | None:
            if changes.is_inherited(head, owner):
                inherited.add(dataset.dataset_urn)
            else:  # added by an earlier try, before another writer was faster
                inherited.discard(dataset.dataset_urn)
            return changes.acquire(head, owner, now, now + ttl, is_dead)

        return dataset.change(taken).lease

    leases = [lease for lease in folder.each(take, folder.datasets(job, urns)) if lease is not None]
    granted = {lease.dataset_urn: lease for lease in leases if lease.owner == owner}
    busy = {lease.dataset_urn: lease for lease in leases if lease.owner != owner}
    return LeaseGrant(granted, busy, frozenset(inherited & granted.keys()))


def renew(folder: StoreFolder, clock: Clock, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
    """Extend leases; return those that are still held."""

    def extend(lease: Lease) -> Lease | None:
        until = clock.now() + ttl
        dataset = folder.dataset(job, lease.dataset_urn)
        head = dataset.change(lambda head, _: changes.renew(head, lease, until))
        return head.lease if changes.holds(head, lease) else None

    return {lease.dataset_urn: lease for lease in folder.each(extend, leases) if lease is not None}


def release(folder: StoreFolder, job: str, leases: Collection[Lease]) -> None:
    """Give leases back that are still held."""

    def give_back(lease: Lease) -> None:
        folder.dataset(job, lease.dataset_urn).change(lambda head, _: changes.release(head, lease))

    folder.each(give_back, leases)


def leave(folder: StoreFolder, job: str, epochs: Mapping[str, int]) -> None:
    """Mark the leases of these epochs, by dataset.urn, as left to the owner's next run."""

    def mark(dataset: DatasetFiles) -> None:
        dataset.change(lambda head, _: changes.leave(head, epochs[dataset.dataset_urn]))

    folder.each(mark, folder.datasets(job, epochs))


def load(folder: StoreFolder, job: str) -> dict[str, Lease]:
    """Return the leases of a job by dataset.urn."""
    return {head.dataset_urn: head.lease for head in folder.heads(job)[0] if head.lease is not None}
