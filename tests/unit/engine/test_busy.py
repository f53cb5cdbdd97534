"""A run beside a live one: what it ends as if it could do nothing, or not all, because datasets are held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner

from .jobs import job_spec, project, run


@contextmanager
def held(root: Path, job: JobSpec, *urns: str) -> Iterator[None]:
    """Hold datasets as another run does."""
    with closing(project(root, job).open_store()) as store:
        grant = store.acquire_leases(job.job, urns, LeaseOwner.current("other-run"), timedelta(seconds=60))
        yield
        store.release_leases(job.job, list(grant.granted.values()))


def test_run_whose_datasets_are_all_held_is_busy(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    with held(tmp_path, job, "a", "b"):
        result = run(tmp_path, job)
    assert (result.status, result.exit_code) == (RunStatus.BUSY, 5)
    with closing(project(tmp_path, job).open_store()) as store:
        assert [one.status for one in store.load_runs(job.job)] == [RunStatus.BUSY]
    assert run(tmp_path, job).exit_code == 0


def test_datasets_without_news_beside_a_held_one_change_nothing(tmp_path: Path) -> None:
    run(tmp_path, job_spec({"a": {"rows": 5}, "b": {"rows": 5}}))
    job = job_spec({"a": {"rows": 8}, "b": {"rows": 5}})
    with held(tmp_path, job, "a"):
        assert run(tmp_path, job).status is RunStatus.BUSY


def test_run_that_commits_the_others_is_partial(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    with held(tmp_path, job, "a"):
        assert run(tmp_path, job).exit_code == 4


def test_failure_beside_a_held_dataset_is_a_failure(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5, "fail_at": 2}})
    with held(tmp_path, job, "a"):
        assert (run(tmp_path, job).status) is RunStatus.FAILED


@pytest.mark.parametrize(("rows", "status"), [({}, RunStatus.BUSY), ({"problem": "no door"}, RunStatus.FAILED)])
def test_datasets_held_back_for_a_held_one_wait_too(tmp_path: Path, rows: dict[str, str], status: RunStatus) -> None:
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}, "c": {"rows": 5, **rows}}, commit={"scope": "job"})
    with held(tmp_path, job, "a"):
        assert run(tmp_path, job).status is status


def test_run_beside_one_that_publishes_is_busy(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})
    seen = []

    class Beside(SilentListener):
        def prepared(self, sequence: CommitSequence) -> None:
            seen.append(run(tmp_path, job))

    assert run_job(project(tmp_path, job), job, runner=InlineRunner(), commit_listener=Beside()).exit_code == 0
    assert [(one.status, one.recovered[0].is_busy) for one in seen] == [(RunStatus.BUSY, True)]


@pytest.mark.parametrize("scope", ["dataset", "job"])
def test_run_that_lost_its_leases_leaves_no_staged_files(tmp_path: Path, scope: str) -> None:
    """Another run reads the rows again, and its recovery never looks for files of a run that did not die."""
    names = ["a"] if scope == "dataset" else ["a", "b"]
    job = job_spec({name: {"rows": 5} for name in names}, commit={"scope": scope})
    taken = ExitStack()

    class TakenOver(RunListener):
        def task_done(self, state: TaskState, done: int, total: int) -> None:
            if state.dataset_urn == "a":
                with closing(project(tmp_path, job).open_store()) as store:
                    leases = store.load_leases(job.job)
                    store.leave_leases(job.job, {"a": leases["a"].epoch})
                taken.enter_context(held(tmp_path, job, "a"))

    with taken:
        result = run(tmp_path, job, listener=TakenOver())
    assert {(one.outcome, one.sequence_id) for one in result.datasets} == {(DatasetOutcome.FAILED, "")}
    assert "run other-run" in result.datasets[0].problem
    assert not list((tmp_path / "lake" / "_gobblin" / "staging").iterdir())
    assert run(tmp_path, job).exit_code == 0
