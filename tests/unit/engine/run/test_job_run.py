"""Runs of whole jobs without Spark: what is published, what fails alone, what a second run does."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.cli.render.run import recovery_line
from gobblin_dagster.core.errors import EnvironmentFaultError, StorageError, TransientError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import JobRun, plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.protocol.scenario import SetClock
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run


def test_run_new_datasets_publishes_all_branches_and_moves_watermarks(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 250}, "b/c": {"rows": 3}})
    result = run(tmp_path, job)
    assert (result.status, result.exit_code) == (RunStatus.SUCCEEDED, 0)
    assert published(tmp_path, job, "a") == list(range(250))
    assert published(tmp_path, job, "b/c", "masked") == [0, 1, 2]
    dataset = by_urn(result)["a"]
    assert dataset.actual_high == LongWatermark(250)
    assert dataset.rows_by_branch == {"all": 250, "masked": 250}


def test_run_again_with_nothing_new_is_idle_and_starts_no_lane(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}})
    run(tmp_path, job)
    runner = InlineRunner()
    result = run_job(project(tmp_path, job), job, runner=runner)
    assert by_urn(result)["a"].outcome is DatasetOutcome.IDLE
    assert (result.exit_code, runner.is_started) == (0, False)


def test_run_with_new_rows_reads_only_those(tmp_path: Path) -> None:
    run(tmp_path, job_spec({"a": {"rows": 5}}))
    job = job_spec({"a": {"rows": 8}})
    assert by_urn(run(tmp_path, job))["a"].rows_read == 3
    assert published(tmp_path, job, "a") == list(range(8))


def test_run_one_bad_dataset_leaves_the_others_published(tmp_path: Path) -> None:
    job = job_spec({"bad": {"rows": 50, "fail_at": 20}, "good": {"rows": 50}})
    result = run(tmp_path, job)
    assert (result.status, result.exit_code) == (RunStatus.PARTIAL, 4)
    assert by_urn(result)["bad"].failures[0].message == "Dataset 'bad', file bad.rows, row 20: is told to fail."
    assert published(tmp_path, job, "good") == list(range(50))
    assert published(tmp_path, job, "bad") == []


def test_run_all_datasets_bad_exits_1(tmp_path: Path) -> None:
    result = run(tmp_path, job_spec({"bad": {"rows": 50, "fail_at": 20}, "worse": {"rows": 1, "problem": "no door"}}))
    assert (result.status, result.exit_code) == (RunStatus.FAILED, 1)
    assert by_urn(result)["worse"].failures[0].message == "no door"


def test_policy_full_failed_unit_publishes_nothing_of_its_dataset(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}})
    result = run(tmp_path, job)
    assert by_urn(result)["a"].outcome is DatasetOutcome.FAILED
    assert published(tmp_path, job, "a") == []
    assert not list(tmp_path.glob("lake/**/*.parquet"))


def test_policy_successful_failed_unit_leaves_a_gap_that_is_read_alone(tmp_path: Path) -> None:
    commit = {"policy": "successful"}
    bad = job_spec({"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}}, commit=commit)
    result = run(tmp_path, bad)
    dataset = by_urn(result)["a"]
    assert (dataset.outcome, result.exit_code) == (DatasetOutcome.COMMITTED, 4)
    assert dataset.actual_high == LongWatermark(10)
    assert published(tmp_path, bad, "a") == [*range(10), *range(20, 30)]
    mended = job_spec({"a": {"rows": 35, "unit_rows": 10}}, commit=commit)
    assert by_urn(run(tmp_path, mended))["a"].rows_read == 15
    assert published(tmp_path, mended, "a") == list(range(35))


def test_policy_successful_failed_first_unit_keeps_the_watermark_at_the_beginning(tmp_path: Path) -> None:
    commit = {"policy": "successful"}
    bad = job_spec({"a": {"rows": 30, "unit_rows": 10, "fail_at": 5}}, commit=commit)
    assert by_urn(run(tmp_path, bad))["a"].actual_high == LongWatermark(0)
    mended = job_spec({"a": {"rows": 30, "unit_rows": 10}}, commit=commit)
    assert by_urn(run(tmp_path, mended))["a"].actual_high == LongWatermark(30)
    assert published(tmp_path, mended, "a") == list(range(30))


def test_branch_failure_fails_its_unit_and_publishes_no_branch(tmp_path: Path) -> None:
    fork = {
        "branches": [
            {"name": "all"},
            {"name": "typed", "converters": [{"type": "sql", "select": "cast(value as integer) as number"}]},
        ]
    }
    job = job_spec({"a": {"rows": 30}}, fork=fork)
    dataset = by_urn(run(tmp_path, job))["a"]
    assert dataset.outcome is DatasetOutcome.FAILED
    assert [failure.branch for failure in dataset.failures] == ["typed"]
    assert published(tmp_path, job, "a") == []


def test_rejected_rows_are_quarantined_with_reason_and_position(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    policies = [{"name": "has_value", "type": "not_null", "columns": ["value"], "on_violation": "quarantine"}]
    job = job_spec({"a": {"rows": 25}}, row_policies=policies)
    dataset = by_urn(run(tmp_path, job))["a"]
    assert (dataset.rejected, dataset.rows_quarantined) == ({"has_value": 3}, 3)
    assert len(published(tmp_path, job, "a")) == 22
    (file,) = tmp_path.glob("lake/test/numbers/quarantine/a/*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [(row["policy"], row["source_file"], row["source_row"]) for row in rows] == [
        ("has_value", "a.rows", 1),
        ("has_value", "a.rows", 11),
        ("has_value", "a.rows", 21),
    ]


def test_row_policy_fail_fails_the_work_unit(tmp_path: Path) -> None:
    policies = [{"name": "has_value", "type": "not_null", "columns": ["value"], "on_violation": "fail"}]
    dataset = by_urn(run(tmp_path, job_spec({"a": {"rows": 25}}, row_policies=policies)))["a"]
    assert dataset.failures[0].code == "data-quality"
    assert "a.rows row 1" in dataset.failures[0].message


def test_enforced_task_policy_failure_publishes_nothing(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 25}}, task_policies=[{"type": "row_count_range", "min": 26}])
    dataset = by_urn(run(tmp_path, job))["a"]
    assert dataset.outcome is DatasetOutcome.FAILED
    assert {failure.branch for failure in dataset.failures} == {"all", "masked"}
    assert all(failure.message.startswith(f"Branch {failure.branch!r}, policy ") for failure in dataset.failures)


def test_optional_task_policy_failure_is_recorded_and_published(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 25}}, task_policies=[{"type": "row_count_range", "min": 26, "enforce": False}])
    dataset = by_urn(run(tmp_path, job))["a"]
    assert dataset.outcome is DatasetOutcome.COMMITTED
    assert [policy.result for policy in dataset.policies] == ["failed", "failed"]


def test_selection_runs_only_what_matches(tmp_path: Path) -> None:
    job = job_spec({"a-1": {"rows": 2}, "a-2": {"rows": 2}, "b-1": {"rows": 2}})
    result = run(tmp_path, job, Selection(select=("a-*",), exclude=("*-2",)))
    assert list(by_urn(result)) == ["a-1"]


@pytest.mark.parametrize(
    ("select", "exclude", "told"),
    [
        (("x",), (), "of 2 datasets, --select 'x' takes none (a, b)"),
        ((), ("-", "*"), "--exclude '-' '*' leaves out all of 2 datasets (a, b)"),
        (("a*",), ("?",), "of 2 datasets, --select 'a*' takes 1 (a), and --exclude '?' leaves out all of these"),
    ],
)
def test_selection_of_nothing_says_what_left_out_which(
    tmp_path: Path, select: tuple[str, ...], exclude: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UsageError) as refused:
        run(tmp_path, job_spec({"a": {"rows": 2}, "b": {"rows": 2}}), Selection(select=select, exclude=exclude))
    assert f"No dataset of job 'numbers' is selected: {told}." in str(refused.value)


def test_package_of_a_writer_is_missed_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    job = job_spec({"a": {"rows": 2}}, output={"path": "s3://bucket/lake"})
    for command in (lambda: plan_job(project(tmp_path, job), job), lambda: run(tmp_path, job)):
        with pytest.raises(EnvironmentFaultError, match=r"output\.path: The package boto3 .* 'gobblin-dagster\[s3\]'"):
            command()


def test_plan_changes_nothing_and_shows_what_a_run_would_read(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 25, "unit_rows": 10}})
    plan = plan_job(project(tmp_path, job), job)
    (dataset,) = plan.datasets
    assert (dataset.low, dataset.expected_high, dataset.rows) == (LongWatermark(0), LongWatermark(25), 25)
    assert [unit.id for unit in dataset.work_units] == ["wu-00001", "wu-00002", "wu-00003"]
    assert not (tmp_path / "lake").exists()


def test_stop_commits_what_is_whole_and_leaves_the_rest(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 10}, "b": {"rows": 10}, "c": {"rows": 10}})
    stop = threading.Event()

    class StopAfterFirst(RunListener):
        def task_done(self, state: TaskState, done: int, total: int) -> None:
            stop.set()

    result = run_job(project(tmp_path, job), job, runner=InlineRunner(), listeners=[StopAfterFirst()], stop=stop)
    assert (result.status, result.exit_code) == (RunStatus.INTERRUPTED, 130)
    outcomes = [dataset.outcome for dataset in result.datasets]
    assert sorted(outcomes) == ["cancelled", "cancelled", "committed"]
    assert by_urn(run(tmp_path, job))["c"].outcome in (DatasetOutcome.COMMITTED, DatasetOutcome.IDLE)
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "abc")


def test_dataset_held_by_another_run_is_busy_and_the_others_go_on(tmp_path: Path) -> None:
    from datetime import timedelta

    job = job_spec({"a": {"rows": 10}, "b": {"rows": 10}})
    store = project(tmp_path, job).open_store()
    store.acquire_leases(job.job, ["a"], LeaseOwner.current("other-run"), timedelta(seconds=60))
    store.close()
    result = run(tmp_path, job)
    assert by_urn(result)["a"].outcome is DatasetOutcome.BUSY
    assert "held by run other-run" in by_urn(result)["a"].failures[0].message
    assert (published(tmp_path, job, "a"), published(tmp_path, job, "b")) == ([], list(range(10)))
    assert result.exit_code == 4


def test_staging_is_gone_after_a_run(tmp_path: Path) -> None:
    run(tmp_path, job_spec({"a": {"rows": 10}, "bad": {"rows": 10, "fail_at": 1}}))
    staging = tmp_path / "lake" / "_gobblin" / "staging"
    assert not staging.exists() or not list(staging.iterdir())


def test_staging_of_a_run_that_could_not_store_its_commit_is_deleted_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knew whether the commit was stored; so only `gobblin clean` deleted it, while the run was recorded."""
    job = job_spec({"a": {"rows": 10}})
    staging = tmp_path / "lake" / "_gobblin" / "staging"

    def full(*_: object) -> None:
        raise StorageError(operation="use", path="state.db", problem="disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqlStateStore, "prepare", full)
        assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.FAILED
    assert list(staging.iterdir())
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == list(range(10))
    assert not list(staging.iterdir())
    assert project(tmp_path, job).open_store().load_leases(job.job) == {}


@pytest.mark.parametrize("scope", ["dataset", "job"])
def test_run_that_lost_its_lease_while_it_froze_publishes_nothing(tmp_path: Path, scope: str) -> None:
    """The run that had the lease meanwhile may have deleted what it staged, and have left without moving anything."""
    job = job_spec({"a": {"rows": 10}, "b": {"rows": 10}}, commit={"scope": scope})
    store = project(tmp_path, job).open_store()
    with JobRun(JobContext.of(project(tmp_path, job), job, store), InlineRunner()) as frozen:
        staged = frozen.extract(frozen.plan())
        store.release_leases("numbers", [store.load_leases("numbers")["a"]])
        other = LeaseOwner.current("other")
        granted = store.acquire_leases("numbers", ["a"], other, timedelta(minutes=1)).granted
        store.release_leases("numbers", list(granted.values()))
        result = frozen.publish(staged)
    failures = {dataset.dataset_urn: [one.code for one in dataset.failures] for dataset in result.datasets}
    assert failures == {"a": ["epoch-stale"], "b": [] if scope == "dataset" else ["group-held-back"]}
    assert {sequence.dataset_urn for sequence in store.load_sequences("numbers")} == set()
    store.close()
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "ab")


@pytest.mark.parametrize(("days", "shown"), [(1, "1 day, 0:00:00 ahead of"), (-1, "1 day, 0:00:00 behind")])
@pytest.mark.parametrize("is_done", [False, True], ids=["while the other works", "after the other"])
def test_run_whose_lease_a_machine_with_another_clock_took_leaves_it_and_names_the_clocks(
    tmp_path: Path, days: int, shown: str, is_done: bool
) -> None:
    job = job_spec({"a": {"rows": 10}})
    files = ProjectSpec(project="tests", state="files:state")
    here = Project(tmp_path, files, (job,))
    there = Project(tmp_path, files, (job,), clock=SetClock(here.clock.now() + timedelta(days=days)))
    store, other_store = here.open_store(), there.open_store()
    with JobRun(JobContext.of(here, job, store), InlineRunner()) as first:
        staged = first.extract(first.plan())
        with JobRun(JobContext.of(there, job, other_store), InlineRunner()) as other:
            other_staged = other.extract(other.plan())
            if is_done:
                assert other.publish(other_staged).status is RunStatus.SUCCEEDED
            (failed,) = first.publish(staged).datasets
            if not is_done:
                assert other.publish(other_staged).status is RunStatus.SUCCEEDED
    (failure,) = failed.failures
    assert failure.code == "epoch-stale"
    assert f"The clock of that machine is about {shown} the clock here: set both." in failure.message
    assert [file.rows for file in store.load_snapshot("numbers", "a") if file.branch == "all"] == [10]


def test_observer_is_told_once_of_each_dataset_also_of_one_that_was_refused(tmp_path: Path) -> None:
    told: list[tuple[str, DatasetOutcome]] = []

    class Listening(RunListener):
        def dataset_done(self, result: DatasetResult) -> None:
            told.append((result.dataset_urn, result.outcome))

    run(tmp_path, job_spec({"idle": {"rows": 1}}))
    job = job_spec({**{urn: {"rows": 10} for urn in "ac"}, "bad": {"rows": 10, "fail_at": 1}, "idle": {"rows": 1}})
    store = project(tmp_path, job).open_store()
    with JobRun(JobContext.of(project(tmp_path, job), job, store), InlineRunner(), [Listening()]) as running:
        decided = running.extract(running.plan())
        store.release_leases("numbers", [store.load_leases("numbers")["a"]])
        store.acquire_leases("numbers", ["a"], LeaseOwner.current("other"), timedelta(minutes=1))
        result = running.publish(decided)
    store.close()
    assert sorted(told) == [
        ("a", DatasetOutcome.FAILED),
        ("bad", DatasetOutcome.FAILED),
        ("c", DatasetOutcome.COMMITTED),
    ]
    assert [one.dataset_urn for one in result.datasets if one.is_committed] == ["c"]


def _killed(tmp_path: Path) -> JobSpec:
    """Kill a child process after its last commit step: sequence, lease, staging and manifest are left behind."""
    import subprocess
    import sys

    child = f"""
from pathlib import Path
from gobblin_dagster.engine.commit.listener import crash_at
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import job_spec, project
job = job_spec({{"a": {{"rows": 10}}, "b": {{"rows": 10}}}})
run_job(project(Path({str(tmp_path)!r}), job), job, runner=InlineRunner(), commit_listener=crash_at(2))
"""
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == -9
    return job_spec({"a": {"rows": 10}, "b": {"rows": 10}})


def test_recovery_stands_where_the_source_cannot_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _killed(tmp_path)

    def away(*_: object) -> int:
        raise TransientError(problem="The source is away.")

    monkeypatch.setattr(RowsSource, "count_rows", away)
    result = run(tmp_path, job)
    assert result.status is RunStatus.SUCCEEDED
    committed = [one for one in result.recovered if one.state == "committed"]
    assert committed
    assert {recovery_line(one).partition("; ")[2] for one in committed} == {
        "its rows could not be counted again: The source is away."
    }
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "ab")


def test_killed_run_is_tidied_up_by_the_next_one(tmp_path: Path) -> None:
    job = _killed(tmp_path)
    staging = tmp_path / "lake" / "_gobblin" / "staging"
    assert list(staging.iterdir())
    result = run(tmp_path, job)
    assert [recovered.state for recovered in result.recovered].count("committed") >= 1
    assert all(one.audit is not None and (one.audit.lost, one.audit.duplicated) == (0, 0) for one in result.recovered)
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "ab")
    assert not list(staging.iterdir())
    manifests = tmp_path / "lake" / "_gobblin" / "manifests" / "numbers"
    assert sorted(path.name for path in manifests.iterdir()) == ["a", "b"]
    store = project(tmp_path, job).open_store()
    assert store.load_leases(job.job) == {}
    store.close()


def test_dataset_moved_by_another_run_while_reading_is_refused(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 10}})

    class Overtake(RunListener):
        """Another run takes the dataset over, past our lease, while our work units run."""

        def task_done(self, state: TaskState, done: int, total: int) -> None:
            import sqlite3

            with sqlite3.connect(tmp_path / ".gobblin" / "state.db") as connection:
                connection.execute("delete from gobblin_leases")
            run(tmp_path, job)

    result = run(tmp_path, job, listener=Overtake())
    assert by_urn(result)["a"].failures[-1].code == "watermark-moved"
    assert published(tmp_path, job, "a") == list(range(10))
    assert len(list((tmp_path / "lake/test/numbers/all").rglob("*.parquet"))) == 1


def test_strange_urns_are_published_below_their_branch_and_nowhere_else(tmp_path: Path) -> None:
    urns = ["..", "../../etc", "a/b", "a b", "ü…", ".hidden", "_x", "a%2Fb"]
    job = job_spec({urn: {"rows": 3} for urn in urns})
    result = run(tmp_path / "deep" / "project", job)
    assert result.exit_code == 0
    assert all(published(tmp_path / "deep" / "project", job, urn) == [0, 1, 2] for urn in urns)
    branch = tmp_path / "deep/project/lake/test/numbers/all"
    assert sorted(path.name for path in branch.iterdir()) == [
        "%2E.",
        "%2E.%2F..%2Fetc",
        "%2Ehidden",
        "%5Fx",
        "%C3%BC%E2%80%A6",
        "a%20b",
        "a%252Fb",
        "a%2Fb",
    ]
    outside = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*.parquet")}
    assert outside == {("deep", "project")}


@pytest.mark.parametrize("state", ["sqlite:///state.db", "files:state"])
@pytest.mark.parametrize("urn", ["x" * 241, "nul\0", "two\nlines"], ids=["long", "nul", "lines"])
def test_urn_that_no_folder_can_carry_fails_its_dataset_alone(tmp_path: Path, urn: str, state: str) -> None:
    job = job_spec({"a": {"rows": 3}, urn: {"rows": 3}})
    opened = Project(tmp_path, ProjectSpec(project="tests", state=state), (job,))
    result = run_job(opened, job, runner=InlineRunner())
    assert (result.exit_code, by_urn(result)["a"].rows_read) == (4, 3)
    (failure,) = by_urn(result)[urn].failures
    assert failure.code == "urn-invalid"
    assert failure.message.startswith(f"dataset.urn {urn[:8]!r}"[:-1])
