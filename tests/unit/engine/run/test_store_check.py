"""A plan reports a lost state store, without a lease and without waiting for remote storages."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.engine.commit.step_runner import StepRunner
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.run import store_check
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.run.store_check import with_lost_store
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.storage import LocalStorage
from tests.unit.engine import jobs
from tests.unit.engine.jobs import by_urn, job_spec, project, run

URNS = [f"d{number}" for number in range(5)]


def rows(number: int) -> JobSpec:
    return job_spec({urn: {"rows": number} for urn in URNS})


def set_back(root: Path) -> None:
    """Run twice, and bring back the store as it was between."""
    run(root, rows(10))
    shutil.copytree(root / ".gobblin", root / "backup")
    run(root, rows(20))
    shutil.rmtree(root / ".gobblin")
    shutil.copytree(root / "backup", root / ".gobblin")


def problems(plan: JobPlan) -> list[str]:
    return [one.dataset_urn for one in plan.datasets if one.problem]


def test_store_older_than_snapshots_that_a_rollback_left_and_clean_deleted_is_noticed(tmp_path: Path) -> None:
    job = job_spec({"d0": {"rows": 10}}, commit={"keep_snapshots": 1})
    run(tmp_path, job)
    shutil.copytree(tmp_path / ".gobblin", tmp_path / "first")
    more = job.model_copy(update={"source": job_spec({"d0": {"rows": 20}}).source})
    run(tmp_path, more)
    rollback(project(tmp_path, job), job, "d0", 1)
    run(tmp_path, more)
    (expired,) = clean(project(tmp_path, more), more).expired
    assert expired.snapshots
    shutil.rmtree(tmp_path / ".gobblin")
    shutil.copytree(tmp_path / "first", tmp_path / ".gobblin")
    assert problems(plan_job(project(tmp_path, more), more)) == ["d0"]


@contextmanager
def opened(root: Path, job: JobSpec) -> Iterator[JobContext]:
    one = project(root, job)
    store = one.open_store()
    try:
        yield JobContext.of(one, job, store)
    finally:
        store.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths whose size was asked for."""
    paths: list[str] = []
    size = LocalStorage.size

    def asking(self: LocalStorage, path: str) -> int | None:
        paths.append(path)
        return size(self, path)

    monkeypatch.setattr(LocalStorage, "size", asking)
    return paths


def test_plan_looks_at_some_datasets_and_at_all_where_one_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    monkeypatch.setattr(store_check, "MOST_DATASETS", 2)
    run(tmp_path, rows(10))
    asked.clear()
    healthy = plan_job(project(tmp_path, rows(20)), rows(20))
    # The newest manifests of three datasets; then of each that it looks at the newest one, and the one after it.
    assert (problems(healthy), len(asked)) == ([], 3 + 4)
    shutil.rmtree(tmp_path / ".gobblin")
    shutil.rmtree(tmp_path / "lake")
    set_back(tmp_path)
    plan = plan_job(project(tmp_path, rows(30)), rows(30))
    assert problems(plan) == URNS
    assert not plan.packs


def test_healthy_plan_loads_no_more_states_than_it_looks_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_check, "MOST_DATASETS", 2)
    run(tmp_path, rows(10))
    more = job_spec({urn: {"rows": 20} for urn in [*URNS, "new"]})
    loaded: list[Collection[str] | None] = []
    load = SqlStateStore.load_dataset_states

    def loading(self: SqlStateStore, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        loaded.append(urns)
        return load(self, job, urns)

    with opened(tmp_path, more) as one:
        plan = one.plan()
        monkeypatch.setattr(SqlStateStore, "load_dataset_states", loading)
        assert with_lost_store(one, plan) == plan
    assert loaded == [URNS[:2]]


@pytest.mark.parametrize("rows_before", [0, 10], ids=["new", "known"])
def test_dataset_that_a_run_commits_while_it_is_looked_at_is_neither_lost_nor_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_before: int
) -> None:
    if rows_before:
        run(tmp_path, rows(rows_before))
    load = SqlStateStore.load_dataset_states

    def load_and_run(self: SqlStateStore, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        monkeypatch.undo()
        states = load(self, job, urns)
        run(tmp_path, rows(20))
        return states

    with opened(tmp_path, rows(20)) as one:
        plan = one.plan()
        monkeypatch.setattr(SqlStateStore, "load_dataset_states", load_and_run)
        assert plan.is_moving
        assert with_lost_store(one, plan) == plan


@pytest.mark.parametrize(
    "fault",
    [
        PermissionError(13, "Permission denied"),
        EnvironmentFaultError(problem="boto3 is not installed.", hint="Install it."),
    ],
    ids=["permission", "package"],
)
def test_output_that_cannot_be_read_leaves_the_plan_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    set_back(tmp_path)

    def refuse(self: LocalStorage, path: str) -> int | None:
        raise fault

    monkeypatch.setattr(LocalStorage, "size", refuse)
    assert problems(plan_job(project(tmp_path, rows(30)), rows(30))) == []


def test_output_that_does_not_answer_fails_the_datasets_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: LocalStorage, path: str) -> list[str]:
        raise OSError(errno.EIO, "the endpoint does not answer", path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "list_names", away)
        result = run(tmp_path, rows(10))
    assert {(one.outcome, one.rows_read) for one in result.datasets} == {(DatasetOutcome.FAILED, 0)}
    ((code, message),) = {(one.code, one.message) for dataset in result.datasets for one in dataset.failures}
    assert code == "storage"
    assert f"look for manifests in {tmp_path}/lake/_gobblin/manifests/numbers: the endpoint does not answer" in message
    assert run(tmp_path, rows(10)).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("url", ["sqlite:///state.db", "files:state"])
def test_commit_that_waits_in_the_place_of_another_job_is_noticed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Its rows were read again, and with plain files published again."""
    monkeypatch.setattr(jobs, "STATE", url)

    def frozen(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "frozen")

    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}})
    with monkeypatch.context() as patched:
        patched.setattr(StepRunner, "roll_forward", frozen)
        run(tmp_path, job)
    if url == "files:state":
        (tmp_path / "state/jobs/numbers/datasets/a").rename(tmp_path / "state/jobs/numbers/datasets/c")
        whose = "it belongs to dataset 'a' of job 'numbers'"
    else:
        with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
            database.execute("update gobblin_sequences set job = 'other' where dataset_urn = 'a'")
        whose = "it says job 'other', dataset 'a'"
    plan = plan_job(project(tmp_path, job), job)
    assert [whose in one.problem for one in plan.datasets if one.problem] == [True]
    result = by_urn(run(tmp_path, job))
    assert (result["a"].outcome, result["a"].rows_read) == (DatasetOutcome.FAILED, 0)
    assert (result["a"].failures[0].code, whose in result["a"].failures[0].message) == ("record-corrupt", True)
    assert "b" not in result or result["b"].outcome is not DatasetOutcome.FAILED
