"""Rows of flows: the newest version of each, all versions, and their properties for filters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, delete, func, insert, select, tuple_, update

from gobblin_dagster.core import serialization
from gobblin_dagster.service.model import Change, ExecutionId, FlowConfig, FlowId, FlowSpec
from gobblin_dagster.service.store.store import Transaction, serialize_changes
from gobblin_dagster.service.store.tables import executions, flow_places, flow_properties, flow_versions, flows

PAGE_FLOWS = 500
"""Flows that one page holds at most."""
PAGE_LENGTH = 4 << 20
"""Characters of flows after which a page ends."""
_ROWS_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """A flow has the property, and its value contains the text."""

    name: str
    contains: str = ""


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """What flows must have to be found; None counts as anything. Texts must be equal."""

    group: str | None = None
    name: str | None = None
    template_uris: str | None = None
    cron: str | None = None
    is_run_immediately: bool | None = None
    owning_group: str | None = None
    managed_by: str | None = None
    """The folder of flow files that they are applied from."""
    properties: tuple[PropertyFilter, ...] = ()
    exact_properties: tuple[tuple[str, str], ...] = ()
    """Names and values of properties that must be equal."""
    search: str | None = None
    """Part of group or name, in any case."""


def load_flow(transaction: Transaction, flow: FlowId) -> FlowSpec | None:
    """Return a flow that exists, or None."""
    row = transaction.execute(select(flows).where(_is(flows, flow))).one_or_none()
    return None if row is None else _spec(row)


@dataclass(frozen=True, slots=True)
class FlowPage:
    """Some of the flows that a filter finds, or of the versions of one flow."""

    specs: list[FlowSpec]
    is_last: bool
    """Whether no page follows."""


def list_flows(transaction: Transaction, where: FlowFilter, start: int = 0, count: int | None = None) -> list[FlowSpec]:
    """Return flows that a filter finds, by group and name.

    Args:
        transaction: open.
        where: what they must have.
        start: how many are left out first.
        count: how many are returned at most; None: all.
    """
    query = _in_order(where).offset(start)
    if count is not None:
        query = query.limit(count)
    return [_spec(row) for row in transaction.execute(query)]


def flow_page(
    transaction: Transaction, where: FlowFilter, start: int, count: int | None, after: FlowId | None
) -> FlowPage:
    """Return flows that a filter finds, by group and name: as many as a page holds.

    Args:
        transaction: open.
        where: what they must have.
        start: how many are left out first.
        count: how many are wanted at most; None: all.
        after: the last flow of the page before; None: there is none.
    """
    query = _in_order(where).offset(start)
    if after is not None:
        query = query.where(tuple_(flows.c.flow_group, flows.c.flow_name) > tuple_(after.group, after.name))
    return _page(transaction, query, count)


def _page(transaction: Transaction, query: Select[Any], count: int | None = None) -> FlowPage:
    """Return as many rows of a query as a page holds, and at most `count`."""
    wanted = PAGE_FLOWS if count is None else min(count, PAGE_FLOWS)
    found: list[FlowSpec] = []
    length = 0
    # One flow may have a MiB, so that the rows are not all fetched before it is known how many fit.
    with transaction.execute(query.limit(wanted).execution_options(yield_per=_ROWS_AT_ONCE)) as rows:
        for row in rows:
            found.append(_spec(row))
            length += len(row.body)
            if length >= PAGE_LENGTH:
                break
    is_full = len(found) == PAGE_FLOWS or length >= PAGE_LENGTH
    return FlowPage(found, not is_full or len(found) == count)


def count_flows(transaction: Transaction, where: FlowFilter) -> int:
    """Return how many flows a filter finds."""
    found: int = transaction.execute(_found(select(func.count()).select_from(flows), where)).scalar_one()
    return found


def save_flow(
    transaction: Transaction, spec: FlowSpec, next_fire_ms: int | None, newest: int | None = None
) -> FlowSpec:
    """Store a new version of a flow, and return it with its version and number.

    Args:
        transaction: open for writing.
        spec: the flow; its version and number are ignored.
        next_fire_ms: when it fires next; None: never.
        newest: the newest version that is stored, 0 if there is none; None: it is looked for. A caller that
            gives it has called `serialize_changes` before reading it.
    """
    serialize_changes(transaction)
    body = serialization.to_json(spec.config)
    key = {"flow_group": spec.id.group, "flow_name": spec.id.name}
    if newest is None:
        of_flow = select(func.max(flow_versions.c.version)).where(_is(flow_versions, spec.id))
        newest = transaction.execute(of_flow).scalar_one() or 0
    version = newest + 1
    common = {
        **key,
        "version": version,
        "body": body,
        "change": spec.change.value,
        "changed_at": spec.changed_at,
        "changed_by": spec.changed_by,
        "is_paused": spec.is_paused,
        "managed_by": spec.managed_by,
    }
    number = transaction.execute(insert(flow_versions).values(common).returning(flow_versions.c.number)).scalar_one()
    if newest:
        transaction.execute(delete(flows).where(_is(flows, spec.id)))
        transaction.execute(delete(flow_properties).where(_is(flow_properties, spec.id)))
    if not spec.is_in_catalog:
        transaction.execute(delete(flow_places).where(_is(flow_places, spec.id)))
    else:
        transaction.execute(
            insert(flows).values(
                **common,
                number=number,
                template_uris=spec.config.template_uris,
                cron=spec.config.schedule.cron if spec.config.schedule else None,
                is_run_immediately=bool(spec.config.schedule and spec.config.schedule.run_immediately),
                owning_group=spec.config.owning_group,
                next_fire_ms=next_fire_ms,
            )
        )
        if spec.config.properties:
            rows = [
                {**key, "name": name, "value": value, "value_digest": value_digest(value)}
                for name, value in spec.config.properties.items()
            ]
            transaction.execute(insert(flow_properties), rows)
    return replace(spec, version=version, number=number)


def value_digest(value: str) -> str:
    """Return what stands for a property's value in the index."""
    return hashlib.sha256(value.encode()).hexdigest()[:32]


def load_version(transaction: Transaction, flow: FlowId, version: int) -> FlowSpec | None:
    """Return one version of a flow, of a deleted one too."""
    query = select(flow_versions).where(_is(flow_versions, flow), flow_versions.c.version == version)
    row = transaction.execute(query).one_or_none()
    return None if row is None else _spec(row)


def newest_version(transaction: Transaction, flow: FlowId) -> FlowSpec | None:
    """Return the newest version of a flow, of a deleted one too; None if there never was such a flow."""
    query = select(flow_versions).where(_is(flow_versions, flow)).order_by(flow_versions.c.version.desc()).limit(1)
    row = transaction.execute(query).one_or_none()
    return None if row is None else _spec(row)


def version_page(transaction: Transaction, flow: FlowId, after: int = 0) -> FlowPage:
    """Return versions of a flow, oldest first: as many as a page holds.

    Args:
        transaction: open.
        flow: the flow; it may be deleted.
        after: the last version of the page before; 0: there is none.
    """
    query = select(flow_versions).where(_is(flow_versions, flow), flow_versions.c.version > after)
    return _page(transaction, query.order_by(flow_versions.c.version))


def changes_after(transaction: Transaction, number: int, limit: int = 1000) -> list[FlowSpec]:
    """Return changes of the catalog after the one with a number, in order."""
    query = select(flow_versions).where(flow_versions.c.number > number).order_by(flow_versions.c.number).limit(limit)
    return [_spec(row) for row in transaction.execute(query)]


def newest_change(transaction: Transaction) -> int:
    """Return the number of the newest change; 0 if there is none."""
    return transaction.execute(select(func.max(flow_versions.c.number))).scalar_one() or 0


def change_at(transaction: Transaction, number: int) -> FlowSpec | None:
    """Return the change with a number, or None."""
    row = transaction.execute(select(flow_versions).where(flow_versions.c.number == number)).one_or_none()
    return None if row is None else _spec(row)


def is_last_run(transaction: Transaction, execution: ExecutionId) -> bool:
    """Tell whether a flow leaves the catalog with the end of an execution: it has no schedule and was not changed."""
    same = and_(_is(flows, execution.flow), flows.c.version == executions.c.version, flows.c.cron.is_(None))
    query = select(executions.c.version).where(
        _is(executions, execution.flow), executions.c.execution_id == execution.number, same
    )
    return transaction.execute(query).one_or_none() is not None


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow whose fire time has come."""

    spec: FlowSpec
    fire_ms: int


def take_due(transaction: Transaction, now_ms: int, limit: int) -> list[DueFlow]:
    """Return flows whose fire time has come, the oldest time first, and keep other schedulers from them."""
    query = select(flows).where(flows.c.next_fire_ms <= now_ms).order_by(flows.c.next_fire_ms).limit(limit)
    if transaction.dialect.name == "postgresql":
        query = query.with_for_update(skip_locked=True)
    return [DueFlow(_spec(row), row.next_fire_ms) for row in transaction.execute(query)]


def unclaimed_fire(transaction: Transaction, flow: FlowId, now_ms: int) -> DueFlow | None:
    """Return a flow whose fire time has come and was not claimed yet, and keep schedulers from it; else None."""
    query = select(flows).where(_is(flows, flow), flows.c.next_fire_ms <= now_ms)
    if transaction.dialect.name == "postgresql":
        query = query.with_for_update()
    row = transaction.execute(query).one_or_none()
    return None if row is None else DueFlow(_spec(row), row.next_fire_ms)


def set_next_fires(transaction: Transaction, next_fires: Sequence[tuple[FlowId, int | None]]) -> None:
    """Store when flows fire next."""
    if not next_fires:
        return
    statement = (
        update(flows)
        .where(flows.c.flow_group == bindparam("its_group"), flows.c.flow_name == bindparam("its_name"))
        .values(next_fire_ms=bindparam("fires"))
    )
    rows = [{"its_group": flow.group, "its_name": flow.name, "fires": fires} for flow, fires in next_fires]
    transaction.execute(statement, rows)


def next_fire(transaction: Transaction) -> int | None:
    """Return the earliest fire time of all flows, in epoch ms."""
    found: int | None = transaction.execute(select(func.min(flows.c.next_fire_ms))).scalar_one()
    return found


def _is(table: Any, flow: FlowId) -> Any:
    return and_(table.c.flow_group == flow.group, table.c.flow_name == flow.name)


def _in_order(where: FlowFilter) -> Select[Any]:
    return _found(select(flows), where).order_by(flows.c.flow_group, flows.c.flow_name)


def _found(query: Select[Any], where: FlowFilter) -> Select[Any]:
    equal = {
        flows.c.flow_group: where.group,
        flows.c.flow_name: where.name,
        flows.c.template_uris: where.template_uris,
        flows.c.cron: where.cron,
        flows.c.is_run_immediately: where.is_run_immediately,
        flows.c.owning_group: where.owning_group,
        flows.c.managed_by: where.managed_by,
    }
    for column, value in equal.items():
        if value is not None:
            query = query.where(column == value)
    for wanted in where.properties:
        has = flow_properties.c.name == wanted.name
        if wanted.contains:
            has = and_(has, flow_properties.c.value.contains(wanted.contains, autoescape=True))
        query = _having(query, has)
    for name, value in where.exact_properties:
        # A node whose program is older stores no digest.
        digests = flow_properties.c.value_digest.in_((value_digest(value), ""))
        query = _having(query, and_(flow_properties.c.name == name, digests, flow_properties.c.value == value))
    if where.search:
        part = where.search
        query = query.where(
            flows.c.flow_group.icontains(part, autoescape=True) | flows.c.flow_name.icontains(part, autoescape=True)
        )
    return query


def _having(query: Select[Any], has: Any) -> Select[Any]:
    """Ask for flows that have a property; so put that the properties' index finds them, not flow by flow."""
    found = select(flow_properties.c.flow_group, flow_properties.c.flow_name).where(has)
    return query.where(tuple_(flows.c.flow_group, flows.c.flow_name).in_(found))


def _spec(row: Row[Any]) -> FlowSpec:
    config = serialization.from_json(FlowConfig, row.body)
    return FlowSpec(
        config,
        row.version,
        Change(row.change),
        row.changed_at,
        row.changed_by,
        row.is_paused,
        row.managed_by,
        row.number,
    )
