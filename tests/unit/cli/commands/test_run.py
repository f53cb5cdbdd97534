from __future__ import annotations

import errno
import json
import shutil
import signal
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.commands.run import exit_code
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run import job_run
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.engine.spark import lazy
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job
from tests.unit.cli.test_main import HEAVY, imported_by

NO_FOLDER = {"type": "files", "path": "no/such/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}


def result(status: RunStatus) -> RunResult:
    now = SystemClock().now()
    return RunResult("job", "run", status, now, now)


def test_run_prints_plan_progress_commit_and_summary(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run")
    assert called.code == 0
    assert called.err == ""
    lines = called.out.splitlines()
    assert lines[0] == "Plan of job numbers: 2 datasets with new data, 0 up to date"
    assert "read a: 25 rows" in lines
    assert "read b/c: 3 rows" in lines
    assert any(line.split() == ["a", "committed", "0", "->", "25", "25", "1", "1"] for line in lines)
    assert lines[-4].startswith("Job numbers succeeded: 2 committed; 2 watermarks moved, 28 rows read, 28 published")
    assert lines[-3].startswith("Next: `gobblin run` reads only what is new")
    assert lines[-2].startswith("Spark ended with this run; `spark: {keep_warm: 15m}` in gobblin.yaml keeps it")
    assert lines[-1].startswith("Log: .gobblin/logs/run-2")


def test_run_output_in_a_pipe_has_no_control_codes_nor_blanks_at_line_ends(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    called = cli("run")
    assert "\x1b" not in called.out
    assert all(line == line.rstrip() for line in called.out.splitlines())


def test_run_beside_another_leaves_the_datasets_that_are_busy_and_shows_the_packs_of_the_others(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    with closing(open_project(project).open_store()) as store:
        store.acquire_leases("numbers", ["a"], LeaseOwner("run-9", "elsewhere", "", 1, ""), timedelta(minutes=5))
    called = cli("run")
    assert (called.code, "is held by run run-9" in called.out) == (4, True)
    assert "read b/c: 3 rows" in called.out


def test_dataset_that_another_run_holds_is_busy_and_not_said_to_be_lost(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    cli("run")
    write_job(project, {"a": {"rows": 40}, "b/c": {"rows": 5}})
    with closing(open_project(project).open_store()) as store:
        store.acquire_leases("numbers", ["a"], LeaseOwner("run-9", "elsewhere", "", 1, ""), timedelta(minutes=5))
    called = cli("run")
    assert (called.code, "is held by run run-9" in called.out) == (4, True)
    assert "state store" not in called.out


def test_run_whose_state_store_was_lost_does_not_publish_everything_again(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    cli("run")
    export = project / "state.jsonl"
    export.write_text(cli("state", "export", "--select", "a").out)
    shutil.rmtree(project / ".gobblin")
    planned = cli("plan")
    assert "0 datasets with new data, 0 up to date, 2 that cannot be planned" in planned.out
    assert "_gobblin/manifests/numbers/a holds snapshots that the state store sqlite:///" in planned.out
    called = cli("run")
    assert called.code == 1
    assert "a: error[source]: " in called.out
    assert "_gobblin/manifests/numbers/b%2Fc holds snapshots that the state store sqlite:///" in called.out
    assert cli("state", "import", export, "--yes").code == 0
    shutil.rmtree(project / "lake/_gobblin/manifests/numbers/b%2Fc")
    assert "1 committed, 1 idle" in cli("run").out


def set_back_store(cli: Cli, project: Path) -> None:
    """Run twice, and put back the store as it was between the runs."""
    cli("run")
    shutil.copytree(project / ".gobblin", project / "backup")
    write_job(project, {"a": {"rows": 40}, "b/c": {"rows": 3}})
    cli("run")
    shutil.rmtree(project / ".gobblin")
    shutil.copytree(project / "backup", project / ".gobblin")


def test_run_whose_state_store_was_set_back_does_not_publish_again_what_came_since(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    set_back_store(cli, project)
    assert "_gobblin/manifests/numbers/a/0000000002.json holds a snapshot after 1" in cli("plan").out
    called = cli("run")
    assert called.code == 1
    assert "_gobblin/manifests/numbers/a/0000000002.json holds a snapshot after 1, the newest that " in called.out
    assert "the store was restored from an older copy" in called.out
    manifest = project / "lake/_gobblin/manifests/numbers/a/0000000002.json"
    for file in json.loads(manifest.read_text())["branches"]["main"]:
        (project / "lake" / file["path"]).unlink()
    manifest.unlink()
    assert "15 rows read, 15 published" in cli("run").out
    published = read_published(project / "lake", "numbers", "a")
    assert sorted(published.to_arrow("main").to_table(columns=["id"])["id"].to_pylist()) == list(range(40))
    assert {file.path for file in published.files} == {
        str(path) for path in (project / "lake/test/numbers/main/a").iterdir()
    }


def test_run_whose_state_store_was_set_back_goes_on_behind_what_is_published(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    set_back_store(cli, project)
    assert cli("state", "set", "a", "40", "--reason", "set back", "--yes").code == 0
    (project / "lake/_gobblin/manifests/numbers/a/0000000002.json").unlink()
    assert "nothing to do" in cli("run").out


def test_run_again_says_nothing_to_do_and_starts_nothing(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    called = cli("run")
    assert called.code == 0
    assert called.out.startswith("Job numbers: nothing to do, 2 datasets up to date")
    assert [runner.is_started for runner in inline] == [True, False]


def test_idle_run_imports_neither_spark_nor_dagster(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    assert not imported_by("run", cwd=project) & HEAVY


def test_run_json_is_one_document_with_stable_keys(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--output", "json")
    document = called.json()
    assert called.code == 0
    assert (document["schema_version"], document["exit_code"]) == (1, 0)
    (job,) = document["jobs"]
    assert (job["job"], job["status"], len(job["datasets"])) == ("numbers", "succeeded", 2)
    assert (
        job["datasets"][0].items()
        >= {
            "dataset": "a",
            "outcome": "committed",
            "low": "0",
            "actual_high": "25",
            "rows_read": 25,
            "rows_by_branch": {"main": 25},
            "failures": [],
        }.items()
    )
    assert "Plan of job numbers" in called.err


def test_run_json_progress_is_one_object_per_line_on_stderr(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    called = cli("run", "-o", "json", "--progress", "json")
    events = [json.loads(line) for line in called.err.splitlines()]
    assert [event["event"] for event in events] == ["spark_starting", "task_done", "task_done"]
    assert events[1].items() >= {"job": "numbers", "dataset": "a", "rows_read": 25, "done": 1, "total": 2}.items()


def test_run_profile_shows_where_the_time_went(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--profile")
    assert "Profile of job numbers:" in called.out
    assert "2 work units read 28 rows at" in called.out
    again = cli("run", "--profile", "--output", "json").json()["jobs"][0]
    assert again["profile"]["rows"] == 0
    assert again["profile"]["seconds"]["plan"] > 0
    assert "profile" not in cli("run", "--output", "json").json()["jobs"][0]


def test_small_run_without_spark_says_so_in_plan_run_log_and_profile(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "has_session", lambda: False)  # other tests of this process may have one
    settings = project / "gobblin.yaml"
    settings.write_text(settings.read_text() + "spark: {start: when_needed}\n")
    place = "Work runs in processes of this machine, without Spark: little is to be read."
    assert place in cli("plan").out
    (planned,) = cli("plan", "-o", "json").json()["jobs"]
    assert planned["runs_on"] == {"spark": False, "why": "little is to be read"}
    called = cli("run", "--profile")
    assert place in called.out
    assert "Processes start for 2 work units" in called.out
    assert "Work ran in processes of this machine, without Spark: little is to be read." in called.out
    assert "Spark starts" not in called.out
    assert "Spark task" not in called.out
    (log,) = (project / ".gobblin" / "logs").glob("*.jsonl")
    assert '"event": "processes_starting"' in log.read_text()


def test_run_progress_none_shows_no_progress(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--progress", "none")
    assert "Spark starts" not in called.out
    assert "read a" not in called.out
    assert "Commit" in called.out


def test_run_select_and_exclude_take_globs(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--select", "b*", "--exclude", "a", "--output", "json")
    assert [dataset["dataset"] for dataset in called.json()["jobs"][0]["datasets"]] == ["b/c"]
    assert cli("run", "--exclude", "b*", "-o", "json").json()["jobs"][0]["datasets"][0]["dataset"] == "a"


def test_run_select_that_matches_nothing_is_a_usage_error(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--select", "zz*")
    assert called.code == 2
    assert "No dataset of job 'numbers' is selected: of 2 datasets, --select 'zz*' takes none (a, b/c)." in called.err


def test_run_dry_run_prints_the_plan_and_changes_nothing(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    called = cli("run", "--dry-run")
    assert called.code == 0
    assert called.out.startswith("Plan of job numbers: 2 datasets with new data")
    assert not any(runner.is_started for runner in inline)
    assert not (project / "lake").exists()
    assert cli("run", "--dry-run", "-o", "json").json()["dry_run"] is True


def test_run_one_bad_dataset_exits_4_and_names_dataset_file_and_row(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    write_job(project, {"bad": {"rows": 50, "fail_at": 20}, "good": {"rows": 50}})
    called = cli("run")
    assert called.code == 4
    assert "bad: error[extract]: Dataset 'bad', file bad.rows, row 20: is told to fail." in called.out
    assert "Job numbers partial: 1 committed, 1 failed; 1 watermark moved" in called.out
    assert "Next: fix the problems above" in called.out


def test_run_whose_manifest_cannot_be_written_tells_of_no_failed_work_unit(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_job(project, {"a": {"rows": 30}})
    monkeypatch.setattr("gobblin_dagster.engine.commit.committer.write_manifest", full)
    called = cli("run")
    assert called.code == 4
    assert "a: error[storage]: Dataset 'a': cannot write the manifest" in called.out
    assert "1 dataset with errors after the commit; " in called.out
    assert "failed work units" not in called.out


def test_run_policy_successful_names_datasets_with_gaps(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    write_job(project, {"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}}, commit={"policy": "successful"})
    called = cli("run")
    assert called.code == 4
    assert "1 dataset with failed work units" in called.out
    assert "Next: fix the problems above" in called.out
    assert "  work units that failed: [10, 20)\n" in called.out
    (again,) = cli("run", "-o", "json").json()["jobs"][0]["datasets"]
    assert (again["outcome"], again["failed_ranges"]) == ("failed", ["[10, 20)"])


def test_run_all_bad_exits_1(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    write_job(project, {"bad": {"rows": 50, "fail_at": 20}})
    assert cli("run").code == 1


def test_run_named_jobs_only_and_unknown_names_are_refused(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    write_job(project, {"x": {"rows": 1}}, job="other")
    assert [job["job"] for job in cli("run", "other", "-o", "json").json()["jobs"]] == ["other"]
    called = cli("run", "otter")
    assert called.code == 2
    assert "No job 'otter'" in called.err
    assert "numbers, other" in called.err


def test_run_several_jobs_one_of_them_failing_as_a_whole_exits_4(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    write_job(project, {}, job="another", source=NO_FOLDER)
    called = cli("run")
    assert called.code == 4
    assert "error[source]: Source of job 'another'" in called.err
    assert "no/such" in called.err
    assert "Job numbers succeeded" in called.out


def test_run_without_job_files_is_a_usage_error(cli: Cli, project: Path) -> None:
    (project / "jobs" / "numbers.yaml").unlink()
    called = cli("run")
    assert called.code == 2
    assert "There is no job file" in called.err


def test_run_with_a_faulty_job_file_shows_all_its_faults(cli: Cli, project: Path) -> None:
    (project / "jobs" / "numbers.yaml").write_text("job: 1\nsource: {type: fles}\nextract: {namespace: a, table: b}\n")
    called = cli("run")
    assert called.code == 2
    assert "jobs/numbers.yaml:1: job: expected text, got 1" in called.err
    assert "jobs/numbers.yaml:2: source.type: There is no source type 'fles'; did you mean 'files'?" in called.err
    assert "jobs/numbers.yaml:1: output: is missing" in called.err


def test_killed_run_is_finished_by_the_next_one_with_nothing_lost(
    cli: Cli, killed: Path, inline: list[InlineRunner]
) -> None:
    called = cli("run")
    assert called.code == 0
    assert "recovered " in called.out
    assert "; 0 lost, 0 duplicated (source rows " in called.out
    assert "Recovered what an earlier run left: " in called.out
    states = cli("state", "list", "--output", "json").json()["datasets"]
    assert [(state["dataset"], state["watermark"]) for state in states] == [("a", "25"), ("b/c", "3")]


@pytest.mark.parametrize(
    ("statuses", "raised", "code"),
    [
        ([RunStatus.SUCCEEDED], 0, 0),
        ([RunStatus.SUCCEEDED, RunStatus.SUCCEEDED], 0, 0),
        ([RunStatus.FAILED, RunStatus.FAILED], 0, 1),
        ([RunStatus.SUCCEEDED, RunStatus.FAILED], 0, 4),
        ([RunStatus.PARTIAL], 0, 4),
        ([RunStatus.SUCCEEDED], 1, 4),
        ([RunStatus.FAILED], 2, 1),
        ([RunStatus.PARTIAL, RunStatus.FAILED], 0, 4),
        ([], 2, 2),
        ([], 1, 1),
        ([RunStatus.SUCCEEDED, RunStatus.INTERRUPTED], 0, 130),
        ([RunStatus.BUSY, RunStatus.BUSY], 0, 5),
        ([RunStatus.BUSY, RunStatus.SUCCEEDED], 0, 4),
        ([RunStatus.BUSY, RunStatus.FAILED], 0, 1),
        ([RunStatus.BUSY], 2, 2),
        ([], 5, 5),
    ],
)
def test_exit_code_over_several_jobs(statuses: list[RunStatus], raised: int, code: int) -> None:
    assert exit_code([result(status) for status in statuses], raised) == code


def test_jobs_that_an_interrupt_kept_from_beginning_are_named_and_the_code_says_so(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_and_stop(*arguments: Any, **more: Any) -> RunResult:
        result = run_job(*arguments, **more)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr("gobblin_dagster.cli.commands.run.run_job", run_and_stop)
    write_job(project, {"a": {"rows": 5}}, "waiting")
    called = cli("run")
    assert "Job numbers succeeded: 2 committed" in called.out
    assert (called.code, "Not begun, because the command was interrupted: waiting." in called.out) == (130, True)


def test_interrupted_twice_the_json_has_each_job_and_what_the_first_one_published(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    (project / "stops.py").write_text("def now(record):\n    raise KeyboardInterrupt\n")
    write_job(project, {"a": {"rows": 5}}, "stopped", converters=[{"type": "function", "function": "stops:now"}])
    write_job(project, {"a": {"rows": 5}}, "waiting")
    called = cli("run", "--output", "json")
    assert (called.code, "interrupted" in called.err) == (130, True)
    document = json.loads(called.out)
    assert document["exit_code"] == 130
    assert [(job["job"], job["status"], job["exit_code"]) for job in document["jobs"]] == [
        ("numbers", "succeeded", 0),
        ("stopped", "interrupted", 130),
        ("waiting", "interrupted", 130),
    ]
    assert "stopped at once" in document["jobs"][1]["error"]["message"]
    assert "not begun" in document["jobs"][2]["error"]["message"]
    recorded = {run["run_id"]: run["job"] for run in cli("state", "runs", "--output", "json").json()["runs"]}
    for job in document["jobs"][:2]:
        assert recorded[job["run_id"]] == job["job"], "the document names the run that the history shows"
        assert job["started_at"]
    assert document["jobs"][2]["run_id"] is None


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), TransientError(problem="the source is away")], ids=["Ctrl-C", "error"]
)
def test_run_that_ends_as_it_starts_is_named_as_the_history_names_it(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(job_run, "recover", ends)
    called = cli("run", "--output", "json")
    (job,) = called.json()["jobs"]
    (run,) = cli("state", "runs", "--output", "json").json()["runs"]
    assert (run["run_id"], run["status"]) == (job["run_id"], job["status"])
    log = [json.loads(line) for line in Path(called.json()["log"]).read_text().splitlines()]
    assert {line.get("run_id") for line in log} == {job["run_id"]}


def test_interrupted_while_spark_ends_the_json_says_what_is_published(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineRunner, "close", lambda self: signal.raise_signal(signal.SIGINT))
    called = cli("run", "--output", "json")
    document = json.loads(called.out)
    assert (called.code, document["exit_code"]) == (0, 0)
    assert [(job["job"], job["status"]) for job in document["jobs"]] == [("numbers", "succeeded")]
