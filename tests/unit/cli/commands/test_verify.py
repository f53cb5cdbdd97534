"""`gobblin verify` and `gobblin state restore`, as people call them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli, write_job

pytestmark = pytest.mark.usefixtures("inline")


def _publish(cli: Cli, project: Path) -> Path:
    write_job(project, {"a": {"rows": 5}, "b": {"rows": 5}})
    assert cli("run").code == 0
    return project / "lake/_gobblin/manifests/numbers/a/0000000001.json"


def test_what_differs_is_named_repaired_and_then_whole(cli: Cli, project: Path) -> None:
    manifest = _publish(cli, project)
    assert "nothing differs" in cli("verify").out
    manifest.write_text("{")
    called = cli("verify", "a")
    assert called.code == 1
    assert f"manifest cut: {manifest}" in called.out
    assert cli("verify", "b").code == 0
    assert cli("verify", "--repair").code == 0
    assert cli("verify", "--checksum").code == 0


def test_json_names_all(cli: Cli, project: Path) -> None:
    manifest = _publish(cli, project)
    manifest.unlink()
    called = cli("verify", "--output", "json")
    assert called.code == 1
    (job,) = json.loads(called.out)["jobs"]
    differences = {one["dataset"]: [d["what"] for d in one["differences"]] for one in job["datasets"]}
    assert (job["job"], job["is_whole"], differences) == ("numbers", False, {"a": ["manifest missing"], "b": []})


def test_jobs_that_are_not_compared_are_named(cli: Cli, project: Path) -> None:
    _publish(cli, project)
    write_job(project, {"a": {"rows": 5}}, job="other")
    (project / "jobs/numbers.yaml").unlink()
    called = cli("verify")
    assert called.code == 0
    assert "Not compared, because the project has no job file of them: numbers" in called.out
    assert cli("verify", "--output", "json").json()["without_job_file"] == ["numbers"]
    (project / "jobs/other.yaml").unlink()
    called = cli("verify")
    assert called.code == 2
    assert "There is no job file" in called.err


def test_dataset_that_is_not_there_is_a_wrong_call(cli: Cli, project: Path) -> None:
    _publish(cli, project)
    called = cli("verify", "c")
    assert called.code == 2
    assert "Nothing is published of dataset 'c'" in called.err


def test_damaged_state_is_listed_and_restored(cli: Cli, project: Path) -> None:
    _publish(cli, project)
    (database,) = project.rglob("state.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update gobblin_dataset_states set body = '{' where dataset_urn = 'a'")
    assert cli("verify").code == 1
    listed = cli("state", "list")
    assert listed.code == 0
    assert "does not match its digest" in listed.out.replace("\n", " ")
    assert cli("state", "list", "--output", "json").code == 0
    assert [one["dataset"] for one in json.loads(cli("state", "list", "--output", "json").out)["damaged"]] == ["a"]
    assert cli("state", "show", "a").code == 1
    assert cli("state", "show", "b").code == 0
    assert cli("state", "export").code == 0
    assert cli("clean").code == 0
    restored = cli("state", "restore", "a", "--yes")
    assert restored.code == 0
    assert "Restored: the watermark is 5" in restored.out
    assert "Nothing is wrong with it" in cli("state", "restore", "a").out
    assert cli("verify").code == 0
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update gobblin_snapshot_files set rows = 7 where dataset_urn = 'a'")
    restored = cli("state", "restore", "a", "--yes")
    assert (restored.code, restored.out) == (1, "")
    assert "`gobblin state import`" in restored.err


def test_each_kind_of_damage_stops_its_dataset_alone_and_is_restored(cli: Cli, project: Path) -> None:
    other = "select body, digest from gobblin_dataset_states where dataset_urn = 'sound'"
    damages = {
        "no_utf8": ("body = cast(x'7bfffe00' as text)", "does not match its digest"),
        "bytes": ("body = x'fffe00'", "does not match its digest"),
        "digest": ("digest = cast(x'ff' as text)", "does not match its digest"),
        "version": ("version = -5", "its row says version -5, its body 1"),
        "other": (f"(body, digest) = ({other})", "it is that of 'sound' of job 'numbers'"),
    }
    write_job(project, {urn: {"rows": 5} for urn in ("sound", *damages)})
    assert cli("run").code == 0
    (database,) = project.rglob("state.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        for urn, (damage, _) in damages.items():
            connection.execute(f"update gobblin_dataset_states set {damage} where dataset_urn = '{urn}'")
    write_job(project, {urn: {"rows": 8} for urn in ("sound", *damages)})
    assert cli("run").code == 4
    listed = json.loads(cli("state", "list", "--output", "json").out)
    told = {one["dataset"]: one["problem"] for one in listed["damaged"]}
    assert told.keys() == damages.keys()
    for urn, (_, problem) in damages.items():
        assert problem in told[urn]
        assert cli("state", "restore", urn, "--yes").code == 0
    assert cli("run").code == 0
    assert json.loads(cli("state", "list", "--output", "json").out)["damaged"] == []


def test_damaged_state_can_be_reset(cli: Cli, project: Path) -> None:
    _publish(cli, project)
    (database,) = project.rglob("state.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update gobblin_dataset_states set body = '{' where dataset_urn = 'a'")
    assert cli("state", "reset", "a", "--reason", "damaged", "--yes").code == 0
    assert cli("run").code == 0
    assert "5" in cli("state", "show", "a").out
