"""A project folder that was moved: what its store and its manifests name is found where it is now."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.data.write_projects_v2 import ROOT, STATES, SetClock, feed, numbers
from tests.unit.engine.older_projects import bring_back

JOB = numbers(20)


class Breaker(SilentListener):
    """Fails once the sequence of `b` is stored."""

    def prepared(self, sequence: CommitSequence) -> None:
        if sequence.dataset_urn == "b":
            raise OSError("the disk is away")


def today(kind: str, folder: Path) -> Project:
    """Return a project that this program wrote elsewhere, with an unfinished sequence of `b`, moved to a folder."""
    before = folder.parent / "elsewhere"
    before.mkdir()
    clock, spec = SetClock(), ProjectSpec(project="older", state=STATES[kind])
    for rows in (4, 8):
        run_job(Project(before, spec, (numbers(rows),), clock), numbers(rows), runner=InlineRunner())
    left = Project(before, spec, (numbers(15),), clock)
    run_job(left, numbers(15), runner=InlineRunner(), commit_listener=Breaker())
    shutil.move(before, folder)
    return Project(folder, spec, (JOB,), SetClock(clock.instant.replace(day=clock.instant.day + 1)))


@dataclass
class Moved:
    """A project at its new place."""

    project: Project

    def ids(self, urn: str, snapshot: int | None = None, job: JobSpec = JOB) -> list[int]:
        """Return the ids that both kinds of readers find."""
        from_store = load_published(self.project, job, urn, snapshot)
        from_manifests = read_published(self.project.output_root(job), job.job, urn, snapshot)
        assert from_store == from_manifests
        return sorted(from_store.to_arrow("all").to_table(columns=["id"])["id"].to_pylist())

    def run(self, rows: int) -> None:
        run_job(self.project, numbers(rows), runner=InlineRunner())


@pytest.fixture(params=STATES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[bring_back, today], ids=["version 2", "today"])
def moved(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[Moved]:
    make: Callable[[str, Path], Project] = request.param
    yield Moved(make(kind, tmp_path / "here"))
    assert not (tmp_path / "elsewhere").exists()


def test_moved_project_finishes_what_was_left_and_reads_on(moved: Moved) -> None:
    moved.run(20)
    with closing(moved.project.open_store()) as store:
        assert store.load_sequences(JOB.job, {SequenceState.QUARANTINED, SequenceState.ABORTED}) == []
        assert store.load_sequences(JOB.job) == []
    assert [moved.ids(urn) for urn in ("a", "b")] == [list(range(20))] * 2
    assert verify(moved.project, JOB, checksum=True).is_whole
    # Nothing stays of what the sequence had staged.
    assert not [*moved.project.root.glob("lake/_gobblin/staging/*/[0-9a-f]*")]


def test_moved_project_is_rolled_back_compacted_and_cleaned(moved: Moved) -> None:
    moved.run(20)
    rollback(moved.project, JOB, "a", 2)
    assert moved.ids("a") == list(range(8))
    moved.run(20)
    assert [one.dataset_urn for one in compact(moved.project, JOB, ["a"])] == ["a"]
    assert moved.ids("a") == list(range(20))
    files = {*moved.project.root.rglob("*.parquet")}
    job = JOB.model_copy(update={"commit": JOB.commit.model_copy(update={"keep_snapshots": 1})})
    assert [one.kept_because for one in clean(moved.project, job).expired if one.dataset_urn == "a"] == [""]
    assert {*moved.project.root.rglob("*.parquet")} < files
    assert moved.ids("a") == list(range(20))
    assert verify(moved.project, JOB, checksum=True).is_whole


def test_stored_paths_of_today_name_no_folder_above_the_project(kind: str, tmp_path: Path) -> None:
    project = today(kind, tmp_path / "here")
    found = b"".join(
        path.read_bytes() for path in [*tmp_path.rglob("state*"), *tmp_path.rglob("state/**/*")] if path.is_file()
    )
    assert b"lake/test/numbers" in found
    assert str(tmp_path).encode() not in found
    assert project.root == tmp_path / "here"


def test_older_project_that_was_not_moved_names_its_files_where_they_are(kind: str, tmp_path: Path) -> None:
    project = bring_back(kind, tmp_path / "here", opened_before=False)
    with closing(project.open_store()) as store:
        paths = [file.path for file in store.load_snapshot("feed", "test.feed", 2)]
    assert len(paths) == 2
    assert all(path.startswith(f"{ROOT}/lake/test/feed/all/test.feed/") for path in paths)


def test_older_snapshots_of_a_moved_project_read_as_before(kind: str, tmp_path: Path) -> None:
    moved = Moved(bring_back(kind, tmp_path / "here"))
    moved.run(20)
    read = {snapshot: moved.ids("a", snapshot) for snapshot in range(1, 8)}
    assert read == {number: [*range(rows)] for number, rows in enumerate((4, 8, 12, 4, 6, 10, 15), 1)}
    published = load_published(moved.project, feed(), "test.feed", 2)
    assert published.files == read_published(tmp_path / "here" / "lake", "feed", "test.feed", 2).files
    assert sorted(published.to_arrow("all").to_table()["code"].to_pylist()) == ["007", "008"]


def test_copy_of_a_project_cleans_its_own_files(kind: str, tmp_path: Path) -> None:
    project = today(kind, tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    copy = Moved(Project(tmp_path / "copy", project.spec, (JOB,), project.clock))
    copy.run(20)
    before = {path: path.read_bytes() for path in (tmp_path / "here" / "lake").rglob("*") if path.is_file()}
    rollback(copy.project, JOB, "a", 1)
    job = JOB.model_copy(update={"commit": JOB.commit.model_copy(update={"keep_snapshots": 1})})
    clean(copy.project, job)
    assert copy.ids("a") == list(range(4))
    assert {path: path.read_bytes() for path in (tmp_path / "here" / "lake").rglob("*") if path.is_file()} == before
