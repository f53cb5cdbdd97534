"""ServiceStore: one database for all nodes of a service, in SQLite or PostgreSQL.

The rooms above read and write rows with the functions of the modules beside this one, inside of a transaction that they
open here: what belongs together (a flow, its first execution, the audit row) becomes durable together or not at all.
"""

from __future__ import annotations

from typing import Self, TypeAlias

from sqlalchemy import URL, Connection, func, select

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.database.database import Database
from gobblin_dagster.database.engine import LOCK_WAIT_S
from gobblin_dagster.service.store.schema import CHAIN

Transaction: TypeAlias = Connection
"""An open transaction; what is written in it becomes durable when its block ends without an error."""

ANSWER_WITHIN_S = LOCK_WAIT_S + 10.0
"""Seconds after which a database that does not answer counts as away: requests must not wait for it for ever."""
_CHANGE_LOCK = 0x60BB13
_SERIALIZED = "gobblin_serialized"
"""Key of what a connection keeps: the transaction in which it took the lock."""


class ServiceStore(Database):
    """Opens the service's tables, and makes or migrates them; raises as `Database`.

    Args:
        engine_url: `sqlite:///<file>` or `postgresql://user:password@host:port/database`.
        clock: used if the database has no clock of its own.
        may_be_away: whether a database that cannot be reached now is opened by the first use that reaches it.

    Source: gobblin-runtime `SpecStore`, `MysqlDagActionStore` and `MysqlMultiActiveLeaseArbiter` in one database.
        Differs: what belongs together is written in one transaction.
    """

    def __init__(self, engine_url: str | URL, clock: Clock, *, may_be_away: bool = False) -> None:
        super().__init__(engine_url, clock, CHAIN, may_be_away=may_be_away, answer_within_s=ANSWER_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serialize_changes(transaction: Transaction) -> None:
    """Let changes of the catalog follow each other until the transaction ends.

    The numbers of changes would else become visible out of order in PostgreSQL, and a node that reads "all after 7"
    would miss the 6 that was committed later. SQLite has one writer at a time anyway.

    A transaction that changes the catalog or leaves an audit row calls this before it locks or writes any row of an
    execution: two that took these locks in different orders would wait for each other.
    """
    current = transaction.get_transaction()
    if transaction.dialect.name == "postgresql" and transaction.info.get(_SERIALIZED) is not current:
        transaction.execute(select(func.pg_advisory_xact_lock(_CHANGE_LOCK)))
        transaction.info[_SERIALIZED] = current
