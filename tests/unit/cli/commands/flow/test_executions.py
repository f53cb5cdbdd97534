"""`gobblin flow kill`: an execution, or one job of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_one_job_of_the_newest_execution_is_ended_then_the_rest(cli: Cli, core: CoreServices) -> None:
    assert cli("flow", "create", "g/n", "-t", URI, "--schedule", NEVER).code == 0
    assert cli("flow", "run", "g/n", "--no-wait").code == 0
    core.orchestrator.start_accepted()
    assert "it has: g__n__rows" in cli("flow", "kill", "g/n", "--job", "nope").err
    assert "Job g__n__rows of execution" in cli("flow", "kill", "g/n", "--job", "g__n__rows").out
    assert cli("flow", "kill", "g/n", "--job", "g__n__rows").code == 2
    assert "is asked to end" in cli("flow", "kill", "g/n").out
    assert "asked to end" in cli("flow", "logs", "g/n").out
