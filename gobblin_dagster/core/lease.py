"""Leases: which process works on a dataset.

Leases only avoid double work. What keeps data right if two runs work on a dataset is the compare-and-swap of the
commit.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from gobblin_dagster.core.errors import CorruptRecordError


def _process_start(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot; None if it is gone or a zombie."""
    try:
        # The name in field 2 may hold spaces and parentheses; fields after the last ")" are fixed.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _is_hidden(pid: int) -> bool:
    """Return whether a process is there although /proc does not show it: `hidepid` hides those of others."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not Path(f"/proc/{pid}").exists()
    except (OSError, OverflowError):
        return False
    return False


@cache
def _boot() -> str:
    """Return which processes this one sees: ids of the boot, of the machine and of the PID namespace, with `;` between.

    Containers and machines may share a name: neither sees whether the other's processes live. Empty if Linux tells no
    boot. Earlier versions wrote the id of the boot alone.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    try:
        # It should not leave the machine as it is (man machine-id).
        machine = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:12]
    except OSError:
        machine = ""
    return f"{boot};{machine};{namespace}"


_LONGEST = timedelta(hours=2)
"""Longest time from now to the end of a valid lease: one hour (`lease_ttl_s`), and one hour that clocks may differ."""


LEFT = datetime(1970, 1, 1, tzinfo=UTC)
"""The `until` of a lease that its holder ended with work left to do (`Lease.is_left`)."""

_ENDED: set[LeaseOwner] = set()
"""Owners of this process whose work has ended although the state store could not be told."""


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """A process that runs a job; host, boot, pid and start time show whether it can still be alive."""

    run_id: str
    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def current(cls, run_id: str) -> LeaseOwner:
        """Return the owner for this process."""
        pid = os.getpid()
        return cls(run_id, socket.gethostname(), _boot(), pid, _process_start(pid) or "")

    def note_end(self) -> None:
        """Note that the work of this owner has ended in this process, for leases that it could not give back."""
        _ENDED.add(self)

    def note_begin(self) -> None:
        """Take back `note_end`: the owner works again."""
        _ENDED.discard(self)

    def is_provably_dead(self) -> bool:
        """Return whether its work has certainly ended: in this process, or because its process is gone.

        A process is gone if it ran on this host and is not there, or if the host was rebooted. Of a process in another
        container, or on another machine of the same name, nobody knows.

        Lets the next run after a kill go on at once instead of waiting for the lease to expire. Wrong answers cost
        work, never data: the epoch and the version are checked in every transaction.
        """
        if self in _ENDED:
            return True
        if self.host != socket.gethostname() or not self.boot or not self.started:
            return False
        boot, *where = self.boot.split(";")
        here, *ours = _boot().split(";")
        if boot != here:
            return bool(here) and (not where or where[0] == ours[0])  # else another machine has this name
        return where in ([], ours) and _process_start(self.pid) != self.started and not _is_hidden(self.pid)

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host})"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to plan and commit one dataset until an instant; `epoch` grows with each new holder."""

    dataset_urn: str
    epoch: int
    owner: LeaseOwner
    until: datetime

    @property
    def is_left(self) -> bool:
        """Whether its holder ended it with work left to do, such as writing a manifest; the next run does this work."""
        return self.until == LEFT

    def is_over(self, now: datetime) -> bool:
        """Return whether it has expired, or ends later than any lease can (the holder's clock was far ahead).

        Wrong answers cost work, never data, like those of `LeaseOwner.is_provably_dead`.
        """
        return not now < self.until <= now + _LONGEST

    def clock_gap(self, ours: Lease, now: datetime, ttl: timedelta) -> timedelta:
        """Return about how far its holder's clock is ahead of ours (behind: negative); zero if no gap is certain.

        Args:
            ours: the lease from which it was taken over, as we last renewed it.
            now: the time by our clock.
            ttl: time to live of both leases.
        """
        if self.until > now + _LONGEST:
            return self.until - now - ttl
        # The holder wrote the end of its lease after we wrote that of ours.
        is_behind = not self.is_left and self.until < ours.until - _LONGEST
        return self.until - ours.until if is_behind else timedelta()

    def is_held(self, now: datetime) -> bool:
        """Return whether its holder may still work: the lease is not over, and the process is not provably dead."""
        return not self.is_over(now) and not self.owner.is_provably_dead()


@dataclass(frozen=True, slots=True)
class DamagedLease(Lease):
    """A lease whose record cannot be read: nobody can take it before a person has cleared it, and nobody waits for it.

    It may be that of a run that goes on, and its epoch, which keeps that run from a late commit, may be lost.
    """

    problem: str

    @classmethod
    def of(cls, dataset_urn: str, problem: str) -> DamagedLease:
        """Return the damaged lease of a dataset."""
        return cls(dataset_urn, 0, LeaseOwner("", "", "", 0, ""), datetime.min.replace(tzinfo=UTC), problem)

    @property
    def error(self) -> CorruptRecordError:
        """The error for whoever wants to take it."""
        return CorruptRecordError(
            what=f"The lease of dataset {self.dataset_urn!r}",
            problem=f"{self.problem}. `gobblin state restore` clears it; wait for runs of the dataset to end before",
        )
