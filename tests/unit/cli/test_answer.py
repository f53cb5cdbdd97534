"""`--output json` gives one document whatever happens; colours, narrow terminals and help texts."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gobblin_dagster.cli.answer import wants_json
from gobblin_dagster.cli.main import COMMANDS
from gobblin_dagster.cli.render import console as output
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner

from .conftest import Cli, write_job

NO_FOLDER = {"type": "files", "path": "no/such/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}


@pytest.fixture
def half_broken(project: Path) -> Path:
    """Return a project with a good job, `numbers`, and one whose source cannot be listed."""
    write_job(project, {}, job="lost", source=NO_FOLDER)
    return project


@pytest.mark.parametrize("command", [("run",), ("plan",), ("run", "--dry-run")], ids=" ".join)
def test_job_that_fails_stands_in_the_document_with_its_error(
    cli: Cli, half_broken: Path, inline: list[InlineRunner], command: tuple[str, ...]
) -> None:
    called = cli(*command, "-o", "json")
    document = called.json()
    jobs = {job["job"]: job for job in document["jobs"]}
    assert set(jobs) == {"lost", "numbers"}
    assert jobs["numbers"]["error"] is None
    assert jobs["lost"]["error"]["code"] == "source"
    assert "no/such" in jobs["lost"]["error"]["message"]
    assert jobs["lost"]["datasets"] == []
    assert document["exit_code"] == called.code != 0


def test_bug_in_one_job_takes_neither_the_others_nor_the_document(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(project, {"z": {"rows": 1}}, job="second")

    real = Project.run_context

    def broken_for_numbers(self: Project, job: JobSpec, run_id: str) -> RunContext:
        if job.job == "numbers":
            raise ZeroDivisionError("a bug")
        return real(self, job, run_id)

    monkeypatch.setattr(Project, "run_context", broken_for_numbers)
    called = cli("run", "-o", "json")
    jobs = {job["job"]: job for job in called.json()["jobs"]}
    assert jobs["numbers"]["error"]["code"] == "internal"
    assert (jobs["second"]["error"], jobs["second"]["status"], called.code) == (None, "succeeded", 4)


def test_run_json_tells_of_each_job_how_its_own_error_ended_it(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(project, {"z": {"rows": 1}}, job="second")
    real = Project.run_context

    def broken_for_second(self: Project, job: JobSpec, run_id: str) -> RunContext:
        if job.job == "second":
            raise ZeroDivisionError("a bug")
        return real(self, job, run_id)

    monkeypatch.setattr(Project, "run_context", broken_for_second)
    called = cli("run", "--select", "nothing", "-o", "json")
    ended = {job["job"]: (job["status"], job["exit_code"]) for job in called.json()["jobs"]}
    assert ended == {"numbers": ("usage", 2), "second": ("failed", 1)}


@pytest.mark.parametrize("command", ["run", "plan", "clean"])
def test_unknown_job_is_a_document_that_names_it(cli: Cli, project: Path, command: str) -> None:
    called = cli(command, "numbers", "nojob", "--output", "json")
    document = called.json()
    assert (called.code, document["exit_code"], document["error"]["code"]) == (2, 2, "usage")
    assert "'nojob'" in document["error"]["message"]
    assert [job["job"] for job in document["jobs"]] == ["numbers", "nojob"]
    assert called.err.startswith("error[usage]: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_document_that_cannot_be_written_is_told_beside_what_was_wrong(project: Path) -> None:
    command = [sys.executable, "-m", "gobblin_dagster", "run", "nojob", "--output", "json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=project, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()[:2]] == ["error[usage]", "error[system]"]
    assert "Traceback" not in done.stderr
    assert "Standard output cannot be written: No space left on device." in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_named(
    project: Path, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "gobblin_dagster", "check"]
        done = subprocess.run(command, cwd=project, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error[system]: Standard output cannot be written: No space left on device. What the")


def test_faulty_job_file_is_a_document_with_each_fault(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 1}}, surprise=1, execution={"packs": "x"})
    error = cli("plan", "--output=json").json()["error"]
    assert (error["code"], error["file"]) == ("spec-invalid", "jobs/numbers.yaml")
    assert {fault["path"] for fault in error["faults"]} == {"surprise", "execution.packs"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--sellect", "x", "-o", "json"),
        ("state", "show", "nowhere", "-ojson"),
        ("state", "list", "nojob", "-o", "json"),
        ("state", "set", "-o", "json"),
        ("commit", "show", "none", "-o", "json"),
        ("commit", "recover", "nojob", "-o", "json"),
        ("quarantine", "show", "nowhere", "-o", "json"),
        ("startpoint", "set", "a", "1", "-m", "x", "-o", "json"),
        ("compact", "nojob", "-o", "json"),
        ("rollback", "nowhere", "--to", "1", "-o", "json"),
        ("show", "nowhere", "-o", "json"),
    ],
    ids=" ".join,
)
def test_whatever_is_wrong_with_a_call_its_json_is_one_document(
    cli: Cli, project: Path, arguments: tuple[str, ...]
) -> None:
    called = cli(*arguments)
    document = called.json()
    assert document["exit_code"] == called.code != 0
    assert {"code", "message"} <= set(document["error"])


def test_check_without_a_project_is_a_document(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "gobblin.yaml" in cli("check", "-o", "json").json()["error"]["message"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "-o", "json"), True),
        (("run", "--output=json"), True),
        (("run", "-ojson"), True),
        (("rollback", "a", "-yo", "json"), True),
        (("rollback", "a", "-yojson"), True),
        (("run", "--output-file", "json"), False),
        (("run", "-o", "text"), False),
        (("run", "-o", "json", "-o", "text"), False),
        (("run", "--progress", "json"), False),
        (("show", "--", "-o", "json"), False),
    ],
)
def test_words_that_ask_for_json(words: tuple[str, ...], expected: bool) -> None:
    assert wants_json(words) is expected


ONE_BY_ONE = """
import sys
from gobblin_dagster.cli.program import run_command
for command in sys.argv[1:]:
    run_command(command.split())
    print(end="\\0", flush=True)
"""


def on_a_terminal(*commands: str, cwd: Path, **variables: str) -> list[str]:
    """Return what each command prints on a terminal; one process runs them all."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    command = [sys.executable, "-c", ONE_BY_ONE, *commands]
    environment |= {"TERM": "xterm-256color", **variables}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=cwd, env=environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:
        pass  # the terminal's other end is closed: the process has ended
    process.wait()
    os.close(ours)
    return said.decode().split("\0")[: len(commands)]


def test_colours_are_left_out_where_nobody_wants_them(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    write_job(tmp_path, {}, job="faulty", surprise=1)
    commands = ("check", "doctor", "run nojob")
    shown, plain, dumb = (
        on_a_terminal(*commands, cwd=tmp_path, **variables)
        for variables in ({"TERM": "xterm-256color"}, {"NO_COLOR": "1"}, {"TERM": "dumb"})
    )
    for number, command in enumerate(commands):
        assert "\x1b[31m" in shown[number], command
        assert "\x1b[3" not in plain[number], command
        assert "\x1b" not in dumb[number], command


@pytest.mark.parametrize("width", [20, 50, 80, 200])
def test_names_are_whole_on_a_terminal_of_any_width(width: int) -> None:
    columns = {"dataset": "left", "watermark": "left", **dict.fromkeys(("rows", "quarantined", "files"), "right")}
    columns |= {"size": "right", "published": "left"}
    row = ("AA-EWR", "2013-01-31", "1,234,567", "12", "1,024", "18 KB", "2026-11-22 11:28")
    terminal = {"TERM": "xterm"}  # a dumb one would always be 80 wide
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, _environ=terminal)
    output.print_table(console, columns, [row])
    said = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    for cell in row:
        assert all(part in said for part in cell.split())
    assert ("    rows 1,234,567" in said) is (width < 80)


def test_command_that_is_interrupted_says_so_and_not_that_nothing_was_changed(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> RunContext:
        raise KeyboardInterrupt

    monkeypatch.setattr(Project, "run_context", interrupted)
    called = cli("run", "numbers", "-o", "json")
    document = called.json()
    (job,) = document.pop("jobs")
    assert Path(document.pop("log")).exists()
    said = {"code": "interrupted", "message": "The command was interrupted."}
    assert document == {"schema_version": 1, "exit_code": 130, "error": said}
    assert (job["job"], job["status"], job["error"]["code"]) == ("numbers", "interrupted", "interrupted")
    assert "nothing was changed" not in job["error"]["message"].lower()
    assert called.code == 130
    assert "interrupted" in called.err


@pytest.mark.parametrize(
    "command",
    [*COMMANDS, "state list", "state set", "quarantine list", "quarantine replay", "startpoint list", "commit recover"],
)
def test_help_shows_no_types_of_python_and_brackets_once(cli: Cli, command: str) -> None:
    said = cli(*command.split(), "--help").out
    assert "[[" not in said
    assert "<list" not in said
    assert "<str>" not in said.partition("Options:")[0]
