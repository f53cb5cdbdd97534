"""What must hold: at any moment, once all is quiet, and in the end."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa

from gobblin_dagster.core.commit import PublishedFile, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import list_manifests, read_manifest
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.state import StateStore
from gobblin_dagster.storage import LocalStorage
from tests.property.everything.model import TABLE, committed, seen
from tests.property.everything.storm import JOB, URNS, Storm

STORAGE = LocalStorage()


def check_now(storm: Storm) -> None:
    """Check what holds at every moment: whatever is half done, readers see whole commits, and no promise runs ahead."""
    with storm.store() as store:
        storm.wishes.check(store.load_startpoints(JOB), storm.rows)
        waiting = store.load_sequences(JOB)
        unfinished = {one.dataset_urn: decode_sequence(one, store.places).after for one in waiting}
        states = store.load_dataset_states(JOB)
        assert states.keys() == {urn for urn, dataset in storm.datasets.items() if dataset.now.commit}
        for urn, state in states.items():
            # What is being cleaned up is gone before it has expired.
            check_dataset(storm, store, urn, state, unfinished.get(urn, state).oldest_snapshot)


def check_dataset(storm: Storm, store: StateStore, urn: str, state: DatasetState, oldest: int) -> None:
    """Compare state and snapshots of a dataset with the model, as both kinds of readers see them."""
    dataset, lake = storm.datasets[urn], str(storm.root / "lake")
    assert (state.version, committed(state)) == (len(dataset.moments) - 1, dataset.now.ids)
    assert dataset.now.ids <= set(range(storm.rows[urn])), "the watermark is ahead of the source"
    manifests = list_manifests(STORAGE, lake, JOB, urn)
    for number in range(max(1, oldest), state.snapshot + 1):
        files = store.load_snapshot(JOB, urn, number)
        assert held(files) == seen(dataset.at(number).content), f"snapshot {number} of {urn}"
        if number <= max(manifests, default=0):
            assert read_manifest(STORAGE, lake, JOB, urn, number) == files
        elif storm.has_erred:
            storm.late[urn] = state.snapshot
        elif storm.at_rest:
            assert storm.late.get(urn) == state.snapshot, f"snapshot {number} of {urn} has no manifest"


def check_at_rest(storm: Storm) -> None:
    """Check what holds once a quiet run followed whatever went wrong: nothing is left to finish, and nothing is
    nobody's."""
    with storm.store() as store:
        stored, places = store.load_sequences(JOB, set(SequenceState)), store.places
    assert {one.state for one in stored} <= {SequenceState.COMMITTED, SequenceState.ABORTED}, "something is unfinished"
    commits = [decode_sequence(one, places) for one in stored if one.state is SequenceState.COMMITTED]
    if storm.rules["scope"] == "job":
        of_runs = [commit for commit in commits if commit.report.change is None]
        together = Counter(commit.run_id for commit in of_runs)
        for commit in of_runs:
            size = commit.group.size if commit.group is not None else 1
            assert together[commit.run_id] == size, "some datasets of a run are published and some are not, or might be"
    for urn, dataset in storm.datasets.items():
        table = dataset.now.content.get(TABLE, {}).get("", Counter())
        assert not storm.kind.is_table or rows_of_table(storm, urn) == table, f"the table of {urn}"
    known = {file.path for commit in commits for file in commit.files}
    assert visible(storm) <= known, "a file that no commit names"


def check_finished(storm: Storm) -> None:
    """Check that nothing is left to do, that all rows were read, and that cleaning leaves what snapshots hold."""
    project, job = storm.project(), storm.job()
    assert not plan_job(project, job).has_work
    assert {urn: storm.datasets[urn].now.ids for urn in URNS} == {urn: set(range(storm.rows[urn])) for urn in URNS}
    clean(project, job)
    storm.late.clear()
    storm.learn()
    check_now(storm)
    check_at_rest(storm)
    with storm.store() as store:
        named = {
            file.path
            for urn, state in store.load_dataset_states(JOB).items()
            for number in range(max(1, state.oldest_snapshot), state.snapshot + 1)
            for file in store.load_snapshot(JOB, urn, number)
        }
    assert visible(storm) == named


# -- what readers find -------------------------------------------------------------------------------------------------
def held(files: Iterable[PublishedFile]) -> dict[str, list[list[int]]]:
    """Return the sorted ids in each folder of each branch."""
    found: dict[str, dict[str, list[int]]] = {}
    for file in files:
        stat = Path(file.path).stat()
        ids = ids_in(file.path, stat.st_size, stat.st_mtime_ns)
        found.setdefault(file.branch, {}).setdefault(file.path.rpartition("/")[0], []).extend(ids)
    return {
        branch: sorted(sorted(ids) for ids in folders.values() if ids)
        for branch, folders in found.items()
        if any(folders.values())
    }


@cache
def ids_in(path: str, _size: int, _changed_ns: int) -> list[int]:
    """Read a file; files do not change, so once is enough for one that is as it was."""
    table = pq.read_table(path, partitioning=None)
    if "record" in table.column_names:
        return [json.loads(record)["id"] for record in table["record"].to_pylist()]
    return list(table["id"].to_pylist())


def visible(storm: Storm) -> set[str]:
    """Return the published files, as who lists the folders finds them."""
    return {str(path) for path in (storm.root / "lake/test").rglob("*") if path.is_file()}


def rows_of_table(storm: Storm, urn: str) -> Counter[int]:
    """Count the ids in a dataset's table."""
    url = os.environ.get(storm.tables.get("url_env", ""), f"sqlite:///{storm.root}/sink.db")
    engine = sa.create_engine(sa.make_url(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        is_there = sa.inspect(connection).has_table(f"sink_{urn}")
        rows = connection.execute(sa.text(f"SELECT id FROM sink_{urn}")).scalars().all() if is_there else ()
    return Counter(rows)
