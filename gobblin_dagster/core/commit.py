"""Commit steps and sequences: the write-ahead record of one publication of one dataset.

    PREPARED -> COMMITTED                 the commit transaction sets it and moves the watermark, both or neither
    PREPARED -> ABORTING -> ABORTED       staged files are lost: moves are undone, then the sequence ends
    any unfinished -> QUARANTINED         a person must decide; other datasets go on

This module holds values and the step protocol; `engine.commit` executes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SequenceChangedError
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import PolicyOutcome, QueueStats, TaskFailure
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.core.watermark.fields import AnyWatermark


class SequenceState(StrEnum):
    """State of a stored commit sequence; the module's docstring shows the transitions."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    QUARANTINED = "quarantined"


UNFINISHED = frozenset({SequenceState.PREPARED, SequenceState.ABORTING})
"""States that recovery finishes or undoes before a run plans anything."""
WAITING = UNFINISHED | {SequenceState.QUARANTINED}
"""States of sequences that still need work by a run, or a decision by a person. Their staged files are kept, and their
dataset gets no new sequence."""
ENDED = frozenset(SequenceState) - WAITING
"""States of sequences that need no work any more."""


@runtime_checkable
class CommitStep(Protocol):
    """One idempotent action of a publication, which can check by content whether it is done.

    On the driver, `engine.commit` calls `verify`, and `execute` if it returned False. After a crash another process
    does the same again, possibly while the first process still runs. Steps are stored as JSON before the first one
    runs: `to_json` must hold everything that they need. Register the class with
    `core.step_registry.register_commit_step`.

    Source: `CommitStep` of the exactly-once design. Differs: verifies by size and checksum, never by existence alone.
    """

    type_name: ClassVar[str]
    """Name in stored sequences; never change it."""
    version: ClassVar[int]
    """Version of the stored form."""

    def verify(self, storage: Storage) -> bool:
        """Return whether the step is completely done; raises OSError if this cannot be found out now."""

    def execute(self, storage: Storage) -> None:
        """Do the step, or what is left of it.

        Raises:
            OSError: it cannot be done now. The sequence stays stored, and the next run tries again.
            StepRefusedError: it can never be done; the dataset waits for a person.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the step's fields, without type and version, for the classmethod `from_json(fields)`."""

    def describe(self) -> str:
        """Return in a few words what the step does, for plans and `gobblin commit show`."""


@runtime_checkable
class ListsFiles(Protocol):
    """A step after which a table lists published files as they are: nobody can read it any more if one is deleted."""

    @property
    def listed_files(self) -> Sequence[str]:
        """Paths of these files."""


@runtime_checkable
class CanBeForbidden(Protocol):
    """A step that a run which is only frozen could do late, after its commit was abandoned and its rows read again."""

    def forbid(self) -> None:
        """Let `execute` refuse the step from now on, if it is not done; where its target is away, nothing happens.

        Raises:
            OSError: another process may be doing it now.
        """


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A published file: one entry of a snapshot and of its manifest."""

    branch: str
    path: str
    """Absolute."""
    size_bytes: int
    sha256: str
    rows: int
    snapshot: int
    """Number of the snapshot that added the file."""


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A published file and the snapshots that removed it."""

    file: PublishedFile
    removed: tuple[int, ...] = ()
    """Numbers of the snapshots that removed it, in order; more than one if a rollback brought it back in between."""


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """A commit sequence in its stored form: fields for look-ups, and a JSON body that is protected by a digest."""

    format_name: ClassVar[str] = "StoredSequence/1"

    id: str
    """The commit id: 128 random bits in hex, part of the name of every file that the sequence publishes."""
    job: str
    dataset_urn: str
    run_id: str
    version_read: int
    """Version of the dataset's state that the plan was made from; 0 if the dataset had no state."""
    state: SequenceState
    body: str
    """JSON of the sequence's steps, its published files, the new state of the dataset, and its report."""
    digest: str
    """SHA-256 of `body`."""
    created_at: datetime
    redo_failures: int = 0
    """How often recovery tried to finish it and failed."""
    reason: str = ""
    """Why it was quarantined, or the error of the last attempt to finish it."""
    reported: bool = False
    """Whether its materialization was reported to Dagster."""


def require_state(sequence: StoredSequence, expected: Collection[SequenceState]) -> None:
    """Raise SequenceChangedError if a sequence is in none of the expected states."""
    if sequence.state not in expected:
        raise SequenceChangedError(
            dataset_urn=sequence.dataset_urn,
            sequence_id=sequence.id,
            expected=tuple(sorted(expected)),
            found=sequence.state.value,
        )


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """The sequences of a run that are published together or not at all (`commit.scope: job`).

    Each of them holds this value.
    One sequence is the leader. It is stored last and committed first, so its state decides for the group. If it is
    COMMITTED, recovery finishes all others. If it is not stored, aborted or quarantined, recovery undoes all others.
    """

    leader: str
    """Id of the leader's sequence; also the id of the group."""
    dataset_urn: str
    """Dataset of the leader. A process must hold its lease to work on the group."""
    size: int
    """Number of sequences in the group, with the leader."""


@dataclass(frozen=True, slots=True)
class CommitEffect:
    """What the commit transaction writes to the state store for a dataset, all or nothing."""

    after: DatasetState
    """The new state of the dataset."""
    files: Sequence[PublishedFile] = ()
    """Files that the snapshot `after.snapshot` adds."""
    removed: Collection[str] = ()
    """Absolute paths of files that this snapshot no longer holds; the snapshot before must hold them."""
    startpoints: Collection[str] = ()
    """Ids of the startpoints to delete, if the dataset still has them in this job; newer ones stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """Counts, failures and notes of the work before a commit, for people and for Dagster's metadata.

    No decision of the program depends on them.
    """

    low: AnyWatermark | None = None
    """Where reading began, inclusive; for a change by a person, the watermark before the change."""
    expected_high: AnyWatermark | None = None
    """Where reading was planned to end, exclusive."""
    rows_read: int = 0
    rows_filtered: int = 0
    """Rows that converters removed (negative if they added rows)."""
    rows_untaken: int = 0
    """Rows that no branch of the fork took."""
    rows_by_branch: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by branch."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Rows that broke row-level policies, or that converters could not convert, by the name of policy or converter."""
    rows_quarantined: int = 0
    policies: tuple[PolicyOutcome, ...] = ()
    failures: tuple[TaskFailure, ...] = ()
    failed_ranges: tuple[str, ...] = ()
    """Ranges of the failed work units, as text for people."""
    notes: tuple[str, ...] = ()
    """Sentences for people; if a startpoint was applied, the first one says so."""
    seconds: float = 0.0
    """Wall time of all work units together."""
    queues: Mapping[str, QueueStats] = field(default_factory=dict)
    """Use of the queues before the branches, by branch; empty if branches ran one after the other."""


@dataclass(frozen=True, slots=True)
class ManualChange:
    """The command that made a commit, if it was no run: a rollback, a replay, a compaction, a watermark set by hand."""

    action: str
    """What was done, e.g. `rollback`."""
    who: str = ""
    """The person who ran the command."""
    why: str = ""
    """The reason that the person gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport(CommitFacts):
    """The report of a commit, stored in its sequence.

    It does not repeat what the sequence holds: files, snapshot, and the watermark after the commit.
    """

    format_name: ClassVar[str] = "CommitReport/1"

    startpoint: Startpoint | None = None
    """The startpoint that was applied and that the commit deletes, the newest one if there were several; None if there
    was none."""
    change: ManualChange | None = None
    """None if a run made the commit."""


def loaded_bytes(steps: Iterable[CommitStep]) -> int:
    """Return the bytes of the staged files whose rows steps put into tables and topics."""
    return sum(traits_of(step, StepTraits).loaded_bytes for step in steps)


NO_REPORT = CommitReport()


@dataclass(frozen=True, slots=True)
class CommitSequence:
    """Everything that one publication of one dataset does, as a value.

    Source: `CommitSequence` of the exactly-once design. Differs: moving the watermark is not a step. The transaction
    that ends the sequence moves it (`after`), so it can never move before the files are published.
    """

    id: str
    job: str
    dataset_urn: str
    run_id: str
    version_read: int
    steps: tuple[CommitStep, ...]
    files: tuple[PublishedFile, ...]
    after: DatasetState
    """The dataset's state after the commit; its version is `version_read + 1`."""
    output_root: str
    """Absolute root of the job's output; steps must not change files outside of it."""
    staging_dirs: tuple[str, ...] = ()
    """Absolute staging folders to delete after the sequence is committed or aborted."""
    created_at: datetime | None = None
    report: CommitReport = NO_REPORT
    removed: tuple[str, ...] = ()
    """Absolute paths of files that this snapshot no longer holds; earlier snapshots still hold them."""
    startpoints: tuple[str, ...] = ()
    """Ids of the startpoints that the commit deletes; empty if none was applied."""
    group: CommitGroup | None = None
    """The group that it is published with; None if it is published alone."""
    is_staged_beside: bool = False
    """Whether staging folders may lie outside of `output_root`. False for all sequences of jobs."""

    @classmethod
    def to(cls, after: DatasetState, *, commit_id: str, output_root: str) -> CommitSequence:
        """Return a sequence without steps and files, which only sets a dataset's state; add more with `replace`."""
        return cls(
            id=commit_id,
            job=after.job,
            dataset_urn=after.dataset_urn,
            run_id=after.run_id,
            version_read=after.version - 1,
            steps=(),
            files=(),
            after=after,
            output_root=output_root,
            created_at=after.updated_at,
        )

    @property
    def effect(self) -> CommitEffect:
        """What the commit transaction writes for this sequence."""
        return CommitEffect(self.after, self.files, self.removed, self.startpoints)


def body_digest(body: str) -> str:
    """Return the SHA-256 of a stored body."""
    return hashlib.sha256(body.encode()).hexdigest()


def canonical_json(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values have equal digests.

    Args:
        value: what to write.
        default: makes JSON of a value that has none; without it, such a value is a TypeError.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=default)
