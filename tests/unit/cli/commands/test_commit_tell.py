"""`gobblin commit tell`: what the instance in DAGSTER_HOME shows afterwards."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli

ASSET = "test/numbers/main"


def test_instance_is_told_the_commits_it_does_not_show(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert cli("run").code == 0
    never = cli("commit", "tell")
    assert (never.code, "There is no Dagster instance" in never.err) == (2, True)
    home = project / ".dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    answer = cli("commit", "tell", "-x", "b/*", "-o", "json").json()
    assert (answer["exit_code"], answer["dry_run"]) == (0, False)
    job = {"job": "numbers", "assets": [ASSET], "told": ["a"], "known": [], "running": [], "error": None}
    assert answer["jobs"] == [job]
    assert cli("commit", "tell", "numbers", "--dry-run").out == f"{ASSET}: 1 commit to tell, 1 shown already.\n"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        shown = instance.fetch_materializations(dg.AssetKey(ASSET.split("/")), limit=10).records
        assert [record.partition_key for record in shown] == ["a"]
