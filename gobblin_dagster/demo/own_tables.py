"""Write jobs for the tables of the user's own database: which column tells what is new, and why that one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gobblin_dagster.constructs.sources.query.database import Database, Table
from gobblin_dagster.constructs.sources.query.types import Column
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.demo.own_data import FoundJob

_CHANGES = re.compile(r"(?i)update|updating|modif|edited|(?<!ex)chang(?!eab)|last_?write|^mtime$")
"""Names of times at which a row changed."""
_BEGINNINGS = re.compile(
    r"(?i)creat|insert"
    r"|(^|_)(add(ed)?|log(ged)?|record(ed)?|received?|load(ed)?|ingest(ed)?|occur(red)?)_?(at|on|time|date|ts|timestamp)$"
    r"|^(event_?)?(ts|time|timestamp|at)$"
)
"""Names of times at which a row came. A `due_date` or `birthday` is neither."""
_MOST_TOLD = 40
"""Most tables whose column is explained."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The column that tells which rows of a table are new, and why."""

    column: str
    type: str
    why: str
    is_change: bool = False


def jobs_of_database(url: str, written: str, base_dir: Path, namespace: str) -> list[FoundJob]:
    """Return a job for the tables that have a watermark column, and one for those that must be read whole.

    Args:
        url: of the database.
        written: the URL as the job file has it, e.g. `${SHOP_URL}`.
        base_dir: folder of a relative SQLite path.
        namespace: of the lake's tables.

    Raises:
        SourceError: the database cannot be reached.
        UsageError: it has no table.
    """
    database = Database(url, str(base_dir), namespace)
    tables = {urn: table for urn, table in sorted(database.tables(None).items()) if not table.problem}
    if not tables:
        raise UsageError(problem=f"Database {database.shown} has no table that we may read.", hint="Check the user.")
    with database.snapshot() as connection:
        looks = {}
        for urn, table in tables.items():
            with database.errors(f"{urn}: ", of_table=table.name):
                looks[urn] = _Look.at(connection, table)
    keys = {urn: look.key for urn, look in looks.items()}
    cursors = {urn: look.cursor() for urn, look in looks.items()}
    jobs = []
    if moving := {urn: cursor for urn, cursor in cursors.items() if isinstance(cursor, _Cursor)}:
        jobs.append(_moving_job(written, namespace, moving, keys, _types(database)))
    if whole := {urn: cursor for urn, cursor in cursors.items() if isinstance(cursor, str)}:
        body = {
            "job": f"{namespace}_whole",
            "source": {
                "type": "query",
                "url": written,
                "tables": list(whole),
                "without_watermark": "full",
                **_types(database),
            },
            "extract": {"namespace": namespace, "table": "whole", "type": "snapshot_only"},
            "output": {"path": "lake"},
        }
        remark = "Tables without a column that tells which rows are new: each run reads and replaces them whole."
        jobs.append(FoundJob(f"{namespace}_whole", body, [remark, *_told(whole)]))
    return jobs


def _types(database: Database) -> dict[str, str]:
    return {"types": "exact"} if database.is_postgresql else {}


def _moving_job(
    written: str,
    namespace: str,
    moving: Mapping[str, _Cursor],
    keys: Mapping[str, list[str]],
    types: Mapping[str, str],
) -> FoundJob:
    usual = Counter((cursor.column, cursor.type) for cursor in moving.values()).most_common(1)[0][0]
    changes = any(cursor.is_change for cursor in moving.values())
    others = {
        urn: {
            **(
                {"watermark": {"column": cursor.column, "type": cursor.type}}
                if (cursor.column, cursor.type) != usual
                else {}
            ),
            **({"primary_key": keys[urn]} if changes and keys[urn] else {}),
        }
        for urn, cursor in moving.items()
    }
    others = {urn: options for urn, options in others.items() if options}
    source: dict[str, Any] = {
        "type": "query",
        "url": written,
        "tables": list(moving),
        "watermark": {"column": usual[0], "type": usual[1]},
        **({"table_options": others} if others else {}),
        **types,
    }
    body = {
        "job": namespace,
        "source": source,
        "extract": {"namespace": namespace, "table": "tables", **({"type": "snapshot_append"} if changes else {})},
        "output": {"path": "lake"},
    }
    remark = "The watermark column tells which rows are new; a row that changes must get a higher value in it."
    told = _told({urn: f"{cursor.column}, {cursor.why}" for urn, cursor in moving.items()})
    return FoundJob(namespace, body, [remark, *told])


def _told(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark for each table, up to a number of them."""
    for urn, why in list(reasons.items())[:_MOST_TOLD]:
        yield f"{urn}: {why}."
    if len(reasons) > _MOST_TOLD:
        yield f"... and {len(reasons) - _MOST_TOLD} more tables."


@dataclass(frozen=True, slots=True)
class _Look:
    """What the database says of a table."""

    table: Table
    key: list[str]
    indexed: frozenset[str]
    """Columns with which an index begins: rows behind a value are found without reading the others."""
    holding_null: frozenset[str]
    """Columns of time that hold a null now; rows without a time would not be read."""

    @classmethod
    def at(cls, connection: sa.Connection, table: Table) -> _Look:
        inspector = sa.inspect(connection)
        key = list(inspector.get_pk_constraint(table.name, table.schema).get("constrained_columns", ()))
        indexes: list[list[str | None]] = [[*key]]
        indexes += [one["column_names"] for one in inspector.get_indexes(table.name, table.schema)]
        own = sa.table(table.name, *(sa.column(one.name) for one in table.columns), schema=table.schema)
        holding_null = [
            one.name
            for one in _times(table)
            if one.nullable
            and connection.execute(
                sa.select(sa.literal(1)).select_from(own).where(own.c[one.name].is_(None)).limit(1)
            ).first()
        ]
        return cls(table, key, frozenset(str(one[0]) for one in indexes if one and one[0]), frozenset(holding_null))

    def cursor(self) -> _Cursor | str:
        """Return the column to use, or the reason why there is none: a time of change, a whole key, a time of birth.

        A key of whole numbers goes before a time at which rows came that has no index: each run would read the table.
        """
        times = _times(self.table)
        changes = [one for one in times if _CHANGES.search(one.name)]
        comings = [one for one in times if _BEGINNINGS.search(one.name) and one not in changes]
        for one in self._best(changes):
            return _Cursor(one.name, "timestamp", f"a time of change{self._facts(one)}", is_change=True)
        if changes:  # another column would miss rows that change
            return f"rows have no value in {', '.join(one.name for one in changes)}"
        key = self.table.column(self.key[0]) if len(self.key) == 1 else None
        best = next(iter(self._best(comings)), None)
        is_counted = key is not None and key.type.startswith("int")
        if best is not None and (best.name in self.indexed or not is_counted):
            return _Cursor(
                best.name,
                "timestamp",
                f"the time at which a row came{self._facts(best)}; rows that change later are not read again",
            )
        if key is not None and is_counted:
            return _Cursor(
                key.name, "long", "the key, as no column tells when a row changed; rows that change are not read again"
            )
        return "no time of change, and no key of whole numbers"

    def _best(self, columns: Sequence[Column]) -> list[Column]:
        """Return the columns in which each row has a value now: first those that must, then those with an index."""
        usable = [one for one in columns if one.name not in self.holding_null]
        return sorted(usable, key=lambda one: (one.nullable, one.name not in self.indexed))

    def _facts(self, column: Column) -> str:
        facts = ["may be null: a row with null fails the table, see `nulls`"] if column.nullable else []
        facts += [] if column.name in self.indexed else ["has no index, so each run scans the table"]
        return f" ({'; '.join(facts)})" if facts else ""


def _times(table: Table) -> list[Column]:
    return [one for one in table.columns if one.type.startswith("timestamp")]
