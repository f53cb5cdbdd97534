"""A project whose job reads made-up rows, and the command line called in this process, with no Spark behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.program import run_command
from gobblin_dagster.testing.inline_runner import InlineRunner


@dataclass(frozen=True, slots=True)
class Called:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the document on stdout; it must be the only thing there."""
        return json.loads(self.out)


Cli = Callable[..., Called]


class Terminal(StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a function that calls `gobblin` with arguments."""
    for name in ("COLUMNS", "GOBBLIN_DEBUG", "GOBBLIN_PROJECT", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path) -> Called:
        capfd.readouterr()
        code = run_command([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Called(code, out, err)

    return call


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[InlineRunner]:
    """Let `gobblin run` work without Spark; returns the runners that it made."""
    runners: list[InlineRunner] = []

    def make(*settings: object) -> InlineRunner:
        runners.append(InlineRunner())
        return runners[-1]

    monkeypatch.setattr("gobblin_dagster.cli.spark.LazySparkRunner", make)
    return runners


def write_job(root: Path, datasets: dict[str, dict[str, Any]], job: str = "numbers", **parts: Any) -> None:
    """Write a job file that reads made-up rows; JSON is YAML."""
    body = {
        "job": job,
        "source": {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": datasets},
        "extract": {"namespace": "test", "table": job},
        "output": {"path": "lake"},
    }
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs" / f"{job}.yaml").write_text(json.dumps(body | parts, indent=1))


def write_project(root: Path) -> None:
    """Write a project whose job has two datasets."""
    (root / "gobblin.yaml").write_text("project: tests\n")
    write_job(root, {"a": {"rows": 25}, "b/c": {"rows": 3}})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder, the current one, with two datasets."""
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
