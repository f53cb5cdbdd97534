"""`gobblin commit abandon`, and what `commit show` finds done, after a run that was killed while it published."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli


@pytest.fixture
def sequence(cli: Cli, killed: Path) -> str:
    """The sequence of which a killed run had executed the only rename."""
    waiting = [one["sequence"] for one in cli("commit", "list", "-o", "json").json()["sequences"]]
    moved = [one for one in waiting if cli("commit", "show", one, "-o", "json").json()["status"][0]["done"]]
    assert moved  # of both, where the second was moved before the first one's end was felt
    return str(moved[0])


def _states(cli: Cli, sequence: str) -> str:
    return str(cli("commit", "show", sequence, "-o", "json").json()["state"])


def test_show_tells_what_is_done_from_the_files_themselves(cli: Cli, sequence: str) -> None:
    document = cli("commit", "show", sequence, "-o", "json").json()
    assert [(one["step"].split()[0], one["done"]) for one in document["status"]] == [
        ("rename", True),
        ("set", False),
        ("write", False),
    ]
    out = cli("commit", "show", sequence).out
    assert "bytes): done" in out
    assert ": not done" in out
    cli("commit", "recover")
    assert all(one["done"] for one in cli("commit", "show", sequence, "-o", "json").json()["status"])


def test_dry_run_changes_nothing(cli: Cli, sequence: str) -> None:
    called = cli("commit", "abandon", sequence, "--dry-run")
    assert called.code == 0
    assert "would be undone" in called.out
    assert _states(cli, sequence) == "prepared"


def test_abandon_without_a_word_is_refused(cli: Cli, sequence: str) -> None:
    called = cli("commit", "abandon", sequence)
    assert called.code == 2
    assert "--yes" in called.err
    assert _states(cli, sequence) == "prepared"


def test_abandoned_sequence_is_undone_and_its_rows_are_published_once_by_the_next_run(
    cli: Cli, project: Path, sequence: str, inline: list[InlineRunner]
) -> None:
    called = cli("commit", "abandon", sequence, "--yes", "--reason", "the disk was lost")
    assert (called.code, _states(cli, sequence)) == (0, "aborted")
    assert "the disk was lost" in cli("commit", "show", sequence, "-o", "json").json()["reason"]
    assert cli("run").code == 0
    assert {one["rows_read"] for one in cli("state", "list", "-o", "json").json()["datasets"]} == {25, 3}
    assert cli("commit", "abandon", sequence, "--yes").code == 2


def test_quarantined_sequence_keeps_its_files_and_lets_the_dataset_go_on(
    cli: Cli, project: Path, sequence: str, inline: list[InlineRunner]
) -> None:
    document = cli("commit", "show", sequence, "-o", "json").json()
    published = Path(document["files"][0]["path"])
    published.write_text("of somebody else")
    cli("commit", "recover")
    assert _states(cli, sequence) == "quarantined"
    assert cli("run").code != 0
    answer = cli("commit", "abandon", sequence, "--yes", "-o", "json").json()
    assert (answer["state"], answer["orphans"]) == ("aborted", [str(published)])
    assert published.read_text() == "of somebody else"
    assert cli("run").code == 0
    assert {one["rows_read"] for one in cli("state", "list", "-o", "json").json()["datasets"]} == {25, 3}


def test_sequence_that_cannot_be_undone_safely_exits_with_1(cli: Cli, sequence: str) -> None:
    document = cli("commit", "show", sequence, "-o", "json").json()
    Path(document["files"][0]["path"]).write_text("of somebody else")
    called = cli("commit", "abandon", sequence, "--yes")
    assert called.code == 1
    assert "Abandon it again" in called.out
    again = cli("commit", "abandon", sequence, "--yes")
    assert (again.code, "was given up" in again.out) == (0, True)


def test_quarantined_sequence_that_is_listed_is_tried_again_by_recover(cli: Cli, sequence: str) -> None:
    published = Path(cli("commit", "show", sequence, "-o", "json").json()["files"][0]["path"])
    ours = published.read_bytes()
    published.write_text("of somebody else")
    cli("commit", "recover")
    again = cli("commit", "recover")
    assert (again.code, _states(cli, sequence)) == (1, "quarantined")
    assert "No unfinished" not in again.out
    assert sequence in cli("commit", "list").out
    # Whether the other dataset was committed too is a matter of who was faster; if not, the line says more.
    assert cli("plan").out.splitlines()[-1].startswith("Next: `gobblin commit list` shows what waits for you")
    urn = cli("commit", "show", sequence, "-o", "json").json()["dataset"]
    assert cli("plan", "--detailed-exitcode", "--select", urn).code == 1  # a run changes nothing
    assert f"`gobblin commit abandon {sequence}`: then the dataset is read again" in cli("commit", "show", sequence).out
    published.write_bytes(ours)
    assert (cli("commit", "recover").code, _states(cli, sequence)) == (0, "committed")
    assert cli("commit", "list", "-o", "json").json()["sequences"] == []
