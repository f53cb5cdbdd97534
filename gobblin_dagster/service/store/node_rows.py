"""Rows of nodes: the processes of the service that share a database, its workers, and which of them are alive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, select

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.database.dialect import insert
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import nodes

NODE_TTL = timedelta(seconds=15)
"""A node that was silent for so long counts as dead; others take over its jobs."""
BESIDE = "beside"
"""Key of `Node.about`: the programs that a node keeps running beside it, and what is wrong with each."""
_FORGOTTEN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the service."""

    name: str
    """Never used again by another process."""
    owner: LeaseOwner
    """The process; shows whether it can still be alive."""
    url: str
    """Where it answers; empty before it does."""
    program: str
    """Version of the program."""
    started_at: datetime
    seen_at: datetime
    """When it was last heard of, by the database's clock."""
    clock_at: datetime
    """What the node's own clock said then."""
    executor: str = ""
    """The executor whose jobs it runs, if it is a worker; empty if it is a node of the service."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What a worker can do: jobs at once, and what `service.topology.capabilities.announce` returns. Of a node of the
    service, the programs beside it (`BESIDE`)."""

    def is_alive(self, now: datetime) -> bool:
        """Return whether the node may still work."""
        # One that was heard of long after now was so before a clock was put back; it says so again within seconds.
        return abs(now - self.seen_at) < NODE_TTL and not self.owner.is_provably_dead()


def save_node(transaction: Transaction, node: Node) -> None:
    """Say that a node is alive; nodes that were silent for a day are forgotten."""
    values = {
        "name": node.name,
        "owner": json.dumps(asdict(node.owner)),
        "url": node.url,
        "program": node.program,
        "started_at": node.started_at,
        "seen_at": node.seen_at,
        "clock_at": node.clock_at,
        "executor": node.executor,
        "about": json.dumps(dict(node.about)),
    }
    changed = {name: values[name] for name in ("url", "seen_at", "clock_at", "about")}
    transaction.execute(
        insert(transaction, nodes).values(values).on_conflict_do_update(index_elements=["name"], set_=changed)
    )
    transaction.execute(delete(nodes).where(nodes.c.seen_at < node.seen_at - _FORGOTTEN))


def delete_node(transaction: Transaction, name: str) -> None:
    """Say that a node has ended: others take over what it left."""
    transaction.execute(delete(nodes).where(nodes.c.name == name))


def load_nodes(transaction: Transaction, executor: str = "") -> list[Node]:
    """Return the nodes of the service, or the workers of an executor, that were heard of within a day, by name."""
    query = select(nodes).where(nodes.c.executor == executor).order_by(nodes.c.name)
    return [_node(row) for row in transaction.execute(query)]


def load_workers(transaction: Transaction) -> list[Node]:
    """Return the workers of all executors that were heard of within a day, by executor and name."""
    query = select(nodes).where(nodes.c.executor != "").order_by(nodes.c.executor, nodes.c.name)
    return [_node(row) for row in transaction.execute(query)]


def load_node(transaction: Transaction, name: str) -> Node | None:
    """Return a node; None if it has ended or never was."""
    row = transaction.execute(select(nodes).where(nodes.c.name == name)).one_or_none()
    return None if row is None else _node(row)


def _node(row: Row[Any]) -> Node:
    owner = LeaseOwner(**json.loads(row.owner))
    instants = row.started_at, row.seen_at, row.clock_at
    return Node(row.name, owner, row.url, row.program, *instants, row.executor, json.loads(row.about))
