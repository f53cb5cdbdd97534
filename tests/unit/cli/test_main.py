from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gobblin_dagster import __version__
from gobblin_dagster.cli.commands import state
from gobblin_dagster.cli.errors import fail
from gobblin_dagster.cli.lazy import load_lazy
from gobblin_dagster.cli.main import COMMANDS, app, load_command
from gobblin_dagster.core.errors import (
    EnvironmentFaultError,
    InvalidSpecError,
    SpecFault,
    StoreVersionError,
    TransientError,
    UsageError,
)

from .conftest import Cli

HEAVY = {"pyspark", "dagster", "pandas"}


def modules_of(*arguments: str, cwd: Path | None = None) -> set[str]:
    """Return the modules that a call of `gobblin` imports."""
    call = "import sys; from gobblin_dagster.cli.program import run_command; run_command(sys.argv[1:])"
    code = f"{call}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd, check=True)
    return set(done.stderr.split("\n")[-2].split())


def imported_by(*arguments: str, cwd: Path | None = None) -> set[str]:
    """Return the top-level packages that a call of `gobblin` imports."""
    return {name.partition(".")[0] for name in modules_of(*arguments, cwd=cwd)}


def test_help_lists_every_command_and_imports_next_to_nothing() -> None:
    assert not imported_by("--help") & (HEAVY | {"rich", "pydantic", "yaml", "sqlalchemy", "duckdb", "pyarrow"})


def test_command_in_the_warm_worker_needs_neither_typer_nor_the_models(tmp_path: Path) -> None:
    """The worker has them; without them, the client begins in half of the time."""
    (tmp_path / "gobblin.yaml").write_text("project: x\nspark: {keep_warm: 15m}\n")
    code = (
        "import sys; from gobblin_dagster.cli import ending, program; from gobblin_dagster.warm import client; "
        "client.run_in_worker = lambda *given, **options: 4; "
        "ending.end_process = lambda code: print(code, {'typer', 'pydantic', 'pyarrow', 'rich'} & {*sys.modules}); "
        "program.program()"
    )
    done = subprocess.run([sys.executable, "-c", code, "run"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "4 set()\n"


def test_plan_and_idle_run_keep_the_import_budget(tmp_path: Path) -> None:
    days = tmp_path / "in" / "a"
    days.mkdir(parents=True)
    (days / "2026-01-01.csv").write_text("n\n1\n")
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "numbers.yaml").write_text(
        "job: numbers\n"
        "source: {type: files, path: 'in/{dataset}/{date:%Y-%m-%d}.csv', format: csv, start: 2027-01-01}\n"
        "extract: {namespace: test, table: numbers}\n"
        "row_policies: [{name: positive, type: sql, rule: n > 0}]\n"
        "output: {path: lake}\n"
    )
    modules_of("run", cwd=tmp_path)  # makes the state store, which needs alembic
    for command in ("plan", "run"):
        loaded = modules_of(command, cwd=tmp_path)
        not_needed = {"alembic", "aiosqlite", "boto3", "fastavro", "fsspec", "py4j", "requests", "starlette"}
        assert not {name.partition(".")[0] for name in loaded} & (HEAVY | not_needed)
        assert not loaded & {"sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "pyarrow.dataset"}
        assert not loaded & {"pyarrow.flight", "rich.traceback", "rich.markdown"}
        # Raise it knowingly: each hundred modules cost a short command a tenth of its time.
        assert len(loaded) <= 940


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ()])
def test_help_shows_every_command(cli: Cli, arguments: tuple[str, ...]) -> None:
    called = cli(*arguments)
    assert called.code == 0
    for name, text in COMMANDS.items():
        assert f"  {name}" in called.out
        assert text in called.out


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help_begins_as_the_list_says(cli: Cli, name: str) -> None:
    assert load_command(name).help.splitlines()[0] == COMMANDS[name]
    called = cli(name, "--help")
    assert called.code == 0
    assert COMMANDS[name] in called.out


@pytest.mark.parametrize("name", state.COMMANDS)
def test_help_of_a_state_command_begins_as_the_list_says(cli: Cli, name: str) -> None:
    said = state.COMMANDS[name].help
    assert load_lazy(state.COMMANDS, name).help.splitlines()[0] == said
    assert said.split()[0] in cli("state", "--help").out
    assert f"gobblin state {name}" in cli("state", name, "--help").out


def test_usage_of_each_command_names_each_argument_once() -> None:
    plain = re.compile(r"(\{[A-Z/]+\} ?|\[[A-Z]+\](\.\.\.)? ?|COMMAND \[ARGS\]\.\.\.)*")
    root = typer.main.get_command(app)
    usages = list(_usages(root, typer.Context(root, info_name="gobblin")))
    assert len(usages) > 70
    assert [usage for usage in usages if not plain.fullmatch(usage.partition("[OPTIONS]")[2].strip())] == []


def _usages(command: Any, context: typer.Context) -> Iterator[str]:
    yield " ".join(command.get_usage(context).split())
    for name in getattr(command, "commands", ()):
        real = command.resolve_command(context, [name])[1]
        yield from _usages(real, typer.Context(real, info_name=name, parent=context))


@pytest.mark.parametrize("group", ["state", "commit", "quarantine", "startpoint"])
def test_list_of_a_group_cuts_no_sentence_short(cli: Cli, group: str) -> None:
    assert "..." not in cli(group, "--help").out.partition("Commands:")[2]


def test_listing_states_imports_no_engine(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: listed\n", encoding="utf-8")
    assert not imported_by("state", "list", cwd=tmp_path) & (HEAVY | {"duckdb", "pyarrow"})


def test_version_option_is_one_line(cli: Cli) -> None:
    assert cli("--version").out == f"gobblin {__version__}\n"


def test_version_command_names_what_matters(cli: Cli) -> None:
    assert set(cli("version", "--output", "json").json()["versions"]) >= {
        "gobblin_dagster",
        "python",
        "pyspark",
        "java",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chek",), "No such command 'chek'. Did you mean 'check'"),
        (("run", "--sellect", "x"), "No such option: --sellect"),
        (("run", "--progress", "fancy"), "Invalid value for '--progress'"),
        (("run", "--crash-at", "commit:0"), "--crash-at takes commit:N with N from 1, got 'commit:0'"),
        (("run", "--crash-at", "plan:1"), "--crash-at takes commit:N"),
        (("state",), "Missing command"),
        (("init",), "Missing argument 'NAME'"),
    ],
)
def test_wrong_call_is_one_sentence_and_exit_code_2(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    called = cli(*arguments)
    assert called.code == 2
    assert called.err.startswith("error[usage]: ")
    assert words in called.err
    assert called.out == ""


@pytest.mark.parametrize("verb", [("check",), ("plan",), ("run",), ("state", "list"), ("commit", "list"), ("dev",)])
def test_outside_of_a_project_every_verb_says_what_to_do(
    cli: Cli, verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = cli(*verb)
    assert called.code == 2
    assert "No gobblin.yaml in" in called.err
    assert "gobblin init NAME" in called.err


def test_project_option_and_variable_point_to_a_project(
    cli: Cli, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert cli("-C", project, "check").code == 0
    assert cli("--project", project / "jobs", "check").code == 0
    monkeypatch.setenv("GOBBLIN_PROJECT", str(project))
    assert cli("check").code == 0


def test_project_option_with_a_missing_folder_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    called = cli("-C", tmp_path / "nowhere", "run")
    assert called.code == 2
    assert "No such folder" in called.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError(problem="This.", hint="Do that."), 2, "error[usage]: This. Do that.\n"),
        (
            InvalidSpecError(file="a.yaml", faults=(SpecFault("x.y", "is missing", 3),)),
            2,
            "error[spec-invalid]: a.yaml has 1 fault:\n  a.yaml:3: x.y: is missing\n",
        ),
        (TransientError(problem="No answer."), 1, "error[transient]: No answer.\n"),
        (
            EnvironmentFaultError(problem="No Java.", hint="Install it."),
            1,
            "error[environment]: No Java. Install it.\n",
        ),
        (
            StoreVersionError(store="s.db", found="9", known="1"),
            1,
            "error[store-version]: State store s.db has version 9;",
        ),
        (PermissionError(13, "Permission denied", "/x"), 1, "error[system]: Permission denied /x (PermissionError).\n"),
        (ZeroDivisionError("oops"), 1, "error[internal]: ZeroDivisionError: oops. This is a bug; set GOBBLIN_DEBUG=1"),
        (MemoryError(), 1, "error[out-of-memory]: This command: there was not enough memory. Its process "),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (typer.Abort(), 130, "interrupted\n"),
        (SystemExit(7), 7, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_fail_every_error_has_a_message_and_an_exit_code(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(error) == code
    err = capsys.readouterr().err
    assert err.startswith(text)
    assert "Traceback" not in err


def test_fail_shows_the_stack_trace_only_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_DEBUG", "1")
    try:
        raise TransientError(problem="No answer.")
    except TransientError as error:
        fail(error)
    assert "Traceback" in capsys.readouterr().err
