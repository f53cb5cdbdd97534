"""Long texts of bodies are written once: in SQL stores, and in file stores whatever interrupts the commit."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance.state_store import ManualClock
from gobblin_dagster.testing.conformance.state_store.values import JOB, START, TTL, URN
from gobblin_dagster.testing.faults import (
    Action,
    Fault,
    FaultPoints,
    Halted,
    counted_storage,
    freeze_while,
    halt_after,
    halt_before,
)
from tests.unit.core.watermark.test_layers import NONE, added

OWNER = LeaseOwner("run-1", "node-1", "boot-1", 1, "1")
STORES = ["sqlite:///state.db", "files:state"]


def commit(store: StateStore, count: int) -> DatasetState:
    """Commit a state with more remembered files, without any other effect."""
    before = store.load_dataset_states(JOB).get(URN)
    if before is None:
        before = DatasetState(JOB, URN, 0, NONE, snapshot=0, run_id="r", updated_at=START)
    start = len(before.committed.ranges)
    after = replace(before, version=before.version + 1, committed=added(before.committed, range(start, start + count)))
    sequence = CommitSequence.to(after, commit_id=new_commit_id(), output_root="/lake")
    epoch = store.acquire_leases(JOB, [URN], OWNER, TTL).granted[URN].epoch
    for left in store.load_sequences(JOB):
        effect = decode_sequence(left, store.places).effect
        store.commit(left.id, epoch, effect)
        return effect.after
    store.prepare(encode_sequence(sequence, store.places), epoch)
    store.commit(sequence.id, epoch, sequence.effect)
    return after


@pytest.mark.parametrize("url", STORES)
def test_state_and_sequences_come_back_whole(url: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        states = [commit(store, count) for count in (2000, 1, 1)]
        assert store.load_dataset_states(JOB)[URN] == states[-1]
        found = store.load_sequences(JOB, {SequenceState.COMMITTED})
        assert [decode_sequence(one, store.places).after for one in reversed(found)] == states
        assert store.load_sequence(found[0].id) == found[0]
        assert sorted(store.load_unreported(JOB), key=lambda one: one.version_read) == found[::-1]


@pytest.mark.parametrize("url", STORES)
def test_commit_of_one_file_writes_no_part_again(url: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        commit(store, 5000)
        commit(store, 1)
        store.load_dataset_states(JOB)
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
            sizes = [size for (size,) in connection.execute("SELECT length(body) FROM gobblin_body_parts")]
            bodies = connection.execute("SELECT max(length(body)) FROM gobblin_sequences").fetchone()
    else:
        sizes = [path.stat().st_size for path in tmp_path.glob("state/**/parts/*")]
        bodies = (max(path.stat().st_size for path in tmp_path.glob("state/**/*.json*")),)
    assert len(sizes) == 2  # one for states, one for sequences
    assert sizes[0] > 50_000
    assert bodies[0] < 5_000


@pytest.mark.parametrize("url", STORES)
def test_dataset_whose_part_is_lost_is_damaged_alone(url: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        commit(store, 2000)
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
                connection.execute("DELETE FROM gobblin_body_parts")
        else:
            for path in tmp_path.glob("state/**/parts/*"):
                path.unlink()
        states, damaged = store.load_readable_states(JOB)
        assert states == {}
        assert "is missing" in str(damaged[URN])
        for stored in store.load_sequences(JOB, {SequenceState.COMMITTED}):
            with pytest.raises(CorruptRecordError, match="does not match its digest"):
                decode_sequence(stored, store.places)


@pytest.mark.parametrize("strike", ["changed", "deleted"])
@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("url", STORES)
def test_state_with_one_damaged_copy_of_a_part_is_restored(url: str, copy: int, strike: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        states = [commit(store, count) for count in (2000, 1, 1)]
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
                found = connection.execute("SELECT name FROM gobblin_body_parts ORDER BY name").fetchall()
                change = {
                    "changed": "UPDATE gobblin_body_parts SET body = 'A'",
                    "deleted": "DELETE FROM gobblin_body_parts",
                }
                connection.execute(f"{change[strike]} WHERE name = ?", found[copy])
        else:
            path = sorted(tmp_path.glob("state/**/parts/*"))[copy]
            if strike == "changed":
                path.write_text("A")
            else:
                path.unlink()
        assert store.restore(JOB, URN)
        assert store.load_dataset_states(JOB)[URN] == states[-1]
        sequences = store.load_sequences(JOB, {SequenceState.COMMITTED})
        assert [decode_sequence(one, store.places).after for one in reversed(sequences)] == states
        assert not store.restore(JOB, URN)
        assert commit(store, 1).version == 4


@pytest.mark.parametrize("url", STORES)
def test_state_whose_every_part_is_lost_stays_damaged(url: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        commit(store, 2000)
        with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
            if url.startswith("sqlite"):
                connection.execute("UPDATE gobblin_body_parts SET body = 'A'")
        for path in tmp_path.glob("state/**/parts/*"):
            path.write_text("A")
        with suppress(CorruptRecordError):
            store.restore(JOB, URN)
        assert URN not in store.load_readable_states(JOB)[0]


@pytest.mark.parametrize("action", [halt_before, halt_after], ids=["before", "after"])
def test_fault_at_any_operation_leaves_the_old_or_the_new_state_whole(tmp_path: Path, action: Action) -> None:
    first = FileStateStore(f"{tmp_path}/base", LocalStorage(durable=False), ManualClock())
    before = commit(first, 400)
    for at in range(1, 200):
        root = tmp_path / f"{action.__name__}-{at}"
        shutil.copytree(tmp_path / "base", root)
        points = FaultPoints(Fault(at, action))
        with suppress(Halted):
            commit(FileStateStore(str(root), counted_storage(LocalStorage(durable=False), points), ManualClock()), 300)
        store = FileStateStore(str(root), LocalStorage(durable=False), ManualClock())
        assert len(store.load_dataset_states(JOB)[URN].committed.ranges) in (400, 700)
        after = commit(store, 300)
        assert after.version > before.version
        assert store.load_dataset_states(JOB)[URN] == after
        shutil.rmtree(root)
        if not points.is_struck:
            return
    raise AssertionError("the commit never came through")


# -- pruning -----------------------------------------------------------------------------------------------------------
def files_store(root: Path, points: FaultPoints | None = None) -> FileStateStore:
    storage = LocalStorage(durable=False)
    return FileStateStore(str(root), counted_storage(storage, points) if points else storage, ManualClock())


def require_whole(store: StateStore, after: DatasetState, sequences: int) -> None:
    """Check the state, and that so many sequences are there and whole, up to the newest."""
    assert store.load_dataset_states(JOB)[URN] == after
    found = sorted(store.load_sequences(JOB, {SequenceState.COMMITTED}), key=lambda one: one.version_read)
    assert [one.version_read for one in found] == [*range(after.version - sequences, after.version)]
    assert [decode_sequence(one, store.places).after.version for one in found][-1] == after.version


def parts_in(folder: Path) -> int:
    if (folder / "state.db").exists():
        with closing(sqlite3.connect(folder / "state.db")) as connection:
            return int(connection.execute("SELECT count(*) FROM gobblin_body_parts").fetchone()[0])
    return len([*folder.glob("**/parts*/*")])


@pytest.mark.parametrize("url", STORES)
def test_parts_that_no_sequence_and_no_state_names_are_pruned(url: str, tmp_path: Path) -> None:
    with closing(open_store(url, tmp_path, ManualClock())) as store:
        after = [commit(store, count) for count in (400, 300, 280, 260, 1)][-1]
        before = parts_in(tmp_path)
        assert store.prune_sequences(JOB, URN, below=4) == 4
        assert parts_in(tmp_path) < before or not url.startswith("sqlite")  # heads of a file store name older ones
        require_whole(store, after, 1)
        after = commit(store, 1)
        require_whole(store, after, 2)
        if url.startswith("files"):
            (folder,) = tmp_path.glob("**/parts*")
            for path in sorted(folder.iterdir())[:1]:
                path.write_text("A")
            assert store.restore(JOB, URN)
            require_whole(store, after, 2)


def test_damaged_head_is_restored_after_pruning(tmp_path: Path) -> None:
    store = files_store(tmp_path)
    before, after = commit(store, 400), commit(store, 300)
    store.prune_sequences(JOB, URN, below=1)
    head = max(tmp_path.glob("**/log/*"))
    head.write_text(head.read_text().replace("2026", "2027"))
    assert store.restore(JOB, URN)
    assert store.load_dataset_states(JOB)[URN] in (before, after)
    commit(store, 1)
    for path in tmp_path.glob("**/parts*"):
        # A pruning that was frozen deletes the folder that it left.
        if path.name != max(each.name for each in tmp_path.glob("**/parts*")):
            shutil.rmtree(path)
    store.load_dataset_states(JOB)


@pytest.mark.parametrize("action", [halt_before, halt_after], ids=["before", "after"])
def test_pruning_that_breaks_off_anywhere_loses_nothing_and_the_next_one_finishes(
    tmp_path: Path, action: Action
) -> None:
    first = files_store(tmp_path / "base")
    after = [commit(first, count) for count in (400, 300, 1)][-1]
    for at in range(1, 200):
        root = tmp_path / f"{action.__name__}-{at}"
        shutil.copytree(tmp_path / "base", root)
        points = FaultPoints(Fault(at, action))
        with suppress(Halted):
            files_store(root, points).prune_sequences(JOB, URN, below=2)
        store = files_store(root)
        left = len(store.load_sequences(JOB, {SequenceState.COMMITTED}))
        assert left in (1, 3)
        require_whole(store, after, left)
        store.prune_sequences(JOB, URN, below=2)
        require_whole(store, after, 1)
        assert len([*root.glob("sequences/*"), *root.glob("**/unreported/*"), *root.glob("**/parts*")]) == 2
        shutil.rmtree(root)
        if not points.is_struck:
            return
    raise AssertionError("the pruning never came through")


@pytest.mark.parametrize("is_frozen", ["commit", "pruning"])
def test_commit_and_pruning_of_which_one_is_frozen_anywhere_keep_all_parts(tmp_path: Path, is_frozen: str) -> None:
    first = files_store(tmp_path / "base")
    before = [commit(first, count) for count in (400, 300, 1)][-1]
    for at in range(1, 200):
        root = tmp_path / f"{is_frozen}-{at}"
        shutil.copytree(tmp_path / "base", root)

        def pruned(store: StateStore) -> None:
            store.prune_sequences(JOB, URN, below=2)

        def committed(store: StateStore) -> None:
            commit(store, 320)

        slow, quick = (committed, pruned) if is_frozen == "commit" else (pruned, committed)
        points = FaultPoints(Fault(at, freeze_while(lambda: quick(files_store(root)))))  # noqa: B023 - called at once
        slow(files_store(root, points))
        if not points.is_struck:
            return
        store = files_store(root)
        state = store.load_dataset_states(JOB)[URN]
        assert len(state.committed.ranges) == len(before.committed.ranges) + 320
        require_whole(store, state, state.version - 2)
        shutil.rmtree(root)
    raise AssertionError("the slow one never came through")


@pytest.mark.parametrize("url", ["sqlite", "files", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_runs_go_on_and_readers_see_whole_states_while_old_sequences_are_pruned(
    request: pytest.FixtureRequest, url: str, tmp_path: Path
) -> None:
    if url == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.url(server.new_database())
    else:
        url = {"sqlite": "sqlite:///state.db", "files": "files:state"}[url]
    with closing(open_store(url, tmp_path, ManualClock())) as store, closing(open_store(url, tmp_path)) as other:
        after = commit(store, 400)
        is_over = threading.Event()

        def read_and_prune() -> int:
            rounds = 0
            while not is_over.is_set() or not rounds:
                state = other.load_dataset_states(JOB)[URN]
                for stored in other.load_sequences(JOB, set(SequenceState)):
                    decode_sequence(stored, other.places)
                other.prune_sequences(JOB, URN, below=state.version)
                rounds += 1
            return rounds

        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(read_and_prune)
            try:
                for _ in range(8):
                    after = commit(store, 240)
            finally:
                is_over.set()
            assert pruning.result()
        require_whole(store, after, len(store.load_sequences(JOB, {SequenceState.COMMITTED})))


def test_folder_of_parts_that_a_run_still_writes_to_is_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = LocalStorage.delete_tree
    left: list[str] = []

    def filled_meanwhile(self: LocalStorage, path: str) -> None:
        if not left:
            left.append(path)
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete_tree", filled_meanwhile)
    with closing(files_store(tmp_path)) as store:
        for number in (400, 240, 240):
            after = commit(store, number)
            store.prune_sequences(JOB, URN, below=after.version)
        assert left
        assert not Path(left[0]).exists()
