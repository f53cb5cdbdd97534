"""`gobblin flow apply`: what somebody else changed meanwhile is neither overwritten nor deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.commands.flow import files
from gobblin_dagster.client import FlowClient
from tests.services.flow_project import NEVER, URI, make_project, open_core
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlowClient]:
    make_project(tmp_path)
    core = open_core(tmp_path)
    monkeypatch.chdir(tmp_path)
    with answering(core) as url, FlowClient(url, core.token) as connected:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        yield connected
    core.store.close()


def test_flow_that_was_changed_after_it_was_shown_is_not_deleted(
    cli: Cli, client: FlowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    file = folder / "a.yaml"
    file.write_text(f"flow: shop/a\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert cli("flow", "apply", folder, "--yes").code == 0
    file.unlink()
    (folder / "b.yaml").write_text(f"flow: shop/b\ntemplates: {URI}\nschedule: '{NEVER}'\n")

    def changed_meanwhile(question: str, yes: bool) -> None:
        client.update("shop", "a", URI, {"rows": "5"}, cron=NEVER)

    monkeypatch.setattr(files, "confirm", changed_meanwhile)
    told = cli("flow", "apply", folder, "--prune", "--yes")
    assert told.code == 2
    assert "has version 2, not 1: it was changed since" in told.err
    assert client.get("shop", "a")["properties"]["rows"] == "5"


def test_flow_that_somebody_deletes_while_others_are_looked_up_is_left_out(
    cli: Cli, client: FlowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"flow: shop/a\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    (folder / "b.yaml").write_text(f"flow: shop/b\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert cli("flow", "apply", folder, "--yes").code == 0
    (folder / "a.yaml").unlink()
    find = FlowClient.find

    def deleted_meanwhile(self: FlowClient, **filters: str) -> Iterator[dict[str, Any]]:
        listed = list(find(self, **filters))
        client.delete("shop", "a")
        yield from listed

    monkeypatch.setattr(FlowClient, "find", deleted_meanwhile)
    told = cli("flow", "apply", folder, "--prune", "--yes")
    assert (told.code, "Nothing to do" in told.out) == (0, True)


def test_flows_that_came_from_no_folder_are_not_pruned(cli: Cli, client: FlowClient, tmp_path: Path) -> None:
    client.create("shop", "a", URI, {}, cron=NEVER)
    told = cli("flow", "apply", tmp_path.anchor, "--prune", "--yes")
    assert (told.code, "root of the file system" in told.err) == (2, True)
    assert client.get("shop", "a")


def test_folder_whose_name_no_header_holds_is_pruned_as_others(cli: Cli, client: FlowClient, tmp_path: Path) -> None:
    folder = tmp_path / "流"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"flow: shop/a\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert cli("flow", "apply", folder, "--yes").code == 0
    (folder / "a.yaml").unlink()
    told = cli("flow", "apply", folder, "--prune", "--yes")
    assert (told.code, "delete shop/a" in told.out) == (0, True)


def test_folders_of_one_name_do_not_prune_each_other(cli: Cli, client: FlowClient, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours" / "flows", tmp_path / "theirs" / "flows"
    for folder, name in ((ours, "a"), (theirs, "b")):
        folder.mkdir(parents=True)
        (folder / "one.yaml").write_text(f"flow: shop/{name}\ntemplates: {URI}\nschedule: '{NEVER}'\n")
        told = cli("flow", "apply", folder, "--prune", "--yes")
        assert (told.code, "delete" in told.out) == (0, False)
    assert [flow["id"]["flowName"] for flow in client.find()] == ["a", "b"]
    told = cli("flow", "update", "shop/a", "--set", "rows=3")
    assert f"It comes from {ours}: the next `gobblin flow apply`" in told.out.replace("\n", " ")


def test_folder_with_a_name_of_its_own_is_pruned_wherever_it_lies(cli: Cli, client: FlowClient, tmp_path: Path) -> None:
    first, moved = tmp_path / "first", tmp_path / "moved"
    first.mkdir()
    (first / "a.yaml").write_text(f"flow: shop/a\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert cli("flow", "apply", first, "--as", "team", "--yes").code == 0
    first.rename(moved)
    (moved / "a.yaml").unlink()
    assert "Nothing to do" in cli("flow", "apply", moved, "--prune", "--yes").out
    told = cli("flow", "apply", moved, "--as", "team", "--prune", "--yes")
    assert (told.code, "delete shop/a" in told.out) == (0, True)
    assert cli("flow", "apply", moved, "--as", " ", "--prune", "--yes").code == 2


def test_flow_that_somebody_deletes_while_others_are_exported_is_left_out(
    cli: Cli, client: FlowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        client.create("shop", name, URI, {}, cron=NEVER)
    listed = client.find()
    client.delete("shop", "a")
    monkeypatch.setattr(FlowClient, "find", lambda _self: listed)
    assert cli("flow", "export", tmp_path / "out").code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shop.b.yaml"]


def test_changes_of_a_flow_from_a_folder_say_that_the_folder_undoes_them(
    cli: Cli, client: FlowClient, tmp_path: Path
) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"flow: shop/a\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert cli("flow", "apply", folder, "--as", "team", "--yes").code == 0
    client.create("shop", "b", URI, {}, cron=NEVER)
    changes = (["update", "--set", "rows=7"], ["rollback", "1"], ["unschedule"], ["delete", "--yes"])
    for change, *more in changes:
        assert "It comes from team: the next `gobblin flow apply`" in cli("flow", change, "shop/a", *more).out, change
        assert "It comes from" not in cli("flow", change, "shop/b", *more).out, change
