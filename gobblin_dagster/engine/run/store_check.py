"""Look for a lost state store before a run, in its plan and for `gobblin doctor`; see `snapshots.lost_store`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from gobblin_dagster.core.commit import WAITING, CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    EnvironmentFaultError,
    GobblinDagsterError,
    InvalidUrnError,
    SourceError,
    StepRefusedError,
    StorageError,
    TransientError,
    UsageError,
)
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import list_all_manifests
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.engine.plan.lost_output import lost_outputs, set_back_outputs
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, left_out, replanned
from gobblin_dagster.engine.snapshots.lost_store import (
    MOST_DATASETS,
    manifests_asked,
    unknown_commits,
    unknown_snapshots,
)


def strange_outputs(opened: JobContext, urns: Collection[str], states: Mapping[str, DatasetState]) -> dict[str, str]:
    """Return, by dataset.urn, why a run must not publish files: the store is older than the output, or newer.

    Raises:
        EnvironmentFaultError, StorageError: as `unknown_snapshots`.
    """
    strange = unknown_snapshots(opened, urns, states)
    known = {urn: states[urn] for urn in urns if urn in states and urn not in strange}
    with manifests_asked(opened.context.output_root):
        return strange | set_back_outputs(
            opened.storage, opened.store, opened.context.output_root, opened.job.job, known
        )


def lost_commits(opened: JobContext, datasets: Iterable[DatasetPlan]) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows twice or leave some out: `unknown_commits` of its plans.

    The same if the job was renamed, and has published them under its former name.
    """
    planned = list(datasets)
    begun = _begun(startpoint for one in planned for startpoint in one.startpoints)
    lost = unknown_commits(opened, [one.dataset_urn for one in planned], begun)
    working = {one.dataset_urn: one.version_read for one in planned if one.has_work}
    return _by_former_jobs(opened, working, begun, partial(_states, opened, working)) | lost


def misplaced_commits(opened: JobContext, working: Iterable[DatasetPlan]) -> dict[str, str]:
    """Return, by dataset.urn, why rows may be published already: `StateStore.misplaced` of datasets with work."""
    versions = {one.dataset_urn: one.version_read for one in working}
    found = opened.store.misplaced(opened.job.job, versions) if versions else {}
    return {urn: str(error) for urn, error in found.items()}


def published_meanwhile(opened: JobContext, sequences: Iterable[CommitSequence]) -> dict[str, GobblinDagsterError]:
    """Return, by dataset.urn, why prepared commits must not be published: since the run began, another job made them.

    One of the two is the former job of the other, which was renamed while it ran.
    """
    working = [one for one in sequences if one.steps]
    versions = {one.dataset_urn: one.version_read for one in working}
    ids = {startpoint for one in working for startpoint in one.startpoints}
    begun = {one.dataset_urn: opened.started_at for one in working if one.startpoints}
    try:
        there = opened.store.list_startpoints(opened.job.job, list(begun)) if ids else []
        states = _states(opened, versions)
        found = opened.moved_in({urn: state for urn, state in states.items() if urn not in begun})
        found |= _by_former_jobs(
            opened, versions, begun | _begun(one for one in there if one.id in ids), lambda: states
        )
    except GobblinDagsterError as error:
        return dict.fromkeys(versions, error)
    return {urn: UsageError(problem=f"Dataset {urn!r}: {why}") for urn, why in found.items()}


def overtaken(opened: JobContext, waiting: Iterable[StoredSequence]) -> dict[str, str]:
    """Return, by dataset.urn, why commits that were left must not be finished: a job of another name made them since.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError, TransientError: as `published_by_former_jobs`.
    """
    project, name = opened.project, opened.job.job
    is_of_flow = name not in project.lines
    prepared = [one for one in waiting if one.state is SequenceState.PREPARED]
    if not prepared or opened.job.extract.reads_everything or (is_of_flow and project.has_elsewhere is None):
        return {}
    from gobblin_dagster.engine.snapshots.former_jobs import Known, published_by_former_jobs  # noqa: PLC0415 - as below

    known: dict[str, Known] = {}
    for one in prepared:
        begins = not one.version_read
        # Nothing was there when a run without a startpoint looked. What is there now may have been stored before its
        # commit: it was killed before it looked again.
        since = None if begins and not _startpoints(opened, one) else one.created_at
        known[one.dataset_urn] = Known(since, begins=begins, prepared=one.created_at)
    others = opened.store.list_jobs(list(known), {*project.lines, name})
    found = published_by_former_jobs(opened, project, others, known, is_of_flow=is_of_flow)
    return {urn: f"{why} `gobblin commit abandon` gives this commit up." for urn, why in found.items()}


def _startpoints(opened: JobContext, stored: StoredSequence) -> bool:
    """Return whether a person said where a commit begins; that is assumed of one that cannot be read."""
    try:
        return bool(decode_sequence(stored, opened.store.places, skip_unknown_steps=True).startpoints)
    except CorruptRecordError:
        return True


def _states(opened: JobContext, versions: Mapping[str, int]) -> dict[str, DatasetState]:
    """Return the states of the datasets that have a version."""
    known = [urn for urn, version in versions.items() if version]
    return opened.store.load_dataset_states(opened.job.job, known) if known else {}


def _by_former_jobs(
    opened: JobContext,
    versions: Mapping[str, int],
    begun: Mapping[str, datetime],
    states: Callable[[], Mapping[str, DatasetState]],
) -> dict[str, str]:
    """Say which datasets another job published since this one did, or since a startpoint was set, or at all.

    Args:
        opened: the job, of a file or of a flow.
        versions: of the datasets to publish; 0: it never published them.
        begun: when their startpoints were set.
        states: loads those of the datasets that it published.
    """
    project, name = opened.project, opened.job.job
    # A job in no file is a flow's, or was when its execution began.
    is_of_flow = name not in project.lines
    if not versions or opened.job.extract.reads_everything or (is_of_flow and project.has_elsewhere is None):
        return {}
    new, known = ([urn for urn, version in versions.items() if bool(version) is is_known] for is_known in (False, True))
    changed_at = _changed_at(opened) if known and is_of_flow else None
    if is_of_flow and changed_at is None:
        known = []
    # Most projects have many jobs. Those that stand in files are asked for datasets that this job begins.
    beginning = [*new, *known] if is_of_flow else new
    waiting = opened.store.load_sequences(None, WAITING, beginning) if beginning else []
    others = {one.job for one in waiting} - {name}
    others |= {*opened.store.list_jobs(new, {name})} if new else set[str]()
    others |= {*opened.store.list_jobs(known, {*project.lines, name})} if known else set[str]()
    if not others:
        return {}
    from gobblin_dagster.engine.snapshots.former_jobs import Known, published_by_former_jobs  # noqa: PLC0415 - seldom

    asked = {urn: Known(begun.get(urn), begins=True) for urn in new}
    for urn, state in states().items() if known else ():
        # A flow's job that got its former name again has states of the time before. Only flows that were changed since
        # are asked: their store may hold the jobs of thousands of others.
        if changed_at is None or state.updated_at < changed_at:
            asked[urn] = Known(begun[urn]) if urn in begun else Known(state.updated_at, state.settled)
    return published_by_former_jobs(opened, project, others, asked, is_of_flow=is_of_flow) if asked else {}


def _changed_at(opened: JobContext) -> datetime | None:
    """Return when the job's flow was changed last, as far as is known."""
    project = opened.project
    try:
        return project.changed_elsewhere(opened.job.job) if project.changed_elsewhere is not None else None
    except TransientError:  # the service's database is away, which must not stop jobs
        return project.clock.now()


def _begun(startpoints: Iterable[Startpoint]) -> dict[str, datetime]:
    """Return, by dataset.urn, when the newest of its startpoints was set."""
    begun: dict[str, datetime] = {}
    for one in startpoints:
        begun[one.dataset_urn] = max(one.created_at, begun.get(one.dataset_urn, one.created_at))
    return begun


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
    strange = strange_outputs(opened, [*sorted(new), *known[:MOST_DATASETS]], states)
    if strange:
        strange |= strange_outputs(opened, known[MOST_DATASETS:], states)
    strange = unknown_commits(opened, sorted(states), _begun(store.list_startpoints(name))) | strange
    strange |= lost_outputs(opened.storage, store, opened.context.output_root, name, states)
    misplaced = store.misplaced(name, {urn: state.version for urn, state in states.items()})
    strange |= {urn: str(error) for urn, error in misplaced.items()}
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
            if list_all_manifests(storage, root, job, urn)[0]:
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
        return strange_outputs(opened, [one.dataset_urn for one in datasets], states)

    strange: dict[str, str] = {}
    misplaced = misplaced_commits(opened, working)
    with suppress(StorageError, EnvironmentFaultError):
        strange = look([*new, *known[:MOST_DATASETS]])
        if strange:
            strange |= look(known[MOST_DATASETS:])
    with suppress(StorageError, StepRefusedError, EnvironmentFaultError):
        strange = lost_commits(opened, working) | strange
    strange |= misplaced
    if not strange:
        return plan
    # Since a state was loaded, another run may have committed and written the manifest that was found.
    states = opened.store.load_dataset_states(plan.job, list(strange))
    found = {urn: state.version for urn, state in states.items()}
    versions = {one.dataset_urn: one.version_read for one in working}
    strange = {urn: why for urn, why in strange.items() if found.get(urn, 0) == versions[urn]}
    code = CorruptRecordError.code
    return replanned(
        plan,
        [
            left_out(one, strange[one.dataset_urn], code if one.dataset_urn in misplaced else SourceError.code)
            if one.dataset_urn in strange
            else one
            for one in plan.datasets
        ],
    )
