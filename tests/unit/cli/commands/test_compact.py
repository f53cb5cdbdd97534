"""`gobblin compact`: words, exit codes and documents; and the example of its page."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.commands.conftest import no_manifests
from tests.unit.cli.conftest import Cli, write_job

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "compact.md"


@pytest.fixture
def three_files(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    for rows in (10, 25, 40):
        write_job(project, {"a": {"rows": rows}, "b/c": {"rows": 3}})
        assert cli("run").code == 0
    return project


def test_compact_tells_what_became_of_the_files(cli: Cli, three_files: Path) -> None:
    planned = cli("compact", "numbers", "--dry-run")
    assert (planned.code, planned.out.count("\n")) == (0, 1)
    assert re.fullmatch(r"a: 3 files \(.* KB\) would become 1\n", planned.out)
    done = cli("compact", "numbers")
    assert re.fullmatch(r"a: 3 files \(.* KB\) became 1 \(.* KB\), snapshot 4\n", done.out)
    assert len(cli("show", "a", "--paths", "main").out.splitlines()) == 1
    assert "3 files removed" in cli("show", "a").out
    assert cli("compact", "numbers").out == "No dataset has small files to merge.\n"
    assert cli("state", "history", "a", "-o", "json").json()["history"][-1]["why"] == "compaction"


def test_files_in_a_former_output_stay(cli: Cli, three_files: Path) -> None:
    """Their merged file was refused by the check of the commit's paths: exit code 1, each time."""
    write_job(three_files, {"a": {"rows": 40}, "b/c": {"rows": 3}}, output={"path": "elsewhere"})
    done = cli("compact", "numbers")
    assert (done.code, done.out) == (0, "a: 3 small files in a former output left as they are\n")
    for rows in (50, 60):
        write_job(three_files, {"a": {"rows": rows}, "b/c": {"rows": 3}}, output={"path": "elsewhere"})
        assert cli("run").code == 0
    done = cli("compact", "numbers", "-o", "json")
    (dataset,) = done.json()["datasets"]
    assert (done.code, dataset["files_elsewhere"], dataset["merges"][0]["rows"]) == (0, 3, 20)


def test_compact_json_names_the_files(cli: Cli, three_files: Path) -> None:
    document = cli("compact", "numbers", "a", "--output", "json").json()
    (dataset,) = document["datasets"]
    (merge,) = dataset["merges"]
    assert (dataset["dataset"], dataset["snapshot"], merge["branch"], merge["rows"]) == ("a", 4, "main", 40)
    assert len(merge["files"]) == 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none"], "No job 'none'"),
        (["numbers", "x"], "Nothing was published of dataset 'x'"),
        (["numbers", "--target-size", "big"], "--target-size 'big' is not a size"),
        (["numbers", "--min-files", "1"], "greater than or equal to 2"),
    ],
    ids=["job", "dataset", "size", "files"],
)
def test_compact_refuses_what_cannot_be(cli: Cli, three_files: Path, arguments: list[str], problem: str) -> None:
    refused = cli("compact", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert problem in refused.err


def test_store_that_fails_after_the_commit_leaves_no_dataset_as_it_was(
    cli: Cli, three_files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(store: SqlStateStore, sequence_ids: Collection[str]) -> None:
        raise StorageError(operation="write", path="state.db", problem="the disk is full")

    monkeypatch.setattr(SqlStateStore, "mark_reported", full)
    done = cli("compact", "numbers")
    assert re.fullmatch(r"a: 3 files .* became 1 .*, snapshot 4\n", done.out)
    assert done.code == 0
    assert "Dataset 'a' is compacted, and Dagster will report it as published" in caplog.text


def test_compact_of_a_damaged_file_fails_and_leaves_the_dataset(cli: Cli, three_files: Path) -> None:
    path = Path(cli("show", "a", "--paths", "main").out.splitlines()[0])
    path.write_bytes(path.read_bytes()[:-100])
    failed = cli("compact", "numbers")
    assert failed.code == 1
    assert re.search(r"a: left as it is: .*\.parquet cannot be read", failed.out.replace("\n", " "))
    assert "snapshot   3" in cli("show", "a").out


def test_compact_of_a_held_dataset_is_busy_unless_another_one_fails(cli: Cli, three_files: Path) -> None:
    """It ended with 1, `failed`, as if trying again later did not help."""
    write_job(three_files, {"a": {"rows": 50}, "c": {"rows": 5}})
    assert cli("run").code == 0
    with open_project(three_files).use_store() as store:
        store.acquire_leases("numbers", ["a"], LeaseOwner.current("other"), timedelta(minutes=1))
    busy = cli("compact", "numbers", "--output", "json")
    assert (busy.code, busy.json()["exit_code"], busy.json()["datasets"][0]["dataset"]) == (5, 5, "a")
    assert "held by run other" in cli("compact", "numbers", "a").out
    for path in cli("show", "c", "--paths", "main").out.splitlines():
        Path(path).unlink()
    write_job(three_files, {"c": {"rows": 9}})
    assert cli("run").code == 0
    assert cli("compact", "numbers").code == 1


def test_compact_says_that_readers_of_manifests_do_not_see_it_yet(cli: Cli, three_files: Path) -> None:
    """It ended with 0 and said nothing, unlike `rollback` and `quarantine replay`."""
    with no_manifests():
        done = cli("compact", "numbers")
    assert done.code == 1
    assert re.match(r"a: 3 files .* snapshot 4; .*cannot write the manifest of snapshot 4", done.out)
    assert cli("run").code == 0
    assert cli("verify").code == 0


def test_example_of_the_page_runs(three_files: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with redirect_stdout(StringIO()) as printed:
        exec(compile(example, str(PAGE), "exec"), {})
    assert printed.getvalue() == "a 3 files became 1\n"
