"""`gobblin flow datasets|startpoint`: what people read, and what they may write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.service.model import FlowId
from tests.services.flow_project import make_project, open_core, run_flow, store_flow
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli

FLOW = FlowId("shop", "orders")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A service that answers, with a flow that ran once."""
    make_project(tmp_path)
    core = open_core(tmp_path)
    store_flow(core, FLOW)
    run_flow(tmp_path, core, FLOW)
    monkeypatch.chdir(tmp_path)
    with answering(core) as url:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        yield tmp_path
    core.datasets.close()
    core.store.close()


def test_datasets_are_listed_with_their_watermarks_and_startpoints(cli: Cli, ran: Path) -> None:
    told = cli("flow", "startpoint", "shop/orders", "b/c", "4", "-m", "bad files", "--yes")
    assert told.code == 0, told.err
    assert "The next run of b/c (shop__orders__rows) begins at 4." in told.out
    lines = cli("flow", "datasets", "shop/orders").out.splitlines()
    assert lines[0] == "Job shop__orders__rows"
    assert [line.split()[:8] for line in lines[2:4]] == [
        ["a", "10", "0", "positions", "10", "1", "-", "-"],
        ["b/c", "10", "0", "positions", "10", "1", "-", "4"],
    ]
    assert (
        cli("flow", "datasets", "shop/orders", "-o", "json").json()["datasets"][1]["startpoint"]["reason"]
        == "bad files"
    )
    assert "Removed" in cli("flow", "startpoint", "shop/orders", "b/c", "--remove", "-m", "a mistake").out


def test_wrong_words_are_answered_without_a_trace(cli: Cli, ran: Path) -> None:
    assert "either a POSITION or --remove" in cli("flow", "startpoint", "shop/orders", "a", "-m", "why").err
    assert "is no watermark of type" in cli("flow", "startpoint", "shop/orders", "a", "x", "-m", "why", "--yes").err
    assert cli("flow", "startpoint", "shop/orders", "a", "4", "-m", "why").code != 0, "nobody said yes"
    assert "does not exist" in cli("flow", "datasets", "shop/nope").err
