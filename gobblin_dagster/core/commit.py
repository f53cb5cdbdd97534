"""Commit steps and sequences: the write-ahead record of one publication of one dataset.

    PREPARED -> COMMITTED                 the commit transaction flips it and moves the watermark, together
    PREPARED -> ABORTING -> ABORTED       staged files are lost: undone, sources first
    any unfinished -> QUARANTINED         a person must look; other datasets go on

This module holds values and the step protocol; `engine.commit` executes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import PolicyOutcome, QueueStats, TaskFailure
from gobblin_dagster.core.watermark.fields import AnyWatermark


class SequenceState(StrEnum):
    """Where a stored commit sequence stands."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    QUARANTINED = "quarantined"


UNFINISHED = frozenset({SequenceState.PREPARED, SequenceState.ABORTING})
"""States that recovery works on before anything new is planned."""
WAITING = UNFINISHED | {SequenceState.QUARANTINED}
"""States of sequences that are not over: a run has to finish them, or a person to decide. Their staged files are needed,
and they keep their dataset from being prepared again."""


@runtime_checkable
class CommitStep(Protocol):
    """One idempotent action of a publication, verified by content.

    `engine.commit` calls `verify` then, where it returns False, `execute`; after a crash it does so again in another
    process, possibly while the first one still runs. Steps are stored as JSON: `to_json` must hold all that they need.

    Source: `CommitStep` of the exactly-once design. Differs: verification is by size and checksum, never by existence.
    """

    type_name: ClassVar[str]
    version: ClassVar[int]

    def verify(self, storage: Storage) -> bool:
        """Tell whether the step is done, whole."""

    def execute(self, storage: Storage) -> None:
        """Do the step; raises OSError where it cannot be done now."""

    def to_json(self) -> dict[str, Any]:
        """Return the step's fields, without type and version."""

    def describe(self) -> str:
        """Say in a few words what the step does, for plans and `gobblin commit show`."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of a snapshot, as the manifest names it."""

    branch: str
    path: str
    """Absolute."""
    size_bytes: int
    sha256: str
    rows: int
    snapshot: int
    """The snapshot that added it."""


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A file that some snapshot added, and the snapshots that took it out."""

    file: PublishedFile
    removed: tuple[int, ...] = ()
    """Numbers in order; several where a rollback brought it back."""


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """A commit sequence as the store keeps it: bookkeeping in columns, the rest in a digest-protected body."""

    format_name: ClassVar[str] = "StoredSequence/1"

    id: str
    """The commit id: 128 random bits, in the name of every file that it publishes."""
    job: str
    dataset_urn: str
    run_id: str
    version_read: int
    """Version of the dataset's state that the plan was made from; 0 where it had none."""
    state: SequenceState
    body: str
    """JSON of the sequence's steps, published files, state to come and report."""
    digest: str
    """SHA-256 of `body`."""
    created_at: datetime
    redo_failures: int = 0
    reason: str = ""
    """Why it was quarantined or what the last redo said."""
    reported: bool = False
    """Whether its materialization was logged in Dagster."""


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """The sequences of a run that are published together or not at all; each of them carries it.

    The leader's sequence is stored last and committed first, so its state is the state of the group: COMMITTED, and all
    others go forward; not stored, undone or set aside, and all others go back.
    """

    leader: str
    """Id of the leader's sequence; also the name of the group."""
    dataset_urn: str
    """The leader's dataset: whoever works on the group holds its lease."""
    size: int
    """Sequences of the group, the leader's included."""


@dataclass(frozen=True, slots=True)
class CommitEffect:
    """What becomes true of a dataset, all of it in the one transaction that ends a sequence."""

    after: DatasetState
    """The dataset's state from then on."""
    files: Sequence[PublishedFile] = ()
    """Files that the snapshot `after.snapshot` adds."""
    removed: Collection[str] = ()
    """Absolute paths that it no longer holds; that the snapshot before held them is the builder's duty."""
    startpoint: str = ""
    """Id of the startpoint to consume: deleted if it still is the dataset's; a newer one is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """What happened on the way to a commit, for people and for Dagster's metadata. Nothing is decided by it."""

    low: AnyWatermark | None = None
    """Where the reading began; of a change by a person, the watermark before."""
    expected_high: AnyWatermark | None = None
    rows_read: int = 0
    rows_filtered: int = 0
    rows_untaken: int = 0
    rows_by_branch: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Rows that broke row-level policies or that converters could not take, by name."""
    rows_quarantined: int = 0
    policies: tuple[PolicyOutcome, ...] = ()
    failures: tuple[TaskFailure, ...] = ()
    failed_ranges: tuple[str, ...] = ()
    """Ranges of the work units that failed, as people read them."""
    notes: tuple[str, ...] = ()
    """What people should know; under a startpoint, the first note tells of it."""
    seconds: float = 0.0
    queues: Mapping[str, QueueStats] = field(default_factory=dict)
    """How the queues before the branches were used, by branch; empty where branches ran one after the other."""


@dataclass(frozen=True, slots=True)
class ManualChange:
    """A commit that no run made but a person or a command: a rollback, a replay, a compaction, a watermark set by hand."""

    action: str
    who: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport(CommitFacts):
    """What a commit sequence tells of itself; stored with it.

    What the sequence itself says (files, snapshot, the watermark after it) is not repeated.
    """

    format_name: ClassVar[str] = "CommitReport/1"

    startpoint: Startpoint | None = None
    """The startpoint that the commit consumes, as it was applied."""
    change: ManualChange | None = None
    """None of a run's own commit."""


NO_REPORT = CommitReport()


@dataclass(frozen=True, slots=True)
class CommitSequence:
    """All that one publication of one dataset does, as a value.

    Source: `CommitSequence` of the exactly-once design. Differs: the watermark is no step among others but moves in the
    transaction that ends the sequence (`after`), because a step that can run alone can run ahead.
    """

    id: str
    job: str
    dataset_urn: str
    run_id: str
    version_read: int
    steps: tuple[CommitStep, ...]
    files: tuple[PublishedFile, ...]
    after: DatasetState
    """The dataset's state once committed; its version is `version_read + 1`."""
    output_root: str
    """Absolute root of the job's output: no step may touch anything outside."""
    staging_dirs: tuple[str, ...] = ()
    """Absolute staging folders to delete once the sequence is committed or aborted."""
    created_at: datetime | None = None
    report: CommitReport = NO_REPORT
    removed: tuple[str, ...] = ()
    """Absolute paths of files of earlier snapshots that this snapshot no longer holds; older ones still do."""
    startpoint: str = ""
    """Id of the startpoint that the commit consumes; empty where none was in force."""
    group: CommitGroup | None = None
    """The unit that it is published with; None where it stands alone."""
    is_staged_beside: bool = False
    """Whether staging folders may lie apart from the output too, as in the design; those of jobs never do."""

    @classmethod
    def to(cls, after: DatasetState, *, commit_id: str, output_root: str) -> CommitSequence:
        """Return the sequence that does nothing but bring a dataset to a state; `replace` gives it steps and files."""
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
        """What its commit makes true."""
        return CommitEffect(self.after, self.files, self.removed, self.startpoint)


def body_digest(body: str) -> str:
    """Return the SHA-256 of a stored body."""
    return hashlib.sha256(body.encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values have equal digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
