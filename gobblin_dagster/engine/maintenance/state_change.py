"""Change a dataset's watermark for a person: set, reset, or retry of given-up ranges.

A change is a commit sequence without steps: it takes the same lease, uses the same compare-and-swap and appears in the
same history as the commits of runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import (
    WAITING,
    CommitReport,
    CommitSequence,
    ManualChange,
    SequenceState,
)
from gobblin_dagster.core.constructs import ChecksPositions, SourceContext, StartpointResolver
from gobblin_dagster.core.dataset_state import DatasetState, with_committed
from gobblin_dagster.core.errors import GobblinDagsterError, StartpointError, UnfinishedSequenceError, UsageError
from gobblin_dagster.core.ids import new_commit_id, new_person_id, new_run_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.startpoint import Upcoming
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.engine.commit.crash_cleanup import end_records
from gobblin_dagster.engine.commit.leases import busy_error
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.runner import SessionRunner, TaskRunner
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

LEASE_TTL = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, repr=False)
class Change(ShownAsFacts):
    """A change of one dataset's watermark that a person asked for, before it is applied."""

    action: Literal["set", "reset", "retry"]
    before: DatasetState
    after: DatasetState
    who: str
    why: str

    @property
    def is_backward(self) -> bool:
        """True if published positions will be read again."""
        return self.after.generation > self.before.generation

    @property
    def consequence(self) -> str:
        """What the next run will do after the change, for people."""
        if self.is_backward:
            return "rows that were published before will be read and published again; published files stay as they are"
        if self.action == "retry":
            return f"{self.before.given_up} is read by the next run, and nothing else again"
        if self.after.settled == self.before.settled:
            return "nothing changes"
        return "rows in between are never read"

    def _facts(self) -> Mapping[str, object]:
        return {
            "action": self.action,
            "dataset": self.before.dataset_urn,
            "job": self.before.job,
            "from": self.before.settled,
            "to": str(self.after.settled) or "the beginning",
            "consequence": self.consequence,
            "by": f"{self.who}: {self.why}",
        }


def plan_set(state: DatasetState, watermark: Watermark, *, who: str, why: str, now: datetime) -> Change:
    """Plan to move a dataset's watermark: everything before it counts as read, including gaps, and nothing after it.

    Raises:
        UsageError: it is before the beginning of what was read, or names other components; or nothing counts as read.
    """
    positions: Mapping[str, Any] = watermark.components()
    if not state.committed.ranges:
        raise UsageError(
            problem=f"Nothing of dataset {state.dataset_urn!r} counts as read: it was reset.",
            hint="The next run reads it from the beginning; `gobblin startpoint set` lets it begin elsewhere.",
        )
    if set(positions) != set(state.committed.ranges):
        known = ", ".join(sorted(state.committed.ranges))
        raise UsageError(
            problem=f"Dataset {state.dataset_urn!r} has the components {known}; got {', '.join(sorted(positions))}.",
            hint="Name each of them.",
        )
    beginning: Mapping[str, Any] = {name: parts[0][0] for name, parts in state.committed.ranges.items()}
    if any(position < beginning[name] for name, position in positions.items()):
        first = state.committed.watermark_type.from_components(beginning)
        raise UsageError(
            problem=f"{watermark} lies before {first}, where dataset {state.dataset_urn!r} begins.",
            hint="Use `gobblin state reset` to read everything again.",
        )
    ranges = {name: ((beginning[name], position),) for name, position in positions.items()}
    committed = CommittedRanges(state.committed.watermark_type, ranges)
    return Change("set", state, _successor(state, committed, now), who, why)


def require_position(
    project: Project, state: DatasetState, watermark: Watermark, spark: TaskRunner | SessionRunner | None = None
) -> None:
    """Refuse a watermark at which rows would be skipped: inside of a date of files, or ahead and beyond the end.

    Asks the source of the dataset's job. Does nothing if the project does not have this job, or if its source cannot be
    made or asked now, or has no end: nothing but the watermark's own fault keeps anybody from changing the state.

    Args:
        project: the project.
        state: the dataset's state.
        watermark: where the dataset shall go on.
        spark: gives a session to sources that find their end with Spark; without one, these are not asked.

    Raises:
        UsageError: the source refuses the watermark.
    """
    job = next((one for one in project.jobs if one.job == state.job), None)
    problem = hint = ""
    with suppress(GobblinDagsterError, OSError):
        if job is not None:
            problem, hint = _refusal(project, job, state, watermark, spark)
    if problem:
        raise UsageError(problem=f"Dataset {state.dataset_urn!r} cannot go on at {watermark}: {problem}.", hint=hint)


def _refusal(
    project: Project,
    job: JobSpec,
    state: DatasetState,
    watermark: Watermark,
    spark: TaskRunner | SessionRunner | None,
) -> tuple[str, str]:
    """Return why the source of a job refuses a watermark, and what to do; empty if it does not."""
    context = project.run_context(job, new_run_id(project.clock.now())).construct_context(job)
    session = spark.open_session if isinstance(spark, SessionRunner) else None
    source: object = registry.create(ConstructKind.SOURCE, job.source, replace(context, spark=session))
    if isinstance(source, ChecksPositions):
        try:
            source.check_position(watermark)
        except ValueError as error:
            return str(error), ""
    if isinstance(source, StartpointResolver) and _is_ahead(state, watermark):
        urn = state.dataset_urn
        asked = SourceContext(job.to_extract(), {urn: state}, lambda one: one == urn, project.clock)
        source.resolve_startpoint(urn, Upcoming(), asked)  # raises if there is no end, such as of an emptied folder
        try:
            source.resolve_startpoint(urn, watermark, asked)
        except StartpointError as error:
            return error.problem, "`upcoming` is a position of `gobblin startpoint set`."
    return "", ""


def _is_ahead(state: DatasetState, watermark: Watermark) -> bool:
    """Return whether a watermark lies behind that of a state; what goes back skips no row that was not skipped."""
    if state.watermark is None or type(watermark) is not state.committed.watermark_type or watermark.is_layered:
        return False
    known: Mapping[str, Any] = state.watermark.components()
    return any(name not in known or position > known[name] for name, position in watermark.components().items())


def plan_reset(state: DatasetState, *, who: str, why: str, now: datetime) -> Change:
    """Plan to forget what a dataset has read, so that the next run begins again. Published data stays published."""
    return Change("reset", state, _successor(state, CommittedRanges(state.committed.watermark_type, {}), now), who, why)


def plan_retry(state: DatasetState, *, who: str, why: str, now: datetime) -> Change:
    """Plan to read again only the ranges that were given up after their work units failed.

    Raises:
        UsageError: no range was given up.
    """
    if state.given_up is None or not state.given_up.ranges:
        raise UsageError(
            problem=f"No range of dataset {state.dataset_urn!r} was given up.",
            hint="Ranges that failed and were not given up are read again by the next run.",
        )
    return Change("retry", state, _successor(state, state.committed, now), who, why)


def _successor(state: DatasetState, committed: CommittedRanges, now: datetime) -> DatasetState:
    return replace(
        with_committed(state, committed),
        version=state.version + 1,
        run_id=new_person_id(),
        updated_at=state.later(now),
    )


def require_free(store: StateStore, job: str, dataset_urn: str, now: datetime) -> None:
    """Raise an error if a run works on the dataset.

    Raises:
        DatasetBusyError: a run holds its lease.
        UnfinishedSequenceError: one of its commit sequences is unfinished or quarantined.
    """
    lease = store.load_leases(job).get(dataset_urn)
    if lease is not None and lease.is_held(now):
        raise busy_error(lease)
    blocking = store.load_sequences(job, WAITING, [dataset_urn])
    if blocking:
        raise UnfinishedSequenceError(dataset_urn=dataset_urn, sequence_id=blocking[0].id)


def apply_change(store: StateStore, change: Change) -> str:
    """Apply a change in one transaction, and return the id of its commit sequence.

    Changes nothing in the job's output, and needs no job file.

    Args:
        store: the state store.
        change: planned from the dataset's newest state.

    Raises:
        DatasetBusyError, UnfinishedSequenceError: as `require_free`.
        WatermarkMovedError: the dataset moved since the change was planned.
        CorruptRecordError: its newest commit sequence is damaged.
    """
    before, after = change.before, change.after
    urn = before.dataset_urn
    newest = store.load_sequences(before.job, {SequenceState.COMMITTED}, [urn], limit=1)[0]
    output_root = decode_sequence(newest, store.places, skip_unknown_steps=True).output_root
    held = store.load_leases(before.job).get(urn)
    grant = store.acquire_leases(before.job, [urn], LeaseOwner.current(after.run_id), LEASE_TTL)
    if urn in grant.busy:
        raise busy_error(grant.busy[urn])
    lease = grant.granted[urn]
    sequence = CommitSequence.to(after, commit_id=new_commit_id(), output_root=output_root)
    report = CommitReport(
        low=before.watermark,
        notes=(f"{change.action} by {change.who}: {change.why}",),
        change=ManualChange(change.action, change.who, change.why),
    )
    try:
        if held is not None and urn in grant.inherited:  # the next run will not know this owner
            end_records([held], job=before.job, store=store, now=store.now())
        # Nothing was published, so Dagster need not report it.
        stored = replace(encode_sequence(replace(sequence, report=report), store.places), reported=True)
        store.record(stored, lease.epoch, sequence.effect)
    finally:
        if urn in grant.inherited:
            store.leave_leases(before.job, {urn: lease.epoch})  # for the next run, which looks after its manifests
        else:
            store.release_leases(before.job, [lease])
    return sequence.id
