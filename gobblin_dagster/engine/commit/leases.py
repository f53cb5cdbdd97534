"""LeaseKeeper: holds the leases of a run's datasets and renews them in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from gobblin_dagster.core.errors import (
    CorruptRecordError,
    DatasetBusyError,
    GobblinDagsterError,
    StaleEpochError,
    UsageError,
)
from gobblin_dagster.core.lease import DamagedLease, Lease, LeaseOwner
from gobblin_dagster.state.store import LeaseGrant, StateStore

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Acquires leases, renews them every third of their time to live, and releases them at the end.

    If a holder did not release a lease, because it was killed, failed or could not finish the work after a commit, the
    next holder inherits the lease. An inherited lease is released only after `settle`; otherwise it is left again, so
    that the next run's recovery cleans up after the dataset. An error that ends the `with` block leaves all leases.

    If another run took a lease over, the old epoch is kept here, so the store refuses everything that is tried with it.
    A lease only saves work; the epoch and version checks of the commit keep data right even if renewal fails.

    Args:
        store: the state store that holds the leases.
        job: the job's name.
        owner: this process.
        ttl: time to live of a lease; a run that freezes for longer may lose it.

    Example:
        >>> from gobblin_dagster.core.lease import LeaseOwner
        >>> def work(store: StateStore) -> None:
        ...     with LeaseKeeper(store, "flights", LeaseOwner.current("run-1"), timedelta(seconds=60)) as keeper:
        ...         grant = keeper.acquire(["AA/JFK"])
        ...         print(keeper.epoch("AA/JFK"), dict(grant.busy))
    """

    def __init__(self, store: StateStore, job: str, owner: LeaseOwner, ttl: timedelta) -> None:
        self._store = store
        self._job = job
        self._owner = owner
        self._ttl = ttl
        self._held: dict[str, Lease] = {}
        self._lost: set[str] = set()
        self._unsettled: set[str] = set()
        self._is_untold = False
        self._is_unsure = False
        """Whether the store may have granted leases that this keeper was not told of: Ctrl-C, or a lost answer."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"leases of {job}", daemon=True)

    def __enter__(self) -> Self:
        self._owner.note_begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_told = False
        try:
            self._stop.set()
            self._thread.join()
            self._give_back(is_ended_by_error=kind is not None)
            is_told = not self._is_untold
        except Exception as error:  # noqa: BLE001  # leases expire; the run's own result must not be hidden
            log.warning("Leases of job %r were not given back and will expire: %s", self._job, error)
        finally:
            if not is_told:
                # A process that stays (Dagster, the warm worker) would seem to work under these leases until they
                # expire.
                self._owner.note_end()

    def _give_back(self, *, is_ended_by_error: bool) -> None:
        with self._lock:
            ours = {urn: lease for urn, lease in self._held.items() if urn not in self._lost}
            left = {urn: lease.epoch for urn, lease in ours.items() if is_ended_by_error or urn in self._unsettled}
        if self._is_unsure:
            stored = self._store.load_leases(self._job)
            left |= {urn: one.epoch for urn, one in stored.items() if one.owner == self._owner and urn not in ours}
        if left:
            self._store.leave_leases(self._job, left)
        if done := [lease for urn, lease in ours.items() if urn not in left]:
            self._store.release_leases(self._job, done)

    def acquire(self, urns: Collection[str]) -> LeaseGrant:
        """Acquire leases, in one transaction; may be called again for more datasets.

        Raises:
            TransientError: the store cannot be reached.
        """
        self._is_unsure = True
        grant = self._store.acquire_leases(self._job, urns, self._owner, self._ttl)
        with self._lock:
            self._held.update(grant.granted)
            self._lost.difference_update(grant.granted)
            self._unsettled.update(grant.inherited)
        self._is_unsure = False
        return grant

    def settle(self, urns: Collection[str]) -> None:
        """Record that the work that earlier holders of these datasets left is finished."""
        with self._lock:
            self._unsettled.difference_update(urns)

    def leave(self, urns: Collection[str]) -> None:
        """Leave the leases of these datasets at the end, for the next run: the work after a commit is not finished."""
        with self._lock:
            self._unsettled.update(urns)

    def leave_all(self) -> None:
        """Leave all leases at the end, for the next run's recovery: the store could not note this run's end."""
        with self._lock:
            self._unsettled.update(self._held)
        self._is_untold = True

    def take(self, urn: str) -> int:
        """Acquire the lease of one dataset and return its epoch.

        Raises:
            DatasetBusyError: another process holds it.
            CorruptRecordError: its record is damaged.
            TransientError: the store cannot be reached.
        """
        if busy := self.acquire([urn]).busy:
            raise busy_error(busy[urn])
        return self.epoch(urn)

    def epoch(self, urn: str) -> int:
        """Return the epoch under which this run holds, or held, a dataset.

        Raises:
            UsageError: the lease was never granted.
        """
        with self._lock:
            lease = self._held.get(urn)
        if lease is None:
            raise UsageError(problem=f"The lease of dataset {urn!r} was never granted to {self._owner}.")
        return lease.epoch

    def epochs(self) -> dict[str, int]:
        """Return the epochs under which this run holds, or held, its datasets."""
        with self._lock:
            return {urn: lease.epoch for urn, lease in self._held.items()}

    @property
    def lost(self) -> frozenset[str]:
        """Datasets whose lease was taken over by another run."""
        with self._lock:
            return frozenset(self._lost)

    def secure(self, urns: Collection[str]) -> dict[str, GobblinDagsterError]:
        """Renew the leases of datasets that are to be published; return the errors of those that were taken over.

        These are not taken back: the run that has them would lose its work, too. It may also have deleted the files
        that this run staged.

        Raises:
            TransientError: the store cannot be reached.
        """
        self.renew(urns)
        if not (lost := self.lost.intersection(urns)):
            return {}
        holders, now = self._store.load_leases(self._job), self._store.now()
        return {urn: _taken_over(self._held[urn], holders.get(urn), now, self._ttl) for urn in sorted(lost)}

    def renew(self, urns: Collection[str] | None = None) -> None:
        """Renew all held leases once, or those of some datasets; the background thread calls it."""
        with self._lock:
            asked = self._held if urns is None else {urn: self._held[urn] for urn in urns if urn in self._held}
            leases = {urn: lease for urn, lease in asked.items() if urn not in self._lost}
        if not leases:
            return
        renewed = self._store.renew_leases(self._job, list(leases.values()), self._ttl)
        with self._lock:
            self._held.update(renewed)
            self._lost.update(set(leases) - set(renewed))

    def _keep(self) -> None:
        while not self._stop.wait(self._ttl.total_seconds() / 3):
            try:
                self.renew()
            except Exception as error:  # noqa: BLE001  # the next renewal may succeed in time
                log.warning("Leases of job %r were not renewed: %s", self._job, error)


def _taken_over(
    ours: Lease, holder: Lease | None, now: datetime, ttl: timedelta
) -> StaleEpochError | CorruptRecordError:
    """Return the error for a lease that another run took over, with what its holder's lease shows of the clocks."""
    if isinstance(holder, DamagedLease):
        return holder.error
    if holder is None:
        return StaleEpochError(dataset_urn=ours.dataset_urn, ours=ours.epoch, current=0)
    gap = timedelta(minutes=round(holder.clock_gap(ours, now, ttl) / timedelta(minutes=1)))
    shown = f"{abs(gap)} {'ahead of' if gap > timedelta() else 'behind'}" if gap else ""
    return StaleEpochError(
        dataset_urn=ours.dataset_urn,
        ours=ours.epoch,
        current=holder.epoch,
        holder="" if holder.is_left else str(holder.owner),
        clock_gap=shown,
    )


def busy_error(lease: Lease) -> DatasetBusyError | CorruptRecordError:
    """Return the error that names the holder of a lease, or what is wrong with it."""
    if isinstance(lease, DamagedLease):
        return lease.error
    until = lease.until.strftime("%Y-%m-%d %H:%M:%SZ")
    return DatasetBusyError(dataset_urn=lease.dataset_urn, holder=str(lease.owner), until=until)
