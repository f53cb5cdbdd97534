"""`gobblin quarantine`: words, exit codes and documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job

POLICIES = [
    {"name": "has_value", "type": "not_null", "columns": ["value"], "on_violation": "quarantine"},
    {"name": "few", "type": "range", "column": "id", "max": 20, "on_violation": "quarantine"},
]


@pytest.fixture
def rejected(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    write_job(project, {"a": {"rows": 25}, "b/c": {"rows": 3}}, row_policies=POLICIES)
    assert cli("run").code == 0
    return project


def test_list_counts_by_job_dataset_and_policy(cli: Cli, rejected: Path) -> None:
    shown = cli("quarantine", "list", "--output", "json").json()
    counts = {(one["job"], one["dataset"], one["policy"]): one["rows"] for one in shown["counts"]}
    published = cli("state", "list", "--output", "json").json()["datasets"]
    for state in published:
        urn = state["dataset"]
        assert sum(n for key, n in counts.items() if key[1] == urn) == state["rows_quarantined"]
    assert counts["numbers", "a", "few"] > 0
    assert counts["numbers", "a", "has_value"] > 0
    assert shown["rows"] == sum(counts.values())
    text = cli("quarantine", "list").out
    assert ["numbers", "a", "few", str(counts["numbers", "a", "few"])] in [line.split() for line in text.splitlines()]
    assert f"{shown['rows']} rows in quarantine" in text


def test_show_has_policy_reason_origin_and_record(cli: Cli, rejected: Path) -> None:
    document = cli("quarantine", "show", "a", "--policy", "few", "--output", "json").json()
    rows: list[dict[str, Any]] = document["rows"]
    assert (document["job"], document["dataset"], document["total"]) == ("numbers", "a", len(rows))
    assert {row["policy"] for row in rows} == {"few"}
    ids = [json.loads(row["record"])["id"] for row in rows]
    assert ids
    assert min(ids) > 20
    assert all(row["source_row"] > 0 and row["stage"] == "pre_fork" for row in rows)
    text = cli("quarantine", "show", "a", "--policy", "few").out
    assert text.splitlines()[:3] == [
        f"few: {rows[0]['reason']}",
        f"  {rows[0]['source_file']}, row {rows[0]['source_row']} (pre_fork)",
        f"  {rows[0]['record']}",
    ]


def test_show_is_limited_and_says_what_is_left(cli: Cli, rejected: Path) -> None:
    total = cli("quarantine", "show", "a", "--output", "json").json()["total"]
    limited = cli("quarantine", "show", "a", "--limit", "1", "--output", "json").json()
    assert (len(limited["rows"]), limited["total"]) == (1, total)
    assert f"... {total - 1} more rows" in cli("quarantine", "show", "a", "--limit", "1").out


def test_show_unknown_policy_or_dataset_says_what_there_is(cli: Cli, rejected: Path) -> None:
    unknown = cli("quarantine", "show", "a", "--policy", "none")
    assert (unknown.code, unknown.out) == (2, "")
    assert "There are rows for: few, has_value." in unknown.err
    assert cli("quarantine", "show", "nothing").code == 2


def test_nothing_rejected_is_said_so(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    assert "No row is in quarantine." in cli("quarantine", "list").out
    assert cli("run").code == 0
    assert "No row is in quarantine." in cli("quarantine", "list").out
    assert "No row of a is in quarantine." in cli("quarantine", "show", "a").out
    assert cli("quarantine", "list", "--output", "json").json()["counts"] == []


def test_replay_sends_rows_through_the_job_as_it_is_now(cli: Cli, rejected: Path) -> None:
    write_job(rejected, {"a": {"rows": 25}, "b/c": {"rows": 3}}, row_policies=POLICIES[:1])
    planned = cli("quarantine", "replay", "a", "--dry-run")
    assert planned.out == "7 rows would go through the pipeline again: few 4, has_value 3; 0 would stay\n"
    one = cli("quarantine", "replay", "a", "--rule", "few", "--yes", "--output", "json").json()
    assert (one["rows"], one["published"], one["rejected_again"], one["kept"]) == ({"few": 4}, {"main": 4}, 0, 3)
    refused = cli("quarantine", "replay", "a")
    assert (refused.code, "Repeat with --yes." in refused.err) == (2, True)
    rest = cli("quarantine", "replay", "a", "--yes")
    assert rest.out.splitlines() == [
        "3 rows went through the pipeline again: has_value 3",
        "published main 0; 3 rejected again, 0 stayed; snapshot 3",
    ]
    assert "replay of the quarantine" in cli("state", "history", "a").out
    assert cli("quarantine", "list", "--output", "json").json()["rows"] == 3 + 1


def test_replay_of_nothing_says_so_and_unknown_datasets_are_refused(cli: Cli, rejected: Path) -> None:
    nothing = cli("quarantine", "replay", "a", "--rule", "none")
    assert (nothing.code, nothing.out) == (
        0,
        "No row of a that 'none' rejected can be replayed; 7 rows in quarantine; "
        "`gobblin quarantine list` shows their rules.\n",
    )
    assert cli("quarantine", "replay", "nowhere").code == 2


def test_file_that_is_gone_hides_no_row_of_other_datasets(cli: Cli, rejected: Path) -> None:
    """Nothing was counted then."""
    whole = cli("quarantine", "list", "--output", "json").json()
    for path in (rejected / "lake").rglob("*quarantine/a/*.parquet"):
        path.unlink()
    found = cli("quarantine", "list", "--output", "json").json()
    assert found["counts"] == [one for one in whole["counts"] if one["dataset"] != "a"] != []
    assert [(one["job"], one["dataset"]) for one in found["damaged"]] == [("numbers", "a")]
    said = cli("quarantine", "list")
    assert (said.code, " in quarantine; " in said.out, "a: not counted: " in said.out) == (0, True, True)
