"""What the plain-file store promises beyond the contract of all stores: crashes, damage, layout and cost."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import WAITING, CommitEffect, SequenceState, body_digest
from gobblin_dagster.core.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    SequenceChangedError,
    StaleEpochError,
    StorageError,
    StoreVersionError,
    TransientError,
)
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.core.storage import Sink, Storage
from gobblin_dagster.state import open_store
from gobblin_dagster.state.files.records import SnapshotPart, decode
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import LocalStorage, MemoryStorage
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    OTHER,
    START,
    URN,
    files_of,
    in_order,
    publish,
    sequence,
    state,
    take,
)

DATASET = f"/state/jobs/{JOB}/datasets/AA%2FJFK"


class Crash(BaseException):
    """The end of a process: nothing catches it."""


class FailingStorage(MemoryStorage):
    """Fails at the n-th operation that changes something, before or after it took place."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: BaseException | None = None
        self.fail_at = 0
        self.is_done_first = False

    def arm(self, fault: BaseException, fail_at: int, is_done_first: bool) -> None:
        self.fault, self.fail_at, self.is_done_first = fault, fail_at, is_done_first

    def _strikes(self, is_done: bool) -> None:
        if self.fault is None or is_done is not self.is_done_first:
            return
        self.fail_at -= 1
        if self.fail_at == 0:
            fault, self.fault = self.fault, None
            raise fault

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._strikes(is_done=False)
        is_new = super().put_if_absent(path, data)
        self._strikes(is_done=True)
        return is_new

    def delete(self, path: str) -> None:
        self._strikes(is_done=False)
        super().delete(path)
        self._strikes(is_done=True)


def open_on(storage: Storage) -> FileStateStore:
    return FileStateStore("/state", storage, threads=1)


def work(store: FileStateStore) -> None:
    """Bring the dataset to version 4, from wherever it is: what a run does, recovery first."""
    epoch = take(store).epoch
    for left in store.load_sequences(JOB):
        if left.state is SequenceState.PREPARED:
            store.commit(left.id, epoch, CommitEffect(state(left.version_read + 1), files_of(left)))
    done = store.load_dataset_states(JOB)
    for version in range(done[URN].version if done else 0, 4):
        publish(store, f"commit {version}", version)
        if version == 1:
            store.mark_reported([sequence("commit 0").id, sequence("commit 1").id])
    store.release_leases(JOB, [take(store)])


def check_instant(store: FileStateStore) -> None:
    """A watermark never without its files, files never without their watermark, at most one unfinished sequence."""
    version = done[URN].version if (done := store.load_dataset_states(JOB)) else 0
    expected = [file for n in range(version) for file in files_of(sequence(f"commit {n}", n))]
    assert store.load_snapshot(JOB, URN) == in_order(expected)
    committed = store.load_sequences(JOB, [SequenceState.COMMITTED])
    assert [s.version_read for s in committed] == list(reversed(range(version)))
    assert all(body_digest(s.body) == s.digest for s in committed)
    assert len(store.load_sequences(JOB)) <= 1


def check_end(store: FileStateStore) -> None:
    check_instant(store)
    assert store.load_dataset_states(JOB)[URN] == state(4)
    assert store.load_sequences(JOB) == []
    assert {s.id for s in store.load_unreported(JOB)} >= {sequence(f"commit {n}").id for n in (2, 3)}


# -- crashes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_done_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "fault", [Crash(), OSError(errno.EIO, "Input/output error")], ids=["process ends", "storage fails"]
)
def test_fault_at_any_operation_leaves_the_old_or_the_new_and_the_next_run_goes_on(
    fault: BaseException, is_done_first: bool
) -> None:
    struck = 0
    while True:
        storage = FailingStorage()
        store = open_on(storage)
        storage.arm(fault, struck + 1, is_done_first)
        try:
            work(store)
        except (Crash, TransientError, CommitStateUnknownError):
            struck += 1
        else:
            break
        check_instant(open_on(storage))
        work(open_on(storage))
        check_end(open_on(storage))
    assert struck > 20


@pytest.mark.parametrize("is_done_first", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_commit_with_a_lost_answer_says_that_its_fate_is_unknown(is_done_first: bool, code: int) -> None:
    storage = FailingStorage()
    store = open_on(storage)
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    storage.arm(OSError(code, os.strerror(code)), 2, is_done_first)  # the first operation writes the snapshot

    with pytest.raises(CommitStateUnknownError, match=f"(?s){URN}.*{seq.id}.*{os.strerror(code)}"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    found = store.load_sequence(seq.id)
    assert found is not None
    assert found.state is (SequenceState.COMMITTED if is_done_first else SequenceState.PREPARED)
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    assert store.load_snapshot(JOB, URN) == in_order(files_of(seq))


def test_commit_that_fails_before_its_head_is_certainly_not_done() -> None:
    storage = FailingStorage()
    store = open_on(storage)
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    storage.arm(OSError(errno.EIO, "Input/output error"), 1, is_done_first=True)
    with pytest.raises(TransientError, match="cannot be used now"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))


def test_sequence_whose_prepare_died_does_not_exist_and_frees_its_dataset() -> None:
    storage = FailingStorage()
    store = open_on(storage)
    epoch = take(store).epoch
    storage.arm(Crash(), 1, is_done_first=True)
    with pytest.raises(Crash):
        store.prepare(sequence("one"), epoch)

    assert store.load_sequence(sequence("one").id) is None
    with pytest.raises(CorruptRecordError, match="does not hold it"):
        store.quarantine(sequence("one").id, "?")
    store.mark_reported([sequence("one").id])
    publish(store, "two")
    assert store.load_dataset_states(JOB)[URN].version == 1


def test_damaged_run_record_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    store = FileStateStore("/state", storage)
    one, other = (RunRecord(run_id, JOB, START, RunStatus.RUNNING) for run_id in ("run-1", "run-2"))
    for record in (one, other):
        store.save_run(record)
    (damaged,) = (path for path in storage.walk_files(f"/state/jobs/{JOB}/runs") if "run-1" in path)
    storage.delete(damaged)
    storage.put_if_absent(damaged, b"{")
    assert store.load_runs() == store.load_runs(JOB) == store.find_runs(JOB, ["run-1", "run-2"]) == [other]
    assert caplog.text.count("The record of a run is damaged, and left out: ") == 3
    assert damaged in caplog.text


def test_files_of_an_aborted_commit_are_in_no_later_snapshot() -> None:
    storage = FailingStorage()
    store = open_on(storage)
    lost = sequence("lost")
    epoch = take(store).epoch
    store.prepare(lost, epoch)
    storage.arm(Crash(), 1, is_done_first=True)
    with pytest.raises(Crash):
        store.commit(lost.id, epoch, CommitEffect(state(1), files_of(lost)))
    store.start_abort(lost.id, epoch, "staged files are gone")
    store.finish_abort(lost.id, epoch)

    kept = [publish(store, "kept 0"), publish(store, "kept 1", 1)]
    assert store.load_snapshot(JOB, URN) == in_order([file for seq in kept for file in files_of(seq)])


# -- many writers ------------------------------------------------------------------------------------------------------
def test_a_change_is_given_up_after_many_lost_races() -> None:
    class Contended(MemoryStorage):
        is_contended = False

        def put_if_absent(self, path: str, data: bytes) -> bool:
            return not (self.is_contended and "/log/" in path) and super().put_if_absent(path, data)

    storage = Contended()
    store = open_on(storage)
    storage.is_contended = True
    with pytest.raises(TransientError, match=f"{URN}.*writers were faster"):
        take(store)


def test_a_precondition_is_checked_again_after_a_lost_race() -> None:
    class Overtaken(MemoryStorage):
        """Lets another run take the lease over just before the commit's head is put."""

        rival: FileStateStore | None = None

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if self.rival is not None and "/snapshots/" in path:
                rival, self.rival = self.rival, None
                rival.acquire_leases(JOB, [URN], OTHER, timedelta(minutes=5))
            return super().put_if_absent(path, data)

    storage = Overtaken()
    store = open_on(storage)
    seq = sequence("one")
    epoch = take(store, ttl=timedelta(seconds=-1)).epoch
    store.prepare(seq, epoch)
    storage.rival = open_on(storage)
    with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    assert store.load_dataset_states(JOB) == {}
    assert store.load_snapshot(JOB, URN) == []


# -- old sequences -----------------------------------------------------------------------------------------------------
def test_sequences_stay_findable_after_they_left_the_head() -> None:
    store = open_on(MemoryStorage())
    committed = [publish(store, str(n), n) for n in range(3)]
    epoch = take(store).epoch
    aborted = sequence("aborted", 3)
    store.prepare(aborted, epoch)
    store.start_abort(aborted.id, epoch, "why")
    store.finish_abort(aborted.id, epoch)
    committed.append(publish(store, "3", 3))

    assert [s.id for s in store.load_sequences(states=[SequenceState.COMMITTED])] == [s.id for s in committed[::-1]]
    assert store.load_sequence(aborted.id) == replace(aborted, state=SequenceState.ABORTED, reason="why")
    assert store.load_sequences(states=[SequenceState.ABORTED]) == [store.load_sequence(aborted.id)]
    assert store.load_sequence(committed[0].id) == replace(committed[0], state=SequenceState.COMMITTED)


def test_old_sequences_are_reported_once_and_stay_reported() -> None:
    storage = MemoryStorage()
    store = open_on(storage)
    sequences = [publish(store, str(n), n) for n in range(4)]
    store.mark_reported([sequences[0].id, sequences[2].id, "unknown"])
    store.mark_reported([sequences[0].id])

    assert [s.id for s in store.load_unreported(JOB)] == [sequences[1].id, sequences[3].id]
    found = store.load_sequence(sequences[0].id)
    assert found is not None
    assert found.reported
    store.mark_reported([s.id for s in sequences])
    publish(store, "4", 4)
    assert store.load_unreported(JOB) == [store.load_sequence(sequence("4").id)]
    assert storage.list_names(f"{DATASET}/unreported") == []


def test_report_of_an_old_sequence_that_was_cut_short_counts() -> None:
    storage = FailingStorage()
    store = open_on(storage)
    old, new = publish(store, "old"), publish(store, "new", 1)
    storage.arm(Crash(), 1, is_done_first=True)
    with pytest.raises(Crash):
        store.mark_reported([old.id])

    assert storage.list_names(f"{DATASET}/unreported") == storage.list_names(f"{DATASET}/closed") == [f"{old.id}.json"]
    assert [s.id for s in store.load_unreported(JOB)] == [new.id]
    found = store.load_sequence(old.id)
    assert found is not None
    assert found.reported


def test_sequence_that_left_the_head_cannot_change() -> None:
    store = open_on(MemoryStorage())
    old = publish(store, "old")
    publish(store, "new", 1)
    with pytest.raises(SequenceChangedError, match="got committed"):
        store.quarantine(old.id, "late")
    with pytest.raises(CorruptRecordError, match="has ended as committed and cannot change"):
        store.record_redo_failure(old.id, "late")
    store.commit(old.id, 1, CommitEffect(state(1), files_of(old)))


def test_a_sequence_id_is_never_used_twice() -> None:
    store = open_on(MemoryStorage())
    publish(store, "one")
    with pytest.raises(CorruptRecordError, match="another sequence of this id"):
        store.prepare(replace(sequence("one", 1), body="other"), take(store).epoch)
    assert store.load_sequences(JOB) == []


# -- snapshots ---------------------------------------------------------------------------------------------------------
def test_any_of_many_snapshots_is_read_from_few_files() -> None:
    class Counting(MemoryStorage):
        reads = 0

        def read(self, path: str) -> bytes:
            self.reads += "/snapshots/" in path
            return super().read(path)

    storage = Counting()
    store = open_on(storage)
    sequences = [publish(store, str(n), n) for n in range(100)]

    for snapshot in (1, 2, 3, 50, 63, 64, 65, 99, 100):
        expected = [file for seq in sequences[:snapshot] for file in files_of(seq)]
        assert store.load_snapshot(JOB, URN, snapshot) == in_order(expected)
    storage.reads = 0
    assert len(store.load_snapshot(JOB, URN)) == 200
    assert storage.reads <= 7
    assert store.load_snapshot(JOB, URN, 0) == []
    parts = [decode(SnapshotPart, storage.read(path), path) for path in storage.walk_files(f"{DATASET}/snapshots")]
    # Part n holds as many snapshots as its lowest set bit says; more would make writing quadratic.
    assert [len(part.files) for part in parts] == [2 * (n & -n) for n in range(1, 101)]
    assert store.load_snapshot(JOB, URN, 1_000) == store.load_snapshot(JOB, URN)


# -- many jobs ---------------------------------------------------------------------------------------------------------
def test_looking_for_datasets_in_all_jobs_costs_one_request_for_each_job() -> None:
    class Counting(MemoryStorage):
        lists = 0

        def list_names(self, folder: str) -> list[str]:
            self.lists += 1
            return super().list_names(folder)

    storage = Counting()
    store = open_on(storage)
    jobs = [f"job{n}" for n in range(20)]
    for job in jobs:
        publish(store, job, urn=f"of {job}", job=job)
    waiting = sequence("waits", 1, "of job7", "job7")
    store.prepare(waiting, take(store, urn="of job7", job="job7").epoch)
    urns = [f"of job{n}" for n in (7, 8)] + [f"new{n}" for n in range(50)]
    storage.lists = 0
    assert store.load_sequences(None, WAITING, urns) == [waiting]
    assert store.list_jobs(urns) == ["job7", "job8"]
    assert storage.lists <= 2 * len(jobs) + 10


# -- damage ------------------------------------------------------------------------------------------------------------
def newest_head(root: Path) -> Path:
    return max((root / DATASET.removeprefix("/") / "log").iterdir())


@pytest.fixture
def published(tmp_path: Path) -> FileStateStore:
    store = FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False))
    publish(store, "one")
    return store


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b'{"format":"DatasetHead/2","job":"fli', "not JSON"),
        (b'{"format":"DatasetHead/1","job":"flights"}', "dataset_urn: "),
        (b'{"format":"DatasetHead/3","job":"flights"}', "expected format 'DatasetHead/2'"),
        (b'{"format":"RunRecord/1"}', "expected format 'DatasetHead/2'"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"format":"DatasetHead/1","job":"flights","dataset_urn":"another"}', "belongs to dataset 'another'"),
        (
            b'{"format":"DatasetHead/1","job":"Flights","dataset_urn":"%s"}' % URN.encode(),
            "names that differ in case only",
        ),
    ],
    ids=[
        "empty",
        "torn",
        "lacks a field",
        "newer",
        "of another kind",
        "binary",
        "of another dataset",
        "of another case",
    ],
)
def test_damaged_head_is_named_and_kept(
    published: FileStateStore, tmp_path: Path, content: bytes, problem: str
) -> None:
    head = newest_head(tmp_path)
    head.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=problem) as caught:
        published.load_dataset_states(JOB)
    assert str(head) in str(caught.value)
    with pytest.raises(CorruptRecordError, match=problem):
        take(published)
    assert head.read_bytes() == content


def test_missing_snapshot_part_is_named(published: FileStateStore, tmp_path: Path) -> None:
    (part,) = newest_head(tmp_path).parents[1].joinpath("snapshots").iterdir()
    part.unlink()
    with pytest.raises(CorruptRecordError, match=f"{part.name} cannot be read: the file is missing"):
        published.load_snapshot(JOB, URN)


def test_damaged_body_is_told_by_its_digest_and_spares_other_datasets(
    published: FileStateStore, tmp_path: Path
) -> None:
    torn, lost, whole = sequence("torn", 1), sequence("lost", urn="lost"), sequence("whole", urn="whole")
    for seq in (torn, lost, whole):
        published.prepare(seq, take(published, urn=seq.dataset_urn).epoch)
    folder = tmp_path / "state/sequences"
    (folder / f"{lost.id}.jsonl").unlink()
    path = folder / f"{torn.id}.jsonl"
    path.write_bytes(path.read_bytes()[:-9])

    found = {s.id: body_digest(s.body) == s.digest for s in published.load_sequences()}
    assert found == {torn.id: False, lost.id: False, whole.id: True}
    published.quarantine(torn.id, "its body is damaged")


def test_damaged_owner_of_a_sequence_is_named(published: FileStateStore, tmp_path: Path) -> None:
    path = tmp_path / f"state/sequences/{sequence('one').id}.jsonl"
    path.write_bytes(b"[]")
    with pytest.raises(CorruptRecordError, match=path.name):
        published.load_sequence(sequence("one").id)


def test_hidden_files_of_other_programs_are_left_alone(published: FileStateStore, tmp_path: Path) -> None:
    for folder in ("jobs", f"jobs/{JOB}/datasets"):
        (tmp_path / "state" / folder / ".DS_Store").write_bytes(b"?")
    assert published.list_jobs() == [JOB]
    assert list(published.load_dataset_states(JOB)) == [URN]


# -- opening -----------------------------------------------------------------------------------------------------------
def test_newer_layout_is_refused_and_left_alone(published: FileStateStore, tmp_path: Path) -> None:
    path = tmp_path / "state/format.json"
    path.write_text('{"store":"gobblin","version":7}')
    with pytest.raises(StoreVersionError, match="has version 7; this program knows up to 6"):
        open_store("files:state", tmp_path)
    assert json.loads(path.read_text())["version"] == 7


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version":null}'])
def test_unreadable_layout_version_is_named(published: FileStateStore, tmp_path: Path, content: str) -> None:
    path = tmp_path / "state/format.json"
    path.write_text(content)
    with pytest.raises(CorruptRecordError, match=str(path)):
        open_store("files:state", tmp_path)


def test_store_that_cannot_be_written_is_opened_and_read(
    published: FileStateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str) -> Sink:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(LocalStorage, "open_new", refuse)
    store = open_store("files:state", tmp_path)
    assert list(store.load_dataset_states(JOB)) == [URN]
    with pytest.raises(StorageError, match="No space left on device"):
        store.acquire_leases(JOB, ["new"], OTHER, timedelta(minutes=1))


def test_root_below_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot use the state store"):
        open_store("files:file/state", tmp_path)


def test_store_shows_where_it_is(tmp_path: Path) -> None:
    store = open_store("files:state", tmp_path)
    assert store.url == f"files:{tmp_path}/state"
    assert str(tmp_path) in repr(store)


# -- runs --------------------------------------------------------------------------------------------------------------
def test_run_that_died_before_its_first_record_is_not_shown(tmp_path: Path) -> None:
    store = FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False))
    (tmp_path / f"state/jobs/{JOB}/runs/20261121T080000000000-run").mkdir(parents=True)
    assert store.load_runs() == store.load_runs(JOB) == []
