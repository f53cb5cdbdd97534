"""FlowManager: what users do with flows, each change in one transaction.

A change is stored before it is scheduled, and both become durable together with its audit row and its first execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    parse_flow_config,
)
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
from gobblin_dagster.service.store.flow_rows import (
    FlowFilter,
    list_flows,
    list_versions,
    load_flow,
    load_version,
    save_flow,
    unclaimed_fire,
)
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes

NEVER = "0 0 0 ? 1 1 2050"
"""Gobblin's schedule of a flow that was unscheduled."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A flow as stored, and the execution that the change asked for."""

    spec: FlowSpec
    execution: int = NO_EXECUTION
    """Epoch ms; -1 if the flow runs by its schedule only."""


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

    def create(self, transaction: Transaction, config: FlowConfig, by: str, *, managed_by: str = "") -> Stored:
        """Store a new flow; it runs once if it has no schedule.

        Args:
            transaction: open for writing.
            config: what was posted.
            by: who posts it.
            managed_by: the folder of flow files that it comes from.

        Raises:
            FlowExistsError: a flow of this group and name exists.
            FlowCompileError: it cannot be made into jobs; nothing is stored.
            UsageError: it sets a property that is the service's own.
        """
        if EXECUTION_ID in config.properties:
            raise UsageError(problem=f"{EXECUTION_ID} cannot be set by the user")
        _require_new(transaction, config.id)
        self._require_jobs(config)  # takes longer than all of the rest, so others need not wait for it
        serialize_changes(transaction)
        _require_new(transaction, config.id)
        now = self._store.now(transaction)
        spec = FlowSpec(_stored(config), 0, Change.CREATED, now, by, managed_by=managed_by)
        return self._save(transaction, spec, now, runs=config.schedule is None or config.schedule.run_immediately)

    def update(
        self,
        transaction: Transaction,
        config: FlowConfig,
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
            config: the whole flow.
            by: who changes it.
            version: the version that the change is meant for; None: any.
            managed_by: the folder of flow files that it comes from; None: as before.

        Raises:
            FlowNotFoundError: there is no such flow.
            FlowChangedError: it has another version.
            FlowCompileError: it cannot be made into jobs; the old version stays.
        """
        is_unscheduled = config.properties.get(UNSCHEDULE) == "true"
        properties = {name: value for name, value in config.properties.items() if name != EXECUTION_ID}
        config = replace(config, properties=properties)
        self.require(transaction, config.id, version)
        if not is_unscheduled:
            self._require_jobs(config)  # before others have to wait
        old = self.require_unchanged(transaction, config.id, version)
        now = self._store.now(transaction)
        if is_unscheduled:
            never = replace(old.config, schedule=Schedule(NEVER))
            changed = replace(old, config=never, change=Change.UNSCHEDULED, changed_at=now, changed_by=by)
            return self._save(transaction, changed, now, runs=False)
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
        return self._save(transaction, spec, now, runs=config.schedule is None or config.schedule.run_immediately)

    def delete(self, transaction: Transaction, flow: FlowId, by: str, *, version: int | None = None) -> FlowSpec:
        """Take a flow out of the catalog and of its schedule; executions that run go on. Raises as `update`."""
        old = self.require_unchanged(transaction, flow, version)
        now = self._store.now(transaction)
        return save_flow(transaction, replace(old, change=Change.DELETED, changed_at=now, changed_by=by), None)

    def run_now(self, transaction: Transaction, flow: FlowId) -> int:
        """Ask for an execution now, and return its id; raises FlowNotFoundError."""
        spec = self.require(transaction, flow)
        return self._accept(transaction, spec, self._store.now(transaction), Trigger.RUN_NOW)

    def pause(self, transaction: Transaction, flow: FlowId, by: str, *, paused: bool) -> FlowSpec:
        """Let a flow's schedule rest, or go on; fire times in between are not caught up. Raises FlowNotFoundError."""
        old = self.require_unchanged(transaction, flow)
        now = self._store.now(transaction)
        change = Change.PAUSED if paused else Change.RESUMED
        spec = replace(old, change=change, changed_at=now, changed_by=by, is_paused=paused)
        return save_flow(transaction, spec, next_fire_ms(spec, now))

    def roll_back(self, transaction: Transaction, flow: FlowId, version: int, by: str) -> FlowSpec:
        """Make an older version the newest; raises FlowNotFoundError, FlowCompileError."""
        serialize_changes(transaction)
        old = load_version(transaction, flow, version)
        if old is None:
            raise FlowNotFoundError(problem=f"Flow {flow} has no version {version}.")
        self._require_jobs(old.config)
        now = self._store.now(transaction)
        spec = replace(old, change=Change.ROLLED_BACK, changed_at=now, changed_by=by)
        return self._save(transaction, spec, now, runs=False).spec

    def get(self, flow: FlowId) -> FlowSpec:
        """Return a flow; raises FlowNotFoundError."""
        with self._store.read() as transaction:
            return self.require(transaction, flow)

    def find(self, where: FlowFilter, start: int = 0, count: int | None = None) -> list[FlowSpec]:
        """Return flows that a filter finds, by group and name."""
        with self._store.read() as transaction:
            return list_flows(transaction, where, start, count)

    def history(self, flow: FlowId) -> list[FlowSpec]:
        """Return all versions of a flow, oldest first; raises FlowNotFoundError if there never was one."""
        with self._store.read() as transaction:
            versions = list_versions(transaction, flow)
        if not versions:
            raise _not_found(flow)
        return versions

    def exists(self, transaction: Transaction, flow: FlowId) -> bool:
        """Tell whether a flow is in the catalog."""
        return load_flow(transaction, flow) is not None

    def require(self, transaction: Transaction, flow: FlowId, version: int | None = None) -> FlowSpec:
        """Return a flow; raises FlowNotFoundError, and FlowChangedError if it has another version."""
        found = load_flow(transaction, flow)
        if found is None:
            raise _not_found(flow)
        if version is not None and found.version != version:
            raise FlowChangedError(
                problem=f"Flow {flow} has version {found.version}, not {version}: it was changed since."
            )
        return found

    def require_unchanged(self, transaction: Transaction, flow: FlowId, version: int | None = None) -> FlowSpec:
        """Return a flow as `require` does, and let nobody else change it until the transaction ends."""
        serialize_changes(transaction)
        return self.require(transaction, flow, version)

    def _require_jobs(self, config: FlowConfig) -> None:
        """Refuse a flow that cannot be made into jobs, unless it waits for a topology that has a way for it."""
        try:
            self._compile(config)
        except FlowCompileError as error:
            if not (error.is_without_way and FlowSettings.stored(config.properties).waits_for_way):
                raise

    def _save(self, transaction: Transaction, spec: FlowSpec, now: datetime, *, runs: bool) -> Stored:
        spec = save_flow(transaction, spec, _next_fire_ms(transaction, spec, now))
        if not runs:
            return Stored(spec)
        trigger = Trigger.ONCE if spec.config.schedule is None else Trigger.RUN_NOW
        return Stored(spec, self._accept(transaction, spec, now, trigger))

    def _accept(self, transaction: Transaction, spec: FlowSpec, now: datetime, trigger: Trigger) -> int:
        """Ask for an execution under the next free millisecond, and return it."""
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


def _require_new(transaction: Transaction, flow: FlowId) -> None:
    if load_flow(transaction, flow) is not None:
        uri = f"gobblin-flow:/{flow}"
        raise FlowExistsError(problem=f"FlowSpec with URI {uri} already exists, no action will be taken")


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
