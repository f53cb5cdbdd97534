"""Delete old sequences in SQL, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, select

from gobblin_dagster.core.commit import ENDED
from gobblin_dagster.state.sql import parts
from gobblin_dagster.state.sql.leases import lock_row
from gobblin_dagster.state.sql.tables import dataset_states, sequences


def prune(connection: Connection, job: str, dataset_urn: str, below: int) -> int:
    """Delete sequences that ended before the newest commit and before `below`; return their number."""
    columns, states = sequences.c, dataset_states.c
    of_state = (states.job == job, states.dataset_urn == dataset_urn)
    newest = (connection.scalar(select(states.version).where(*of_state)) or 0) - 1
    of_dataset = (columns.job == job, columns.dataset_urn == dataset_urn)
    is_old = (columns.version_read < min(below, newest), columns.state.in_([state.value for state in ENDED]))
    # In the order of all transactions: sequences, then the lease. A run that stores a body holds the lease's row, so no
    # new one names a part that is deleted here.
    query = select(columns.number).where(*of_dataset, *is_old).order_by(columns.number).with_for_update()
    old = connection.scalars(query).all()
    if not old:
        return 0
    lock_row(connection, job, dataset_urn)

    def bodies() -> Iterable[str]:
        yield from connection.scalars(select(columns.body).where(*of_dataset))
        yield from connection.scalars(select(states.body).where(*of_state))

    connection.execute(delete(sequences).where(*of_dataset, *is_old))
    parts.prune(connection, job, dataset_urn, bodies)
    return len(old)
