"""`gobblin state set|reset|history|export|import|diff`: shown, confirmed, explained."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.program import run_command
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, Terminal, write_job

WHY = ("--reason", "snow")


@pytest.fixture
def ran(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    assert cli("run").code == 0
    return project


def watermark(cli: Cli, dataset: str = "a") -> str:
    return str(cli("state", "show", dataset, "-o", "json").json()["watermark"])


def test_set_back_reads_again_what_lies_after_it(cli: Cli, ran: Path) -> None:
    called = cli("state", "set", "a", "20", *WHY, "--yes")
    assert called.code == 0
    assert "from         [0, 25)\nto           [0, 20)\n" in called.out
    assert "rows that were published before will be read and published again" in called.out
    assert cli("run", "-o", "json").json()["jobs"][0]["datasets"][0]["rows_read"] == 5


def test_set_forward_skips_rows(cli: Cli, ran: Path) -> None:
    document = cli("state", "set", "a", "30", *WHY, "--yes", "-o", "json").json()
    assert (document["after"]["watermark"], document["consequence"]) == ("30", "rows in between are never read")
    assert watermark(cli) == "30"


def test_reset_begins_anew(cli: Cli, ran: Path) -> None:
    assert cli("state", "reset", "a", *WHY, "--yes").code == 0
    assert cli("run", "-o", "json").json()["jobs"][0]["datasets"][0]["rows_read"] == 25


def test_state_of_a_person_is_told_so_and_set_after_a_reset_says_what_to_do(cli: Cli, ran: Path) -> None:
    assert " by run 2" in cli("state", "show", "a").out
    assert cli("state", "reset", "a", *WHY, "--yes").code == 0
    assert "by a person; see `gobblin state history`" in cli("state", "show", "a").out
    called = cli("state", "set", "a", "7", *WHY, "--yes")
    assert called.code == 2
    assert "Nothing of dataset 'a' counts as read: it was reset. The next run reads it" in called.err


@pytest.mark.parametrize(
    "command", [("state", "set", "a", "7"), ("state", "reset", "a"), ("startpoint", "set", "a", "7")]
)
def test_reason_that_says_nothing_is_refused(cli: Cli, ran: Path, command: tuple[str, ...]) -> None:
    called = cli(*command, "--reason", " ", "--yes")
    assert (called.code, watermark(cli)) == (2, "25")
    assert "a reason is what others will ask for" in called.err


def test_dry_run_shows_and_changes_nothing(cli: Cli, ran: Path) -> None:
    called = cli("state", "set", "a", "20", *WHY, "--dry-run")
    assert called.out.endswith("Nothing was changed.\n")
    assert cli("state", "reset", "a", *WHY, "--dry-run", "-o", "json").json()["sequence"] is None
    assert watermark(cli) == "25"


def test_change_without_terminal_needs_yes(cli: Cli, ran: Path) -> None:
    called = cli("state", "set", "a", "20", *WHY)
    assert called.code == 2
    assert "there is no terminal to ask on. Repeat with --yes." in called.err
    assert watermark(cli) == "25"


@pytest.mark.parametrize(("answer", "left", "code"), [("y", "20", 0), ("n", "25", 1)])
def test_change_on_a_terminal_is_asked_for(
    cli: Cli, ran: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    called = cli("state", "set", "a", "20", *WHY)
    assert "Set the watermark of a? [y/N]" in called.err
    assert (called.code, "Nothing was changed." in called.err) == (code, bool(code))
    assert "interrupted" not in called.err
    assert watermark(cli) == left


def test_change_needs_a_reason(cli: Cli, ran: Path) -> None:
    assert cli("state", "reset", "a", "--yes").code == 2


def test_change_is_refused_while_a_run_works_on_the_dataset(cli: Cli, ran: Path) -> None:
    project = open_project(ran)
    store = project.open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner("run-9", "elsewhere", "", 1, ""), timedelta(minutes=5))
    store.close()
    called = cli("state", "reset", "a", *WHY, "--dry-run")
    assert (called.code, "is held by run run-9" in called.err) == (5, True)


@pytest.mark.parametrize("text", ["x", "2013-01-01"])
def test_watermark_of_another_type_is_a_usage_error(cli: Cli, ran: Path, text: str) -> None:
    called = cli("state", "set", "a", text, *WHY, "--yes")
    assert called.code == 2
    assert f"{text!r} is no watermark of type 'long'" in called.err


def test_time_inside_of_a_date_of_files_is_refused_and_changes_nothing(cli: Cli, project: Path, inline: object) -> None:
    (project / "data/a").mkdir(parents=True)
    for day in (3, 4):
        (project / f"data/a/2024-01-0{day}.csv").write_text("id\n1\n")
    source = "source: {type: files, path: 'data/{dataset}/{date:%Y-%m-%d}.csv', format: csv}"
    (project / "jobs/numbers.yaml").write_text(
        f"job: numbers\n{source}\nextract: {{namespace: test, table: days}}\noutput: {{path: lake}}\n"
    )
    assert cli("run").code == 0
    called = cli("state", "set", "a", "2024-01-03T12:00:00", *WHY, "--yes")
    assert called.code == 2
    assert "begin at 2024-01-03 to read them, or at 2024-01-04 not to." in called.err
    assert watermark(cli) == "2024-01-05"
    assert cli("state", "set", "a", "2024-01-04", *WHY, "--yes").code == 0
    (project / "jobs/numbers.yaml").write_text("job: [")
    assert cli("state", "set", "a", "2024-01-03", *WHY, "--yes").code == 0, "without its source, as ever"


def test_history_tells_runs_and_people(cli: Cli, ran: Path) -> None:
    cli("state", "set", "a", "20", *WHY, "--yes")
    first, second = cli("state", "history", "a", "-o", "json").json()["history"]
    assert (first["from"], first["to"], first["by"], first["rows"]) == (None, "25", "run", 25)
    assert (second["from"], second["to"], second["by"], second["why"]) == ("25", "20", "person", "set: snow")
    out = cli("state", "history", "a").out
    assert out.splitlines()[0].split() == ["at", "from", "to", "rows", "state", "by", "why"]
    assert "set: snow" in out


def test_export_and_import_carry_a_project_to_another_store(cli: Cli, ran: Path, tmp_path: Path) -> None:
    cli("state", "set", "a", "20", *WHY, "--yes")
    file = tmp_path / "state.jsonl"
    file.write_text(cli("state", "export").out)
    assert cli("state", "diff", file).out == "No difference.\n"
    (ran / "gobblin.yaml").write_text("project: tests\nstate: files:elsewhere\n")
    assert [d["dataset"] for d in cli("state", "diff", file, "-o", "json").json()["differences"]] == ["a", "b/c"]
    assert "2 datasets differ." in cli("state", "diff", file).out
    dry = cli("state", "import", file, "--dry-run")
    assert (
        dry.out == "2 datasets to import (3 commits, 1 run), 0 unchanged, 0 further on here, 0 with another history.\n"
    )
    assert cli("state", "import", file).code == 2
    assert cli("state", "import", file, "--yes").code == 0
    assert cli("state", "diff", file).out == "No difference.\n"
    assert watermark(cli) == "20"
    assert cli("state", "import", file, "--yes", "-o", "json").json()["commits"] == 0


def test_import_leaves_a_dataset_with_another_history_alone_and_says_so(cli: Cli, ran: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.jsonl"
    file.write_text(cli("state", "export", "--select", "a").out)
    (ran / "gobblin.yaml").write_text("project: tests\nstate: files:elsewhere\n")
    write_job(ran, {"a": {"rows": 25}}, output={"path": "other"})
    cli("run")
    called = cli("state", "import", file, "--yes")
    assert (called.code, "left alone: a (numbers)" in called.out) == (1, True)


def test_import_of_an_older_export_changes_nothing_and_says_what_to_do(cli: Cli, ran: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.jsonl"
    file.write_text(cli("state", "export").out)
    cli("state", "set", "a", "20", *WHY, "--yes")
    called = cli("state", "import", file, "--yes")
    assert called.code == 0
    assert "1 unchanged, 1 further on here, 0 with another history.\nFurther on: the file is an older" in called.out
    assert cli("state", "import", file, "-o", "json").json()["ahead"] == [{"job": "numbers", "dataset": "a"}]
    assert watermark(cli) == "20"


def test_export_that_broke_off_is_refused(cli: Cli, ran: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.jsonl"
    file.write_text("".join(cli("state", "export").out.splitlines(keepends=True)[:-2]))
    called = cli("state", "import", file, "--yes")
    assert (called.code, "breaks off after line 3" in called.err) == (1, True)


@pytest.mark.parametrize(("encoding", "code"), [("utf-8", 0), ("utf-8-sig", 0), ("utf-16", 1), ("cp1252", 1)], ids=str)
def test_export_that_an_editor_or_a_shell_wrote_anew(
    cli: Cli, ran: Path, tmp_path: Path, encoding: str, code: int
) -> None:
    cli("state", "set", "a", "20", "--reason", "bad files of Zürich", "--yes")
    file = tmp_path / "state.jsonl"
    file.write_bytes(cli("state", "export").out.encode(encoding))
    (ran / "gobblin.yaml").write_text("project: tests\nstate: files:elsewhere\n")
    called = cli("state", "import", file, "--yes")
    assert (called.code, "error[record-corrupt]: The export cannot be read: it is not UTF-8 text" in called.err) == (
        code,
        bool(code),
    )


def test_pipes_hold_utf8_whatever_the_locale(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON documents and exports are read as UTF-8 wherever they are brought to."""
    pipe = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(pipe, "ascii"))
    assert run_command(["state", "set", "a", "20", "--reason", "Zürich", "--dry-run", "--output", "json"]) == 0
    sys.stdout.flush()
    assert json.loads(pipe.getvalue().decode())["why"] == "Zürich"


def test_terminal_that_lacks_a_letter_shows_its_number(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = BytesIO()
    shown = TextIOWrapper(screen, "ascii")
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", shown)
    assert run_command(["state", "set", "a", "20", "--reason", "Zürich", "--dry-run"]) == 0
    shown.flush()
    assert b"Z\\xfcrich" in screen.getvalue()


@pytest.mark.parametrize(
    "command",
    [
        ("state", "set", "a", "20"),
        ("state", "reset", "a"),
        ("startpoint", "set", "a", "20"),
        ("rollback", "a", "--to", "1"),
    ],
    ids=" ".join,
)
def test_reason_that_no_store_can_hold_is_refused(cli: Cli, ran: Path, command: tuple[str, ...]) -> None:
    called = cli(*command, "--yes", "--reason", os.fsdecode(b"Z\xfcrich"))
    assert (called.code, "Invalid value for '--reason' / '-m': it is not UTF-8 text" in called.err) == (2, True)


def test_export_of_a_job_that_is_not_there_is_refused(cli: Cli, ran: Path) -> None:
    called = cli("state", "export", "numbers", "nubmers")
    assert (called.code, called.out) == (2, "")
    assert "The state store has no job 'nubmers'; it has numbers." in called.err


@pytest.mark.parametrize("command", ["export", "list"])
def test_globs_that_select_nothing_are_refused(cli: Cli, ran: Path, command: str) -> None:
    called = cli("state", command, "--select", "z*")
    assert (called.code, called.out) == (2, "")
    assert "None of 2 published datasets is selected by --select z* --exclude -." in called.err


@pytest.mark.parametrize(
    "command", [("state", "list"), ("state", "runs"), ("startpoint", "list"), ("quarantine", "list")]
)
def test_list_of_a_job_that_is_not_there_is_refused(cli: Cli, ran: Path, command: tuple[str, ...]) -> None:
    called = cli(*command, "nubmers")
    assert (called.code, called.out) == (2, "")
    assert "The state store has no job 'nubmers'; it has numbers." in called.err


def test_changes_need_no_readable_job_file(cli: Cli, ran: Path) -> None:
    assert cli("startpoint", "set", "a", "7", "--on-rewind", "append", *WHY, "--yes").code == 0
    output = cli("commit", "show", cli("state", "history", "a", "-o", "json").json()["history"][0]["sequence"])
    (ran / "jobs/numbers.yaml").write_text("job: [")
    assert cli("startpoint", "remove", "a", "--yes").code == 0
    assert cli("state", "reset", "b/c", *WHY, "--yes").code == 0
    done = cli("state", "set", "a", "20", *WHY, "--yes", "-o", "json").json()["sequence"]
    assert watermark(cli) == "20"
    write_job(ran, {"a": {"rows": 25}, "b/c": {"rows": 3}})
    assert str(ran / "lake") in output.out
    assert str(ran / "lake") in cli("commit", "show", done).out


def test_named_job_runs_whatever_is_the_matter_with_others(cli: Cli, ran: Path) -> None:
    (ran / "jobs/other.yaml").write_text("job: [")
    assert cli("run", "numbers").code == 0
    for command in (
        ("plan", "numbers"),
        ("clean", "numbers"),
        ("compact", "numbers"),
        ("commit", "recover", "numbers"),
    ):
        assert cli(*command).code == 0
    assert [cli("run").code, cli("plan", "nubmers").code, cli("plan", "numbers", "other").code] == [2, 2, 2]


def test_negative_watermark_is_explained_and_taken_behind_two_dashes(cli: Cli, ran: Path) -> None:
    called = cli("state", "set", "a", "-12", *WHY, "--yes")
    assert called.code == 2
    assert "No such option: -1. Write `--` before a negative number, behind all options." in called.err
    assert "-12 lies before 0" in cli("state", "set", *WHY, "--yes", "--", "a", "-12").err


def test_file_that_is_no_export_is_refused(cli: Cli, ran: Path, tmp_path: Path) -> None:
    assert cli("state", "import", tmp_path / "none.jsonl").code == 2
    (tmp_path / "other.jsonl").write_text("hello\n")
    called = cli("state", "diff", tmp_path / "other.jsonl")
    assert called.code == 1
    assert "line 1 is not JSON" in called.err


def test_range_that_was_given_up_is_shown_and_read_when_somebody_says_so(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    rules: dict[str, Any] = {"commit": {"policy": "successful"}, "execution": {"retry_failed": "never"}}
    write_job(project, {"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}}, **rules)
    assert "gave up [10, 20)" in cli("run").out
    assert "given up       [10, 20)" in cli("state", "show", "a").out
    write_job(project, {"a": {"rows": 30, "unit_rows": 10}}, **rules)
    assert "Nothing to do" in cli("plan").out
    assert cli("state", "retry", "a", *WHY, "--dry-run").code == 0
    document = cli("state", "retry", "a", *WHY, "--yes", "-o", "json").json()
    assert (document["before"]["watermark"], document["after"]["watermark"]) == ("30", "10")
    assert cli("run", "-o", "json").json()["jobs"][0]["datasets"][0]["rows_read"] == 10
    assert cli("state", "retry", "a", *WHY, "--yes").code == 2
