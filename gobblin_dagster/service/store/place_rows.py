"""Rows of the places to which the jobs of the catalog's flows publish, each as a digest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from sqlalchemy import and_, delete, insert, select, tuple_

from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import flow_places as places
from gobblin_dagster.service.store.tables import flows

JobPlaces: TypeAlias = Mapping[str, Collection[str]]
"""Digests of the places of each job, by its name."""


def save_places(transaction: Transaction, flow: FlowId, of_jobs: JobPlaces) -> None:
    """Store where the jobs of a flow publish, in the place of what was stored of it."""
    is_of_flow = and_(places.c.flow_group == flow.group, places.c.flow_name == flow.name)
    transaction.execute(delete(places).where(is_of_flow))
    rows = [
        {"job_name": job, "place": place, "flow_group": flow.group, "flow_name": flow.name}
        for job, its_places in of_jobs.items()
        for place in its_places
    ]
    if rows:
        transaction.execute(insert(places), rows)


def refresh_places(transaction: Transaction, begun: Mapping[tuple[FlowId, int], JobPlaces]) -> None:
    """Store where the jobs of flows that begin publish, if that is not stored.

    Args:
        transaction: open for writing.
        begun: flows, each in the version that begins; one that was changed since is left alone.
    """
    keys = [(flow.group, flow.name) for flow, _ in begun]
    stored: dict[FlowId, set[tuple[str, str]]] = {}
    for row in transaction.execute(select(places).where(tuple_(places.c.flow_group, places.c.flow_name).in_(keys))):
        stored.setdefault(FlowId(row.flow_group, row.flow_name), set()).add((row.job_name, row.place))
    for (flow, version), of_jobs in begun.items():
        if stored.get(flow, set()) == {(job, place) for job, its_places in of_jobs.items() for place in its_places}:
            continue
        newest = select(flows.c.version).where(flows.c.flow_group == flow.group, flows.c.flow_name == flow.name)
        if transaction.dialect.name == "postgresql":
            newest = newest.with_for_update()  # whoever changes the flow at this moment stores its places after this
        if transaction.scalar(newest) == version:
            save_places(transaction, flow, of_jobs)


def places_of(transaction: Transaction, job: str) -> frozenset[str]:
    """Return where a job of a flow of the catalog publishes."""
    return frozenset(transaction.execute(select(places.c.place).where(places.c.job_name == job)).scalars())


def jobs_beside(transaction: Transaction, job: str) -> Iterable[str]:
    """Return the jobs of flows of the catalog that publish to a place of a job: itself too, if it is one of them."""
    own = select(places.c.place).where(places.c.job_name == job)
    return transaction.execute(select(places.c.job_name).distinct().where(places.c.place.in_(own))).scalars()
