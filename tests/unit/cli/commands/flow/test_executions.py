"""`gobblin flow kill`: an execution, or one job of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.cli.commands.flow.executions import moves
from gobblin_dagster.service.server import CoreServices
from tests.services.flow_project import NEVER, URI, make_project, open_core
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreServices]:
    make_project(tmp_path)
    core = open_core(tmp_path)
    monkeypatch.chdir(tmp_path)
    with answering(core) as url:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        yield core
    core.datasets.close()
    core.store.close()


def test_flow_that_exists_is_explained_and_listed_without_a_schedule(cli: Cli, core: CoreServices) -> None:
    assert cli("flow", "create", "g/n", "-t", URI, "--set", "rows=7", "--schedule", "0 0 1 ? * *").code == 0
    assert "0 0 1 ? * *" in cli("flow", "list").out
    assert cli("flow", "unschedule", "g/n").code == 0
    told = cli("flow", "explain", "g/n", "-o", "json").json()
    assert [job["job"] for job in told["jobs"]] == ["g__n__rows"]
    assert "never" in cli("flow", "list").out
    shown = cli("flow", "show", "g/n").out
    assert "schedule   never" in shown
    assert "next" not in shown, "Gobblin's own word for never fires in 2050"
    assert cli("flow", "explain", "g/other").code == 2
    assert "Name templates" in cli("flow", "explain", "g/n", "--set", "rows=8").err


@pytest.mark.parametrize(
    ("low", "high", "lines"),
    [
        ("a: 1; b: 2", "a: 3; b: 4", ["a: 1 -> 3", "b: 2 -> 4"]),
        ("1", "3", ["1 -> 3"]),
        ("", "a: 3; b: 4", ["(none) -> a: 3; b: 4"]),
        ("", "3", ["(none) -> 3"]),
    ],
)
def test_watermarks_move_a_line_for_each_dataset(low: str, high: str, lines: list[str]) -> None:
    assert moves(low, high) == lines


def test_one_job_of_the_newest_execution_is_ended_then_the_rest(cli: Cli, core: CoreServices) -> None:
    assert cli("flow", "create", "g/n", "-t", URI, "--schedule", NEVER).code == 0
    assert cli("flow", "run", "g/n", "--no-wait").code == 0
    core.orchestrator.start_accepted()
    assert "it has: g__n__rows" in cli("flow", "kill", "g/n", "--job", "nope").err
    assert "Job g__n__rows of execution" in cli("flow", "kill", "g/n", "--job", "g__n__rows").out
    again = cli("flow", "kill", "g/n", "--job", "g__n__rows")
    assert (again.code, "[flow-changed]" in again.err) == (2, True), again.err
    assert "is asked to end" in cli("flow", "kill", "g/n").out
    assert "[flow-changed]" in cli("flow", "kill", "g/n").err
    there = cli("flow", "create", "g/n", "-t", URI, "--schedule", NEVER)
    assert "[flow-exists]" in there.err
    assert "asked to end" in cli("flow", "logs", "g/n").out
