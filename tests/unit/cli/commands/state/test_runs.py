"""`gobblin state runs`: what became of a job and of each dataset in its last runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job


@pytest.fixture
def ran(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    """A failing run of `a` beside `b`, then a good one of both, then an idle one."""
    policy = {"policy": "successful"}
    bad = {"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}, "b": {"rows": 5}}
    write_job(project, bad, commit=policy)
    assert cli("run").code == 4
    write_job(project, {"a": {"rows": 30, "unit_rows": 10}, "b": {"rows": 5}}, commit=policy)
    assert [cli("run").code, cli("run").code] == [0, 0]
    return project


def test_runs_are_listed_newest_first_and_idle_ones_left_out(cli: Cli, ran: Path) -> None:
    shutil.rmtree(ran / "jobs")  # the store alone is asked
    lines = [line.split() for line in cli("state", "runs").out.splitlines()]
    assert lines[0] == ["started", "job", "status", "datasets", "rows", "run"]
    assert [line[2:-1] for line in lines[1:]] == [
        ["numbers", "succeeded", "1", "committed", "10"],
        ["numbers", "partial", "2", "committed", "25"],
    ]
    assert len(cli("state", "runs", "numbers", "--limit", "1", "-o", "json").json()["runs"]) == 1


def test_runs_of_a_dataset_tell_ranges_and_failures(cli: Cli, ran: Path) -> None:
    newest, oldest = cli("state", "runs", "--dataset", "a", "-o", "json").json()["runs"]
    assert newest["datasets"] == [
        {
            "dataset": "a",
            "outcome": "committed",
            "low": "10",
            "high": "30",
            "rows": 10,
            "quarantined": 0,
            "failed_ranges": [],
            "error": "",
        }
    ]
    (found,) = oldest["datasets"]
    assert (found["high"], found["rows"], found["failed_ranges"]) == ("10", 20, ["[10, 20)"])
    out = cli("state", "runs", "--dataset", "a").out
    assert "[10, 20)" in out
    assert out.splitlines()[-1].endswith("row 15: is told to fail.")
    # The newest run did nothing about it: a limit counts runs of the dataset.
    (only,) = cli("state", "runs", "--dataset", "b", "--limit", "1", "-o", "json").json()["runs"]
    assert only["run_id"] == oldest["run_id"]
    assert cli("state", "runs", "--dataset", "zz").out == "No run is remembered in which zz had work.\n"
