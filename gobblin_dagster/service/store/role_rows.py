"""Roles: which node fires flows. A role is a lease with an epoch; a node that was paused too long has lost it."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from sqlalchemy import select, update

from gobblin_dagster.database.dialect import insert as insert_or_ignore
from gobblin_dagster.service.store.node_rows import load_node
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import roles

LEADER = "leader"
"""The role of the node that fires schedules and starts executions."""
_NOBODY = ""
_DATABASE = "database"
"""Not a role that anybody takes: its holder is the name of the database."""


class RoleLease:
    """One node's claim on a role.

    Args:
        role: the role's name.
        holder: names this node; never used again by another process.
        ttl: how long the role stays with a node that is silent.

    Source: gobblin-service `MysqlMultiActiveLeaseArbiter`, and Helix's leader election before it.
    """

    def __init__(self, role: str, holder: str, ttl: timedelta) -> None:
        self._role = role
        self._holder = holder
        self._ttl = ttl
        self.is_held = False
        """Whether the last `renew` said yes."""

    def renew(self, transaction: Transaction, now: datetime) -> bool:
        """Take the role if it is free or ours, and hold it for `ttl` from now; tell whether this node has it.

        What is written in the same transaction is written under the role: if another node took it, nothing is.
        """
        values = {"role": self._role, "holder": _NOBODY, "epoch": 0, "until": now}
        transaction.execute(insert_or_ignore(transaction, roles).values(values).on_conflict_do_nothing())
        query = select(roles).where(roles.c.role == self._role)
        if transaction.dialect.name == "postgresql":
            query = query.with_for_update()
        row = transaction.execute(query).one()
        # A lease that ends later than any can was taken before a clock was put back; it would keep the role for long.
        is_valid = now < row.until <= now + 2 * self._ttl
        if row.holder not in (_NOBODY, self._holder) and is_valid and not _is_dead(transaction, row.holder):
            self.is_held = False
            return False
        epoch = row.epoch if row.holder == self._holder else row.epoch + 1
        transaction.execute(
            update(roles)
            .where(roles.c.role == self._role)
            .values(holder=self._holder, epoch=epoch, until=now + self._ttl)
        )
        self.is_held = True
        return True

    def give_back(self, transaction: Transaction) -> None:
        """Let another node take the role at once."""
        transaction.execute(
            update(roles).where(roles.c.role == self._role, roles.c.holder == self._holder).values(holder=_NOBODY)
        )
        self.is_held = False


def holder_of(transaction: Transaction, role: str) -> str:
    """Return the node that has a role, or had it last; empty if nobody has it."""
    found = transaction.execute(select(roles.c.holder).where(roles.c.role == role)).scalar_one_or_none()
    return found or _NOBODY


def database_name(transaction: Transaction, now: datetime) -> str:
    """Return the name of the database, which its first caller gives it; names of older ones sort first."""
    name = f"{int(now.timestamp() * 1000):015d}-{secrets.token_hex(8)}"
    values = {"role": _DATABASE, "holder": name, "epoch": 0, "until": now}
    transaction.execute(insert_or_ignore(transaction, roles).values(values).on_conflict_do_nothing())
    return holder_of(transaction, _DATABASE)


def _is_dead(transaction: Transaction, holder: str) -> bool:
    """Tell whether a holder is certainly gone, so that nobody waits for the end of its lease after a kill."""
    node = load_node(transaction, holder)
    return node is not None and node.owner.is_provably_dead()
