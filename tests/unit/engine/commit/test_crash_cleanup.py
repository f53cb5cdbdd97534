"""Runs that were killed: whatever command comes next, their staging goes and their records end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project, published, run

KILLED = "20261128T000000-killed"
NOW = datetime(2026, 11, 28, tzinfo=UTC)
SMALL = {"name": "small", "type": "sql", "rule": "id < 15"}
STAGED = f"lake/_gobblin/staging/{KILLED}"


def _job(rows: int) -> JobSpec:
    policies, settings = [SMALL] if rows < 20 else [], {"merge_bytes": 0}
    return job_spec({"a": {"rows": rows, "unit_rows": 7}}, row_policies=policies, execution=settings)


def _kill_a_run(root: Path, job: JobSpec, *, host: str = "") -> None:
    """Leave what a run leaves that was killed while it staged, here or on another host."""
    (root / STAGED).mkdir(parents=True)
    (root / STAGED / "part.parquet").write_bytes(b"half")
    owner = LeaseOwner.current(KILLED)
    if host:
        owner = replace(owner, host=host)
    else:
        owner.note_end()
    store = project(root, job).open_store()
    store.acquire_leases(job.job, ["a"], owner, timedelta(microseconds=1) if host else timedelta(days=1))
    store.save_run(RunRecord(KILLED, job.job, NOW, RunStatus.RUNNING))
    store.close()


def _broken_manifest(own: Project, job: JobSpec) -> None:
    next((own.root / "lake/_gobblin/manifests").rglob("*.json")).unlink()
    verify(own, job, repair=True)


def _reset(own: Project, job: JobSpec) -> None:
    with own.use_store() as store:
        apply_change(store, plan_reset(store.load_dataset_states(job.job, ["a"])["a"], who="me", why="", now=NOW))


COMMANDS: dict[str, Callable[[Project, JobSpec], object]] = {
    "clean": clean,
    "compact": compact,
    "replay": lambda own, job: replay_quarantine(own, job, "a"),
    "rollback": lambda own, job: rollback(own, job, "a", 1),
    "verify": _broken_manifest,
    "reset": _reset,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_after_a_kill_ends_the_record_and_its_staging_is_deleted(tmp_path: Path, name: str) -> None:
    for rows in (16, 18):
        run(tmp_path, _job(rows))
    job = _job(20)
    _kill_a_run(tmp_path, job)
    COMMANDS[name](project(tmp_path, job), job)
    run(tmp_path, job)
    assert not (tmp_path / STAGED).exists()
    with project(tmp_path, job).use_store() as store:
        (record,) = [one for one in store.load_runs(job.job, 10) if one.run_id == KILLED]
    assert record.status is RunStatus.INTERRUPTED


@pytest.mark.parametrize("name", ["run", *COMMANDS])
def test_the_record_of_a_run_that_another_machine_lost_ends_too(tmp_path: Path, name: str) -> None:
    for rows in (16, 18):
        run(tmp_path, _job(rows))
    job = _job(20)
    _kill_a_run(tmp_path, job, host="a-container-that-is-gone")
    if name != "run":
        COMMANDS[name](project(tmp_path, job), job)
    run(tmp_path, job)
    with project(tmp_path, job).use_store() as store:
        (record,) = [one for one in store.load_runs(job.job, 10) if one.run_id == KILLED]
    assert record.status is RunStatus.INTERRUPTED


@pytest.mark.parametrize("name", ["run", *COMMANDS])
def test_the_record_of_a_run_ends_whose_recovery_was_killed_before_it_did_so(tmp_path: Path, name: str) -> None:
    for rows in (16, 18):
        run(tmp_path, _job(rows))
    job = _job(20)
    _kill_a_run(tmp_path, job)
    alive = tmp_path / STAGED.replace(KILLED, "20261128T000002-works")
    alive.mkdir()
    with project(tmp_path, job).use_store() as store:
        recovery, other = LeaseOwner.current("20261128T000001-killed"), LeaseOwner.current("20261128T000002-works")
        recovery.note_end()
        other.note_begin()
        store.acquire_leases(job.job, ["a"], recovery, timedelta(days=1))
        store.acquire_leases(job.job, ["b"], other, timedelta(minutes=5))
        store.save_run(RunRecord(other.run_id, job.job, NOW, RunStatus.RUNNING))
        if name != "run":
            COMMANDS[name](project(tmp_path, job), job)
        run(tmp_path, job)
        found = {one.run_id: one.status for one in store.load_runs(job.job, 10)}
        other.note_end()
    assert not (tmp_path / STAGED).exists()
    assert (found[KILLED], found[other.run_id]) == (RunStatus.INTERRUPTED, RunStatus.RUNNING)
    assert alive.exists()


def test_staging_that_cannot_be_deleted_keeps_no_record_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = _job(16)
    run(tmp_path, job)
    _kill_a_run(tmp_path, job)

    def refuse(self: LocalStorage, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch, project(tmp_path, job).use_store() as store:
        patch.setattr(LocalStorage, "delete_tree", refuse)
        project(tmp_path, job).tidy_ended(job, store)
        assert [one.status for one in store.load_runs(job.job, 10) if one.run_id == KILLED] == [RunStatus.INTERRUPTED]
    assert "Permission denied" in caplog.text


@pytest.mark.parametrize("operation", ["delete_tree", "list_names"])
def test_staging_that_cannot_be_deleted_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    """The recovery of each run failed, so nothing new was read any more: with files of another user, for ever."""
    job = _job(16)
    run(tmp_path, job)
    _kill_a_run(tmp_path, job)
    right = getattr(LocalStorage, operation)

    def refuse(self: LocalStorage, path: str) -> object:
        if "/_gobblin/staging" in path:
            raise PermissionError(13, "Permission denied", "a-name")
        return right(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, operation, refuse)
        with pytest.raises(KeyboardInterrupt):
            run_job(project(tmp_path, _job(18)), _job(18), runner=InlineRunner(), commit_listener=_Stop("prepared"))
        done = run(tmp_path, _job(20))
    assert (done.status, [one.state for one in done.recovered]) == (RunStatus.SUCCEEDED, ["committed"])
    assert f"{tmp_path}/lake/_gobblin/staging" in caplog.text
    with project(tmp_path, job).use_store() as store:
        assert RunStatus.RUNNING not in {one.status for one in store.load_runs(job.job, 10)}


class _Stop(SilentListener):
    """Interrupts a commit, or its recovery."""

    def __init__(self, event: str) -> None:
        self._event = event

    def prepared(self, sequence: CommitSequence) -> None:
        if self._event == "prepared":
            raise KeyboardInterrupt

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        raise KeyboardInterrupt


def test_staging_of_a_run_whose_recovery_was_stopped_too_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    """The leases named the run that was stopped as it recovered, not the one whose files were staged."""
    job = _job(16)
    for event in ("prepared", "step_done"):
        with pytest.raises(KeyboardInterrupt):
            run_job(project(tmp_path, job), job, runner=InlineRunner(), commit_listener=_Stop(event))
    run(tmp_path, job)
    assert [*(tmp_path / "lake/_gobblin/staging").iterdir()] == []
    assert published(tmp_path, job, "a") == [*range(15)]


@pytest.mark.parametrize("name", ["compact", "replay"])
def test_rewriting_leaves_no_empty_folder(tmp_path: Path, name: str) -> None:
    for rows in (16, 18):
        run(tmp_path, _job(rows))
    job = _job(20)
    COMMANDS[name](project(tmp_path, job), job)
    assert [*(tmp_path / "lake/_gobblin/staging").iterdir()] == []
