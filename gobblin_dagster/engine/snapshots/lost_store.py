"""Detect that the state store or a target was lost, restored from an old copy, or replaced: by manifests and ledgers.

Manifests in the output and ledgers of tables outlive the store. A manifest is written after its commit, so a manifest
newer than the state's snapshot shows that the store is another one or too old. A commit is stored before a table or
topic notes it, so a noted commit that the store does not hold shows the same. Running on would publish rows twice, and
so would any other change of published data.
A target that does not note the newest commit of the store was itself set back, or is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

from gobblin_dagster.core.commit import CommitStep, SequenceState, StoredSequence
from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, StorageError, UsageError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import LedgerKeeper, ledger_keepers
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

if TYPE_CHECKING:
    from gobblin_dagster.constructs.publishers.tables import TableCommit

MOST_DATASETS = 200
"""Number of datasets with a state that a plan checks first: each may cost a request to a remote file system."""
MOST_COMMITS = 20
"""Commits of a dataset that are looked at for its newest one with rows; only commits without rows lie between."""


class PublishedJob(Protocol):
    """A job with its state store and what it publishes to."""

    @property
    def job(self) -> JobSpec:
        """The job."""

    @property
    def store(self) -> StateStore:
        """Its state store."""

    @property
    def storage(self) -> Storage:
        """The storage of its output."""

    @property
    def output_root(self) -> str:
        """Absolute root of its output."""

    @property
    def context(self) -> RunContext:
        """The settings of its run."""


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """Keeps commands from changing published data by a store that does not know all of it; they hold its lease."""

    project: Project
    job: JobSpec
    store: StateStore
    storage: Storage

    @classmethod
    def of(cls, project: Project, job: JobSpec, store: StateStore) -> Self:
        """Return the check for a command."""
        return cls(project, job, store, project.storage(job))

    @property
    def output_root(self) -> str:
        """Absolute root of the job's output."""
        return self.project.output_root(self.job)

    @property
    def context(self) -> RunContext:
        """The settings of a run; made again each time, because only tables and topics need them."""
        return self.project.run_context(self.job, new_run_id(self.project.clock.now()))

    def require_snapshots(self, urn: str) -> None:
        """Refuse to go on if the output holds snapshots of a dataset that are unknown to the store.

        Raises:
            UsageError: the store was restored from an older copy.
            StorageError, EnvironmentFaultError: the output cannot be asked.
        """
        states = self.store.load_dataset_states(self.job.job, [urn])
        self._refuse(urn, unknown_snapshots(self, [urn], states))

    def require_commits(self, urn: str) -> None:
        """Refuse to go on if a table or topic notes commits of a dataset that are unknown to the store.

        What is published then would count as a person's decision that the dataset goes on from there.

        Raises:
            UsageError: the store, or the table or topic, was lost or restored from an older copy.
            StorageError, StepRefusedError, EnvironmentFaultError: a target cannot be asked.
        """
        self._refuse(urn, unknown_commits(self, [urn]))

    def _refuse(self, urn: str, strange: Mapping[str, str]) -> None:
        if strange:
            raise UsageError(problem=f"Dataset {urn!r}: {strange[urn]}")


def unknown_snapshots(
    opened: PublishedJob, urns: Collection[str], states: Mapping[str, DatasetState]
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows again: the output holds snapshots unknown to the store.

    Costs one listing for all datasets without a state, and one request for each of the others.

    Raises:
        EnvironmentFaultError: the package for the output's storage is not installed.
        StorageError: the output cannot be read.
    """
    with manifests_asked(opened.output_root):
        return _unknown_snapshots(opened, urns, states)


@contextmanager
def manifests_asked(output_root: str) -> Iterator[None]:
    """Raise an error of the storage, while manifests are looked for, as a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, "look for manifests in", output_root) from error


def _unknown_snapshots(
    opened: PublishedJob, urns: Collection[str], states: Mapping[str, DatasetState]
) -> dict[str, str]:
    root, store, job = opened.output_root, opened.store.url, opened.job
    new = [urn for urn in urns if urn not in states]
    manifests = internal_dir(root, MANIFEST_DIR, job.job)
    held = {*opened.storage.list_names(manifests)} if new else set()
    strange = {
        urn: f"{manifests}/{folder} holds snapshots that the state store {store} does not know: the store was lost, "
        "or is another one. Point `state:` at the former store, or import its last export (`gobblin state import`); "
        "to begin again from nothing, give the job another output, or delete that folder: the published files stay."
        for urn in new
        if (folder := DatasetUrn(urn).path_segment) in held
    }
    known = [urn for urn in urns if urn in states]
    next_ones = [manifest_path(root, job.job, urn, states[urn].snapshot + 1) for urn in known]
    sizes = in_parallel(opened.storage.size, next_ones, job.commit.parallelism)
    return strange | {
        urn: f"{path} holds a snapshot after {states[urn].snapshot}, the newest that the state store {store} knows: "
        "the store was restored from an older copy. Restore a newer one, or import a newer export (`gobblin state "
        "import`). Else delete the files that this manifest and newer ones list in `branches`, then these manifests: "
        "their rows are read again. If rows went to a table or topic, or are gone from the source, set the watermark "
        "after them instead (`gobblin state set`) and delete only the manifests: their files stay in the folders, "
        "and are in no snapshot."
        for urn, path, size in zip(known, next_ones, sizes, strict=True)
        if size is not None
    }


def unknown_commits(
    opened: PublishedJob, urns: Collection[str], begun: Mapping[str, datetime] = MappingProxyType({})
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows twice: a table or topic notes commits unknown to the store.

    The same if rows would be left out: a table or topic lacks a commit that the store has. Asks each target once, for
    all datasets, and the store for a few sequences of each that may have moved since the commits that its target notes.

    Args:
        opened: the job.
        urns: datasets of it.
        begun: when a person set the startpoint of a dataset that the run would apply. It decides where rows begin in
            view of older commits only: a copy of the store brings back its old startpoints too.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: a target cannot be asked.
    """
    strange: dict[str, str] = {}
    for asked in _ask_targets(opened, urns, begun):
        noted, known = asked.noted, asked.known
        lost = {
            urn: found
            for urn, commits in noted.items()
            if (found := [one for one in commits if not known.has(urn, one)])
            and not any(known.is_decided(urn, one) for one in found)
        }
        if not asked.keeper.suffers_again or opened.job.commit.delivery == "at_least_once":
            lost = {}  # they do no harm; and a run that was killed leaves such commits, if its rows may come twice
        given_up = _abandoned_commits(opened, lost, known)
        strange |= {
            urn: f"{asked.ledger} notes {_name(one)} of this dataset, which was abandoned: its rows are there, and "
            "would come twice. Set a startpoint after them (`gobblin startpoint set`); or delete them, and set a "
            "startpoint at the watermark: only then does `gobblin quarantine` know the rows of it that policies "
            "rejected."
            for urn, one in given_up.items()
        }
        strange |= {
            urn: f"{asked.ledger} notes {_name(commits[0])} of this dataset, "
            f"{known.why_unknown(commits[0], opened.store.url)}. Restore the newest copy, point `state:` at the former "
            "store, or import its last export (`gobblin state import`). Else set a startpoint after the rows that are "
            "there (`gobblin startpoint set`); to begin again from the first row, delete those rows and set the "
            "startpoint `oldest`."
            for urn, commits in lost.items()
            if urn not in given_up
        }
        # An abandoned commit that is not whole: its rows may not be there, nor those of older ones.
        unsure = {urn for urn, one in given_up.items() if one.doubt}
        missing = _missing_commits(opened, asked, [urn for urn in urns if urn not in lost or urn in unsure])
        strange |= {
            urn: f"{why} Restore its newest copy. Else set a startpoint where the missing rows begin, or, if none is "
            "missing or to go on without them, at the watermark (`gobblin startpoint set`; `gobblin state history` "
            "shows the ranges of the commits)."
            for urn, why in missing.items()
        }
    return strange


def missing_commits(opened: PublishedJob, urns: Collection[str]) -> dict[str, str]:
    """Return, by dataset.urn, why no more rows may be published: a table or topic lacks a commit that the store has.

    A commit that waits may be newer: published to a target that was set back, it would hide the one that is missing.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: a target cannot be asked.
    """
    missing: dict[str, str] = {}
    for asked in _ask_targets(opened, urns, {}):
        missing |= _missing_commits(opened, asked, urns)
    return missing


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a target notes, and what the store knows of it."""

    keeper: LedgerKeeper
    folders: Mapping[str, str]
    """Absolute folder of the branch's files, by dataset.urn."""
    noted: Mapping[str, Collection[NotedCommit]]
    known: _Known

    @property
    def ledger(self) -> str:
        """Where the target notes its commits."""
        return self.keeper.publisher.ledger


def _ask_targets(opened: PublishedJob, urns: Collection[str], begun: Mapping[str, datetime]) -> Iterator[_Asked]:
    if not urns:
        return
    job = opened.job
    for keeper in ledger_keepers(job, opened.context):
        folders = {urn: branch_folder(opened, keeper.branches[0], urn) for urn in urns}
        noted = keeper.publisher.newest_commits(folders)
        # The store after the target: another run may commit meanwhile.
        yield _Asked(keeper, folders, noted, _Known.of(opened, noted, urns, begun))


def branch_folder(opened: PublishedJob, branch: str, urn: str) -> str:
    """Return the absolute folder of a branch's files of a dataset."""
    return f"{opened.output_root}/{opened.job.dataset_folder(branch, urn)}"


def _what_is_missing(commit_id: str, noted: Collection[NotedCommit]) -> str:
    for one in noted:
        if one.doubt:
            return (
                f"may lack commit {commit_id} of this dataset, or some of its rows: {one.doubt}. The watermark has "
                "passed them"
            )
    return (
        f"lacks commit {commit_id} of this dataset, {_why_missing(noted)}, and lacks rows that the watermark has passed"
    )


def _why_missing(noted: Collection[NotedCommit]) -> str:
    if noted:
        return (
            "though it notes an older one: the table or topic was restored from an older copy, or newer rows went to "
            "another one, because settings were changed"
        )
    return (
        "and notes no other: the table or topic was deleted, or is another one than before, because settings were "
        "changed or another project shares the store and the name of the job"
    )


def _abandoned_commits(
    opened: PublishedJob, lost: Mapping[str, Collection[NotedCommit]], known: _Known
) -> dict[str, NotedCommit]:
    """Return, by dataset.urn, a commit that its target notes though a person has abandoned it."""
    found = {urn: one for urn, commits in lost.items() if (one := known.given_up(commits)) is not None}
    by_time = {
        (urn, one.published_at): one for urn, commits in lost.items() for one in commits if one.commit_id is None
    }
    if not by_time:
        return found
    urns = sorted({urn for urn, _ in by_time})
    for aborted in opened.store.load_sequences(opened.job.job, [SequenceState.ABORTED], urns):
        for _, commit in table_commits(opened, aborted):
            at = datetime.fromisoformat(commit.published_at) if commit.published_at else None
            if one := by_time.get((aborted.dataset_urn, at)):
                found.setdefault(aborted.dataset_urn, one)
    return found


def _missing_commits(opened: PublishedJob, asked: _Asked, urns: Collection[str]) -> dict[str, str]:
    """Return, by dataset.urn, which commit a target lacks, of datasets that moved since those that it notes.

    Of each branch, the newest commit with rows counts.
    """
    noted, known = {urn: asked.noted.get(urn, ()) for urn in urns}, asked.known
    # What is unknown and has no time may be newer than all that the store has.
    noted = {
        urn: commits
        for urn, commits in noted.items()
        if all(one.published_at is not None or known.has(urn, one) for one in commits)
    }
    whole = {urn: [one for one in commits if not one.doubt] for urn, commits in noted.items()}
    behind = {urn: floor for urn, commits in whole.items() if (floor := known.version_after(urn, commits)) is not None}
    looked = [
        (stored, step)
        for stored, step, commit in _newest_commits(opened, asked.keeper.branches, behind)
        if not any(_is_as_new(other, commit) for other in whole[stored.dataset_urn])
        and not known.is_begun_after(stored.dataset_urn, stored.created_at)
    ]

    def is_lost(one: tuple[StoredSequence, CommitStep]) -> bool:
        stored, step = one
        return _is_lost(asked.keeper, step, asked.folders[stored.dataset_urn], opened.storage)

    lost = in_parallel(is_lost, looked, opened.job.commit.parallelism)
    return {
        stored.dataset_urn: f"{asked.ledger} {_what_is_missing(stored.id, noted[stored.dataset_urn])}."
        for (stored, _), is_lost in zip(looked, lost, strict=True)
        if is_lost
    }


def _is_lost(keeper: LedgerKeeper, step: CommitStep, folder: str, storage: Storage) -> bool:
    """Return whether the target, as the settings name it now, lacks the rows of a step."""
    from gobblin_dagster.constructs.publishers.tables import AimsSteps, KnowsLosses  # noqa: PLC0415 - as below

    aimed = keeper.publisher.aimed(step, folder) if isinstance(keeper.publisher, AimsSteps) else step
    if aimed is None:
        return True
    return aimed.is_lost() if isinstance(aimed, KnowsLosses) else not aimed.verify(storage)


def _newest_commits(
    opened: PublishedJob, branches: Collection[str], behind: Mapping[str, int]
) -> list[tuple[StoredSequence, CommitStep, TableCommit]]:
    """Return the newest commit of each branch, among the last few of each dataset that are not before a version.

    Args:
        opened: the job.
        branches: the branches to look for.
        behind: the versions, by dataset.urn.
    """
    found: dict[tuple[str, str], tuple[StoredSequence, CommitStep, TableCommit]] = {}
    left, limit, is_all = {*behind}, MOST_COMMITS + 2 * len(behind), False
    while left and not is_all:
        sequences = opened.store.load_sequences(opened.job.job, [SequenceState.COMMITTED], sorted(left), limit)
        is_all, limit = len(sequences) < limit, 2 * limit
        by_urn: dict[str, list[StoredSequence]] = {}
        for one in sequences:
            by_urn.setdefault(one.dataset_urn, []).append(one)
        for urn, stored in by_urn.items():
            moved = [one for one in stored[:MOST_COMMITS] if one.version_read >= behind[urn]]
            for one in moved:
                for step, commit in table_commits(opened, one):
                    if commit.branch in branches:
                        found.setdefault((urn, commit.branch), (one, step, commit))
            if len(moved) < len(stored) or all((urn, branch) in found for branch in branches):
                left.discard(urn)
    return list(found.values())


def table_commits(opened: PublishedJob, stored: StoredSequence) -> list[tuple[CommitStep, TableCommit]]:
    """Return the steps of a sequence that put rows into tables or topics, with what they put there."""
    # Imported here because it imports fsspec, which a run into files of this machine does not need.
    from gobblin_dagster.constructs.publishers.tables import TableCommit  # noqa: PLC0415 - as said above

    sequence = decode_sequence(stored, opened.store.places, skip_unknown_steps=True)
    commits = ((step, getattr(step, "commit", None)) for step in sequence.steps)
    return [(step, commit) for step, commit in commits if isinstance(commit, TableCommit)]


def _is_as_new(noted: NotedCommit, commit: TableCommit) -> bool:
    """True if a noted commit is as new as this one, which is then there too, whether or not its own id is noted."""
    if noted.published_at is None:
        return False
    if not commit.published_at:  # written by an earlier version
        return noted.commit_id is None
    return noted.published_at >= datetime.fromisoformat(commit.published_at)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store holds of the datasets whose commits a target notes."""

    states: Mapping[str, DatasetState]
    sequences: Mapping[str, StoredSequence | None]
    """By commit id."""
    waiting: Collection[str]
    """Datasets with an unfinished sequence, of those whose commits have no id."""
    begun: Mapping[str, datetime]
    """As in `unknown_commits`."""
    damaged: Mapping[str, str]
    """What is wrong with the records of sequences that cannot be read, by commit id."""

    @classmethod
    def of(
        cls,
        opened: PublishedJob,
        noted: Mapping[str, Collection[NotedCommit]],
        urns: Collection[str],
        begun: Mapping[str, datetime],
    ) -> _Known:
        job, store = opened.job, opened.store
        ids = sorted({one.commit_id for commits in noted.values() for one in commits if one.commit_id is not None})
        nameless = [urn for urn, commits in noted.items() if any(one.commit_id is None for one in commits)]
        damaged: dict[str, str] = {}

        def load(commit_id: str) -> StoredSequence | None:
            try:
                return store.load_sequence(commit_id)
            except CorruptRecordError as error:
                damaged[commit_id] = error.problem
                return None

        return cls(
            store.load_dataset_states(job.job, list(urns)),
            dict(zip(ids, in_parallel(load, ids, job.commit.parallelism), strict=True)),
            {one.dataset_urn for one in store.load_sequences(job.job, urns=nameless)} if nameless else (),
            begun,
            damaged,
        )

    def why_unknown(self, commit: NotedCommit, store: str) -> str:
        """Return what the store says of a commit that it does not know, or whose record cannot be read."""
        if fault := self.damaged.get(commit.commit_id or ""):
            return f"whose record in the state store {store} is damaged ({fault})"
        return (
            f"which the state store {store} does not know: the store, or the state of this dataset alone, was lost or "
            "restored from an older copy, or the store is another one"
        )

    def version_after(self, urn: str, commits: Iterable[NotedCommit]) -> int | None:
        """Return the dataset's version after commits that a target notes; None if the dataset has not moved since.

        0 if it is not known, as of commits without an id.
        """
        state, after = self.states.get(urn), 0
        for commit in commits:
            sequence = self.sequences[commit.commit_id] if commit.commit_id is not None else None
            if sequence is not None and sequence.state is not SequenceState.ABORTED:
                after = max(after, sequence.version_read + 1)
        return after if state is not None and state.version > after else None

    def given_up(self, commits: Iterable[NotedCommit]) -> NotedCommit | None:
        """Return a commit that a target notes though a person has abandoned it; what has its rows is not undone."""
        for commit in commits:
            sequence = self.sequences[commit.commit_id] if commit.commit_id is not None else None
            if sequence is not None and sequence.state is SequenceState.ABORTED:
                return commit
        return None

    def has(self, urn: str, commit: NotedCommit) -> bool:
        """True if the store knows a commit, and the dataset's state is not older: a state may be set back alone.

        An abandoned commit is none of the dataset, though the store knows it.
        """
        state = self.states.get(urn)
        if commit.commit_id is None or commit.commit_id in self.damaged:
            is_there = state is not None and commit.published_at is not None and state.updated_at >= commit.published_at
            return is_there or urn in self.waiting
        sequence = self.sequences[commit.commit_id]
        if sequence is None or sequence.state is SequenceState.ABORTED:
            return False
        if sequence.state is not SequenceState.COMMITTED:
            return True
        return state is not None and state.version > sequence.version_read

    def is_decided(self, urn: str, commit: NotedCommit) -> bool:
        """True if a person has decided since a noted commit where its dataset goes on.

        Either the dataset has moved, or waits for a startpoint. Commits without a time are older than any startpoint.
        """
        state, at = self.states.get(urn), commit.published_at
        if at is None:
            return urn in self.begun
        return (state is not None and state.updated_at > at) or self.is_begun_after(urn, at)

    def is_begun_after(self, urn: str, at: datetime) -> bool:
        """True if the startpoint of a dataset was set after an instant."""
        return urn in self.begun and self.begun[urn] > at


def _name(commit: NotedCommit) -> str:
    return f"commit {commit.commit_id}" if commit.commit_id else f"a commit of {commit.published_at}"
