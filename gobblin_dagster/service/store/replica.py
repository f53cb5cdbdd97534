"""Replica: a copy of what people ask for most, in a file of this node, to read from while the database is away.

It holds all flows with their versions, and the newest executions of each flow with their jobs and events. It is made
at each start and follows the database's lists of changes and events; nothing else writes to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Table, delete, insert, select, tuple_

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.service.model import ExecutionId, FlowId, FlowSpec
from gobblin_dagster.service.store.flow_rows import change_at, changes_after, newest_change
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.store.tables import events, executions, flow_properties, flow_versions, flows, jobs

NEWEST = 10
"""Executions of each flow that are copied, the newest ones."""
FLOWS_AT_ONCE = 200
"""Flows that are asked for at once, and whose executions are copied by one call: so a storm of executions does not slow
the node down."""
LATE_S = 30.0
"""Seconds after which no event becomes visible any more below the number of one that is visible already."""
_AT_ONCE = 1_000
_FOLDER = "replica-"


class Replica:
    """Follows the service's database.

    Args:
        source: the service's store.
        folder: where the file is made; files of killed nodes are deleted there.
        clock: of the copy; only reads use it.
        now_s: seconds of a clock that never goes back.
    """

    def __init__(
        self, source: ServiceStore, folder: Path, clock: Clock, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._now_s = now_s
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=folder))
        self._lock = _locked(self._folder / "lock")
        self.store = ServiceStore(f"sqlite:///{self._folder / 'replica.db'}", clock)
        """The copy."""
        self._change: int | None = None
        """Number of the newest change of the catalog that is copied; None before the first copy."""
        self._newest: FlowSpec | None = None
        """That change; None if there is none."""
        self._event = 0
        """All events up to this number are known."""
        self._newest_event = 0
        """The newest number of an event that was seen."""
        self._seen: OrderedDict[int, float] = OrderedDict()
        """Numbers of later events that are known, and when each was seen."""
        self._waiting: dict[FlowId, None] = {}
        """Flows whose executions are to be copied, the first one first."""
        self._held: set[FlowId] = set()
        """Flows whose newest executions are copied."""
        self._at = 0.0
        """When the copy was last equal to the database."""

    @property
    def has_flows(self) -> bool:
        """Whether all flows and their versions are copied."""
        return self._change is not None

    @property
    def age_s(self) -> float:
        """Seconds since the copy was last equal to the database."""
        return self._now_s() - self._at

    def has_executions(self, flow: FlowId) -> bool:
        """Tell whether the newest executions of a flow are copied."""
        return flow in self._held

    def has_group(self, group: str) -> bool:
        """Tell whether the newest executions of all flows of a group are copied, of those that left the catalog too."""
        return self.has_flows and not any(flow.group == group for flow in list(self._waiting) if flow not in self._held)

    def holds(self, execution: ExecutionId) -> bool:
        """Tell whether an execution is copied."""
        with self.store.read() as transaction:
            return transaction.execute(select(executions).where(_is_execution(execution))).one_or_none() is not None

    def follow(self) -> None:
        """Copy what changed since the last call, or everything at first.

        Raises:
            TransientError, StorageError: the database cannot be read; the next call goes on.
        """
        began = self._now_s()
        with self._source.read() as transaction:
            newest = newest_change(transaction)
            if self._change is None or self._was_put_back(transaction, self._change):
                self._copy_all(transaction, newest)
            self._copy_changes(transaction, newest)
            self._note_events(transaction, began)
            wanted = list(self._waiting)[:FLOWS_AT_ONCE]
            with self.store.write() as copy:
                for flow in wanted:
                    _copy_executions(transaction, copy, flow)
        for flow in wanted:
            del self._waiting[flow]
        self._held.update(wanted)
        if not self._waiting:
            self._at = began

    def close(self) -> None:
        """Delete the copy."""
        self.store.close()
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _was_put_back(self, source: Transaction, change: int) -> bool:
        """Tell whether the database was put back to an older state: it is another one then."""
        return change_at(source, change) != self._newest or _newest_event(source) < self._newest_event

    def _copy_all(self, source: Transaction, newest: int) -> None:
        with self.store.write() as copy:
            for table in (flows, flow_properties, flow_versions, executions, jobs, events):
                copy.execute(delete(table))
            for table in (flows, flow_properties, flow_versions):
                for rows in source.execute(select(table)).mappings().partitions(_AT_ONCE):
                    copy.execute(insert(table), [dict(row) for row in rows])
        # Flows that run once leave the catalog; their executions stay.
        ran, stored = (
            [FlowId(*row) for row in source.execute(select(table.c.flow_group, table.c.flow_name).distinct())]
            for table in (executions, flows)
        )
        self._seen.clear()
        self._waiting = dict.fromkeys(ran)
        self._held = {*stored} - {*ran}  # they have no executions to copy
        self._newest_event = _newest_event(source)
        # Events that are written now may become visible with smaller numbers.
        self._event = max(0, self._newest_event - _AT_ONCE)
        self._change = newest
        self._newest = change_at(source, newest)

    def _copy_changes(self, source: Transaction, newest: int) -> None:
        change = self._change or 0
        while change < newest:
            changes = changes_after(source, change, _AT_ONCE)
            with self.store.write() as copy:
                changed = list(dict.fromkeys(spec.id for spec in changes))
                for first in range(0, len(changed), FLOWS_AT_ONCE):
                    for table in (flows, flow_properties):
                        where = _is_one_of(table, changed[first : first + FLOWS_AT_ONCE])
                        copy.execute(delete(table).where(where))
                        _copy_rows(source, copy, table, where)
                # Some may be there: the first copy reads what is newest before it reads the versions.
                copy.execute(delete(flow_versions).where(flow_versions.c.number > change))
                _copy_rows(source, copy, flow_versions, flow_versions.c.number.between(change + 1, changes[-1].number))
            self._change = change = changes[-1].number
            self._newest = changes[-1]

    def _note_events(self, source: Transaction, now: float) -> None:
        """Note the flows that something happened to; events of one moment become visible in any order."""
        query = select(events.c.number, events.c.flow_group, events.c.flow_name)
        for row in source.execute(query.where(events.c.number > self._event).order_by(events.c.number)):
            if row.number not in self._seen:
                self._newest_event = max(self._newest_event, row.number)
                self._seen[row.number] = now
                self._waiting[FlowId(row.flow_group, row.flow_name)] = None
        while self._seen and now - next(iter(self._seen.values())) > LATE_S:
            number, _ = self._seen.popitem(last=False)
            self._event = max(self._event, number)


def _copy_executions(source: Transaction, copy: Transaction, flow: FlowId) -> None:
    query = select(executions.c.execution_id).where(_is_flow(executions, flow))
    newest = list(source.scalars(query.order_by(executions.c.execution_id.desc()).limit(NEWEST)))
    for table in (executions, jobs, events):
        copy.execute(delete(table).where(_is_flow(table, flow)))
        if newest:
            _copy_rows(source, copy, table, _is_flow(table, flow) & table.c.execution_id.in_(newest))


def _newest_event(source: Transaction) -> int:
    found: int | None = source.execute(select(events.c.number).order_by(events.c.number.desc()).limit(1)).scalar()
    return found or 0


def _copy_rows(source: Transaction, copy: Transaction, table: Table, where: Any) -> None:
    rows = [dict(row) for row in source.execute(select(table).where(where)).mappings()]
    if rows:
        copy.execute(insert(table), rows)


def _is_flow(table: Table, flow: FlowId) -> Any:
    return tuple_(table.c.flow_group, table.c.flow_name) == tuple_(flow.group, flow.name)


def _is_one_of(table: Table, wanted: Sequence[FlowId]) -> Any:
    return tuple_(table.c.flow_group, table.c.flow_name).in_([(flow.group, flow.name) for flow in wanted])


def _is_execution(execution: ExecutionId) -> Any:
    return _is_flow(executions, execution.flow) & (executions.c.execution_id == execution.number)


def _locked(path: Path) -> IO[bytes]:
    """Open a file that only this process has while it lives."""
    file = path.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def _sweep(folder: Path) -> None:
    """Delete the copies of nodes that were killed."""
    for left in _left(folder):
        with contextlib.suppress(OSError), _locked(left / "lock"):
            shutil.rmtree(left, ignore_errors=True)


def _left(folder: Path) -> Iterator[Path]:
    # A node that makes its folder right now has no lock in it yet.
    return (found for found in folder.glob(f"{_FOLDER}*") if (found / "lock").exists())
