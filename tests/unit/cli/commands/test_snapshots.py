"""`gobblin show`, `rollback` and `clean`: words, exit codes and documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job


@pytest.fixture
def three_snapshots(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    for rows in (10, 25, 40):
        write_job(project, {"a": {"rows": rows}})
        assert cli("run").code == 0
    return project


def test_show_lists_snapshots_newest_first(cli: Cli, three_snapshots: Path) -> None:
    shown = cli("show", "a")
    assert shown.code == 0
    assert "snapshot   3: 3 files" in shown.out
    assert "rows       main 40" in shown.out
    rows = [line.split() for line in shown.out.splitlines()]
    listed = [row for row in rows if row and row[0].isdigit()]
    assert [(row[0], row[3], row[5]) for row in listed] == [("3", "40", "15"), ("2", "25", "15"), ("1", "10", "10")]
    assert listed[0][-1] == "newest"


def test_show_paths_are_those_of_whole_commits(cli: Cli, three_snapshots: Path) -> None:
    import pyarrow.dataset as ds

    paths = cli("show", "a", "--paths", "main", "--snapshot", "2").out.splitlines()
    assert ds.dataset(paths, format="parquet").count_rows() == 25
    wrong = cli("show", "a", "--paths", "none")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no branch 'none'. It has main." in wrong.err


def test_show_json_has_files_and_history(cli: Cli, three_snapshots: Path) -> None:
    document = cli("show", "a", "--output", "json").json()
    assert (document["job"], document["snapshot"], document["newest"], document["rows"]) == (
        "numbers",
        3,
        3,
        {"main": 40},
    )
    assert [one["rows_added"] for one in document["snapshots"]] == [{"main": 15}, {"main": 15}, {"main": 10}]
    assert sum(file["rows"] for file in document["files"]) == 40
    assert cli("show", "a", "--snapshot", "1", "--output", "json").json()["rows"] == {"main": 10}


def test_show_unknown_snapshot_or_dataset_says_what_there_is(cli: Cli, three_snapshots: Path) -> None:
    unknown = cli("show", "a", "--snapshot", "7")
    assert (unknown.code, "no snapshot 7. The newest is 3." in unknown.err) == (2, True)
    assert cli("show", "nothing").code == 2


def test_rollback_dry_run_shows_and_changes_nothing(cli: Cli, three_snapshots: Path) -> None:
    planned = cli("rollback", "a", "--to", "1", "--dry-run")
    assert planned.code == 0
    assert "40 -> 10" in planned.out
    assert "3 -> 4, equal to 1" in planned.out
    assert "2 files: main 30 rows" in planned.out
    assert "Nothing was changed." in planned.out
    assert cli("show", "a", "--output", "json").json()["newest"] == 3


def test_rollback_without_terminal_needs_yes(cli: Cli, three_snapshots: Path) -> None:
    refused = cli("rollback", "a", "--to", "1")
    assert refused.code == 2
    assert "Repeat with --yes." in refused.err
    done = cli("rollback", "a", "--to", "1", "--yes", "-m", "bad source")
    assert done.code == 0
    assert "Undo with --to 3" in done.out
    assert cli("show", "a", "--output", "json").json()["rows"] == {"main": 10}
    assert "back to 1" in cli("show", "a").out
    assert "rollback to snapshot 1: bad source" in cli("state", "history", "a").out
    assert cli("run").code == 0
    assert cli("show", "a", "--output", "json").json()["rows"] == {"main": 40}


def test_rollback_json_and_refusals(cli: Cli, three_snapshots: Path) -> None:
    document = cli("rollback", "a", "--to", "2", "--yes", "--output", "json").json()
    assert (document["before"], document["after"]) == (
        {"snapshot": 3, "watermark": "40"},
        {"snapshot": 4, "watermark": "25"},
    )
    assert (document["files_left"], document["rows_left"]) == (1, {"main": 15})
    assert len(document["sequence"]) == 32
    newest = cli("rollback", "a", "--to", "4", "--yes")
    assert (newest.code, "is the newest already" in newest.err) == (2, True)


def test_clean_names_datasets_whose_manifest_cannot_be_written_and_goes_on(cli: Cli, three_snapshots: Path) -> None:
    cli("rollback", "a", "--to", "1", "--yes")
    write_job(three_snapshots, {"a": {"rows": 40}, "b": {"rows": 5}}, commit={"keep_snapshots": 1})
    cli("run")
    manifests = three_snapshots / "lake/_gobblin/manifests/numbers"
    (manifests / "b").rename(three_snapshots / "away")
    (manifests / "b").touch()  # a file where the folder belongs

    failed = cli("clean")

    assert (failed.code, "a: 2 expired snapshots with 2 files" in failed.out) == (1, True)
    assert "Dataset 'b': cannot write the manifest of snapshot 1" in failed.err
    document = cli("clean", "--output", "json")
    (fault,) = document.json()["jobs"][0]["faults"]
    assert (document.code, "manifest of snapshot 1" in fault["message"]) == (1, True)


def test_clean_says_what_it_deletes_and_keeps(cli: Cli, three_snapshots: Path) -> None:
    assert "nothing to clean up" in cli("clean").out
    cli("rollback", "a", "--to", "1", "--yes")
    write_job(three_snapshots, {"a": {"rows": 40}}, commit={"keep_snapshots": 1})
    (three_snapshots / "lake/_gobblin/staging/unknown").mkdir(parents=True)
    (three_snapshots / "lake/_gobblin/staging/unknown/a").touch()
    planned = cli("clean", "--dry-run")
    assert "a: 2 expired snapshots with 2 files" in planned.out
    assert "would be deleted" in planned.out
    assert "staging of run unknown: kept: this state store does not know the run" in planned.out
    document = cli("clean", "--output", "json").json()
    (job,) = document["jobs"]
    assert (job["expired"][0]["snapshots"], len(job["expired"][0]["files"])) == ([2, 3], 2)
    assert not any(Path(path).exists() for path in job["expired"][0]["files"])
    assert cli("run").code == 0
