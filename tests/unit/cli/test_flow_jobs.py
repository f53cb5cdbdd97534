"""`--flow GROUP/NAME`: commands about states work for the datasets of a flow; its service need not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.service.model import FlowId
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.flow_project import make_project, open_core, run_flow, store_flow
from tests.unit.cli.conftest import Cli

OF = ("--flow", "shop/orders")
ORDERS, OTHER = FlowId("shop", "orders"), FlowId("shop", "other")


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: list[InlineRunner]) -> Path:
    """Return a project in which two flows of one template ran; it has no job file."""
    make_project(tmp_path)
    core = open_core(tmp_path)
    for flow, folder in {ORDERS: "lake", OTHER: "other"}.items():
        store_flow(core, flow, folder=folder)
        run_flow(tmp_path, core, flow)
    core.store.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_state_of_a_flow_is_shown_and_changed_and_no_others(cli: Cli, flows: Path) -> None:
    listed = cli("state", "list", *OF, "-o", "json").json()["datasets"]
    assert {(one["job"], one["dataset"]) for one in listed} == {
        ("shop__orders__rows", "a"),
        ("shop__orders__rows", "b/c"),
    }
    assert "is in several jobs" in cli("state", "show", "a").err
    assert "shop__orders__rows" in cli("state", "show", "a", *OF).out
    assert cli("state", "set", "a", "4", *OF, "-m", "why", "--yes").code == 0
    assert cli("state", "reset", "b/c", *OF, "-m", "why", "--yes").code == 0
    assert cli("state", "restore", "a", *OF, "--yes").code == 0
    assert len(cli("state", "history", "a", *OF, "-o", "json").json()["history"]) == 2
    marks = {
        (one["job"], one["dataset"]): one["watermark"] for one in cli("state", "list", "-o", "json").json()["datasets"]
    }
    assert marks == {
        ("shop__orders__rows", "a"): "4",
        ("shop__orders__rows", "b/c"): None,
        ("shop__other__rows", "a"): "10",
        ("shop__other__rows", "b/c"): "10",
    }
    assert {run["job"] for run in cli("state", "runs", *OF, "-o", "json").json()["runs"]} == {"shop__orders__rows"}
    assert "shop__other" not in cli("state", "export", *OF).out


def test_startpoints_of_a_flow_are_planned_set_and_removed(cli: Cli, flows: Path) -> None:
    called = cli("startpoint", "set", "a", "4", "--on-rewind", "append", *OF, "-m", "why", "--yes")
    assert called.code == 0, called.err
    assert "a        4          10              6\n" in called.out
    assert [one["job"] for one in cli("startpoint", "list", *OF, "-o", "json").json()["startpoints"]] == [
        "shop__orders__rows"
    ]
    assert cli("startpoint", "list", "--flow", "shop/other", "-o", "json").json()["startpoints"] == []
    assert cli("startpoint", "remove", "a", "--flow", "shop/other", "--yes").code == 2
    assert cli("startpoint", "remove", "a", *OF, "--yes").code == 0


def test_quarantine_and_commits_of_a_flow(cli: Cli, flows: Path) -> None:
    assert cli("quarantine", "list", *OF, "-o", "json").json()["rows"] == 2
    assert cli("quarantine", "show", "a", *OF, "-o", "json").json()["total"] == 1
    replayed = cli("quarantine", "replay", "a", *OF, "--yes")
    assert replayed.code == 0, replayed.err
    sequences = cli("commit", "list", "--all", *OF, "-o", "json").json()["sequences"]
    assert {one["job"] for one in sequences} == {"shop__orders__rows"}
    assert cli("commit", "show", sequences[0]["sequence"], *OF).code == 0
    assert cli("commit", "recover", *OF).code == 0


def test_unknown_flows_and_jobs_are_named(cli: Cli, flows: Path) -> None:
    assert "does not exist: shop/nope" in cli("state", "list", "--flow", "shop/nope").err
    assert "Write GROUP/NAME" in cli("state", "list", "--flow", "nope").err
    assert "has no job 'nope'" in cli("state", "show", "a", *OF, "--job", "nope").err
