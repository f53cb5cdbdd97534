"""The log file of `gobblin run`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.run_log import KEPT_LOGS, LogEvent, LogLevel, RunLog
from gobblin_dagster.core.secrets import remember
from gobblin_dagster.engine.layout import RUN_LOGS
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Called, Cli, write_job


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def log_of(called: Called) -> list[dict[str, Any]]:
    return lines_of(Path(called.out.splitlines()[-1].removeprefix("Log: ")))


def test_run_logs_each_event_with_level_and_dataset(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    log = log_of(cli("run"))
    told = [(line["level"], line["event"], line.get("dataset")) for line in log]
    assert told[0] == ("info", "planned", None)
    assert [one for one in told if one[2] == "a"] == [
        ("info", "planned", "a"),
        ("info", "task_done", "a"),
        ("info", "dataset_done", "a"),
    ]
    assert told[-1] == ("info", "finished", None)
    done = next(line for line in log if line["event"] == "dataset_done" and line["dataset"] == "a")
    assert (done["job"], done["outcome"], done["rows_published"], done["watermark"]) == (
        "numbers",
        "committed",
        25,
        "25",
    )
    assert {line["run_id"] for line in log} == {log[0]["run_id"]}
    again = log_of(cli("run"))
    assert [line["event"] for line in again] == ["planned", "extracted", "finished"]


def test_level_chooses_the_lines(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    events = {line["event"] for line in log_of(cli("run", "--log-level", "debug"))}
    assert "step_done" in events
    assert log_of(cli("run", "--log-level", "error")) == []


def test_failures_are_errors_with_code_and_work_unit(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    write_job(project, {"a": {"rows": 5, "fail_at": 3}, "b": {"rows": 2}})
    errors = [line for line in log_of(cli("run")) if line["level"] == "error"]
    assert [(line["event"], line["dataset"]) for line in errors] == [("task_done", "a"), ("dataset_done", "a")]
    assert errors[0]["work_unit"]
    assert errors[0]["code"] in errors[1]["codes"]


def test_error_that_ends_a_job_is_logged_with_its_stack_trace(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    missing = {"type": "query", "url": "sqlite:////no/such/folder/x.db", "tables": ["a"]}
    write_job(project, {}, source=missing | {"watermark": {"column": "id", "type": "long"}})
    called = cli("run", "--output", "json")
    assert called.code != 0
    (error,) = [line for line in lines_of(Path(called.json()["log"])) if line["event"] == "error"]
    assert (error["job"], error["level"]) == ("numbers", "error")
    assert error["code"] == called.json()["jobs"][0]["error"]["code"]
    assert "Traceback" in error["stack_trace"]


def test_secrets_stand_in_no_log(tmp_path: Path) -> None:
    remember({'s3"cr\\et': "${WORD}"})
    with RunLog(tmp_path, LogLevel.INFO) as log:
        log.write(logging.INFO, LogEvent.FINISHED, 'near s3"cr\\et', codes=['s3"cr\\et'])
        logging.getLogger("some.package").warning("sent %s", 's3"cr\\et')
    assert log.path is not None
    assert [line["message"] for line in lines_of(log.path)] == ["near ${WORD}", "sent ${WORD}"]
    assert "cr" not in log.path.read_text().replace("${WORD}", "")


def test_warnings_of_packages_are_logged_and_still_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, quiet = logging.getLogger(), logging.getLogger("quiet.package")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(quiet, "handlers", [logging.NullHandler()])
    with RunLog(tmp_path, LogLevel.INFO) as log:
        logging.getLogger("some.package").warning("look %d", 1)
        logging.getLogger("some.package").info("not this")
        logging.getLogger("quiet.package.part").error("no terminal")
        logging.getLogger("some.package").warning("not %d", "a number")
    assert root.handlers == []
    assert log.path is not None
    assert [(line["level"], line["logger"], line["message"]) for line in lines_of(log.path)] == [
        ("warning", "some.package", "look 1"),
        ("error", "quiet.package.part", "no terminal"),
    ]
    printed = capsys.readouterr().err
    assert printed.startswith("look 1\n")
    assert "no terminal" not in printed


def test_newest_logs_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / RUN_LOGS
    folder.mkdir(parents=True)
    for number in range(KEPT_LOGS + 5):
        (folder / f"run-20200101T000000.{number:06}Z-1.jsonl").touch()
    (folder / "mine.txt").touch()
    with RunLog(tmp_path, LogLevel.INFO) as log:
        pass
    kept = sorted(path.name for path in folder.glob("run-*"))
    assert (len(kept), kept[0]) == (KEPT_LOGS, "run-20200101T000000.000006Z-1.jsonl")
    assert log.path is not None
    assert log.path.name == kept[-1]
    assert (folder / "mine.txt").exists()


def test_log_of_a_clock_that_was_set_back_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / RUN_LOGS
    folder.mkdir(parents=True)
    for number in range(KEPT_LOGS):
        (folder / f"run-29990101T000000.{number:06}Z-1.jsonl").touch()
    with RunLog(tmp_path, LogLevel.INFO) as log:
        pass
    assert log.path is not None
    assert log.path.exists()
    assert len(list(folder.iterdir())) == KEPT_LOGS


def test_log_that_cannot_be_written_harms_no_run(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    (project / ".gobblin").mkdir()
    (project / RUN_LOGS).touch()
    called = cli("run")
    assert (called.code, "Log:" in called.out) == (0, False)
    assert json.loads(cli("run", "--output", "json").out)["log"] is None


def test_log_of_a_project_elsewhere_has_its_whole_path(
    cli: Cli, project: Path, inline: list[InlineRunner], tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert log_of(cli("-C", project, "run"))[-1]["event"] == "finished"
