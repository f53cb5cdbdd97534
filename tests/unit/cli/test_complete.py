"""What the shell gets when somebody presses Tab."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.cli.program import run_command
from tests.unit.engine.jobs import job_spec, run

JOB = """
job: numbers
source: {type: files, path: "in/{dataset}.csv", format: csv}
extract: {namespace: test, table: numbers}
output: {path: lake}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/numbers.yaml").write_text(JOB)
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setenv("_GOBBLIN_COMPLETE", "complete_bash")
    run_command([])
    return capsys.readouterr().out.split()


def test_names_of_jobs_and_datasets_are_completed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(root, job_spec({"orders": {"rows": 1}, "items": {"rows": 1}}))

    assert completed("gobblin run n", monkeypatch, capsys) == ["numbers"]
    assert completed("gobblin state show ", monkeypatch, capsys) == ["items", "orders"]
    assert completed("gobblin startpoint remove o", monkeypatch, capsys) == ["orders"]
    assert completed("gobblin show --job none ", monkeypatch, capsys) == []


def test_what_cannot_be_known_completes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "gobblin.yaml").write_text("project: [")
    assert completed("gobblin plan n", monkeypatch, capsys) == []
    assert completed("gobblin state show ", monkeypatch, capsys) == []
