"""Detect that a job was renamed: one that its project has no more published the same datasets to the same place.

Both may run at the same time, so the later one looks for the former one, and the former one for the later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import cache

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.engine.publishers import LedgerKeeper, ledger_keepers
from gobblin_dagster.engine.snapshots.lost_store import MOST_COMMITS, PublishedJob, branch_folder, table_commits


def published_by_former_jobs(
    opened: PublishedJob,
    former: Iterable[str],
    since: Mapping[str, datetime | None],
    is_gone: Callable[[str], bool],
    *,
    is_of_flow: bool = False,
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows twice: a former job has published them to the same place.

    Args:
        opened: the job.
        former: names of jobs that the state store knows, and that may be former ones.
        since: when the job committed its datasets last, or began to; None: that does not matter. Those for which a
            startpoint is set are left out. A former job of a dataset began after that.
        is_gone: tells whether the project does not have such a job any more; asked only for jobs of the same place, and
            then for `opened.job` too: it may be the former job of another one.
        is_of_flow: whether the job is one of a flow.

    Raises:
        StorageError, EnvironmentFaultError: the state store or the settings of a publisher cannot be read.
        TransientError: a store is away.
    """
    remedy = (
        "If the flow or its template was renamed, these rows would come twice: give it its former name again. If it is "
        "another flow, or has another template on purpose, `gobblin flow startpoint`"
        if is_of_flow
        else "If the job was renamed, these rows would come twice: give it its former name again. If it is another "
        "job, `gobblin startpoint set`"
    )
    is_gone = cache(is_gone)
    found: dict[str, str] = {}
    keepers: list[LedgerKeeper] | None = None
    for name in former:
        states, _ = opened.store.load_readable_states(name, [urn for urn in since if urn not in found])
        for urn, state in states.items():
            if (ours := since[urn]) is not None and not _began_after(opened, state, ours):
                continue
            if not _holds_files(opened, state):
                keepers = ledger_keepers(opened.job, opened.context) if keepers is None else keepers
                if not _holds_rows(opened, state, keepers):
                    continue
            if not is_gone(name):
                if not is_gone(opened.job.job):
                    break
                found[urn] = (
                    f"job {name!r} published this dataset up to {state.watermark} to the same place, and the project "
                    "does not have this job any more: its flow was deleted, or has another template since. If that one "
                    "took its place, these rows would come twice."
                )
                continue
            found[urn] = (
                f"job {name!r}, which this project does not have any more, published this dataset up to "
                f"{state.watermark} to the same place. {remedy} says where it begins ({state.watermark}: it goes on "
                "from there; `oldest`: its rows are published beside those)."
            )
    return found


def _began_after(opened: PublishedJob, state: DatasetState, ours: datetime) -> bool:
    """Return whether a former job committed a dataset only after an instant; jobs side by side commit in turns."""
    if state.updated_at <= ours:
        return False
    committed = opened.store.load_sequences(state.job, [SequenceState.COMMITTED], [state.dataset_urn])
    return all(one.created_at > ours for one in committed)


def _holds_files(opened: PublishedJob, state: DatasetState) -> bool:
    """Return whether the files of a former job are in the folders of this one."""
    urn = state.dataset_urn
    folders = tuple(f"{branch_folder(opened, branch.name, urn)}/" for branch in opened.job.fork.branches)
    return any(file.path.startswith(folders) for file in opened.store.load_snapshot(state.job, urn))


def _holds_rows(opened: PublishedJob, state: DatasetState, keepers: Collection[LedgerKeeper]) -> bool:
    """Return whether the rows of a former job are in a table or topic of this one."""
    from gobblin_dagster.constructs.publishers.tables import AimsSteps  # noqa: PLC0415 - as in `table_commits`

    urn = state.dataset_urn
    sequences = opened.store.load_sequences(state.job, [SequenceState.COMMITTED], [urn], MOST_COMMITS)
    steps = [step for one in sequences for step, _ in table_commits(opened, one)]
    for keeper in keepers:
        publisher = keeper.publisher
        if not keeper.suffers_again or not isinstance(publisher, AimsSteps):
            continue
        folder = branch_folder(opened, keeper.branches[0], urn)
        if any(publisher.aimed(step, folder) == step for step in steps):
            return True
    return False
