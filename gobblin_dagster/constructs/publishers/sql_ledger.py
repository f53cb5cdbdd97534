"""The ledger of a database: one row per commit and branch, written in the transaction that loads the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

import sqlalchemy as sa

from gobblin_dagster.constructs.publishers.sql_mysql import TABLE_OPTIONS
from gobblin_dagster.constructs.publishers.sql_names import exact
from gobblin_dagster.core.constructs import NotedCommit

LEDGER = "gobblin_commits"
_NEVER = "-"
"""Sorts before all times. Not an empty text: some databases store it as null, which equals nothing."""


def ledger_table(schema: str) -> sa.Table:
    """Return the ledger, a table in the same schema as the loaded table."""
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
        **TABLE_OPTIONS,
    )


def newest_commits(
    connection: sa.Connection, ledger: sa.Table, job: str, tables: Mapping[str, str]
) -> dict[str, Collection[NotedCommit]]:
    """Return the newest commits of a job by dataset.urn, with one query for all datasets.

    If several commits are equally old, or have no time because an earlier version wrote them, two are returned.

    Args:
        connection: connection to the database.
        ledger: table from `ledger_table`; it may not exist.
        job: name of the job.
        tables: name of the table in the ledger, by dataset.urn.
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
    return {
        urn: {
            NotedCommit(commit_id, None if at == _NEVER else datetime.fromisoformat(at)) for commit_id in (first, last)
        }
        for urn, table, at, first, last in connection.execute(query)
        if tables.get(urn) == table
    }
