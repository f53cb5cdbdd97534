"""Cleaning up: staging of runs that are over, and what only expired snapshots hold. What is in doubt stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import StaleEpochError, UsageError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.engine.commit import crash_at, read_manifest
from gobblin_dagster.engine.commit.codec import encode_sequence
from gobblin_dagster.engine.commit.steps import DeleteFilesStep
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.clean import CleanResult, clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import JobRun, run_job
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import run_in_child
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec

TTL = timedelta(seconds=60)
SOON, LATER = TTL, 2 * TTL + timedelta(seconds=1)


@dataclass
class Clock:
    instant: datetime = datetime(2026, 11, 21, 8, tzinfo=UTC)

    def now(self) -> datetime:
        return self.instant


@dataclass
class World:
    """A project whose clock a test moves."""

    root: Path
    clock: Clock = field(default_factory=Clock)
    publisher: str = "append"

    def job(self, rows: int = 10, keep: int = 10) -> JobSpec:
        return job_spec({"a": {"rows": rows}}, commit={"keep_snapshots": keep}, publisher={"type": self.publisher})

    def project(self, job: JobSpec) -> Project:
        return Project(self.root, ProjectSpec(project="tests"), (job,), self.clock)

    def run(self, rows: int) -> None:
        job = self.job(rows)
        run_job(self.project(job), job, runner=InlineRunner())

    def clean(self, keep: int = 10, *, dry_run: bool = False) -> CleanResult:
        job = self.job(keep=keep)
        return clean(self.project(job), job, dry_run=dry_run)

    def ids(self, snapshot: int | None = None) -> list[int]:
        import pyarrow.parquet as pq

        job = self.job()
        paths = load_published(self.project(job), job, "a", snapshot).paths("all")
        return sorted(value for path in paths for value in pq.read_table(path)["id"].to_pylist())

    def go_back(self, to: int) -> None:
        rollback(self.project(self.job()), self.job(), "a", to)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob("lake/test/**/*.parquet"))

    def stage(self, run_id: str) -> Path:
        folder = self.root / "lake/_gobblin/staging" / run_id
        (folder / "commit").mkdir(parents=True)
        (folder / "commit/a.parquet").write_bytes(b"rows")
        return folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def store(world: World) -> Iterator[StateStore]:
    opened = world.project(world.job()).open_store()
    yield opened
    opened.close()


# -- staging -----------------------------------------------------------------------------------------------------------
def leave(world: World, store: StateStore, owner: LeaseOwner, ttl: timedelta = TTL) -> Path:
    """Do as a run that took its lease, staged a file, and was heard of no more."""
    store.acquire_leases("numbers", ["a"], owner, ttl)
    return world.stage(owner.run_id)


def a_run(world: World, **facts: object) -> LeaseOwner:
    """Return a process that may be alive or dead: nobody on this machine can find out."""
    return LeaseOwner(new_run_id(world.clock.now()), "another-host", "boot", 1, "1")


def test_staging_of_a_run_that_ended_is_deleted(world: World, store: StateStore) -> None:
    world.run(10)
    folder = world.stage(store.load_runs("numbers")[0].run_id)
    world.clock.instant += LATER
    (found,) = world.clean().staging
    assert (found.path, found.kept_because) == (str(folder), "")
    assert not folder.exists()
    assert world.ids() == list(range(10))
    assert world.clean() == CleanResult("numbers", (), ())


def test_dry_run_says_the_same_and_deletes_nothing(world: World, store: StateStore) -> None:
    folder = leave(world, store, a_run(world))
    world.clock.instant += LATER + TTL
    before = store.load_leases("numbers")
    planned = world.clean(dry_run=True)
    assert folder.exists()
    assert store.load_leases("numbers") == before
    assert world.clean() == planned
    assert not folder.exists()


@pytest.mark.parametrize(
    "after", [timedelta(0), SOON, 3 * TTL - timedelta(seconds=1)], ids=["held", "expired", "not long enough"]
)
def test_staging_of_a_run_that_may_be_alive_stays(world: World, store: StateStore, after: timedelta) -> None:
    folder = leave(world, store, a_run(world))
    world.clock.instant += after
    (found,) = world.clean().staging
    assert "may be alive" in found.kept_because
    assert folder.exists()


def test_staging_of_a_run_of_a_dead_process_is_deleted_at_once(world: World, store: StateStore) -> None:
    me = LeaseOwner.current(new_run_id(world.clock.now()))
    folder = leave(world, store, LeaseOwner(me.run_id, me.host, "an earlier boot", me.pid, me.started))
    assert [one.kept_because for one in world.clean().staging] == [""]
    assert not folder.exists()


def test_staging_of_a_young_run_stays(world: World, store: StateStore) -> None:
    owner = a_run(world)
    lease = store.acquire_leases("numbers", ["a"], owner, TTL).granted["a"]
    store.release_leases("numbers", [lease])
    world.run(10)
    folder = world.stage(store.load_runs("numbers")[0].run_id)
    world.clock.instant += SOON
    (found,) = world.clean().staging
    assert found.kept_because == "the run began less than 120 s ago"
    assert folder.exists()


def test_staging_of_a_run_of_another_store_stays(world: World) -> None:
    folder = world.stage("20200101T000000-0123456789abcdef")
    (found,) = world.clean().staging
    assert found.kept_because == "this state store does not know the run"
    assert folder.exists()


def test_staging_of_another_job_with_the_same_output_is_not_looked_at(world: World, store: StateStore) -> None:
    owner = a_run(world)
    store.acquire_leases("others", ["a"], owner, TTL)
    folder = world.stage(owner.run_id)
    world.clock.instant += LATER + LATER
    other = job_spec({"a": {"rows": 1}}, job="others")
    both = Project(world.root, ProjectSpec(project="tests"), (world.job(), other), world.clock)
    assert clean(both, world.job()).staging == ()
    assert folder.exists()
    assert [one.kept_because for one in clean(both, other).staging] == [""]
    assert not folder.exists()


def test_staging_that_a_stored_sequence_names_stays_and_is_published_by_the_next_run(world: World) -> None:
    job = world.job(10)
    run_in_child(lambda: run_job(world.project(job), job, runner=InlineRunner(), commit_listener=crash_at(1)))
    world.clock.instant += 10 * LATER
    (found,) = world.clean().staging
    assert "needs it" in found.kept_because
    world.run(10)
    assert world.ids() == list(range(10))


def test_run_that_wakes_up_after_its_staging_was_deleted_cannot_prepare(world: World, store: StateStore) -> None:
    job = world.job(10)
    project = world.project(job)
    with JobRun(JobContext.of(project, job, store), InlineRunner()) as sleeper:
        # The sleeper does not renew its lease here, because the clock jumps; its process lives.
        decided = sleeper.extract(sleeper.plan())
        folder = world.root / "lake/_gobblin/staging" / decided.run_id
        assert folder.exists()
        world.clock.instant += LATER + LATER
        assert [one.kept_because for one in world.clean().staging] == [""]
        assert not folder.exists()
        (dataset,) = decided.datasets
        assert dataset.sequence is not None
        # Not by `Committer.prepare`, which finds here that the folder is gone: in S3 there is none to miss.
        with pytest.raises(StaleEpochError):
            store.prepare(encode_sequence(dataset.sequence, AS_STORED), 1)
    assert store.load_sequences("numbers") == []


# -- expired snapshots -------------------------------------------------------------------------------------------------
def test_files_that_a_rollback_left_are_deleted_once_their_snapshots_expire(world: World, store: StateStore) -> None:
    for rows in (10, 20, 30):
        world.run(rows)
    world.go_back(1)
    before = world.files()
    assert world.clean().expired == ()
    (expired,) = world.clean(keep=1, dry_run=True).expired
    assert (expired.snapshots, len(expired.files)) == ((2, 3), 4)
    assert world.files() == before

    assert world.clean(keep=1).expired == (expired,)

    assert world.files() == sorted(set(before) - {str(Path(f.path).relative_to(world.root)) for f in expired.files})
    assert world.ids() == list(range(10))
    for number in (1, 2, 3):
        with pytest.raises(UsageError, match="has expired"):
            world.ids(number)
    with pytest.raises(UsageError, match="has expired"):
        world.go_back(3)
    assert world.clean(keep=1).expired == ()
    lake = str(world.root / "lake")
    assert len(read_manifest(LocalStorage(), lake, "numbers", "a")) == 2
    with pytest.raises(UsageError, match="has no snapshot 3: it has expired"):
        read_manifest(LocalStorage(), lake, "numbers", "a", 3)
    assert [one.snapshot for one in list_snapshots(store, "numbers", "a")] == [4, 3, 2, 1]


def test_replaced_files_that_a_table_lists_stay(world: World) -> None:
    """A branch was published to a Delta table, then its publisher was exchanged: the table can still be read."""
    world.publisher = "delta"
    world.run(10)
    world.publisher = "replace"
    world.run(20)
    world.run(30)

    (expired,) = world.clean(keep=1).expired

    assert (expired.snapshots, len(expired.files), len(expired.in_tables)) == ((1, 2), 2, 2)
    assert DeltaTable(world.root / "lake/test/numbers/all").to_pyarrow_table().num_rows == 10
    assert world.clean(keep=1).expired == ()


def test_publishing_goes_on_after_snapshots_expired(world: World) -> None:
    for rows in (10, 20, 30):
        world.run(rows)
    world.go_back(1)
    world.clean(keep=1)
    world.run(40)
    assert world.ids() == list(range(40))
    world.go_back(4)
    assert world.ids() == list(range(10))
    lake = world.root / "lake"
    for manifest in (lake / "_gobblin/manifests/numbers/a").iterdir():
        manifest.unlink()
    world.run(50)
    files = read_manifest(LocalStorage(), str(lake), "numbers", "a")
    assert all(Path(file.path).exists() for file in files)
    assert sum(file.rows for file in files if file.branch == "all") == 50


def test_snapshots_that_are_kept_stay_whole(world: World) -> None:
    for rows in (10, 20, 30):
        world.run(rows)
    world.go_back(1)
    assert world.clean(keep=2).expired == ()
    assert world.ids(3) == list(range(30))
    world.run(20)
    (expired,) = world.clean(keep=2).expired
    assert expired.snapshots == (2, 3)
    assert world.ids() == list(range(20))


def test_expiry_while_a_run_holds_the_dataset_is_put_off(world: World, store: StateStore) -> None:
    world.run(10)
    world.run(20)
    world.go_back(1)
    store.acquire_leases("numbers", ["a"], a_run(world), TTL)
    (expired,) = world.clean(keep=1).expired
    assert "is held by run" in expired.kept_because
    assert len(world.files()) == 4


def test_folder_that_cannot_be_deleted_does_not_stop_the_rest(
    world: World, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(10)
    world.run(20)
    stuck, gone = (world.stage(one.run_id) for one in store.load_runs("numbers"))
    world.go_back(1)
    world.clock.instant += LATER
    delete_tree = LocalStorage.delete_tree

    def refusing(storage: LocalStorage, path: str) -> None:
        if path == str(stuck):
            raise PermissionError(13, "Permission denied", f"{path}/commit")
        delete_tree(storage, path)

    monkeypatch.setattr(LocalStorage, "delete_tree", refusing)
    cleaned = world.clean(keep=1)
    (fault,) = cleaned.faults
    assert str(fault) == f"cannot delete {stuck}/commit: Permission denied."
    assert {one.path: one.kept_because for one in cleaned.staging} == {str(stuck): str(fault), str(gone): ""}
    assert (stuck.exists(), gone.exists(), len(world.files())) == (True, False, 2)

    def unable(step: DeleteFilesStep, storage: LocalStorage) -> None:
        raise PermissionError(13, "Permission denied", step._paths()[0])

    world.run(30)
    world.go_back(3)
    monkeypatch.setattr(DeleteFilesStep, "execute", unable)
    cleaned = world.clean(keep=1)
    assert [str(fault).count("Permission denied") for fault in cleaned.faults] == [1, 1]
    assert cleaned.expired[0].kept_because == str(cleaned.faults[1])


def test_killed_expiry_is_finished_by_the_next_run(
    world: World, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(10)
    world.run(20)
    world.go_back(1)

    def killed_halfway(step: DeleteFilesStep, storage: LocalStorage) -> None:
        storage.delete(step._paths()[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(DeleteFilesStep, "execute", killed_halfway)
    with pytest.raises(KeyboardInterrupt):
        world.clean(keep=1)
    monkeypatch.undo()
    assert len(world.files()) == 3
    (waiting,) = store.load_sequences("numbers")
    assert waiting.state is SequenceState.PREPARED

    world.run(10)

    assert len(world.files()) == 2
    assert world.ids() == list(range(10))
    assert store.load_sequences("numbers") == []
    with pytest.raises(UsageError, match="has expired"):
        world.go_back(2)
