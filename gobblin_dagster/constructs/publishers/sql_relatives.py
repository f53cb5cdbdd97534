"""Who a table of PostgreSQL is, by server and oid, and which tables' rows are its rows; nothing in other databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.utils.text import lower_ascii

_RELATIVES = sa.text(
    "SELECT concat_ws('.', nspname, relname), relkind, relpersistence, place FROM (SELECT to_regclass(concat_ws('.', "
    "quote_ident(CAST(:schema AS text)), quote_ident(:name))) AS wanted) AS it "
    "CROSS JOIN LATERAL (SELECT wanted AS relid, 0 AS place UNION ALL SELECT relid, -place "
    "FROM pg_partition_ancestors(wanted) WITH ORDINALITY AS above (relid, place) WHERE relid <> wanted "
    "UNION ALL SELECT relid, level FROM pg_partition_tree(wanted) WHERE relid <> wanted) AS one "
    "JOIN pg_class ON pg_class.oid = relid JOIN pg_namespace ON pg_namespace.oid = relnamespace ORDER BY place, 1"
)
_IDENTITIES = sa.text(
    "SELECT concat(CAST(:server AS text), '.', CAST(CAST(:ledger AS regclass) AS oid), '/', CAST(relid AS oid)) "
    "FROM (SELECT place, to_regclass(concat_ws('.', quote_ident(schema), quote_ident(name))) AS relid FROM unnest("
    "CAST(:schemas AS text[]), CAST(:names AS text[])) WITH ORDINALITY AS it (schema, name, place)) AS found "
    "ORDER BY place"
)
_TELLS_SERVER = "SELECT has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE')"
_SERVER = "SELECT CAST(system_identifier AS text) FROM pg_control_system()"
_LOSES_ROWS = {
    "u": "is UNLOGGED: after a crash of the server it is empty, and the watermarks have passed its rows. ALTER TABLE "
    "{} SET LOGGED, then `gobblin commit recover`",
    "t": "is a temporary table, which ends with its session (of a pooler, maybe); name the schema of the one that is "
    "meant in `table`",
}
"""Why a table is none to publish to, by the kind of its persistence."""


@dataclass(frozen=True, slots=True)
class Relative:
    """A table, what it is a partition of, or a partition of it."""

    name: str
    """`schema.table`."""
    kind: str
    """`pg_class.relkind`."""
    persistence: str
    """`pg_class.relpersistence`."""
    place: int
    """0 for the table itself, less for what it is a partition of, more for its partitions."""


def relatives(connection: sa.Connection, schema: str | None, table: str) -> list[Relative]:
    """Return a table, and those whose rows are its rows, the topmost first; none if it does not exist."""
    if connection.dialect.name != "postgresql":
        return []
    found = connection.execute(_RELATIVES, {"schema": schema or None, "name": table})
    return [Relative(str(name), str(kind), str(persistence), place) for name, kind, persistence, place in found]


def is_view(connection: sa.Connection, schema: str | None, table: str) -> bool:
    """Return whether a table is a view of PostgreSQL or SQLite, whose triggers may load and delete rows elsewhere."""
    if connection.dialect.name == "sqlite":
        views = sa.inspect(connection).get_view_names(schema or None)
        return lower_ascii(table) in map(lower_ascii, views)
    return any(one.kind == "v" for one in relatives(connection, schema, table))


def identities(connection: sa.Connection, ledger: sa.Table, tables: Sequence[str]) -> list[str | None]:
    """Return who tables and their ledger are; None of a table that does not exist, or if the database cannot tell.

    A dump that is restored makes both again, a hand only the table. In a new server the ledger may have its former oid:
    each server begins with the same one.
    """
    if connection.dialect.name != "postgresql":
        return [None] * len(tables)
    split = [table.rpartition(".") for table in tables]
    may_ask = connection.exec_driver_sql(_TELLS_SERVER).scalar()
    server = connection.exec_driver_sql(_SERVER).scalar() if may_ask else ""
    names = {"schemas": [schema or None for schema, *_ in split], "names": [name for *_, name in split]}
    found = map(str, connection.scalars(_IDENTITIES, {"server": server, "ledger": ledger.name, **names}))
    return [None if one.endswith("/") else one for one in found]


def made_again(connection: sa.Connection, ledger: sa.Table, noted: Iterable[tuple[str, str | None]]) -> set[str]:
    """Return tables that are others than their ledger noted; whether they have the rows is not known.

    Args:
        connection: to the database.
        ledger: table of the commits.
        noted: tables that exist, with who they were when rows were loaded; None of commits of earlier versions.
    """
    before = [(table, identity) for table, identity in noted if identity]
    if not before:
        return set()
    now = identities(connection, ledger, [table for table, _ in before])
    return {
        table
        for (table, then), found in zip(before, now, strict=True)
        if found and found != then and found.partition("/")[0] == then.partition("/")[0]
    }


def has_rows(connection: sa.Connection, table: str) -> bool:
    """Return whether a table, named `table` or `schema.table`, has a row."""
    schema, _, name = table.rpartition(".")
    one_row = sa.select(sa.literal(1)).select_from(sa.table(name, schema=schema or None)).limit(1)
    return connection.scalar(one_row) is not None


def require_kept(step: str, connection: sa.Connection, table: sa.Table) -> None:
    """Raise StepRefusedError for a table of PostgreSQL that does not keep its rows, or not in this transaction."""
    for problem in _problems(relatives(connection, table.schema, table.name)):
        connection.rollback()
        raise StepRefusedError(step=step, problem=problem)
    connection.rollback()


def _problems(found: list[Relative]) -> Iterator[str]:
    for one in found:
        name = one.name.rpartition(".")[2]
        if one.place >= 0 and one.kind == "f":
            yield (
                f"{name} is a foreign table: rows of a publication that fails would stay at its server, and whose "
                "rows that table has cannot be seen; publish to its own database"
            )
        if one.place >= 0 and one.persistence in _LOSES_ROWS:
            yield f"table {name} {_LOSES_ROWS[one.persistence].format(name)}"
