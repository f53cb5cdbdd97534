"""A run does not go on behind rows that its output has lost, or that another project has published."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.run.store_check import refused_datasets
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.constructs.publishers.table_jobs import at_commit
from tests.unit.engine.jobs import job_spec, project, published, run


def rows(number: int) -> JobSpec:
    return job_spec({"a": {"rows": number}, "b": {"rows": number}})


def problems(where: Project, job: JobSpec) -> list[str]:
    return [one.problem for one in plan_job(where, job).datasets if one.problem]


@pytest.mark.parametrize("more", [0, 5], ids=["idle", "new rows"])
def test_second_project_with_the_store_and_the_job_of_another_is_refused(tmp_path: Path, more: int) -> None:
    store = f"sqlite:///{tmp_path}/shared.db"

    def at(name: str, job: JobSpec) -> Project:
        (tmp_path / name).mkdir(exist_ok=True)
        spec = project(tmp_path, job).spec.model_copy(update={"state": store})
        return Project(tmp_path / name, spec, (job,))

    def run_at(name: str, job: JobSpec) -> RunResult:
        return run_job(at(name, job), job, runner=InlineRunner())

    run_at("first", rows(10))
    job = rows(10 + more)
    second = at("second", job)
    assert run_at("second", job).status is RunStatus.FAILED
    assert not list((tmp_path / "second").rglob("*.parquet"))
    found = problems(second, job)
    assert len(found) == 2
    assert f"If another project shares the store and has a job {job.job!r} too" in found[0]
    with closing(second.open_store()) as opened:
        assert {*refused_datasets(JobContext.of(second, job, opened))} == {"a", "b"}
    assert run_at("first", rows(20)).status is RunStatus.SUCCEEDED


def test_output_that_was_deleted_is_refused_until_it_is_back_or_its_manifests_are_written_again(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    lake = shutil.move(tmp_path / "lake", tmp_path / "kept")
    assert run(tmp_path, rows(10)).status is RunStatus.FAILED
    shutil.move(lake, tmp_path / "lake")
    assert problems(project(tmp_path, rows(10)), rows(10)) == []
    shutil.rmtree(tmp_path / "lake")
    where = project(tmp_path, rows(20))
    assert len(problems(where, rows(20))) == 2
    assert not verify(where, rows(20), repair=True).is_whole
    assert run(tmp_path, rows(20)).status is RunStatus.SUCCEEDED
    with closing(where.open_store()) as store:
        newest = store.load_snapshot("numbers", "a")
    here = {file.snapshot: Path(file.path).exists() for file in newest if file.branch == "all"}
    assert here == {1: False, 2: True}


@pytest.mark.parametrize("waits", [False, True], ids=["all committed", "a commit waits"])
def test_output_that_was_set_back_is_refused_until_its_newest_copy_is_back(
    tmp_path: Path, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, rows(10))
    shutil.copytree(tmp_path / "lake", tmp_path / "older")
    run(tmp_path, rows(20))
    if waits:
        with monkeypatch.context() as patched:
            at_commit(patched)
            run(tmp_path, rows(25))
    shutil.move(tmp_path / "lake", tmp_path / "newest")
    shutil.copytree(tmp_path / "older", tmp_path / "lake")
    for staged in (tmp_path / "newest/_gobblin").glob("staging*"):
        shutil.copytree(staged, tmp_path / "lake/_gobblin" / staged.name, dirs_exist_ok=True)
    where = project(tmp_path, rows(30))
    for _ in range(2):
        refused = run(tmp_path, rows(30))
        assert refused.status is not RunStatus.SUCCEEDED
        told = [one.reason for one in refused.recovered] if waits else problems(where, rows(30))
        assert len(told) >= 2
        assert all("restored from an older copy" in problem for problem in told)
    with closing(where.open_store()) as store:
        assert {*refused_datasets(JobContext.of(where, rows(30), store))} == {"a", "b"}
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "newest", tmp_path / "lake")
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert published(tmp_path, rows(30), "a") == list(range(30))


@pytest.mark.parametrize("is_emptied", [True, False], ids=["emptied", "set back"])
def test_run_that_finds_nothing_new_tells_what_the_output_has_lost(tmp_path: Path, is_emptied: bool) -> None:
    """The manifests of a few datasets are looked for, and those of all if one is gone."""

    def job(number: int) -> JobSpec:
        return job_spec({urn: {"rows": number} for urn in "abcd"})

    run(tmp_path, job(10))
    older = {*tmp_path.glob("lake/**/*")}
    run(tmp_path, job(20))
    assert run(tmp_path, job(20)).status is RunStatus.SUCCEEDED
    for path in tmp_path.glob("lake/**/*"):
        if path.is_file() and (is_emptied or path not in older):
            path.unlink()
    assert run(tmp_path, job(20)).status is RunStatus.FAILED
    found = problems(project(tmp_path, job(20)), job(20))
    assert len(found) == 4
    assert "neither its newest files" in found[0]


def test_run_that_finds_nothing_new_says_so_if_the_output_cannot_be_asked(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    (tmp_path / "lake/_gobblin/manifests/numbers").rename(tmp_path / "kept")
    (tmp_path / "lake/_gobblin/manifests/numbers").write_text("no folder")
    result = run(tmp_path, rows(10))
    assert result.status is RunStatus.SUCCEEDED
    assert all("not known whether the output still holds what was published" in one.notes[0] for one in result.datasets)
    assert run(tmp_path, rows(20)).status is RunStatus.FAILED


def test_dataset_goes_on_without_manifests_while_its_files_are_there(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    shutil.rmtree(tmp_path / "lake/_gobblin")
    assert problems(project(tmp_path, rows(10)), rows(10)) == []
    assert run(tmp_path, rows(20)).status is RunStatus.SUCCEEDED
    assert published(tmp_path, rows(20), "a") == list(range(20))


def test_job_goes_on_in_another_output(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    other = rows(20).model_copy(update={"output": rows(20).output.model_copy(update={"path": "other"})})
    assert run(tmp_path, other).status is RunStatus.SUCCEEDED
    assert published(tmp_path, other, "a") == list(range(20))


def test_output_is_listed_once_for_all_datasets_and_not_without_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    list_names = LocalStorage.list_names

    def listing(self: LocalStorage, path: str) -> list[str]:
        asked.append(path)
        return list_names(self, path)

    monkeypatch.setattr(LocalStorage, "list_names", listing)
    with closing(project(tmp_path, rows(10)).open_store()) as store:
        JobContext.of(project(tmp_path, rows(10)), rows(10), store).plan()
        assert asked == []
        run(tmp_path, rows(10))
        asked.clear()
        JobContext.of(project(tmp_path, rows(10)), rows(10), store).plan()
    assert asked == [f"{tmp_path}/lake/_gobblin/manifests/numbers"]
