"""The face: what a Python user does with a project, and what is shown of it. The command line's tests show the rest."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster import (
    ConvertError,
    DatasetOutcome,
    GobblinProject,
    JobPlan,
    LongWatermark,
    Oldest,
    Project,
    RunListener,
    RunStatus,
    SequenceState,
    SourceError,
    StorageError,
    UnfinishedSequenceError,
    UsageError,
    api,
    check,
    open_project,
    open_store,
    read_published,
    registry,
    write_demo,
)
from gobblin_dagster.demo.project import write_service
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import write_job

TWO = {"a": {"rows": 3}, "b": {"rows": 2}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder with one job of two datasets."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    write_job(tmp_path, TWO)
    return tmp_path


@pytest.fixture
def project(root: Path) -> Iterator[GobblinProject]:
    with open_project(root, runner=InlineRunner()) as opened:
        yield opened


@pytest.fixture
def ran(project: GobblinProject) -> GobblinProject:
    """The project after its first run."""
    assert project.run().status is RunStatus.SUCCEEDED
    return project


def reopened(root: Path, datasets: dict[str, dict[str, Any]], **parts: Any) -> GobblinProject:
    """Return the project with other datasets in its source."""
    write_job(root, datasets, **parts)
    return open_project(root, runner=InlineRunner())


# -- opening -----------------------------------------------------------------------------------------------------------
def test_project_is_found_from_a_folder_inside_of_it_and_names_its_jobs(root: Path) -> None:
    project = open_project(str(root / "jobs"))
    assert (project.root, project.jobs, project.job().job) == (root, ("numbers",), "numbers")
    assert repr(project) == f"<project tests in {root}: numbers>"
    assert isinstance(project.project, Project)


def test_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No gobblin\.yaml"):
        open_project(tmp_path)


@pytest.mark.parametrize("root", [None, 5, b"/", "a\0b", ["."]], ids=repr)
def test_root_that_is_no_path_is_refused(root: Any) -> None:
    with pytest.raises(UsageError, match=r"open_project: `root` must be str \| PathLike\[str\], got"):
        open_project(root)
    with pytest.raises(UsageError, match="check: `root`"):
        check(root)


def test_root_that_cannot_be_looked_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="lead to each other"):
        open_project(tmp_path / "loop")
    with pytest.raises(UsageError, match=r"'aaaa.*cannot be looked into: File name too long"):
        open_project("a" * 5000)


def test_root_whose_path_is_no_utf8_is_refused(tmp_path: Path) -> None:
    latin = tmp_path / os.fsdecode(b"caf\xe9") / "project"
    latin.mkdir(parents=True)
    (latin / "gobblin.yaml").write_text("project: p")
    with pytest.raises(UsageError, match=r"caf\\udce9/project' is no UTF-8.*Rename"):
        open_project(latin)


def test_arguments_of_the_wrong_type_are_named(root: Path, ran: GobblinProject) -> None:
    wrong: list[tuple[str, Any]] = [
        ("`jobs`", lambda: open_project(root, jobs="numbers")),
        ("`runner`", lambda: open_project(root, runner=5)),  # type: ignore[arg-type]  # wrong types are tested
        ("`select`", lambda: ran.plan(select=None)),  # type: ignore[arg-type]
        ("`job`", lambda: ran.run(5)),  # type: ignore[arg-type]
        ("`dataset`", lambda: ran.state.show("\udcff")),
        ("`why`", lambda: ran.state.reset("a", why=None)),  # type: ignore[arg-type]
        ("`limit` must be int", lambda: ran.state.runs(limit="1")),  # type: ignore[arg-type]
        ("`limit` must be 1 or more", lambda: ran.state.runs(limit=-1)),
        ("`sequence_id`", lambda: ran.commit.show(b"x")),  # type: ignore[arg-type]
        ("`url`", lambda: open_store(None, root)),  # type: ignore[arg-type]
        ("`output`", lambda: read_published(None, "numbers", "a")),  # type: ignore[arg-type]
        ("`position`", lambda: ran.startpoint.set("a", b"1", why="x", on_rewind="append")),  # type: ignore[arg-type]
    ]
    for named, call in wrong:
        with pytest.raises(UsageError, match=named):
            call()
    assert len(ran.state.runs(limit=10**30)) == 1


def test_notes_of_a_dataset_are_shown_with_its_result(ran: GobblinProject) -> None:
    result = ran.run()
    noted = replace(result, datasets=(replace(result.datasets[0], notes=("1 path(s) left out: x.csv.",)),))
    assert "1 path(s) left out: x.csv." in repr(noted)
    assert "notes" not in repr(result)


def test_constructs_of_the_project_folder_are_found(root: Path) -> None:
    (root / "of_my_own_api.py").write_text(
        "def datasets():\n    return {'x': 1}\ndef read(unit):\n    yield {'n': 1}\n"
    )
    source = {"type": "python", "datasets": "of_my_own_api:datasets", "read": "of_my_own_api:read"}
    write_job(root, {}, source=source)
    assert [dataset.dataset_urn for dataset in open_project(root).plan()] == ["x"]


def test_job_must_be_named_if_there_are_several(root: Path) -> None:
    write_job(root, TWO, job="others")
    with open_project(root, runner=InlineRunner()) as project:
        with pytest.raises(UsageError, match="several jobs: numbers, others"):
            project.run()
        project.run("others")
        # A dataset that one job alone has published needs no name.
        assert project.load_published("a").job == "others"
        project.run("numbers")
        with pytest.raises(UsageError, match="in several jobs"):
            project.load_published("a")
        assert project.load_published("a", job="numbers").rows == {"main": 3}


def test_project_without_jobs_says_what_to_do(root: Path) -> None:
    (root / "jobs" / "numbers.yaml").unlink()
    with pytest.raises(UsageError, match="There is no job file"):
        open_project(root).run()


def test_faults_of_other_jobs_do_not_matter_if_jobs_are_named(root: Path) -> None:
    (root / "jobs" / "faulty.yaml").write_text("job: faulty\n")
    assert open_project(root, jobs=["numbers"]).job("numbers").job == "numbers"


def test_the_only_job_that_is_meant_need_not_be_named_again(root: Path) -> None:
    (root / "jobs" / "more.yaml").write_text((root / "jobs" / "numbers.yaml").read_text().replace("numbers", "more"))
    assert open_project(root, jobs=["numbers"]).plan().job == "numbers"
    with pytest.raises(UsageError, match="has several jobs: more, numbers"):
        open_project(root).plan()


# -- check -------------------------------------------------------------------------------------------------------------
def test_check_names_every_fault_of_every_file_and_shows_them(root: Path) -> None:
    (root / "jobs" / "one.yaml").write_text("job: one\nsuorce: {type: files}\n")
    (root / "jobs" / "two.yaml").write_text("job: two\n")
    found = check(root)
    assert not found.is_valid
    assert [one.job for one in found] == ["numbers", None, None]
    assert "did you mean" in repr(found).lower() or "suorce" in repr(found)
    assert found.to_arrow().column("faults").to_pylist()[0] == 0


# -- runs --------------------------------------------------------------------------------------------------------------
def test_plan_changes_nothing_and_run_publishes_it(project: GobblinProject) -> None:
    plan = project.plan()
    assert plan.has_changes
    assert [(one.dataset_urn, one.rows) for one in plan] == [("a", 3), ("b", 2)]
    assert repr(plan).splitlines()[0] == "job numbers: 2 of 2 datasets with something new"
    result = project.run()
    assert [(one.outcome, str(one.actual_high)) for one in result] == [(DatasetOutcome.COMMITTED, n) for n in "32"]
    assert not project.plan().has_changes


def test_result_is_shown_as_a_table_of_its_datasets(project: GobblinProject) -> None:
    title, head, a, b = repr(project.run(run_id="first")).splitlines()
    assert title.startswith("job numbers: succeeded after ")
    assert title.endswith(" s, run first")
    assert head.split() == ["dataset", "outcome", "rows", "watermark", "snapshot", "files"]
    assert a.split() == ["a", "committed", "3", "3", "1", "1"]
    assert b.startswith("b        committed     2")


def test_dataset_that_fails_is_told_in_the_result_and_does_not_stop_the_others(root: Path) -> None:
    result = reopened(root, {"a": {"rows": 3, "fail_at": 1}, "b": {"rows": 2}}).run()
    assert result.status is RunStatus.PARTIAL
    table = result.to_arrow().to_pylist()
    assert [row["outcome"] for row in table] == ["failed", "committed"]
    assert table[0]["problem"] in repr(result) or table[0]["problem"][:40] in repr(result)
    assert table[1]["problem"] is None


def test_run_takes_a_selection_a_name_and_listeners(project: GobblinProject) -> None:
    plans: list[JobPlan] = []

    class Listener(RunListener):
        def planned(self, plan: JobPlan) -> None:
            plans.append(plan)

    result = project.run(select="a*", exclude=["b"], run_id="mine", listeners=[Listener()])
    assert ([one.dataset_urn for one in result], result.run_id, len(plans)) == (["a"], "mine", 1)
    with pytest.raises(UsageError, match="has run as 'mine' already"):
        project.run(run_id="mine")


def test_store_that_is_given_is_used_and_stays_open(root: Path) -> None:
    with closing(open_store("sqlite:///other.db", root)) as store:
        project = open_project(root, store=store, runner=InlineRunner())
        project.run()
        assert [state.dataset_urn for state in project.state.list()] == ["a", "b"]
        assert store.list_jobs() == ["numbers"]
    assert not (root / ".gobblin" / "state.db").exists()


def test_job_with_nothing_to_do_starts_no_spark(ran: GobblinProject) -> None:
    code = f"""
import sys
from gobblin_dagster import open_project
with open_project({str(ran.root)!r}) as project:
    print(project.check().is_valid, project.plan().has_changes, project.run().status.value)
    project.compact(), project.clean(), project.verify(), project.commit.recover(), project.state.list()
print([name for name in ("pyspark", "dagster", "typer", "rich") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True False succeeded", "[]"]


def test_source_that_cannot_be_listed_raises(root: Path) -> None:
    source = {"type": "python", "datasets": "nowhere_api:datasets", "read": "nowhere_api:read"}
    with pytest.raises((SourceError, UsageError), match="nowhere_api"):
        reopened(root, {}, source=source).run()


# -- published data ----------------------------------------------------------------------------------------------------
def test_published_rows_are_read_by_project_or_by_manifest(ran: GobblinProject) -> None:
    published = ran.load_published("a")
    assert published.to_arrow().to_table().column("id").to_pylist() == [0, 1, 2]
    assert read_published(ran.root / "lake", "numbers", "a").paths() == published.paths("main")
    assert repr(published).splitlines() == [
        "dataset a of job numbers: snapshot 1",
        "branch  files  rows  bytes",
        f"main        1     3    {published.files[0].size_bytes}",
    ]


def test_branch_may_be_left_out_if_there_is_one(root: Path) -> None:
    project = reopened(root, TWO, fork={"branches": [{"name": "one"}, {"name": "two"}]})
    project.run()
    with pytest.raises(UsageError, match=r"several branches\. Name one of one, two"):
        project.load_published("a").paths()
    assert len(project.load_published("a").paths("two")) == 1
    assert read_published(root / "lake", "numbers", "none").paths() == []


def test_snapshots_and_rollback(ran: GobblinProject) -> None:
    project = reopened(ran.root, {"a": {"rows": 5}, "b": {"rows": 2}})
    project.run()
    assert [(one.snapshot, one.rows) for one in project.snapshots("a")] == [(2, {"main": 2}), (1, {"main": 3})]
    assert project.rollback("a", 1, dry_run=True).to == 1
    assert project.load_published("a").snapshot == 2
    plan = project.rollback("a", 1, why="bad rows")
    assert "snapshot       2 -> 3, equal to 1" in repr(plan)
    assert project.load_published("a").rows == {"main": 3}
    assert project.load_published("a", snapshot=2).rows == {"main": 5}
    assert [entry.why for entry in project.state.history("a")][-1] == "rollback to snapshot 1: bad rows"
    assert [one.rows for one in project.plan(select="a")] == [2]


# -- state -------------------------------------------------------------------------------------------------------------
def test_state_is_listed_shown_set_and_reset(ran: GobblinProject) -> None:
    states = ran.state.list(select=["a", "b"], exclude="b")
    assert ([str(state.watermark) for state in states], states.damaged) == (["3"], {})
    assert "committed     [0, 3)" in repr(ran.state.show("a"))
    for position in (LongWatermark(2), 2, "2"):
        change = ran.state.set("a", position, why="again", dry_run=True)
        assert (str(change.after.watermark), change.is_backward) == ("2", True)
    assert str(ran.state.show("a").watermark) == "3"
    ran.state.set("a", 2, why="again")
    assert [one.rows for one in ran.plan(select="a")] == [1]
    assert "from         [0, 2)" in repr(ran.state.reset("a", why="made anew"))
    assert [one.rows for one in ran.plan(select="a")] == [3]
    assert [entry.by for entry in ran.state.history("a")] == ["run", "person", "person"]


@pytest.mark.parametrize("why", ["", "  "])
def test_change_without_a_reason_is_refused(ran: GobblinProject, why: str) -> None:
    with pytest.raises(UsageError, match="The reason is empty"):
        ran.state.set("a", 2, why=why)
    with pytest.raises(UsageError, match="The reason is empty"):
        ran.state.reset("a", why=why)
    with pytest.raises(UsageError, match="The reason is empty"):
        ran.startpoint.set("a", 2, why=why, on_rewind="append")


def test_retry_without_a_range_that_was_given_up_is_refused(ran: GobblinProject) -> None:
    with pytest.raises(UsageError, match="No range of dataset 'a' was given up"):
        ran.state.retry("a", why="mended")


def test_state_that_is_whole_is_restored_to_what_it_is(ran: GobblinProject) -> None:
    assert ran.state.restore("a") == ran.state.show("a")


def test_runs_are_listed_of_all_jobs_or_of_one_dataset(ran: GobblinProject) -> None:
    reopened(ran.root, {"a": {"rows": 5}, "b": {"rows": 2}}).run()
    assert [len(run.datasets) for run in ran.state.runs()] == [1, 2]
    assert len(ran.state.runs("numbers", dataset="b")) == 1
    with pytest.raises(UsageError, match="has no job 'none'"):
        ran.state.runs("none")


def test_states_go_from_one_store_to_another(ran: GobblinProject) -> None:
    ran.state.export(ran.root / "state.jsonl")
    with closing(open_store("sqlite:///empty.db", ran.root)) as store:
        other = open_project(ran.root, store=store, runner=InlineRunner())
        assert other.state.import_from(ran.root / "state.jsonl", dry_run=True).has_changes
        assert list(other.state.list()) == []
        other.state.import_from(ran.root / "state.jsonl")
        assert list(other.state.list()) == list(ran.state.list())
    with pytest.raises(StorageError, match="No such file"):
        ran.state.import_from(ran.root / "none.jsonl")


# -- startpoints -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("position", [1, "1", LongWatermark(1)], ids=["number", "text", "watermark"])
def test_startpoint_is_previewed_set_honoured_and_removed(ran: GobblinProject, position: Any) -> None:
    assert [
        one.plan.rows for one in ran.startpoint.set("a", position, why="again", on_rewind="append", dry_run=True)
    ] == [2]
    assert list(ran.startpoint.list()) == []
    ran.startpoint.set("a", position, why="again", on_rewind="append", expires_in=timedelta(days=1))
    assert [str(one) for one in ran.startpoint.list("numbers")] == ["1"]
    assert [one.dataset_urn for one in ran.startpoint.remove("*")] == ["a"]
    with pytest.raises(UsageError, match="has no startpoint"):
        ran.startpoint.remove("a")
    assert [(one.change, one.commit_id) for one in ran.startpoint.history()] == [("set", ""), ("removed", "")]


def test_startpoint_of_all_datasets_leaves_those_that_have_one(ran: GobblinProject) -> None:
    ran.startpoint.set("a", 1, why="again", on_rewind="append")
    assert [one.startpoint.dataset_urn for one in ran.startpoint.set("*", Oldest(), why="all", on_rewind="append")] == [
        "b"
    ]
    assert [one.rows_read for one in ran.run()] == [2, 2]
    assert list(ran.startpoint.list()) == []
    applied = [one for one in ran.startpoint.history() if one.change == "applied"]
    newest = {one: ran.state.history(one)[-1] for one in ("a", "b")}
    assert {one.startpoint.dataset_urn: one.commit_id for one in applied} == {
        urn: entry.sequence_id for urn, entry in newest.items()
    }
    assert applied[0].commit_id in repr(ran.startpoint.history())


def test_startpoint_that_is_no_position_is_told_and_not_stored(ran: GobblinProject) -> None:
    (one,) = ran.startpoint.set("a", datetime(2026, 3, 1, tzinfo=UTC), why="an instant", on_rewind="append")
    assert "ids know no times" in one.plan.problem
    assert list(ran.startpoint.list()) == []
    with pytest.raises(UsageError, match="no dataset 'none'"):
        ran.startpoint.set("none", 1, why="again", on_rewind="append")


# -- after a crash, and maintenance ------------------------------------------------------------------------------------
class CrashError(BaseException):
    """What a killed process would not have said."""


class Crash(SilentListener):
    """Ends a commit after its first step."""

    def step_done(self, sequence: Any, step: Any, number: int) -> None:
        raise CrashError


@pytest.fixture
def crashed(root: Path, monkeypatch: pytest.MonkeyPatch) -> GobblinProject:
    """A project whose run was ended in the middle of its first commit."""
    project = open_project(root, runner=InlineRunner())
    with pytest.raises(CrashError):
        project.run(select="a", commit_listener=Crash())
    return project


def test_commit_that_a_crash_left_is_listed_and_recovered(crashed: GobblinProject) -> None:
    assert [one.state for one in crashed.commit.list()] == [SequenceState.PREPARED]
    (left,) = crashed.commit.list()
    assert {step.is_done for step in crashed.commit.show(left.id)} == {True, False}
    assert "prepared" in repr(crashed.commit.show(left.id)).splitlines()[0]
    (recovered,) = crashed.commit.recover()
    assert (recovered.state, recovered.dataset_urn) == (SequenceState.COMMITTED, "a")
    assert crashed.load_published("a").rows == {"main": 3}
    assert len(crashed.commit.list()) == 0
    assert len(crashed.commit.list(finished=True)) == 1


def test_commit_that_a_crash_left_is_abandoned(crashed: GobblinProject) -> None:
    (left,) = crashed.commit.list("numbers")
    assert crashed.commit.abandon(left.id, dry_run=True).state is SequenceState.PREPARED
    given_up = crashed.commit.abandon(left.id, why="not wanted")
    assert given_up.state is SequenceState.ABORTED
    assert "state     aborted" in repr(given_up)
    assert [one.rows for one in crashed.plan(select="a")] == [3]


def test_files_are_merged_verified_and_cleaned_up(ran: GobblinProject) -> None:
    project = reopened(ran.root, {"a": {"rows": 5}, "b": {"rows": 2}})
    project.run()
    assert [(one.dataset_urn, one.files, one.snapshot) for one in project.compact(dry_run=True)] == [("a", 2, 0)]
    (merged,) = project.compact(datasets="a")
    assert (merged.snapshot, len(project.load_published("a").files)) == (3, 1)
    assert project.verify(checksum=True).is_whole
    Path(project.load_published("a").paths()[0]).unlink()
    found = project.verify(datasets=["a"])
    assert not found.is_whole
    assert repr(found).startswith("job numbers: something differs")
    (ran.root / "lake/_gobblin/staging/of-another-store").mkdir()
    assert "kept         1; `kept_because` says why" in repr(project.clean())


def test_rejected_rows_are_counted_shown_and_replayed(root: Path) -> None:
    policy = {"type": "sql", "name": "small", "rule": "id < 2", "on_violation": "quarantine"}
    project = reopened(root, TWO, row_policies=[policy])
    project.run()
    assert [(one.dataset_urn, one.policy, one.rows) for one in project.quarantine.list()] == [("a", "small", 1)]
    (row,) = project.quarantine.show("a", policy="small")
    assert json.loads(row.record)["id"] == 2
    assert project.load_published("a").to_arrow().count_rows() == 2  # the quarantine is no branch that need be named
    lenient = reopened(root, TWO, row_policies=[policy | {"rule": "id < 9"}])
    assert lenient.quarantine.replay("a", dry_run=True).rows == {"small": 1}
    done = lenient.quarantine.replay("a")
    assert done.published == {"main": 1}
    assert "replayed   small 1" in repr(done)
    assert repr(lenient.quarantine.list()) == "0 rows in quarantine"


def test_damaged_file_of_rejected_rows_hides_no_other_dataset(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The command listed the others, and this raised."""
    policy = {"type": "sql", "name": "small", "rule": "id < 1", "on_violation": "quarantine"}
    project = reopened(root, TWO, row_policies=[policy])
    project.run()
    (whole, *others) = project.quarantine.list()
    assert others
    for path in (root / "lake").rglob(f"*quarantine/{whole.dataset_urn}/*.parquet"):
        path.unlink()
    found = project.quarantine.list()
    assert list(found) == others
    assert f"in quarantine; damaged, and not counted: {whole.dataset_urn}" in repr(found)
    assert f"Dataset {whole.dataset_urn!r} of job" in caplog.text


# -- Spark's life ------------------------------------------------------------------------------------------------------
class Spark(InlineRunner):
    """In place of Spark, which would take seconds to start."""

    made: list[Spark]
    fails = False

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.is_closed = False
        self.made.append(self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def sparks(monkeypatch: pytest.MonkeyPatch) -> list[Spark]:
    Spark.made = []
    monkeypatch.setattr("gobblin_dagster.face.session.LazySparkRunner", Spark)
    return Spark.made


def test_spark_is_kept_between_runs_and_ends_with_the_project(root: Path, sparks: list[Spark]) -> None:
    with open_project(root) as project:
        project.run(select="a")
        project.run()
        assert [one.is_closed for one in sparks] == [False]
    assert [one.is_closed for one in sparks] == [True]
    project.run()
    assert [one.is_closed for one in sparks] == [True, False]


def test_spark_ends_if_the_project_is_forgotten(root: Path, sparks: list[Spark]) -> None:
    open_project(root).run()
    assert [one.is_closed for one in sparks] == [True]


def test_dagster_layer_takes_what_an_opened_project_holds(project: GobblinProject) -> None:
    from gobblin_dagster.orchestration import gobblin_assets

    assert len([*gobblin_assets(project.project, project.job("numbers")).keys]) == 1


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("module", ["project", "state", "startpoint", "commit", "quarantine"])
def test_examples_of_the_face_are_true(root: Path, module: str) -> None:
    ran_root = root / "ran"
    ran_root.mkdir()
    (ran_root / "gobblin.yaml").write_text("project: tests\n")
    write_job(ran_root, TWO)
    ran = open_project(ran_root, runner=InlineRunner())
    ran.run()
    face = importlib.import_module(f"gobblin_dagster.face.{module}")
    tests = doctest.DocTestFinder().find(face, extraglobs={"ran": ran})
    examples = [test for test in tests if test.examples]
    for number, test in enumerate(examples):
        fresh = root / str(number)
        fresh.mkdir()
        (fresh / "gobblin.yaml").write_text("project: tests\n")
        write_job(fresh, TWO)
        test.globs["example"] = fresh
        assert doctest.DocTestRunner().run(test).failed == 0
    assert examples or module == "quarantine"


def test_every_name_of_the_api_is_there_and_one_of_the_package() -> None:
    import gobblin_dagster

    for name in api.__all__:
        assert getattr(gobblin_dagster, name) is getattr(api, name)
    assert {*api.__all__} <= {*dir(gobblin_dagster)}
    with pytest.raises(AttributeError, match="nonsense"):
        _ = gobblin_dagster.nonsense  # type: ignore[attr-defined]  # that is the point


def test_registry_and_errors_are_those_of_the_inside() -> None:
    from gobblin_dagster.constructs.registry import registry as inside
    from gobblin_dagster.core.errors import ConvertError as InsideError

    assert (registry, ConvertError) == (inside, InsideError)


# -- files that the system refuses -------------------------------------------------------------------------------------
def test_files_that_the_system_refuses_are_told_with_path_and_advice(ran: GobblinProject, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    calls: dict[str, Callable[[], object]] = {
        "export": lambda: ran.state.export(tmp_path / "no" / "such"),
        "import_from": lambda: ran.state.import_from(tmp_path / "gone"),
        "write_demo": lambda: write_demo(file / "demo"),
        "write_service": lambda: write_service(file / "demo"),
        "read_published": lambda: read_published(file, "numbers", "a"),
    }
    for name, call in calls.items():
        with pytest.raises(StorageError, match=rf"finish (\w+\.)?{name} because of {tmp_path}/.*; correct the path"):
            call()


def test_export_that_fails_leaves_the_former_one(crashed: GobblinProject, tmp_path: Path) -> None:
    file = tmp_path / "state.jsonl"
    file.write_text("former")
    with pytest.raises(UnfinishedSequenceError):
        crashed.state.export(file)
    assert file.read_text() == "former"
    assert not list(tmp_path.glob(".*.part"))
    crashed.commit.recover()
    crashed.state.export(file)
    assert crashed.state.import_from(file, dry_run=True)
