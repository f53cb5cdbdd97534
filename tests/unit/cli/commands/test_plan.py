from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job

OWN_STEP = "tests.unit.engine.commit.steps.test_custom:TraceStep"


def test_plan_shows_datasets_with_low_and_high_and_the_commit(cli: Cli, project: Path) -> None:
    called = cli("plan")
    assert called.code == 0
    lines = called.out.splitlines()
    assert lines[0] == "Plan of job numbers: 2 datasets with new data, 0 up to date"
    assert lines[1].split() == ["dataset", "low", "expected", "high", "files", "rows", "bytes"]
    assert lines[2].split()[:4] == ["a", "0", "->", "25"]
    assert lines[4].split()[0] == "total"
    assert "  2. one transaction: move the watermark, add the snapshot, end the sequence" in lines
    assert lines[-1] == "Next: `gobblin run`"


def test_plan_changes_nothing(cli: Cli, project: Path) -> None:
    cli("plan")
    assert not (project / "lake").exists()
    assert cli("state", "list", "-o", "json").json()["datasets"] == []


@pytest.mark.parametrize(("with_run", "code"), [(False, 3), (True, 0)])
def test_plan_detailed_exitcode_is_3_where_a_run_would_change_something(
    cli: Cli, project: Path, inline: list[InlineRunner], with_run: bool, code: int
) -> None:
    if with_run:
        cli("run")
    assert cli("plan", "--detailed-exitcode").code == code
    assert cli("plan").code == 0


def test_plan_without_changes_says_so(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    called = cli("plan")
    assert called.out.splitlines()[0] == "Plan of job numbers: 0 datasets with new data, 2 up to date"
    assert "Nothing to do" in called.out


def test_plan_tells_touched_files_from_new_data(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    (project / "jobs" / "numbers.yaml").write_text(
        "job: numbers\nsource: {type: files, path: 'in/*.csv', format: csv, compare: checksum}\n"
        "extract: {namespace: n, table: t}\noutput: {path: lake}\n"
    )
    file = project / "in" / "a.csv"
    file.parent.mkdir()
    file.write_text("id\n1\n")
    assert cli("run").code == 0
    os.utime(file, (0, 0))
    first, *_ = cli("plan").out.splitlines()
    assert first == "Plan of job numbers: 0 datasets with new data, 1 with touched files, 0 up to date"
    cli("run")
    first, *_ = cli("plan").out.splitlines()
    assert first == "Plan of job numbers: 0 datasets with new data, 1 up to date"


def test_plan_json_has_stable_keys(cli: Cli, project: Path) -> None:
    document = cli("plan", "--output", "json").json()
    assert set(document) == {"schema_version", "exit_code", "has_changes", "jobs"}
    (job,) = document["jobs"]
    assert set(job) == {
        "job",
        "run_id",
        "has_changes",
        "branches",
        "commit_steps",
        "packs",
        "runs_on",
        "skew",
        "datasets",
        "leftovers",
        "error",
    }
    assert job["datasets"][0] == {
        "dataset": "a",
        "low": "0",
        "expected_high": "25",
        "work_units": 1,
        "files": job["datasets"][0]["files"],
        "rows": job["datasets"][0]["rows"],
        "bytes": job["datasets"][0]["bytes"],
        "cost_ms": None,
        "startpoint": None,
        "notes": [],
        "inferred": {},
        "type_notes": [],
        "problem": "",
    }


def test_plan_many_datasets_shows_twenty_and_a_total(cli: Cli, project: Path) -> None:
    write_job(project, {f"d{number:03d}": {"rows": 1} for number in range(50)})
    called = cli("plan")
    assert "50 datasets with new data" in called.out
    assert "... 30 more" in called.out
    assert sum(line.startswith("d0") for line in called.out.splitlines()) == 20
    assert len(cli("plan", "-o", "json").json()["jobs"][0]["datasets"]) == 50


def test_plan_dataset_with_a_problem_names_it_and_leaves_the_others(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 1}, "locked": {"rows": 1, "problem": "no door"}})
    called = cli("plan")
    assert called.out.startswith(
        "Plan of job numbers: 1 dataset with new data, 0 up to date, 1 that cannot be planned\n"
    )
    assert "  locked: no door" in called.out
    assert called.out.endswith("Next: `gobblin run`\n")
    assert (called.code, cli("plan", "--detailed-exitcode").code) == (4, 3)


def test_plan_of_problems_alone_does_not_say_that_all_is_well(cli: Cli, project: Path) -> None:
    write_job(project, {"locked": {"rows": 1, "problem": "no door"}})
    called = cli("plan")
    assert called.out.startswith(
        "Plan of job numbers: 0 datasets with new data, 0 up to date, 1 that cannot be planned\n"
    )
    assert "Nothing to do" not in called.out
    assert called.out.endswith("Next: fix the problems above; there is nothing else to do.\n")
    assert (called.code, cli("plan", "--detailed-exitcode").code) == (1, 1)
    assert cli("plan", "-o", "json").json()["exit_code"] == 1


def test_plan_missing_folder_is_a_clear_error(cli: Cli, project: Path) -> None:
    source = {"type": "files", "path": "nowhere/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    write_job(project, {}, source=source)
    called = cli("plan")
    assert called.code == 1
    assert called.err.startswith("error[source]: Source of job 'numbers'")
    assert "nowhere" in called.err
    assert called.out == ""


def test_plan_dataset_names_are_never_taken_for_markup(cli: Cli, project: Path) -> None:
    write_job(project, {"[red]x[/red]": {"rows": 1}, ":smile:": {"rows": 1}, "日本 / ü": {"rows": 1}})
    called = cli("plan")
    assert "[red]x[/red]" in called.out
    assert ":smile:" in called.out
    assert "日本 / ü" in called.out


def test_plan_tells_how_even_the_tasks_are(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 40, "unit_rows": 10}, "b": {"rows": 40, "unit_rows": 10}})
    assert "4 Spark tasks, the heaviest 1.0 times the mean.\n" in cli("plan").out
    document = cli("plan", "-o", "json").json()["jobs"][0]
    assert (document["packs"], document["skew"]) == ([{"work_units": 2, "weight": 20}] * 4, 1.0)


def test_plan_names_the_work_unit_that_keeps_tasks_from_being_even(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 90}, "b": {"rows": 10, "unit_rows": 1}})
    assert (
        "the heaviest 3.6 times the mean: one work unit of a is 90% of all; smaller work units help." in cli("plan").out
    )
    assert cli("plan", "-o", "json").json()["jobs"][0]["skew"] == 3.6


def test_plan_blames_no_work_unit_where_there_are_too_few_of_them(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 50, "unit_rows": 10}})
    assert "1.6 times the mean: there are only 5 work units to spread; smaller work units help." in cli("plan").out


def test_plan_lists_what_the_commit_does_for_this_job(cli: Cli, project: Path) -> None:
    write_job(
        project,
        {"a": {"rows": 1}},
        commit={"scope": "job", "steps": [{"type": OWN_STEP, "label": "x"}]},
        output={"path": "lake", "file_mode": "0640", "dir_mode": "0750"},
        publisher={"type": "replace"},
    )
    out = cli("plan").out
    assert "Commit, for all datasets together:" in out
    assert "set permissions: files 0640, folders 0750" in out
    assert "what publishers do in addition: replace (" in out
    assert f"steps of your own: {OWN_STEP}" in out
    assert "once all datasets are so far, one transaction" in out


def test_job_may_be_named_by_its_file(cli: Cli, project: Path) -> None:
    called = cli("plan", "jobs/numbers.yaml", "--output", "json")
    assert [job["job"] for job in called.json()["jobs"]] == ["numbers"]
    (project / "jobs" / "bad.yaml").write_text("job: one\n")
    assert "jobs/bad.yaml has" in cli("plan", "jobs/bad.yaml").err
    assert "There is no file jobs/none.yaml" in cli("plan", "jobs/none.yaml").err
    (project / "other.yaml").write_text("job: one\n")
    assert "other.yaml is no job file of the project" in cli("plan", "other.yaml").err
