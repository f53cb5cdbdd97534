"""Abandon a commit sequence that no run and no `gobblin commit recover` can finish, as a person asks."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_dagster.core.commit import WAITING, CanBeForbidden, CommitGroup, SequenceState, StoredSequence
from gobblin_dagster.core.errors import CorruptRecordError, StepRefusedError, UsageError
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.group import group_of
from gobblin_dagster.engine.commit.leases import busy_error
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.engine.layout import internal_dir
from gobblin_dagster.engine.maintenance.table_files import names_in_tables
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import load_step_types
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Abandonment(ShownAsFacts):
    """The result of abandoning a sequence, or its preview."""

    sequence_id: str
    dataset_urn: str
    state: SequenceState
    """State after the sequence was abandoned; in a preview, before."""
    reason: str = ""
    orphans: tuple[str, ...] = ()
    """Files in the output that no snapshot lists and that stay."""
    in_tables: tuple[str, ...] = ()
    """Those of them that a table may list, which cannot be read any more if one is deleted."""
    rejected: tuple[str, ...] = ()
    """Those of them with rows that policies rejected, if a table or topic may have the rows that passed: if these stay
    there, and are not read again, no other file has the rejected ones."""

    def _facts(self) -> Mapping[str, object]:
        return {
            "sequence": self.sequence_id,
            "dataset": self.dataset_urn,
            "state": self.state.value,
            "reason": self.reason,
            "orphans": ", ".join(self.orphans),
            "in_tables": ", ".join(self.in_tables),
            "rejected": ", ".join(self.rejected),
        }


def preview_abandonment(project: Project, store: StateStore, sequence_id: str) -> Abandonment:
    """Return the result that abandoning would have; changes nothing. Raises as `abandon_sequence`."""
    stored = _load(store, sequence_id)
    orphans = _orphans(project, store, stored) if stored.state is SequenceState.QUARANTINED else ()
    return _abandonment(project, store, stored, stored, orphans)


def abandon_sequence(
    project: Project, store: StateStore, sequence_id: str, *, who: str = "a person", why: str = ""
) -> Abandonment:
    """Undo an unfinished sequence, or mark a quarantined one as given up: the dataset is planned again.

    Args:
        project: the project of the sequence's job.
        store: the state store.
        sequence_id: id of the sequence.
        who: the person who asks for it; stored with the sequence.
        why: the reason; stored with the sequence.

    Returns:
        ABORTED with the files that stay, or QUARANTINED if undoing is not safe: abandon it again to keep its files.

    Raises:
        UsageError: there is no such sequence, it has ended, its job is not in the project, or it waits for the leader
            of its group (`commit.scope: job`).
        DatasetBusyError: a run works on the dataset, or on the dataset of the leader.
        CorruptRecordError, CommitConflictError, StorageError: as `Committer.abandon`.
        StorageError: a run may be loading the rows into a table now, see `CanBeForbidden`.
    """
    stored = _load(store, sequence_id)
    job = _job_of(project, stored)
    load_step_types(job)
    orphans = _orphans(project, store, stored) if stored.state is SequenceState.QUARANTINED else ()
    said = f"abandoned by {who}" + (f" ({why})" if why else "")
    group = group_of(stored)
    urns = {stored.dataset_urn, *([group.dataset_urn] if group else [])}
    project.tidy_ended(job, store)
    with project.lease_keeper(job, store) as leases:
        for busy in leases.acquire(urns).busy.values():
            raise busy_error(busy)
        # Loaded again under the lease: a run may have finished it meanwhile.
        stored = _load(store, sequence_id)
        _require_decided(store, stored, group)
        if stored.state is SequenceState.QUARANTINED:
            _forbid(store, stored)
        committer = Committer.of(job.commit, store, project.storage(job))
        committer.abandon(stored, leases.epoch(stored.dataset_urn), said)
    after = store.load_sequence(sequence_id) or stored
    return _abandonment(project, store, stored, after, orphans)


def _abandonment(
    project: Project, store: StateStore, stored: StoredSequence, after: StoredSequence, orphans: tuple[str, ...]
) -> Abandonment:
    in_tables, rejected = _in_tables(project, store, stored, orphans), _rejected(store, stored, orphans)
    return Abandonment(after.id, after.dataset_urn, after.state, after.reason, orphans, in_tables, rejected)


def _rejected(store: StateStore, stored: StoredSequence, orphans: tuple[str, ...]) -> tuple[str, ...]:
    try:
        sequence = decode_sequence(stored, store.places)
    except (CorruptRecordError, StepRefusedError):
        return ()
    if not any(isinstance(step, CanBeForbidden) for step in sequence.steps):
        return ()  # what passed is seen by nobody either, and is read again
    return tuple(file.path for file in sequence.files if file.branch == QUARANTINE_BRANCH and file.path in orphans)


def _require_decided(store: StateStore, stored: StoredSequence, group: CommitGroup | None) -> None:
    """Refuse to abandon one sequence of a group that may still be finished as a whole."""
    leader = store.load_sequence(group.leader) if group and group.leader != stored.id else None
    if leader is not None and leader.state is SequenceState.PREPARED:
        raise UsageError(
            problem=f"Commit sequence {stored.id} is published together with others of its run or not at all.",
            hint=f"Abandon {leader.id}, that of dataset {leader.dataset_urn!r}: the next run then undoes the others. "
            "Those that it cannot undo can be abandoned after that.",
        )


def _forbid(store: StateStore, stored: StoredSequence) -> None:
    """Keep a run that is only frozen from doing the steps when it wakes: their rows are read again by then."""
    try:
        steps = decode_sequence(stored, store.places).steps
    except (CorruptRecordError, StepRefusedError) as error:
        log.warning(
            "No table or topic could note that commit %s is abandoned: %s If a run was frozen while it published, "
            "end it.",
            stored.id,
            error,
        )
        return
    for step in steps:
        if isinstance(step, CanBeForbidden):
            step.forbid()


def _load(store: StateStore, sequence_id: str) -> StoredSequence:
    stored = store.load_sequence(sequence_id)
    if stored is None:
        raise UsageError(
            problem=f"There is no commit sequence {sequence_id[:40]!r}.", hint="`gobblin commit list` lists them."
        )
    if stored.state not in WAITING:
        raise UsageError(
            problem=f"Commit sequence {stored.id} has ended as {stored.state}.",
            hint="Only unfinished and quarantined sequences can be abandoned.",
        )
    return stored


def _job_of(project: Project, stored: StoredSequence) -> JobSpec:
    """Return the job of a sequence; of its spec only the output and the names of classes of its own are used."""
    found = next((job for job in project.jobs if job.job == stored.job), None)
    if found is None:
        raise UsageError(
            problem=f"Commit sequence {stored.id} is one of job {stored.job!r}, which this project does not have any "
            "more.",
            hint="Bring its job file back, or write one of that name with the former `output` and any source, then "
            "abandon the sequence again; the file can be deleted after that. Jobs of flows are found with `--flow "
            "GROUP/NAME`.",
        )
    return found


def _in_tables(
    project: Project, store: StateStore, stored: StoredSequence, orphans: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the files that a step adds to a table as they are, whether or not it has done so."""
    names = names_in_tables(store, _job_of(project, stored), stored)
    return tuple(path for path in orphans if posixpath.basename(path) in names)


def _orphans(project: Project, store: StateStore, stored: StoredSequence) -> tuple[str, ...]:
    """Return the existing targets of a sequence.

    If the sequence cannot be read, these are the files in the job's output whose names begin with its id, as those of
    each published file do.
    """
    job = _job_of(project, stored)
    storage = project.storage(job)
    try:
        targets = [rename.target for rename in renames_of(decode_sequence(stored, store.places).steps)]
        return tuple(target for target in targets if storage.size(target) is not None)
    except CorruptRecordError:
        root = project.output_root(job)
        inside = internal_dir(root) + "/"
        found = storage.walk_files(root)
        return tuple(
            path
            for path in found
            if posixpath.basename(path).startswith(f"{stored.id}-") and not path.startswith(inside)
        )
    except OSError:
        return ()
