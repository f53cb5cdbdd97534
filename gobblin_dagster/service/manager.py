"""FlowManager: what users do with flows, each change in one transaction.

A change is stored before it is scheduled, and both become durable together with its audit row and its first execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gobblin_dagster.core.errors import (
    FlowChangedError,
    FlowCompileError,
    FlowExistsError,
    FlowNotFoundError,
    InvalidFlowError,
    SpecFault,
    UsageError,
)
from gobblin_dagster.service.catalog.flow_config import (
    EXECUTION_ID,
    REQUESTERS,
    UNSCHEDULE,
    FlowSettings,
    WhenFull,
    parse_flow_config,
)
from gobblin_dagster.service.cron import NEVER
from gobblin_dagster.service.executors.job_body import job_target
from gobblin_dagster.service.model import (
    NO_EXECUTION,
    Change,
    Dag,
    FlowConfig,
    FlowId,
    FlowSpec,
    Schedule,
    Trigger,
)
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import epoch_ms, next_fire_ms
from gobblin_dagster.service.store.execution_rows import end_waiting
from gobblin_dagster.service.store.flow_rows import (
    FlowFilter,
    FlowPage,
    flow_page,
    list_flows,
    load_flow,
    load_version,
    newest_version,
    save_flow,
    unclaimed_fire,
    version_page,
)
from gobblin_dagster.service.store.place_rows import Targets, save_places
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes


@dataclass(frozen=True, slots=True)
class Stored:
    """A flow as stored, and the execution that the change asked for."""

    spec: FlowSpec
    execution: int = NO_EXECUTION
    """Epoch ms; -1 if the flow runs by its schedule only."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A flow as posted, and whether it can be made into jobs."""

    config: FlowConfig
    refusal: FlowCompileError | None
    targets: Targets = field(default_factory=dict)
    """Where its jobs publish, and what."""

    def require(self) -> None:
        """Raise FlowCompileError if it cannot be made into jobs."""
        if self.refusal is not None:
            raise self.refusal


class FlowManager:
    """Creates, changes and deletes flows.

    Args:
        store: the service's store.
        compile_flow: returns a flow's jobs; raises FlowCompileError.
        orchestrator: takes in executions.

    Source: gobblin-service `FlowConfigResourceHandler`, `FlowCatalog`.
    """

    def __init__(
        self, store: ServiceStore, compile_flow: Callable[[FlowConfig], Dag], orchestrator: Orchestrator
    ) -> None:
        self._store = store
        self._compile = compile_flow
        self._orchestrator = orchestrator

    def check(self, config: FlowConfig) -> Checked:
        """Try to make a flow into jobs, before the transaction in which others would wait for it.

        A flow may wait for a topology that has a way for it, if its properties say so.
        """
        try:
            dag = self._compile(config)
        except FlowCompileError as error:
            if not (error.is_without_way and FlowSettings.stored(config.properties).waits_for_way):
                return Checked(config, error)
            return Checked(config, None)
        own = [job for job in dag.jobs if job.child is None]
        return Checked(config, None, {job.name: job_target(job) for job in own})

    def create(
        self, transaction: Transaction, posted: Checked | FlowConfig, by: str, *, managed_by: str = ""
    ) -> Stored:
        """Store a new flow; it runs once if it has no schedule.

        Args:
            transaction: open for writing.
            posted: the flow; where others would wait for this transaction, as `check` returned it.
            by: who posts it.
            managed_by: the folder of flow files that it comes from.

        Raises:
            FlowExistsError: a flow of this group and name exists.
            FlowCompileError: it cannot be made into jobs; nothing is stored.
            QuotaExceededError: it would have to wait for others, and does not want to; nothing is stored.
            UsageError: it sets a property that is the service's own.
        """
        checked = self._checked(posted)
        config = checked.config
        if EXECUTION_ID in config.properties:
            raise UsageError(problem=f"{EXECUTION_ID} cannot be set by the user")
        serialize_changes(transaction)
        newest = newest_version(transaction, config.id)
        if newest is not None and newest.is_in_catalog:
            uri = f"gobblin-flow:/{config.id}"
            raise FlowExistsError(problem=f"FlowSpec with URI {uri} already exists, no action will be taken")
        checked.require()
        now = self._store.now(transaction)
        spec = FlowSpec(_stored(config), 0, Change.CREATED, now, by, managed_by=managed_by)
        stored = save_flow(transaction, spec, next_fire_ms(spec, now), 0 if newest is None else newest.version)
        save_places(transaction, spec.id, checked.targets)
        return self._run(transaction, stored, now)

    def update(
        self,
        transaction: Transaction,
        posted: Checked | FlowConfig,
        by: str,
        *,
        version: int | None = None,
        managed_by: str | None = None,
    ) -> Stored:
        """Put a new version in the place of a flow.

        The property `flow.unschedule=true` keeps the flow as it is and only ends its schedule. Executions that run go
        on with their version.

        Args:
            transaction: open for writing.
            posted: the whole flow; where others would wait for this transaction, as `check` returned it.
            by: who changes it.
            version: the version that the change is meant for; None: any.
            managed_by: the folder of flow files that it comes from; None: as before.

        Raises:
            FlowNotFoundError: there is no such flow.
            FlowChangedError: it has another version.
            FlowCompileError: it cannot be made into jobs; the old version stays.
        """
        checked = self._checked(posted)
        config = checked.config
        old = self.require_unchanged(transaction, config.id, version)
        now = self._store.now(transaction)
        if config.properties.get(UNSCHEDULE) == "true":
            never = replace(old.config, schedule=Schedule(NEVER))
            changed = replace(old, config=never, change=Change.UNSCHEDULED, changed_at=now, changed_by=by)
            return Stored(self._replace(transaction, changed, now))
        checked.require()
        properties = {name: value for name, value in config.properties.items() if name != EXECUTION_ID}
        if REQUESTERS in old.config.properties:
            properties.setdefault(REQUESTERS, old.config.properties[REQUESTERS])
        config = replace(config, properties=properties)
        spec = FlowSpec(
            _stored(config),
            0,
            Change.UPDATED,
            now,
            by,
            old.is_paused,
            old.managed_by if managed_by is None else managed_by,
        )
        stored = self._replace(transaction, spec, now)
        save_places(transaction, spec.id, checked.targets)
        return self._run(transaction, stored, now)

    def delete(self, transaction: Transaction, flow: FlowId, by: str, *, version: int | None = None) -> FlowSpec:
        """Take a flow out of the catalog and of its schedule; raises as `update`.

        Executions that run go on; those that wait for their start, or to go on after a resume, are cancelled.
        """
        old = self.require_unchanged(transaction, flow, version)
        now = self._store.now(transaction)
        gone = save_flow(
            transaction, replace(old, change=Change.DELETED, changed_at=now, changed_by=by), None, old.version
        )
        end_waiting(transaction, flow, "the flow was deleted while this execution waited", now)
        return gone

    def run_now(self, transaction: Transaction, flow: FlowId, *, version: int | None = None) -> int:
        """Ask for an execution now, and return its id; raises as `require`, and QuotaExceededError."""
        # The lock first, as in every change: an update that runs the flow at once writes an execution too.
        spec = self.require_unchanged(transaction, flow, version)
        return self._accept(transaction, spec, self._store.now(transaction), Trigger.RUN_NOW)

    def pause(
        self, transaction: Transaction, flow: FlowId, by: str, *, paused: bool, version: int | None = None
    ) -> FlowSpec:
        """Let a flow's schedule rest, or go on; fire times in between are not caught up. Raises as `require`."""
        old = self.require_unchanged(transaction, flow, version)
        now = self._store.now(transaction)
        change = Change.PAUSED if paused else Change.RESUMED
        spec = replace(old, change=change, changed_at=now, changed_by=by, is_paused=paused)
        return save_flow(transaction, spec, next_fire_ms(spec, now), old.version)

    def roll_back(self, transaction: Transaction, older: Checked, by: str, *, version: int | None = None) -> FlowSpec:
        """Put a flow back to what it was, under a new version; a deleted flow comes back.

        Whether it is paused, and the folder that it is managed from, stay as they are.

        Args:
            transaction: open for writing.
            older: the flow in an older version (`in_version`), as `check` returned it.
            by: who does it.
            version: the version that the change is meant for; None: any.

        Raises:
            FlowNotFoundError: there never was such a flow.
            FlowChangedError: it has another version.
            FlowCompileError: it cannot be made into jobs any more.
        """
        flow = older.config.id
        serialize_changes(transaction)
        newest = newest_version(transaction, flow)
        if newest is None:
            raise _not_found(flow)
        _require_version(newest, version)
        older.require()
        now = self._store.now(transaction)
        is_paused = newest.is_paused and newest.is_in_catalog
        spec = FlowSpec(older.config, 0, Change.ROLLED_BACK, now, by, is_paused, newest.managed_by)
        save_places(transaction, flow, older.targets)
        return self._replace(transaction, spec, now)

    def in_version(self, flow: FlowId, version: int) -> FlowConfig:
        """Return a flow as it was in a version; raises FlowNotFoundError."""
        with self._store.read() as transaction:
            found = load_version(transaction, flow, version)
        if found is None:
            raise FlowNotFoundError(problem=f"Flow {flow} has no version {version}.")
        return found.config

    def get(self, flow: FlowId) -> FlowSpec:
        """Return a flow; raises FlowNotFoundError."""
        with self._store.read() as transaction:
            return self.require(transaction, flow)

    def find(self, where: FlowFilter, start: int = 0, count: int | None = None) -> Iterator[FlowPage]:
        """Yield flows that a filter finds, by group and name, page by page; there is at least one page.

        Each page is read in a transaction of its own, whenever it is asked for. A flow that is there all the time, from
        the first page to the last, is yielded once.

        Args:
            where: what they must have.
            start: how many are left out first.
            count: how many are yielded at most; None: all.
        """
        after = None
        while True:
            with self._store.read() as transaction:
                page = flow_page(transaction, where, start, count, after)
            yield page
            if page.is_last:
                return
            after, start = page.specs[-1].id, 0
            count = None if count is None else count - len(page.specs)

    def has_more(self, where: FlowFilter, start: int) -> bool:
        """Tell whether a filter finds more flows than `start`."""
        with self._store.read() as transaction:
            return bool(list_flows(transaction, where, start, 1))

    def history(self, flow: FlowId) -> Iterator[FlowPage]:
        """Yield all versions of a flow, oldest first, page by page; each page is read as those of `find` are.

        Raises:
            FlowNotFoundError: there never was such a flow.
        """
        after = 0
        while True:
            with self._store.read() as transaction:
                page = version_page(transaction, flow, after)
            if not after and not page.specs:
                raise _not_found(flow)
            yield page
            if page.is_last:
                return
            after = page.specs[-1].version

    def exists(self, transaction: Transaction, flow: FlowId) -> bool:
        """Tell whether a flow is in the catalog."""
        return load_flow(transaction, flow) is not None

    def require(self, transaction: Transaction, flow: FlowId, version: int | None = None) -> FlowSpec:
        """Return a flow; raises FlowNotFoundError, and FlowChangedError if it has another version."""
        found = load_flow(transaction, flow)
        if found is None:
            raise _not_found(flow)
        _require_version(found, version)
        return found

    def require_unchanged(self, transaction: Transaction, flow: FlowId, version: int | None = None) -> FlowSpec:
        """Return a flow as `require` does, and let nobody else change it until the transaction ends."""
        serialize_changes(transaction)
        return self.require(transaction, flow, version)

    def _checked(self, posted: Checked | FlowConfig) -> Checked:
        return posted if isinstance(posted, Checked) else self.check(posted)

    def _replace(self, transaction: Transaction, spec: FlowSpec, now: datetime) -> FlowSpec:
        """Store a new version of a flow that may have a fire time which has come."""
        return save_flow(transaction, spec, _next_fire_ms(transaction, spec, now))

    def _run(self, transaction: Transaction, spec: FlowSpec, now: datetime) -> Stored:
        """Ask for the execution that a change asks for, if it does."""
        schedule = spec.config.schedule
        if schedule is not None and not schedule.run_immediately:
            return Stored(spec)
        trigger = Trigger.ONCE if schedule is None else Trigger.RUN_NOW
        return Stored(spec, self._accept(transaction, spec, now, trigger))

    def _accept(self, transaction: Transaction, spec: FlowSpec, now: datetime, trigger: Trigger) -> int:
        """Ask for an execution under the next free millisecond, and return it."""
        if FlowSettings.stored(spec.config.properties).when_full is WhenFull.REFUSE:
            self._orchestrator.require_room(transaction, spec)
        number = epoch_ms(now)
        while not self._orchestrator.accept(transaction, [(spec, number)], trigger, now):
            number += 1
        return number


def _next_fire_ms(transaction: Transaction, spec: FlowSpec, now: datetime) -> int | None:
    """Return when a changed flow fires next; a time that has come stays the scheduler's if the schedule is the same."""
    found = next_fire_ms(spec, now)
    due = None if found is None else unclaimed_fire(transaction, spec.id, epoch_ms(now))
    return due.fire_ms if due is not None and _schedule(due.spec) == _schedule(spec) else found


def _schedule(spec: FlowSpec) -> tuple[str, str]:
    cron = spec.config.schedule.cron if spec.config.schedule else ""
    return cron, FlowSettings.stored(spec.config.properties).time_zone.key


def _require_version(found: FlowSpec, version: int | None) -> None:
    if version is not None and found.version != version:
        raise FlowChangedError(
            problem=f"Flow {found.id} has version {found.version}, not {version}: it was changed since."
        )


def _stored(config: FlowConfig) -> FlowConfig:
    return replace(config, explain=False)


def _not_found(flow: FlowId) -> FlowNotFoundError:
    return FlowNotFoundError(problem=f"Flow requested does not exist: {flow.name}")


def apply_patch(document: Mapping[str, Any], patch: Any) -> FlowConfig:
    """Return a flow with a patch of Rest.li's applied; raises InvalidFlowError or UsageError."""
    return parse_flow_config(patched(document, patch, ""))


_REQUIRED = {
    "": ("id", "templateUris", "properties"),
    "/id": ("flowGroup", "flowName"),
    "/schedule": ("cronSchedule",),
}
"""Fields that no patch can delete, by the record that holds them."""


def patched(document: Mapping[str, Any], patch: Any, place: str) -> dict[str, Any]:
    """Apply `$set`, `$delete` and nested patches to a document, in a new one.

    Raises:
        InvalidFlowError: it deletes a field that is required.
        UsageError: the patch has another shape.
    """
    result = dict(document)
    if not isinstance(patch, dict):
        raise UsageError(problem=f"The patch of {place or 'the record'} is no object.")
    for name, value in patch.items():
        if name == "$set" and isinstance(value, dict):
            result.update(value)
        elif name == "$delete" and isinstance(value, list):
            for key in map(str, value):
                if key in _REQUIRED.get(place, ()):
                    raise InvalidFlowError(faults=(SpecFault(f"{place}/{key}", "cannot delete a required field"),))
                result.pop(key, None)
        elif name.startswith("$"):
            raise UsageError(
                problem=f"The patch of {place or 'the record'} holds {name[:40]!r}; expected $set or $delete."
            )
        else:
            inner = result.get(name)
            result[name] = patched(inner if isinstance(inner, dict) else {}, value, f"{place}/{name[:40]}")
    return result
