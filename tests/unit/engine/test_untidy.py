"""What follows a commit and fails while the run lives: the run says so, and the next one makes it good."""

from __future__ import annotations

import errno
import functools
import os
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.commit import crash_at, read_manifest
from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
from gobblin_dagster.engine.commit.manifest import list_manifests
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import Call, Fault, FaultPoints, counted_store, run_in_child
from gobblin_dagster.testing.inline_runner import InlineRunner

from .jobs import by_urn, job_spec, project, published, run

TWO = {"a": {"rows": 5}, "b": {"rows": 5}}
MANIFESTS = "lake/_gobblin/manifests/numbers"


def _newest(root: Path, urn: str) -> int:
    return max((file.snapshot for file in read_manifest(LocalStorage(), str(root / "lake"), "numbers", urn)), default=0)


class _Full(LocalStorage):
    """A disk without room for manifests of dataset `a`."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if f"{MANIFESTS}/a/" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().put_if_absent(path, data)


class _FullProject(Project):
    def storage(self, job: JobSpec) -> Storage:
        return _Full()


def _full(root: Path, job: JobSpec) -> Project:
    return _FullProject(root, ProjectSpec(project="tests"), (job,))


def _run_full(root: Path, job: JobSpec) -> RunResult:
    return run_job(_full(root, job), job, runner=InlineRunner())


def test_run_says_that_a_manifest_could_not_be_written_and_the_next_idle_run_writes_it(tmp_path: Path) -> None:
    run(tmp_path, job_spec({"a": {"rows": 3}, "b": {"rows": 3}}))
    job = job_spec(TWO)

    told = _run_full(tmp_path, job)
    assert told.status is RunStatus.PARTIAL
    assert {urn: one.outcome for urn, one in by_urn(told).items()} == dict.fromkeys("ab", DatasetOutcome.COMMITTED)
    (failure,) = by_urn(told)["a"].failures
    assert failure.code == "storage"
    assert "cannot write the manifest of snapshot 2" in failure.message
    assert not by_urn(told)["b"].failures

    still = _run_full(tmp_path, job)
    assert [(one.dataset_urn, one.manifest) for one in still.recovered] == [("a", "missing")]
    assert still.status is RunStatus.PARTIAL

    assert _newest(tmp_path, "a") == 1
    mended = run(tmp_path, job)
    assert [(one.dataset_urn, one.manifest) for one in mended.recovered] == [("a", "written")]
    assert mended.status is RunStatus.SUCCEEDED
    assert _newest(tmp_path, "a") == 2
    assert run(tmp_path, job).recovered == ()


def test_manifest_is_written_by_the_next_run_also_if_the_store_was_full_too(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})

    def refuse(name: str, call: Call) -> NoReturn:
        raise StorageError(operation="use the state store", path="state.db", problem="the disk is full")

    full, points = _full(tmp_path, job), FaultPoints(Fault(1, refuse, "store.leave_leases"))
    with closing(full.open_store()) as store:
        told = run_job(full, job, runner=InlineRunner(), store=counted_store(store, points))
    assert (told.status, points.is_struck) == (RunStatus.PARTIAL, True)
    assert [(one.dataset_urn, one.manifest) for one in run(tmp_path, job).recovered] == [("a", "written")]


def test_manifest_of_a_commit_that_nobody_knew_of_is_written_by_the_next_run(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})

    def lose(name: str, call: Call) -> NoReturn:
        call()
        raise StorageError(operation="use the state store", path="state.db", problem="the disk is full")

    opened, points = project(tmp_path, job), FaultPoints(Fault(1, lose, "store.commit"))
    with closing(opened.open_store()) as store:
        told = run_job(opened, job, runner=InlineRunner(), store=counted_store(store, points))
    assert (told.status, points.is_struck) == (RunStatus.PARTIAL, True)
    assert "the disk is full" in by_urn(told)["a"].failures[0].message
    assert _newest(tmp_path, "a") == 0
    assert [(one.dataset_urn, one.manifest) for one in run(tmp_path, job).recovered] == [("a", "written")]


def test_manifest_that_a_rollback_could_not_write_is_written_by_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, job_spec({"a": {"rows": 3}}))
    job = job_spec({"a": {"rows": 5}})
    run(tmp_path, job)
    with pytest.raises(StorageError, match="readers of manifests find it after the next run"):
        rollback(_full(tmp_path, job), job, "a", 1)
    assert "cleaning up is left to a later run" in caplog.text
    known = functools.partial(list_manifests, LocalStorage(), str(tmp_path / "lake"), "numbers", "a")
    assert known() == [1, 2]
    run(tmp_path, job_spec({"a": {"rows": 3}}))
    assert known() == [1, 2, 3]


# -- runs that end before their time -----------------------------------------------------------------------------------
def _records(root: Path, job: JobSpec) -> dict[str, RunStatus]:
    with closing(project(root, job).open_store()) as store:
        return {record.run_id: record.status for record in store.load_runs(job.job)}


def _staging(root: Path) -> list[str]:
    return LocalStorage().list_names(str(root / "lake/_gobblin/staging"))


def _killed(root: Path, job: JobSpec, listener: CommitListener) -> int:
    return run_in_child(lambda: run_job(project(root, job), job, runner=InlineRunner(), commit_listener=listener))


class _Interrupting(SilentListener):
    """Ends the run as a second Ctrl-C does, before anything is committed."""

    def prepared(self, sequence: CommitSequence) -> None:
        raise KeyboardInterrupt


class _Reading(InlineRunner):
    """Ends the run as a second Ctrl-C does, once files are staged."""

    def run(self, *args: Any) -> list[TaskState]:
        super().run(*args)
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_gone", [True, False], ids=["process ends", "process stays"])
def test_run_that_is_interrupted_twice_is_recorded_and_the_next_run_deletes_its_staging(
    tmp_path: Path, is_gone: bool
) -> None:
    job = job_spec(TWO)

    def work() -> None:
        with suppress(KeyboardInterrupt):
            run_job(project(tmp_path, job), job, runner=_Reading())

    if is_gone:
        assert run_in_child(work) == 0
    else:
        work()
    (run_id,) = _staging(tmp_path)
    assert _records(tmp_path, job) == {run_id: RunStatus.INTERRUPTED}
    result = run(tmp_path, job)
    assert result.status is RunStatus.SUCCEEDED
    assert _staging(tmp_path) == []


def test_run_that_is_killed_while_it_publishes_is_recorded_by_the_run_that_recovers_after_it(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})
    assert _killed(tmp_path, job, crash_at(1)) == -signal.SIGKILL
    ((run_id, status),) = _records(tmp_path, job).items()
    assert status is RunStatus.RUNNING
    assert [one.state for one in run(tmp_path, job).recovered] == ["committed"]
    assert _records(tmp_path, job)[run_id] is RunStatus.INTERRUPTED


def test_run_that_is_interrupted_while_it_publishes_is_recorded_and_recovered(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})
    with pytest.raises(KeyboardInterrupt):
        run_job(project(tmp_path, job), job, runner=InlineRunner(), commit_listener=_Interrupting())
    assert list(_records(tmp_path, job).values()) == [RunStatus.INTERRUPTED]
    assert [one.state for one in run(tmp_path, job).recovered] == ["committed"]
    assert published(tmp_path, job, "a") == list(range(5))
    assert _staging(tmp_path) == []


class _CommittedAtLast(SilentListener):
    """Ends the run as a second Ctrl-C does, once something is committed."""

    def committed(self, sequence: CommitSequence) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["killed", "interrupted", "interrupted before the commit"])
def test_record_of_a_run_that_ended_while_it_published_says_what_it_committed(tmp_path: Path, how: str) -> None:
    job = job_spec({"a": {"rows": 5}})
    if how == "killed":
        _killed(tmp_path, job, crash_at(1))
        run(tmp_path, job)  # the next run writes its record
    else:
        listener = _CommittedAtLast() if how == "interrupted" else _Interrupting()
        with pytest.raises(KeyboardInterrupt):
            run_job(project(tmp_path, job), job, runner=InlineRunner(), commit_listener=listener)
        if how != "interrupted":
            run(tmp_path, job)  # commits what is prepared
    with closing(project(tmp_path, job).open_store()) as store:
        record = store.load_runs(job.job)[-1]
    committed = DatasetRunRecord(DatasetOutcome.COMMITTED, low="0", high="5", rows=5)
    assert (record.status, dict(record.datasets)) == (RunStatus.INTERRUPTED, {"a": committed})


@pytest.mark.parametrize("calls", [1, 2], ids=["record", "record and leases"])
@pytest.mark.parametrize("is_gone", [True, False], ids=["process ends", "process stays"])
def test_run_whose_end_the_store_does_not_take_is_ended_by_the_next_run(
    tmp_path: Path, is_gone: bool, calls: int
) -> None:
    job = job_spec({"a": {"rows": 5}})

    def refuse(name: str, call: Call) -> NoReturn:
        raise StorageError(operation="use the state store", path="state.db", problem="the disk is full")

    def work() -> None:
        opened, points = project(tmp_path, job), FaultPoints(Fault(2, refuse, "store.save_run", calls))
        with closing(opened.open_store()) as store:
            result = run_job(opened, job, runner=InlineRunner(), store=counted_store(store, points))
            assert (result.status, points.is_struck) == (RunStatus.SUCCEEDED, True)

    if is_gone:
        assert run_in_child(work) == 0
    else:
        work()
    assert list(_records(tmp_path, job).values()) == [RunStatus.RUNNING]
    run(tmp_path, job)
    assert list(_records(tmp_path, job).values()) == [RunStatus.INTERRUPTED]


def test_idle_run_leaves_no_record(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})
    first = run(tmp_path, job)
    run(tmp_path, job)
    assert _records(tmp_path, job) == {first.run_id: RunStatus.SUCCEEDED}


# -- what a person mended ----------------------------------------------------------------------------------------------
def _recovered(root: Path, job: JobSpec) -> list[str]:
    opened_project = project(root, job)
    with closing(opened_project.open_store()) as store:
        return [one.state for one in recover_job(JobContext.of(opened_project, job, store))]


def test_folder_that_is_a_link_to_a_place_outside_is_not_published_to_and_recovered_once_it_is_gone(
    tmp_path: Path,
) -> None:
    run(tmp_path, job_spec({"a": {"rows": 3}}))
    (folder,) = (tmp_path / "lake").glob("test/numbers/all/a")
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    held = sorted(elsewhere.rglob("*"))
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 2}})

    result = by_urn(run(tmp_path, job))
    assert result["b"].outcome is DatasetOutcome.COMMITTED
    assert result["a"].outcome is DatasetOutcome.FAILED
    assert f"it leads to {elsewhere}, outside of {tmp_path / 'lake'}" in result["a"].failures[0].message
    assert sorted(elsewhere.rglob("*")) == held
    assert _recovered(tmp_path, job) == ["quarantined"]

    folder.unlink()
    elsewhere.rename(folder)
    assert _recovered(tmp_path, job) == ["committed"]
    assert published(tmp_path, job, "a") == list(range(5))
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED


def test_output_that_is_a_link_itself_is_published_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    job = job_spec({"a": {"rows": 5}})
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert published(tmp_path, job, "a") == list(range(5))
