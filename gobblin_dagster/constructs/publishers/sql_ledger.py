"""The ledger of a database: one row per commit and branch, written in the transaction that loads the rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import MYSQL, columns_of, savepoint
from gobblin_dagster.constructs.publishers.sql_mysql import TABLE_OPTIONS
from gobblin_dagster.constructs.publishers.sql_names import exact, full_names, table_fold
from gobblin_dagster.constructs.publishers.sql_relatives import has_rows, made_again, relatives
from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.errors import StorageError

LEDGER = "gobblin_commits"
_NEVER = "-"
"""Sorts before all times. Not an empty text: some databases store it as null, which equals nothing."""

_IS_ANOTHER = (
    "table {} is not the one that rows were loaded into, which was dropped, renamed, or restored alone; whether the "
    "rows of all commits are in this one is not known"
)
_WAIT_S = 60
"""How long MySQL and MariaDB let a load wait for another one of the same table; the step is tried again then."""


_EXACT_NAME = sa.String(64).with_variant(mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
"""Branches `b` and `B` are two. In ledgers of earlier versions MySQL and MariaDB take them for one."""
OPTIONAL = "is_optional"
"""Key of `Column.info`: loads go on where nobody may add the column."""


@lru_cache(64)  # statements on the same table are made once
def ledger_table(schema: str | None = None, *, backend: str = "") -> sa.Table:
    """Return the ledger: one for all tables of a database, in its default schema, or that of another schema."""
    # Who the loaded table was, see `identities`; rows of earlier versions have none.
    identities = [sa.Column("table_id", sa.String(64), info={OPTIONAL: True})] if backend == "postgresql" else []
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("commit_id", sa.String(64), primary_key=True),
        sa.Column("branch", _EXACT_NAME, primary_key=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("dataset_urn", sa.Text, nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("low", sa.Text, nullable=False),
        sa.Column("high", sa.Text, nullable=False),
        # Rows of earlier versions have none.
        sa.Column("published_at", sa.String(32)),
        *identities,
        schema=schema,
        **TABLE_OPTIONS,
    )


def has_ids(ledger: sa.Table, known: Collection[str]) -> bool:
    """Return whether a ledger with these columns tells who its tables are."""
    return "table_id" in ledger.c and "table_id" in known


def name_to_note(connection: sa.Connection, name: str) -> str:
    """Return the name of a table for the ledger: in PostgreSQL with its schema, as sessions may have other ones."""
    return full_names(connection, [name], str)[name] if connection.dialect.name == "postgresql" else name


def wait_for_turn(connection: sa.Connection, schema: str, table: str) -> None:
    """Wait until no other load holds a table, and hold it to the end of the transaction (MySQL: of the connection).

    A table and its partitions are one.

    Nobody sees the ledger's rows of a load that is not over: two that ask at once whose table it is would both take it
    for theirs. SQLite needs no lock for it, as only one transaction writes.

    Raises:
        StorageError: the other load takes too long.
    """
    name = f"{schema}.{table}".lstrip(".")
    place = full_names(connection, [name], table_fold(connection))[name]
    place = next((one.name for one in relatives(connection, schema, table)), place)
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


_OTHER_LEDGERS = {
    "postgresql": "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = :ledger AND relkind = 'r' AND NOT pg_table_is_visible(pg_class.oid) "
    "AND has_schema_privilege(nspname, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT')",
    **dict.fromkeys(
        MYSQL,
        "SELECT table_schema FROM information_schema.tables WHERE table_name = :ledger AND table_schema <> database()",
    ),
}


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
    related = {one.name for one in relatives(connection, schema, table)}
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
        with suppress(*([DBAPIError] if where else [])), savepoint(connection):
            found = [tuple(map(str, line)) for line in connection.execute(query.distinct())]
        written = {name: f"{where}.{name}" if where and "." not in name else name for name, *_ in found}
        names = full_names(connection, {*written.values()}, fold)
        ledger = f"{where}.{LEDGER}" if where else LEDGER
        yield from ((ledger, urn, branch, job) for name, urn, branch, job in found if names[written[name]] in wanted)


def newest_commits(
    connection: sa.Connection, ledger: sa.Table, job: str, tables: Mapping[str, str]
) -> dict[str, Collection[NotedCommit]]:
    """Return the newest commits of a job by dataset.urn, with one query for all datasets.

    A table that was dropped has none, nor has one that is known to be made again, and is empty; if it has rows, its
    commits are in doubt.
    If several commits are equally old, or have no time because an earlier version wrote them, two are returned.

    Args:
        connection: connection to the database.
        ledger: table from `ledger_table`; it may not exist.
        job: name of the job.
        tables: name of the table, by dataset.urn; that of the default schema may be left out.
    """
    reflected = columns_of(connection, ledger.name, ledger.schema)
    if reflected is None:
        return {}
    known = {column["name"] for column in reflected}
    columns = ledger.c
    table_id = columns.table_id if has_ids(ledger, known) else sa.null()
    moment = sa.func.coalesce(columns.published_at, _NEVER) if "published_at" in known else sa.literal(_NEVER)
    lines = (
        sa.select(
            exact(connection, columns.dataset_urn).label("dataset_urn"),
            exact(connection, columns.table_name).label("table_name"),
            columns.commit_id,
            moment.label("moment"),
            sa.cast(table_id, sa.String(64)).label("table_id"),
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
        sa.select(
            *place,
            newest.c.moment,
            sa.func.min(lines.c.commit_id),
            sa.func.max(lines.c.commit_id),
            sa.func.max(lines.c.table_id),
        )
        .select_from(lines.join(newest, is_newest))
        .group_by(*place, newest.c.moment)
    )
    # The newest last: it counts if the table had several names.
    found = sorted(connection.execute(query), key=lambda line: str(line[2]))
    names = full_names(connection, {*tables.values(), *(table for _, table, *_ in found)}, table_fold(connection))
    noted = {urn: line for urn, table, *line in found if urn in tables and names[tables[urn]] == names[table]}
    there = _existing_tables(connection, {tables[urn] for urn in noted})
    ids = [(tables[urn], line[-1]) for urn, line in noted.items() if tables[urn] in there]
    others = made_again(connection, ledger, ids)
    there -= {table for table in others if not has_rows(connection, table)}
    return {
        urn: {
            NotedCommit(
                commit_id,
                None if at == _NEVER else datetime.fromisoformat(at),
                _IS_ANOTHER.format(tables[urn]) if tables[urn] in others else "",
            )
            for commit_id in (first, last)
        }
        for urn, (at, first, last, _) in noted.items()
        if tables[urn] in there
    }


def _existing_tables(connection: sa.Connection, tables: Collection[str]) -> set[str]:
    """Return those of the tables that exist; their names may begin with that of a schema."""
    looked = sa.inspect(connection)
    schemas = Counter(table.rpartition(".")[0] for table in tables)
    listed = {schema: {*looked.get_table_names(schema or None)} for schema, number in schemas.items() if number > 1}
    names = {table: table.rpartition(".") for table in tables}
    # Views, and names in another case, are not among those that are listed.
    return {
        table
        for table, (schema, _, name) in names.items()
        if name in listed.get(schema, ()) or columns_of(connection, name, schema or None) is not None
    }
