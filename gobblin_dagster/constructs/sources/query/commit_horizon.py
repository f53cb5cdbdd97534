"""Find a safe upper bound: no open transaction can still insert rows below it, even if writers commit out of order.

A transaction that took id 5, or read the clock, may commit after one that took id 6. A run that reads up to 6 in
between loses 5 for ever. PostgreSQL shows which transactions are open:

    long    Note the highest id, then wait for the transactions that hold a write lock on the table. Transactions
            that begin later take higher ids (sequences with the default CACHE 1, ids taken by the INSERT itself).
    times   Read nothing after the beginning of the oldest open transaction: `now()` is never earlier than that. If
            open transactions cannot be seen, read nothing of the last second, because more rows of it may come.

Times from the writers' own clocks, and prepared transactions, need `lag` in addition.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from gobblin_dagster.constructs.sources.query.database import READING, Database
from gobblin_dagster.constructs.sources.query.relation import Relation
from gobblin_dagster.core.errors import SourceError

MARGIN_S = 1
"""Seconds kept before the oldest transaction: one that just began is visible a moment later, and times may be cut to
seconds."""
_POLL_S = 0.05

_OLDEST = sa.text("""
    SELECT clock_timestamp(), min(xact_start), count(*) FILTER (WHERE backend_type IS NULL)
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> :application
      AND (backend_type IS NULL OR (backend_type NOT LIKE 'autovacuum%' AND backend_type <> 'walsender'))
""")
"""For a session of another user that we may not inspect, all columns but its name are NULL."""
_WRITERS = sa.text("""
    SELECT relation::bigint, virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = ANY(:tables) AND granted AND database =
          (SELECT oid FROM pg_database WHERE datname = current_database())
      AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND pid IS DISTINCT FROM pg_backend_pid()
""")
_RELATIONS = sa.text("""
    WITH RECURSIVE relations(oid) AS (
      SELECT CAST(to_regclass(format('%I.%I', CAST(:schema AS text), CAST(:table AS text))) AS oid)
      UNION
      SELECT below.oid FROM relations CROSS JOIN LATERAL (
        SELECT inhrelid AS oid FROM pg_inherits WHERE inhparent = relations.oid
        UNION ALL
        SELECT refobjid FROM pg_rewrite JOIN pg_depend ON objid = pg_rewrite.oid
        WHERE ev_class = relations.oid AND classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
      ) AS below
    )
    SELECT CAST(oid AS bigint) FROM relations WHERE oid IS NOT NULL
""")


def oldest_transaction(database: Database) -> datetime:
    """Return the beginning of the oldest open transaction, by the server's clock; now if there is none.

    Raises:
        SourceError: transactions of other users are hidden from ours.
    """
    with database.session() as session:
        now, oldest, hidden = session.execute(_OLDEST, {"application": READING}).one()
    if hidden:
        raise SourceError(
            job=database.job,
            problem=f"{hidden} session(s) of database {database.shown} are hidden from us, so that open transactions "
            "cannot be waited for.",
            hint="GRANT pg_read_all_stats to our user; or set `horizon: none` and a `lag`.",
        )
    instant: datetime = min(now, oldest) if oldest is not None else now
    return instant.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Settled:
    """How far a table with a `long` cursor is settled."""

    highest: int | None
    """The highest value before we waited; None if there was no row."""
    open_writers: int
    """Number of transactions still open after waiting; unless it is 0, nothing new may be read."""
    problem: str = ""
    """Why the highest value is not known, if the database refused to tell it."""


def settle(
    database: Database,
    relations: Mapping[str, Relation],
    wait_s: float,
) -> dict[str, Settled]:
    """Note the highest value of each table, then wait for all transactions that were writing to it.

    Args:
        database: must be PostgreSQL.
        relations: the tables, by urn.
        wait_s: seconds to wait for these transactions at most, for all tables together.
    """
    highest: dict[str, int | None] = {}
    problems: dict[str, str] = {}
    # In a transaction that ends before we wait: a writer that changes a table would wait for us.
    with database.newest() as connection:
        database.limits.apply(connection)
        for urn, relation in relations.items():
            where = f"{urn}, watermark column {relation.cursor_column}: "
            try:
                with database.planning(where, relation.table, connection):
                    highest[urn] = connection.execute(relation.highest()).scalar()
            except SourceError as error:
                problems[urn] = error.problem
                database.limits.apply(connection)
    deadline = time.monotonic() + wait_s
    with database.session() as session:
        of_table = {urn: _oids(session, relation.schema, relation.table) for urn, relation in relations.items()}
        oids = [oid for found in of_table.values() for oid in found]
        waiting = _writers(session, oids)
        while waiting and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            waiting &= _writers(session, oids)
    return {
        urn: Settled(highest.get(urn), len({writer for oid, writer in waiting if oid in found}), problems.get(urn, ""))
        for urn, found in of_table.items()
    }


def _oids(session: sa.Connection, schema: str, table: str) -> list[int]:
    """Return the oids of the table, its partitions (writers may lock these instead) and the tables of a view."""
    return [int(oid) for oid in session.execute(_RELATIONS, {"schema": schema, "table": table}).scalars()]


def _writers(session: sa.Connection, oids: Sequence[int]) -> set[tuple[int, str]]:
    if not oids:
        return set()
    rows = session.execute(_WRITERS, {"tables": list(oids)})
    return {(int(relation), str(writer)) for relation, writer in rows}
