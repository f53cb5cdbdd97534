"""Leases in SQL. Each function runs in the caller's transaction, with few statements for any number of datasets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, RowMapping, Text, Update, bindparam, literal, select, true, update

from gobblin_dagster.core.errors import StaleEpochError
from gobblin_dagster.core.lease import LEFT, DamagedLease, Lease, LeaseOwner
from gobblin_dagster.database.dialect import as_list, insert, is_among, listed, texts
from gobblin_dagster.database.types import UNREADABLE
from gobblin_dagster.state.sql.tables import leases
from gobblin_dagster.state.store import LeaseGrant

_NO_OWNER: dict[str, Any] = {"run_id": None, "host": None, "boot": None, "pid": None, "started": None, "until": None}

_TEXTS = ("run_id", "host", "boot", "started")
_MOST = 2**62
"""More than any epoch. SQLite compares a text or bytes that stand in the place of a number as greater than numbers."""

# Statements are made once: making one takes longer than it runs.
_OF_JOB = leases.c.job == bindparam("of_job")
_AMONG = is_among(leases.c.dataset_urn, texts("urns"))
# All transactions lock in the same order, so that they cannot deadlock.
_LOCKED = select(leases).where(_OF_JOB, _AMONG).order_by(leases.c.dataset_urn).with_for_update()
_LOCKED_EPOCHS = (
    select(leases.c.dataset_urn, leases.c.epoch).where(_OF_JOB, _AMONG).order_by(leases.c.dataset_urn).with_for_update()
)
_CHANGED = update(leases).where(_OF_JOB, _AMONG)
_TAKEN = _CHANGED.values(epoch=leases.c.epoch + 1)
_NOT_FREE = select(leases).where(_OF_JOB, leases.c.run_id.is_not(None) | ~leases.c.epoch.between(0, _MOST))


def acquire(
    connection: Connection, job: str, urns: Collection[str], owner: LeaseOwner, *, now: datetime, ttl: timedelta
) -> LeaseGrant:
    """Take or renew leases that are free, have expired, or belong to `owner` or a dead process."""
    until = now + ttl
    _add_rows(connection, job, urns)
    is_dead = cache(LeaseOwner.is_provably_dead)
    taken, renewed = dict[str, Lease](), dict[str, Lease]()
    busy: dict[str, Lease] = {}
    inherited: set[str] = set()
    for row in _lock_rows(connection, job, urns):
        urn, epoch, held = row["dataset_urn"], row["epoch"], _lease(row)
        if isinstance(held, DamagedLease):
            busy[urn] = held
            continue
        if held is not None and (held.is_left or held.owner != owner):
            inherited.add(urn)
        if held is not None and held.owner == owner:
            renewed[urn] = Lease(urn, epoch, owner, until)
        elif held is None or held.is_over(now) or is_dead(held.owner):
            taken[urn] = Lease(urn, epoch + 1, owner, until)
        else:
            busy[urn] = held
    _update(connection, job, taken, {**_owner_columns(owner), "until": until}, _TAKEN)
    _update(connection, job, renewed, {"until": until})
    return LeaseGrant({**taken, **renewed}, busy, frozenset(inherited - busy.keys()))


def renew(connection: Connection, job: str, ours: Collection[Lease], now: datetime, ttl: timedelta) -> dict[str, Lease]:
    """Extend leases that are still held."""
    until = now + ttl
    kept = _still_held(connection, job, ours)
    _update(connection, job, kept, {"until": until})
    return {urn: Lease(urn, lease.epoch, lease.owner, until) for urn, lease in kept.items()}


def release(connection: Connection, job: str, ours: Collection[Lease]) -> None:
    """Release leases that are still held: set their owner to NULL."""
    _update(connection, job, _still_held(connection, job, ours), _NO_OWNER)


def leave(connection: Connection, job: str, epochs: Mapping[str, int]) -> None:
    """End leases that still have the given epoch, and keep their owner."""
    rows = _lock_rows(connection, job, epochs)
    held = [row["dataset_urn"] for row in rows if row["run_id"] and row["epoch"] == epochs[row["dataset_urn"]]]
    _update(connection, job, held, {"until": LEFT})


def load(connection: Connection, job: str) -> dict[str, Lease]:
    """Return all held and all damaged leases of a job."""
    rows = connection.execute(_NOT_FREE, {"of_job": job}).mappings()
    return {row["dataset_urn"]: lease for row in rows if (lease := _lease(row)) is not None}


def mend(connection: Connection, job: str, urn: str, now: datetime) -> bool:
    """Leave the lease of a dataset to the next run if its row is damaged, and tell if it was.

    Whoever held it cannot commit any more.
    """
    for row in _lock_rows(connection, job, [urn]):
        if isinstance(_lease(row), DamagedLease):
            # If the epoch is lost, the time gives one that no lease has had: leases are not taken once a second.
            epoch = row["epoch"] + 1 if _is_epoch(row["epoch"]) else int(now.timestamp())
            values = {**_owner_columns(LeaseOwner("restored", "", "", 0, "")), "epoch": epoch, "until": LEFT}
            _update(connection, job, [urn], values)
            return True
    return False


def require_epoch(connection: Connection, job: str, urn: str, epoch: int) -> None:
    """Lock the dataset's lease until the transaction ends; raise StaleEpochError if it has another epoch."""
    require_epochs(connection, job, {urn: epoch})


def require_epochs(connection: Connection, job: str, epochs: Mapping[str, int]) -> None:
    """Lock leases like `require_epoch`; `epochs` gives the epoch of each by dataset.urn."""
    locked = connection.execute(_LOCKED_EPOCHS, {"of_job": job, "urns": as_list(epochs)})
    current = {row.dataset_urn: row.epoch for row in locked}
    for urn, epoch in epochs.items():
        if current.get(urn) != epoch:
            raise StaleEpochError(dataset_urn=urn, ours=epoch, current=current.get(urn, 0))


def lock_row(connection: Connection, job: str, urn: str) -> None:
    """Lock the dataset's lease until the transaction ends, if there ever was one."""
    connection.execute(select(leases.c.epoch).where(leases.c.job == job, leases.c.dataset_urn == urn).with_for_update())


def _add_rows(connection: Connection, job: str, urns: Collection[str]) -> None:
    """Insert a row for each dataset that has none, to lock it; without owner, and with epoch 0, which no lease has."""
    statement = _ADDED.get(connection.dialect.name)
    if statement is None:
        statement = _ADDED[connection.dialect.name] = _added(connection)
    connection.execute(statement, {"of_job": job, "urns": as_list(urns)})


_ADDED: dict[str, Insert] = {}
"""The statement of `_add_rows` by dialect."""


def _added(connection: Connection) -> Insert:
    urn, of_job = listed(connection, texts("urns")), bindparam("of_job", type_=Text())
    rows = select(of_job, urn, literal(0)).where(true())  # SQLite needs the WHERE before ON CONFLICT
    statement: Insert = insert(connection, leases).from_select(["job", "dataset_urn", "epoch"], rows)
    added: Insert = statement.on_conflict_do_nothing()  # type: ignore[attr-defined]  # both dialects have it
    return added


def _lock_rows(connection: Connection, job: str, urns: Collection[str]) -> list[RowMapping]:
    return list(connection.execute(_LOCKED, {"of_job": job, "urns": as_list(urns)}).mappings())


def _still_held(connection: Connection, job: str, ours: Collection[Lease]) -> dict[str, Lease]:
    asked = {lease.dataset_urn: lease for lease in ours}
    held = (_lease(row) for row in _lock_rows(connection, job, asked))
    return {
        lease.dataset_urn: lease
        for lease in held
        if lease is not None and not lease.is_left and _identity(lease) == _identity(asked[lease.dataset_urn])
    }


def _identity(lease: Lease) -> tuple[int, LeaseOwner]:
    return lease.epoch, lease.owner


def _update(
    connection: Connection, job: str, urns: Collection[str], values: dict[str, Any], statement: Update = _CHANGED
) -> None:
    if urns:
        connection.execute(statement, {"of_job": job, "urns": as_list(urns), **values})


def _is_epoch(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST


def _owner_columns(owner: LeaseOwner) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in ("run_id", "host", "boot", "pid", "started")}


def _lease(row: RowMapping) -> Lease | None:
    """Return the lease of a row; None if nobody holds it."""
    is_sound = {"epoch": _is_epoch(row["epoch"])}
    if row["run_id"] is not None:
        is_sound |= {name: isinstance(row[name], str) for name in _TEXTS}
        is_sound |= {"pid": isinstance(row["pid"], int), "until": row["until"] not in (None, UNREADABLE)}
    if damaged := [name for name, sound in is_sound.items() if not sound]:
        names = " and ".join(f"`{name}`" for name in damaged)
        return DamagedLease.of(row["dataset_urn"], f"its row in `{leases.name}` holds no valid {names}")
    if row["run_id"] is None:
        return None
    owner = LeaseOwner(row["run_id"], row["host"], row["boot"], row["pid"], row["started"])
    return Lease(row["dataset_urn"], row["epoch"], owner, row["until"])
