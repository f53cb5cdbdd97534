"""Find the position up to which a dataset may be read now: by options, the clock, and open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gobblin_dagster.constructs.sources.incremental.cursor import CursorType
from gobblin_dagster.constructs.sources.query.commit_horizon import MARGIN_S, Settled, oldest_transaction, settle
from gobblin_dagster.constructs.sources.query.database import Table
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.relation import Relation
from gobblin_dagster.constructs.sources.query.tables import Tables

NOTHING = -(1 << 63)
"""A position before all others."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What the database shows about late commits; queried before rows are counted."""

    now: datetime
    """By the database's clock if it has one, else by ours."""
    oldest: datetime | None = None
    """Beginning of the oldest open transaction, or now if there is none; None if it was not queried."""
    settled: Mapping[str, Settled] = field(default_factory=dict)
    """For tables with a `long` cursor, by urn."""
    is_standby: bool = False
    """Whether the database is a standby, which does not see the open transactions of its primary."""
    server_offset: timedelta | None = None
    """Offset of the server's own zone from UTC; None if it is unknown."""


def look(tables: Tables, datasets: Mapping[str, Table], now: datetime) -> Horizon:
    """Query the clock and the open transactions; must be called before the snapshot for planning begins."""
    options, database = tables.options, tables.database
    server = database.server()
    seen = Horizon(now) if server is None else Horizon(server.now, server_offset=server.offset)
    if options.horizon == "none":
        return seen
    seen = replace(seen, is_standby=server is not None and server.is_standby)
    is_seen_through = database.is_postgresql and not seen.is_standby
    relations = {urn: tables.relation(table) for urn, table in datasets.items() if not table.problem}
    relations = {urn: relation for urn, relation in relations.items() if relation.cursor_column}
    if any(relation.cursor.is_time for relation in relations.values()):
        seen = replace(seen, oldest=oldest_transaction(database) if is_seen_through else seen.now)
    counted = {urn: relation for urn, relation in relations.items() if not relation.cursor.is_time}
    if options.query or not is_seen_through or not counted:
        return seen
    return replace(seen, settled=settle(database, counted, options.horizon_wait_s))


def caps(options: QueryOptions, relation: Relation, urn: str, after: int, horizon: Horizon) -> list[tuple[int, str]]:
    """Return upper bounds (exclusive), each with its reason; `after` is the step after the highest value."""
    ends = [(options.cursor.parse(options.end), "`end`")] if options.end is not None else []
    if options.cursor.is_time:
        return [*ends, *_time_caps(options, relation, horizon)]
    return [*ends, *_long_caps(options, urn, after, horizon)]


def _long_caps(options: QueryOptions, urn: str, after: int, horizon: Horizon) -> Iterator[tuple[int, str]]:
    if options.lag:
        yield after - options.cursor.span(options.lag), f"`lag: {options.lag}`"
    settled = horizon.settled.get(urn)
    if settled is None:
        return
    highest = NOTHING if settled.highest is None else options.cursor.step(settled.highest) + 1
    yield highest, "they came while the plan was made"
    if settled.open_writers:
        yield NOTHING, f"{settled.open_writers} transaction(s) that write to it are still open"


def _time_caps(options: QueryOptions, relation: Relation, horizon: Horizon) -> Iterator[tuple[int, str]]:
    cursor, zone, has_zone = options.cursor, options.zone, relation.has_zone
    default = {CursorType.DATE: "CURRENTDATE-1", CursorType.HOUR: "CURRENTHOUR-1"}.get(cursor.kind)
    limit = options.max_watermark or default
    if limit is not None:
        yield cursor.limit(limit, horizon.now, zone, has_zone), f"`max_watermark: {limit}`"
    if options.lag:
        yield cursor.floor(horizon.now, zone, has_zone) - cursor.span(options.lag), f"`lag: {options.lag}`"
    if horizon.oldest is not None:
        oldest = cursor.floor(horizon.oldest - timedelta(seconds=MARGIN_S), zone, has_zone)
        clock = "the database" if has_zone else f"{options.timezone} (`timezone`)"
        now = f"they are less than {MARGIN_S} s old, or in the future, by the clock of {clock}"
        is_open = horizon.oldest < horizon.now
        yield oldest, f"a transaction is open since {horizon.oldest:%Y-%m-%d %H:%M:%SZ}" if is_open else now


def zone_notes(options: QueryOptions, relation: Relation, horizon: Horizon) -> Iterator[str]:
    """Yield a note if bounds depend on the assumed zone UTC of a column, and the server's own zone is another."""
    if relation.has_zone or "timezone" in options.model_fields_set or not horizon.server_offset:
        return
    if options.cursor.is_time and any(_time_caps(options, relation, horizon)):
        yield (
            f"{relation.cursor_column} has no time zone and is read as UTC, but the server's clock is "
            f"{horizon.server_offset / timedelta(hours=1):+g} h from it: rows written by a clock behind UTC are lost "
            "if "
            "they come late. Set `timezone` to the zone of the writers."
        )
