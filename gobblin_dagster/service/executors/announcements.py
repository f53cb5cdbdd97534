"""Announcements of workers that do not reach the service's database: how they travel, and how the service keeps them.

What workers behind Kafka or HTTPS say of themselves becomes a row among the nodes of the service, under a name of its
own: if both share one database after all, the row takes nothing from the worker's own heartbeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.service.store.node_rows import Node, save_node
from gobblin_dagster.service.store.state_place_rows import add_state_place
from gobblin_dagster.service.store.store import Transaction

STATE = "state"
"""Key of `Node.about`: where a worker keeps watermarks (`state.place.state_place`)."""
_AFAR = "afar:"
"""What the names of announced workers begin with."""
_MOST = 1 << 16
"""Characters of an announcement at most."""


def is_afar(worker: Node) -> bool:
    """Tell whether a worker was announced through its executor, and does not reach this database itself."""
    return worker.name.startswith(_AFAR)


def write_announcement(worker: Node) -> str:
    """Return what a worker says of itself, as JSON."""
    fields = {"name": worker.name, "owner": asdict(worker.owner), "program": worker.program}
    document = {**fields, "started_at": worker.started_at.isoformat(), "about": dict(worker.about)}
    return json.dumps({"worker": document}, separators=(",", ":"))


def is_announcement(text: str) -> bool:
    """Tell whether a message is an announcement, with or without faults, and no report."""
    return text.startswith('{"worker":')


def read_announcement(text: str) -> Node:
    """Read an announcement; the instants of its last heartbeat are those of its start. Raises ValueError."""
    try:
        if len(text) > _MOST:
            raise ValueError(f"longer than {_MOST} characters")
        fields = json.loads(text)["worker"]
        owner, about = LeaseOwner(**fields["owner"]), fields["about"]
        if not isinstance(about, dict) or not isinstance(about.get(STATE, ""), str) or type(owner.pid) is not int:
            raise ValueError("a field has another type")
        texts = [fields["name"], fields["program"], owner.run_id, owner.host, owner.boot, owner.started]
        if any(not isinstance(one, str) or storable(one) != one for one in texts):
            raise ValueError("a field is no text")
        started_at = datetime.fromisoformat(fields["started_at"])
        if started_at.tzinfo is None:
            raise ValueError("its start has no time zone")
        return Node(fields["name"], owner, "", fields["program"], started_at, started_at, started_at, about=about)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # the last: too deep
        raise ValueError(f"no announcement of a worker: {error}: {str(text)[:200]!r}") from error


def save_announced(transaction: Transaction, executor: str, workers: Iterable[Node], now: datetime) -> None:
    """Note that workers of an executor are alive, what they can do, and where they keep watermarks.

    Args:
        transaction: open for writing.
        executor: who they work for, whatever they say.
        workers: what they announced.
        now: the store's instant.
    """
    for one in workers:
        row = Node(
            f"{_AFAR}{executor}:{one.name}", one.owner, "", one.program, one.started_at, now, now, executor, one.about
        )
        save_node(transaction, row)
        if place := storable(one.about.get(STATE, "")):
            add_state_place(transaction, executor, place)
