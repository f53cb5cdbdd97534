"""ExecutionHistory: takes old executions out of the store, with their jobs and events; never one that is not over.

The newest execution of a flow stays, however old it is, so that people see what became of it.
"""

from __future__ import annotations

from datetime import timedelta

from gobblin_dagster.service.store.execution_rows import Ended, delete_executions, ended_after, over_before, over_beyond
from gobblin_dagster.service.store.store import ServiceStore

BATCH = 500
"""Executions that one transaction looks at, and deletes, at most."""

_OVERLAP = timedelta(minutes=5)
"""Ends are looked at again for so long: of two transactions, the one with the earlier instant may become visible
later."""


class ExecutionHistory:
    """Prunes executions by their number in each flow and by their age.

    Args:
        store: the service's store.
        keep_executions: executions of each flow that stay, at least 1.
        keep: how long an execution stays after its end.

    Source: gobblin-runtime `StateStoreCleaner`. Differs: by count too, and never the newest.
    """

    def __init__(self, store: ServiceStore, keep_executions: int, keep: timedelta) -> None:
        self._store = store
        self._keep_executions = keep_executions
        self._keep = keep
        self._seen: Ended | None = None
        """Flows of the executions that ended up to this one have no more than they may; None: none was looked at."""

    def prune(self, limit: int = BATCH) -> bool:
        """Delete a batch of executions.

        Args:
            limit: executions that are looked at, and deleted, at most: once for the number, once for the age.

        Returns:
            Whether there may be more to do at once.
        """
        with self._store.write() as transaction:
            old = over_before(transaction, self._store.now(transaction) - self._keep, limit)
            delete_executions(transaction, old)
        with self._store.write() as transaction:
            ended = ended_after(transaction, self._seen, limit)
            for flow in {execution.flow: None for _, execution in ended}:
                beyond = over_beyond(transaction, flow, self._keep_executions, limit)
                delete_executions(transaction, beyond)
                if len(beyond) == limit:
                    return True  # the rest of this flow's comes first in the next batch
        if ended:
            self._seen = ended[-1]
        if limit in (len(old), len(ended)):
            return True
        if self._seen is not None:
            self._seen = (self._seen[0] - _OVERLAP, self._seen[1])
        return False
