"""Rows of the places to which the jobs of the catalog's flows publish, and of what they publish there, as digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import and_, case, delete, func, insert, select, tuple_

from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import flow_places as places
from gobblin_dagster.service.store.tables import flows


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job publishes, and what."""

    places: frozenset[str] = frozenset()
    """Digests: two jobs that publish to one place have one in common."""
    rows: str = ""
    """Digest: two jobs that read the same and change it in the same way have it in common. Empty: nobody knows."""


Targets: TypeAlias = Mapping[str, Target]
"""Targets of jobs, by their names."""


def save_places(transaction: Transaction, flow: FlowId, of_jobs: Targets) -> None:
    """Store where the jobs of a flow publish, in the place of what was stored of it."""
    is_of_flow = and_(places.c.flow_group == flow.group, places.c.flow_name == flow.name)
    transaction.execute(delete(places).where(is_of_flow))
    rows = [
        {
            "job_name": job,
            "place": place,
            "flow_group": flow.group,
            "flow_name": flow.name,
            "rows_digest": target.rows,
        }
        for job, target in of_jobs.items()
        for place in target.places
    ]
    if rows:
        transaction.execute(insert(places), rows)


def refresh_places(transaction: Transaction, begun: Mapping[tuple[FlowId, int], Targets]) -> None:
    """Store where the jobs of flows that begin publish, if that is not stored.

    Args:
        transaction: open for writing.
        begun: flows, each in the version that begins; one that was changed since is left alone.
    """
    keys = [(flow.group, flow.name) for flow, _ in begun]
    stored: dict[FlowId, set[tuple[str, str, str]]] = {}
    for row in transaction.execute(select(places).where(tuple_(places.c.flow_group, places.c.flow_name).in_(keys))):
        stored.setdefault(FlowId(row.flow_group, row.flow_name), set()).add((row.job_name, row.place, row.rows_digest))
    for (flow, version), of_jobs in begun.items():
        now = {(job, place, target.rows) for job, target in of_jobs.items() for place in target.places}
        if stored.get(flow, set()) == now:
            continue
        newest = select(flows.c.version).where(flows.c.flow_group == flow.group, flows.c.flow_name == flow.name)
        if transaction.dialect.name == "postgresql":
            newest = newest.with_for_update()  # whoever changes the flow at this moment stores its places after this
        if transaction.scalar(newest) == version:
            save_places(transaction, flow, of_jobs)


def places_of(transaction: Transaction, job: str) -> frozenset[str]:
    """Return where a job of a flow of the catalog publishes."""
    return frozenset(transaction.execute(select(places.c.place).where(places.c.job_name == job)).scalars())


def jobs_beside(transaction: Transaction, job: str) -> Mapping[str, bool]:
    """Return the jobs of flows of the catalog that publish to a place of a job, and whether they do with the same rows.

    The job itself is among them if it is one of such a flow; its rows are its own.
    """
    own = select(places.c.place, places.c.rows_digest).where(places.c.job_name == job).subquery()
    is_same = and_(own.c.rows_digest != "", places.c.rows_digest == own.c.rows_digest, places.c.job_name != job)
    query = (
        select(places.c.job_name, func.max(case((is_same, 1), else_=0)))
        .join(own, places.c.place == own.c.place)
        .group_by(places.c.job_name)
    )
    return {name: bool(is_twin) for name, is_twin in transaction.execute(query)}
