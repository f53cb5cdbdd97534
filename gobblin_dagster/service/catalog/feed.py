"""CatalogFeed: tells the listeners of one process of every change of the catalog, whichever node made it.

The list of changes in the store is read again and again, so that a node hears of a change within a second without a
message of another node.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import FlowSpec
from gobblin_dagster.service.store.flow_rows import change_at, changes_after, newest_change
from gobblin_dagster.service.store.store import ServiceStore, Transaction

log = logging.getLogger(__name__)

REMEMBERED = 100
"""Changes that a feed remembers, to know where to go on after the store was put back to a backup."""


class CatalogListener(Protocol):
    """Hears of changes of the catalog.

    Called in one thread of each node, after the change is durable, in the order of changes, once for each change while
    the node runs; what changed before its start is not told. It should be quick: the listeners after it wait, nothing
    else does. An error that it raises is logged, and the next change is told all the same.

    Source: gobblin-runtime `SpecCatalogListener`. Differs: a listener cannot refuse a change.
    """

    def flow_changed(self, spec: FlowSpec) -> None:
        """A flow was created, changed or deleted, or left the catalog: `spec.change` says which.

        Args:
            spec: the flow after the change.
        """


class CatalogFeed:
    """Reads the list of changes.

    Args:
        store: the service's store.
        listeners: called in this order.
    """

    def __init__(self, store: ServiceStore, listeners: Sequence[CatalogListener]) -> None:
        self._store = store
        self._listeners = tuple(listeners)
        self._number: int | None = None
        """The newest change that was told, or that was there at the start."""
        self._told: deque[FlowSpec] = deque(maxlen=REMEMBERED)
        """The newest changes up to that one, the newest last."""
        # A store that is away at the start has its newest change found by the first poll that reaches it.
        with contextlib.suppress(TransientError):
            self._begin()

    def _begin(self) -> int:
        if self._number is None:
            with self._store.read() as transaction:
                number = newest_change(transaction)
                self._told.extend(changes_after(transaction, number - REMEMBERED))
            self._number = number
        return self._number

    def _go_back(self, transaction: Transaction) -> int:
        """Return the newest change that was told and that the store still has; it was perhaps put back to a backup."""
        lost = 0
        while self._told and change_at(transaction, self._told[-1].number) != self._told[-1]:
            self._told.pop()
            lost += 1
        if not lost:
            return self._begin()
        number = self._told[-1].number if self._told else newest_change(transaction)
        log.warning("the store was put back: the newest %d changes that listeners heard of are gone from it", lost)
        return number

    def poll(self) -> int:
        """Tell of the changes since the last call, and return how many there were.

        Raises:
            TransientError, StorageError: the store cannot be read; the next call tells what was missed.
        """
        self._begin()
        with self._store.read() as transaction:
            number = self._number = self._go_back(transaction)
            changes = changes_after(transaction, number)
        for spec in changes:
            for listener in self._listeners:
                with about(spec.id):
                    try:
                        listener.flow_changed(spec)
                    except Exception:  # a listener of others must harm neither the service nor the other listeners
                        log.exception("listener %s failed with flow %s, version %d", listener, spec.id, spec.version)
            self._number = spec.number
            self._told.append(spec)
        return len(changes)


class LoggingListener:
    """Writes a line for each change, so that each node's log tells the whole story of the catalog."""

    def flow_changed(self, spec: FlowSpec) -> None:
        """Log it."""
        with about(spec.id):
            log.info("flow %s is %s by %s: version %d", spec.id, spec.change, spec.changed_by, spec.version)
