"""Detect that the state store or a target was lost, restored from an old copy, or replaced: by manifests and ledgers.

Manifests in the output and ledgers of tables outlive the store. A manifest is written after its commit, so a manifest
newer than the state's snapshot shows that the store is another one or too old. A commit is stored before a table or
topic notes it, so a noted commit that the store does not hold shows the same. Running on would publish rows twice.
A target that notes an older commit of a dataset, and not the newest one of the store, was itself set back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gobblin_dagster.core.commit import CommitStep, SequenceState, StoredSequence
from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import EnvironmentFaultError, InvalidUrnError, StepRefusedError, StorageError
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import list_manifests, manifest_path
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, left_out, replanned
from gobblin_dagster.engine.publishers import ledger_keepers

if TYPE_CHECKING:
    from gobblin_dagster.constructs.publishers.tables import TableCommit

MOST_DATASETS = 200
"""Number of datasets with a state that a plan checks first: each may cost a request to a remote file system."""


def unknown_snapshots(opened: JobContext, urns: Collection[str], states: Mapping[str, DatasetState]) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows again: the output holds snapshots unknown to the store.

    Costs one listing for all datasets without a state, and one request for each of the others.

    Raises:
        EnvironmentFaultError: the package for the output's storage is not installed.
        StorageError: the output cannot be read.
    """
    try:
        return _unknown_snapshots(opened, urns, states)
    except OSError as error:
        where = str(error.filename or opened.context.output_root)
        raise StorageError(
            operation="look for manifests in", path=where, problem=error.strerror or str(error)
        ) from error


def _unknown_snapshots(opened: JobContext, urns: Collection[str], states: Mapping[str, DatasetState]) -> dict[str, str]:
    root, store, job = opened.context.output_root, opened.store.url, opened.job
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


def unknown_commits(opened: JobContext, urns: Collection[str]) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows twice: a table or topic notes commits unknown to the store.

    Asks each target once, for all datasets, and the store for one or two sequences of each. Nothing is checked if
    `commit.delivery` allows rows to come twice, because a run that was killed leaves such commits.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: a target cannot be asked.
    """
    job, store = opened.job, opened.store
    if not urns or job.commit.delivery == "at_least_once":
        return {}
    strange: dict[str, str] = {}
    for branch, publisher in ledger_keepers(job, opened.context):
        noted = publisher.newest_commits(
            {urn: f"{opened.context.output_root}/{job.dataset_folder(branch, urn)}" for urn in urns}
        )
        known = _Known.of(opened, noted)
        lost = {
            urn: found
            for urn, commits in noted.items()
            if (found := [one for one in commits if not known.has(urn, one)])
        }
        given_up = {urn: one for urn, commits in lost.items() if (one := known.given_up(commits)) is not None}
        strange |= {
            urn: f"{publisher.ledger} notes {_name(one)} of this dataset, which was abandoned: its rows are there, and "
            "would come twice. Set a startpoint after them (`gobblin startpoint set`); or delete them, and set a "
            "startpoint at the watermark."
            for urn, one in given_up.items()
            if not any(_moved_since(known.states.get(urn), commit) for commit in lost[urn])
        }
        strange |= {
            urn: f"{publisher.ledger} notes {_name(commits[0])} of this dataset, which the state store "
            f"{store.url} does not know: the store, or the state of this dataset alone, was lost or restored from an "
            "older copy, or the store is another one. Restore the newest copy, point `state:` at the former store, or "
            "import its last export (`gobblin state import`). Else set a startpoint after the rows that are there "
            "(`gobblin startpoint set`); to begin again from the first row, delete those rows and set the startpoint "
            "`oldest`."
            for urn, commits in lost.items()
            if urn not in given_up and not any(_moved_since(known.states.get(urn), commit) for commit in commits)
        }
        kept = {urn: commits for urn, commits in noted.items() if urn not in lost}
        strange |= {
            urn: f"{publisher.ledger} lacks commit {commit_id} of this dataset, though it notes an older one: the "
            "table or topic was restored from an older copy, and lacks rows that the watermark has passed. Restore its "
            "newest copy. Else set a startpoint where the missing rows begin, or, to go on without them, at the "
            "watermark (`gobblin startpoint set`; `gobblin state history` shows the ranges of the commits)."
            for urn, commit_id in _missing_commits(opened, branch, kept, known).items()
        }
    return strange


def _missing_commits(
    opened: JobContext, branch: str, noted: Mapping[str, Collection[NotedCommit]], known: _Known
) -> dict[str, str]:
    """Return, by dataset.urn, the newest commit of a branch that its target lacks though it notes an older one."""
    behind = {urn: floor for urn, commits in noted.items() if (floor := known.version_after(urn, commits)) is not None}
    urns = sorted(behind)[:MOST_DATASETS]
    if not urns:
        return {}
    # Imported here because it imports fsspec, which a run into files of this machine does not need.
    from gobblin_dagster.constructs.publishers.tables import TableCommit  # noqa: PLC0415

    newest: dict[str, tuple[StoredSequence, CommitStep]] = {}
    for one in opened.store.load_sequences(opened.job.job, [SequenceState.COMMITTED], urns, 20 + 2 * len(urns)):
        if one.dataset_urn in newest or one.version_read < behind[one.dataset_urn]:
            continue
        sequence = decode_sequence(one, opened.store.places, skip_unknown_steps=True)
        for step in sequence.steps:
            commit = getattr(step, "commit", None)
            if isinstance(commit, TableCommit) and commit.branch == branch:
                newest[one.dataset_urn] = (one, step)
                if any(_is_of(other, commit) for other in noted[one.dataset_urn]):
                    behind.pop(one.dataset_urn)
    asked = sorted(behind.keys() & newest.keys())
    found = in_parallel(lambda urn: newest[urn][1].verify(opened.storage), asked, opened.job.commit.parallelism)
    return {urn: newest[urn][0].id for urn, is_there in zip(asked, found, strict=True) if not is_there}


def _is_of(noted: NotedCommit, commit: TableCommit) -> bool:
    """True if a commit that is noted by its time alone is this one, or a newer one."""
    if noted.commit_id is not None or noted.published_at is None:
        return False
    return not commit.published_at or noted.published_at >= datetime.fromisoformat(commit.published_at)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store holds of the datasets whose commits a target notes."""

    states: Mapping[str, DatasetState]
    sequences: Mapping[str, StoredSequence | None]
    """By commit id."""
    waiting: Collection[str]
    """Datasets with an unfinished sequence, of those whose commits have no id."""

    @classmethod
    def of(cls, opened: JobContext, noted: Mapping[str, Collection[NotedCommit]]) -> _Known:
        job, store = opened.job, opened.store
        ids = sorted({one.commit_id for commits in noted.values() for one in commits if one.commit_id is not None})
        nameless = [urn for urn, commits in noted.items() if any(one.commit_id is None for one in commits)]
        return cls(
            store.load_dataset_states(job.job, list(noted)) if noted else {},
            dict(zip(ids, in_parallel(store.load_sequence, ids, job.commit.parallelism), strict=True)),
            {one.dataset_urn for one in store.load_sequences(job.job, urns=nameless)} if nameless else (),
        )

    def version_after(self, urn: str, commits: Iterable[NotedCommit]) -> int | None:
        """Return the dataset's version after commits that a target notes; None if the dataset has not moved since.

        0 if it is not known, as of commits without an id.
        """
        state, after = self.states.get(urn), 0
        for commit in commits:
            sequence = self.sequences[commit.commit_id] if commit.commit_id is not None else None
            after = max(after, sequence.version_read + 1 if sequence is not None else 0)
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
        if commit.commit_id is None:
            is_there = state is not None and commit.published_at is not None and state.updated_at >= commit.published_at
            return is_there or urn in self.waiting
        sequence = self.sequences[commit.commit_id]
        if sequence is None or sequence.state is SequenceState.ABORTED:
            return False
        if sequence.state is not SequenceState.COMMITTED:
            return True
        return state is not None and state.version > sequence.version_read


def _name(commit: NotedCommit) -> str:
    return f"commit {commit.commit_id}" if commit.commit_id else f"a commit of {commit.published_at}"


def _moved_since(state: DatasetState | None, commit: NotedCommit) -> bool:
    """True if the dataset moved after the noted commit: a person has decided since then where it goes on."""
    return state is not None and commit.published_at is not None and state.updated_at > commit.published_at


def without_startpoint(datasets: Iterable[DatasetPlan]) -> list[str]:
    """Return the datasets whose commits are looked for in the targets: of others, a person chose where rows begin."""
    return [one.dataset_urn for one in datasets if one.startpoint is None]


def refused_datasets(opened: JobContext) -> dict[str, str]:
    """Return, by dataset.urn, why runs with new data would refuse datasets that the store or the output knows.

    Asks no source, so it does not tell which of them have new data. Like a plan, it looks at the manifests of
    `MOST_DATASETS` datasets with a state first.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: the output or a table cannot be asked.
    """
    name, store = opened.job.job, opened.store
    states, damaged = store.load_readable_states(name)
    known = sorted(states)
    new = _published_datasets(opened) - states.keys() - damaged.keys()
    strange = unknown_snapshots(opened, [*sorted(new), *known[:MOST_DATASETS]], states)
    if strange:
        strange |= unknown_snapshots(opened, known[MOST_DATASETS:], states)
    begun = {one.dataset_urn for one in store.list_startpoints(name)}
    strange = unknown_commits(opened, sorted(states.keys() - begun)) | strange
    # A run may have committed since.
    now, _ = store.load_readable_states(name, list(strange))
    return {urn: why for urn, why in strange.items() if _version(now.get(urn)) == _version(states.get(urn))}


def _published_datasets(opened: JobContext) -> set[str]:
    """Return the datasets of the job that have manifests in the output."""
    root, job, storage = opened.context.output_root, opened.job.job, opened.storage
    found: set[str] = set()
    for folder in storage.list_names(internal_dir(root, MANIFEST_DIR, job)):
        with suppress(InvalidUrnError, NotADirectoryError):  # something else lies there
            urn = DatasetUrn.from_key(folder).value
            if list_manifests(storage, root, job, urn):
                found.add(urn)
    return found


def _version(state: DatasetState | None) -> int:
    return state.version if state is not None else 0


def with_lost_store(opened: JobContext, plan: JobPlan) -> JobPlan:
    """Return the plan with the problem of each dataset that a run would refuse because of its store; takes no lease.

    If the output or a table cannot be read now, only the run reports it. If none of the first `MOST_DATASETS` datasets
    with a state has a problem, only the run checks the manifests of the others.
    """
    working = [one for one in plan.datasets if one.has_work]
    if not working:
        return plan
    new, known = ([one for one in working if bool(one.version_read) is is_known] for is_known in (False, True))

    def look(datasets: Sequence[DatasetPlan]) -> dict[str, str]:
        with_state = [one.dataset_urn for one in datasets if one.version_read]
        states = opened.store.load_dataset_states(plan.job, with_state)
        return unknown_snapshots(opened, [one.dataset_urn for one in datasets], states)

    strange: dict[str, str] = {}
    with suppress(StorageError, EnvironmentFaultError):
        strange = look([*new, *known[:MOST_DATASETS]])
        if strange:
            strange |= look(known[MOST_DATASETS:])
    with suppress(StorageError, StepRefusedError, EnvironmentFaultError):
        strange = unknown_commits(opened, without_startpoint(working)) | strange
    if not strange:
        return plan
    # Since a state was loaded, another run may have committed and written the manifest that was found.
    states = opened.store.load_dataset_states(plan.job, list(strange))
    found = {urn: state.version for urn, state in states.items()}
    versions = {one.dataset_urn: one.version_read for one in working}
    strange = {urn: why for urn, why in strange.items() if found.get(urn, 0) == versions[urn]}
    return replanned(
        plan, [left_out(one, strange[one.dataset_urn]) if one.dataset_urn in strange else one for one in plan.datasets]
    )
