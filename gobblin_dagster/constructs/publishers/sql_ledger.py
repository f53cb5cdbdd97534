"""The ledger of a database: one row per commit and branch, written in the transaction that loads the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.publishers.sql_mysql import TABLE_OPTIONS
from gobblin_dagster.constructs.publishers.sql_names import exact, full_names, table_fold
from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.errors import StepRefusedError, StorageError

LEDGER = "gobblin_commits"
_NEVER = "-"
"""Sorts before all times. Not an empty text: some databases store it as null, which equals nothing."""

_WAIT_S = 60
"""How long MySQL and MariaDB let a load wait for another one of the same table; the step is tried again then."""


def ledger_table(schema: str | None = None) -> sa.Table:
    """Return the ledger: one for all tables of a database, in its default schema, or that of another schema."""
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("commit_id", sa.String(64), primary_key=True),
        sa.Column("branch", sa.String(64), primary_key=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("dataset_urn", sa.Text, nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("low", sa.Text, nullable=False),
        sa.Column("high", sa.Text, nullable=False),
        # Rows of earlier versions have none.
        sa.Column("published_at", sa.String(32)),
        schema=schema,
        **TABLE_OPTIONS,
    )


def wait_for_turn(connection: sa.Connection, schema: str, table: str) -> None:
    """Wait until no other load holds a table, and hold it to the end of the transaction (MySQL: of the connection).

    Nobody sees the ledger's rows of a load that is not over: two that ask at once whose table it is would both take it
    for theirs. SQLite needs no lock for it, as only one transaction writes.

    Raises:
        StorageError: the other load takes too long.
    """
    name = f"{schema}.{table}".lstrip(".")
    place = full_names(connection, [name], table_fold(connection))[name]
    lock = hashlib.sha256(place.encode()).digest()
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(int.from_bytes(lock[:8], signed=True))))
        return
    is_held = sa.select(sa.func.get_lock(lock.hex(), _WAIT_S))
    if connection.dialect.name in MYSQL and not connection.scalar(is_held):
        other = connection.scalar(sa.select(sa.func.is_used_lock(lock.hex())))
        problem = f"another run loads rows into it, and has held it for {_WAIT_S} s"
        problem += f" by session {other}; if that program is frozen or gone, end it (KILL {other})" if other else ""
        raise StorageError(operation="publish to table", path=table, problem=problem)


_RELATIVES = sa.text(
    "SELECT concat_ws('.', nspname, relname) FROM (SELECT to_regclass(concat_ws('.', quote_ident(CAST(:schema AS text))"
    ", quote_ident(:name))) AS wanted) AS it CROSS JOIN LATERAL (SELECT relid FROM pg_partition_tree(wanted) "
    "UNION SELECT relid FROM pg_partition_ancestors(wanted)) AS one "
    "JOIN pg_class ON pg_class.oid = relid JOIN pg_namespace ON pg_namespace.oid = relnamespace"
)
"""The table that a table of PostgreSQL is a partition of, and its own partitions: their rows are its rows."""
_FOREIGN = sa.text(
    "SELECT relname FROM (SELECT to_regclass(concat_ws('.', quote_ident(CAST(:schema AS text)), quote_ident(:name))) "
    "AS wanted) AS it CROSS JOIN LATERAL (SELECT wanted AS relid UNION SELECT relid FROM pg_partition_tree(wanted)) "
    "AS one JOIN pg_class ON pg_class.oid = relid WHERE relkind = 'f' ORDER BY relname LIMIT 1"
)
_OTHER_LEDGERS = {
    "postgresql": "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = :ledger AND relkind = 'r' AND NOT pg_table_is_visible(pg_class.oid) "
    "AND has_schema_privilege(nspname, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT')",
    **dict.fromkeys(
        MYSQL,
        "SELECT table_schema FROM information_schema.tables WHERE table_name = :ledger AND table_schema <> database()",
    ),
}


def require_local(step: str, connection: sa.Connection, table: sa.Table) -> None:
    """Raise StepRefusedError for a foreign table of PostgreSQL: its server commits on its own, before the ledger."""
    if connection.dialect.name != "postgresql":
        return
    found = connection.scalar(_FOREIGN, {"schema": table.schema, "name": table.name})
    connection.rollback()
    if found is not None:
        problem = f"{found} is a foreign table: rows of a publication that fails would stay at its server, and whose "
        problem += "rows that table has cannot be seen; publish to its own database"
        raise StepRefusedError(step=step, problem=problem)


def other_writers(
    connection: sa.Connection, schema: str, table: str, ours: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield ledger, dataset.urn, branch and job of others that have loaded rows into a table, as far as we may see it.

    Runs with another default schema or database have a ledger there, for tables of all schemas.

    Args:
        connection: to the database.
        schema: of the table; may be empty.
        table: its name.
        ours: values of columns of the ledger; others have another one.
    """
    dialect, place = connection.dialect.name, f"{schema}.{table}".lstrip(".")
    related: set[str] = set()
    if dialect == "postgresql":
        related = {*connection.scalars(_RELATIVES, {"schema": schema or None, "name": table})}
    fold = table_fold(connection)
    wanted = {*full_names(connection, {place, *related}, fold).values()}
    last_names = sorted({name.rpartition(".")[2] for name in (place, *related)})
    others = sa.text(_OTHER_LEDGERS[dialect]) if dialect in _OTHER_LEDGERS else None
    beside = [] if others is None else [*connection.scalars(others, {"ledger": LEDGER})]
    for where in (None, *beside):
        columns = ledger_table(where).c
        is_other = sa.or_(*(exact(connection, columns[name]) != value for name, value in ours.items()))
        is_named = sa.or_(*(columns.table_name.iendswith(name, autoescape=True) for name in last_names))
        query = sa.select(columns.table_name, columns.dataset_urn, columns.branch, columns.job).where(
            is_named, is_other
        )
        found: list[tuple[str, ...]] = []
        # A table of another schema may be no ledger of ours, or one that we may not read.
        with suppress(*([DBAPIError] if where else [])), connection.begin_nested():
            found = [tuple(map(str, line)) for line in connection.execute(query.distinct())]
        written = {name: f"{where}.{name}" if where and "." not in name else name for name, *_ in found}
        names = full_names(connection, {*written.values()}, fold)
        ledger = f"{where}.{LEDGER}" if where else LEDGER
        yield from ((ledger, urn, branch, job) for name, urn, branch, job in found if names[written[name]] in wanted)


def newest_commits(
    connection: sa.Connection, ledger: sa.Table, job: str, tables: Mapping[str, str]
) -> dict[str, Collection[NotedCommit]]:
    """Return the newest commits of a job by dataset.urn, with one query for all datasets.

    If several commits are equally old, or have no time because an earlier version wrote them, two are returned.

    Args:
        connection: connection to the database.
        ledger: table from `ledger_table`; it may not exist.
        job: name of the job.
        tables: name of the table, by dataset.urn; that of the default schema may be left out.
    """
    looked = sa.inspect(connection)
    if not looked.has_table(ledger.name, ledger.schema):
        return {}
    known = {column["name"] for column in looked.get_columns(ledger.name, ledger.schema)}
    columns = ledger.c
    moment = sa.func.coalesce(columns.published_at, _NEVER) if "published_at" in known else sa.literal(_NEVER)
    lines = (
        sa.select(
            exact(connection, columns.dataset_urn).label("dataset_urn"),
            exact(connection, columns.table_name).label("table_name"),
            columns.commit_id,
            moment.label("moment"),
        )
        .where(exact(connection, columns.job) == job)
        .subquery()
    )
    place = (lines.c.dataset_urn, lines.c.table_name)
    newest = sa.select(*place, sa.func.max(lines.c.moment).label("moment")).group_by(*place).subquery()
    is_newest = sa.and_(
        lines.c.dataset_urn == newest.c.dataset_urn,
        lines.c.table_name == newest.c.table_name,
        lines.c.moment == newest.c.moment,
    )
    query = (
        sa.select(*place, newest.c.moment, sa.func.min(lines.c.commit_id), sa.func.max(lines.c.commit_id))
        .select_from(lines.join(newest, is_newest))
        .group_by(*place, newest.c.moment)
    )
    # The newest last: it counts if the table had several names.
    found = sorted(connection.execute(query), key=lambda line: str(line[2]))
    names = full_names(connection, {*tables.values(), *(table for _, table, *_ in found)}, table_fold(connection))
    return {
        urn: {
            NotedCommit(commit_id, None if at == _NEVER else datetime.fromisoformat(at)) for commit_id in (first, last)
        }
        for urn, table, at, first, last in found
        if urn in tables and names[tables[urn]] == names[table]
    }


def existing_tables(connection: sa.Connection, schema: str, tables: Collection[str]) -> set[str]:
    """Return those of the tables of a schema that exist; their names may begin with that of the schema."""
    looked = sa.inspect(connection)
    listed = {*looked.get_table_names(schema or None)} if len(tables) > 1 else set()
    names = {table: table.rpartition(".")[2] for table in tables}
    # Views, and names in another case, are not among those that are listed.
    return {table for table, name in names.items() if name in listed or looked.has_table(name, schema or None)}
