"""A state store that was lost, set back or is another one: told by the manifests of the output and the ledgers of tables.

Both outlive the store. A manifest is written after its commit, so one above the state's snapshot tells that the store is not
the one, or not as new as the one, that knew of it. A commit is stored before a table or topic notes it, so a noted one that
the store does not hold tells the same. What the store does not know it would publish again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from gobblin_dagster.core.constructs import NotedCommit
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import EnvironmentFaultError, StepRefusedError, StorageError
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, left_out, replanned
from gobblin_dagster.engine.publishers import ledger_keepers

MOST_DATASETS = 200
"""Datasets with a state that a plan looks at before it looks at all: each may cost a request to a far file system."""


def unknown_snapshots(
    opened: JobContext, datasets: Iterable[DatasetPlan], states: Mapping[str, DatasetState]
) -> dict[str, str]:
    """Say of which datasets the output holds snapshots that the store does not know: their rows would be published again.

    Costs one listing for all datasets without a state, and one request for each other.

    Raises:
        EnvironmentFaultError: the package for the output's storage is not installed.
        OSError: the output cannot be read.
    """
    root, store, job = opened.context.output_root, opened.store.url, opened.job
    urns = [one.dataset_urn for one in datasets]
    new = [urn for urn in urns if urn not in states]
    manifests = internal_dir(root, MANIFEST_DIR, job.job)
    held = {*opened.storage.list_names(manifests)} if new else set()
    strange = {
        urn: f"{manifests}/{folder} tells of snapshots that the state store {store} does not know: it was lost, or is "
        "another one. Point `state:` at the former store, or import its last export (`gobblin state import`); to begin "
        "anew, give the job another output, or delete that folder: what is published stays beside."
        for urn in new
        if (folder := DatasetUrn(urn).path_segment) in held
    }
    known = [urn for urn in urns if urn in states]
    next_ones = [manifest_path(root, job.job, urn, states[urn].snapshot + 1) for urn in known]
    sizes = in_parallel(opened.storage.size, next_ones, job.commit.parallelism)
    return strange | {
        urn: f"{path} tells of a snapshot after {states[urn].snapshot}, the newest that the state store {store} knows: it "
        "was set back to an older copy. Restore a newer one, or import a newer export (`gobblin state import`). Else delete "
        "the files that this manifest and those above name in `branches`, then these manifests: what they held is read "
        "again. Of what went to a table or topic, or is gone from the source, set the watermark behind it instead "
        "(`gobblin state set`) and delete the manifests alone: their files stay in the folders, and are in no snapshot."
        for urn, path, size in zip(known, next_ones, sizes, strict=True)
        if size is not None
    }


def unknown_commits(opened: JobContext, datasets: Iterable[DatasetPlan]) -> dict[str, str]:
    """Say of which datasets a table or topic notes commits that the store does not hold: their rows would be in it twice.

    Asks each target once, for all datasets, and the store for one or two sequences of each. A dataset with a startpoint is
    not looked at: a person said where its rows begin. Nor is anything if rows may come twice by `commit.delivery`: a run
    that was killed leaves such commits.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: a target cannot be asked.
    """
    job, store = opened.job, opened.store
    urns = [one.dataset_urn for one in datasets if one.startpoint is None]
    if not urns or job.commit.delivery == "at_least_once":
        return {}
    strange: dict[str, str] = {}
    for publisher in ledger_keepers(job, opened.context):
        noted = publisher.newest_commits(urns)
        ids = sorted({commit.commit_id for commits in noted.values() for commit in commits})
        held = in_parallel(store.load_sequence, ids, job.commit.parallelism)
        unknown = {commit_id for commit_id, sequence in zip(ids, held, strict=True) if sequence is None}
        lost = {
            urn: found
            for urn, commits in noted.items()
            if (found := [commit for commit in commits if commit.commit_id in unknown])
        }
        states = store.load_dataset_states(job.job, list(lost)) if lost else {}
        strange |= {
            urn: f"{publisher.ledger} notes commit {commits[0].commit_id} of this dataset, which the state store {store.url} "
            "does not know: it was lost, was set back to an older copy, or is another one. Restore the newest copy, point "
            "`state:` at the former store, or import its last export (`gobblin state import`). Else say where to read on, "
            "behind the rows that are there (`gobblin startpoint set`); to begin again from the first row, delete those rows "
            "and set the startpoint `oldest`."
            for urn, commits in lost.items()
            if not any(_moved_since(states.get(urn), commit) for commit in commits)
        }
    return strange


def _moved_since(state: DatasetState | None, commit: NotedCommit) -> bool:
    """Tell whether a dataset moved after a commit that its store does not know: a person said from where it goes on."""
    return state is not None and commit.published_at is not None and state.updated_at > commit.published_at


def with_lost_store(opened: JobContext, plan: JobPlan) -> JobPlan:
    """Return the plan with the problem of each dataset that a run would refuse for its store, found without a lease.

    If the output or a table cannot be read here, the run alone tells. So it does of manifests beyond `MOST_DATASETS` datasets
    of which none has a problem.
    """
    working = [one for one in plan.datasets if one.has_work]
    if not working:
        return plan
    new, known = ([one for one in working if bool(one.version_read) is is_known] for is_known in (False, True))

    def look(datasets: Sequence[DatasetPlan]) -> dict[str, str]:
        with_state = [one.dataset_urn for one in datasets if one.version_read]
        return unknown_snapshots(opened, datasets, opened.store.load_dataset_states(plan.job, with_state))

    strange: dict[str, str] = {}
    with suppress(OSError, EnvironmentFaultError):
        strange = look([*new, *known[:MOST_DATASETS]])
        if strange:
            strange |= look(known[MOST_DATASETS:])
    with suppress(StorageError, StepRefusedError, EnvironmentFaultError):
        strange = unknown_commits(opened, working) | strange
    if not strange:
        return plan
    # A run may have committed one since its state was loaded, and written the manifest that we found.
    states = opened.store.load_dataset_states(plan.job, list(strange))
    found = {urn: state.version for urn, state in states.items()}
    versions = {one.dataset_urn: one.version_read for one in working}
    strange = {urn: why for urn, why in strange.items() if found.get(urn, 0) == versions[urn]}
    return replanned(
        plan, [left_out(one, strange[one.dataset_urn]) if one.dataset_urn in strange else one for one in plan.datasets]
    )
