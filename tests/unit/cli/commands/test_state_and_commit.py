from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from gobblin_dagster.cli.commands import commit
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.state.store import LeaseGrant
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.commands.conftest import no_manifests
from tests.unit.cli.conftest import Cli, write_job


def test_state_list_shows_watermarks_and_totals(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    lines = cli("state", "list").out.splitlines()
    assert lines[0] == "Job numbers: 2 datasets published"
    assert lines[1].split() == ["dataset", "watermark", "rows", "quarantined", "files", "size", "published"]
    assert lines[2].split()[:5] == ["a", "25", "25", "0", "1"]


def test_state_list_json_and_selection(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    document = cli("state", "list", "--select", "b*", "--output", "json").json()
    (state,) = document["datasets"]
    assert state.items() >= {"job": "numbers", "dataset": "b/c", "watermark": "3", "version": 1, "rows_read": 3}.items()
    assert state["committed"]["ranges"] == {"": [[0, 3]]}


def test_state_list_before_the_first_run_is_empty(cli: Cli, project: Path) -> None:
    called = cli("state", "list")
    assert (called.code, called.out) == (0, "Nothing is published yet.\n")


def test_state_list_needs_no_job_file_that_is_right(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    next((project / "jobs").iterdir()).write_text("job: [", encoding="utf-8")
    assert cli("run").code == 2
    assert "Job numbers:" in cli("state", "list").out


def test_reading_and_carrying_state_needs_no_job_file_at_all(
    cli: Cli, project: Path, inline: list[InlineRunner], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cli("run")
    shutil.rmtree(project / "jobs")
    assert cli("state", "show", "a", "-o", "json").json()["watermark"] == "25"
    assert len(cli("state", "history", "a", "-o", "json").json()["history"]) == 1
    other = tmp_path_factory.mktemp("other")
    (other / "gobblin.yaml").write_text("project: other\n")
    (other / "export").write_text(cli("state", "export").out)
    assert cli("-C", other, "state", "import", other / "export", "--yes").code == 0
    assert cli("-C", other, "state", "diff", other / "export").out == "No difference.\n"
    assert cli("-C", other, "state", "list", "-o", "json").json() == cli("state", "list", "-o", "json").json()


def test_state_show_tells_all_of_one_dataset(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    out = cli("state", "show", "a").out
    assert "committed      [0, 25)" in out
    assert "rows written   main 25" in out
    assert "snapshot       1: 1 file" in out
    (file,) = cli("state", "show", "a", "-o", "json").json()["snapshot_files"]
    assert (file["branch"], file["rows"]) == ("main", 25)
    assert Path(file["path"]).is_file()


def test_state_show_lists_the_files_that_a_set_remembers(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    files = {"type": "files", "path": "in/{dataset}/*.csv", "format": {"type": "csv"}}
    for name, text in (("1.csv", "id\n1\n"), ("2.csv", "id\n22\n")):
        (project / "in" / "x").mkdir(parents=True, exist_ok=True)
        (project / "in" / "x" / name).write_text(text)
        os.utime(project / "in" / "x" / name, (1_000_000_000, 1_000_000_000))
    write_job(project, {}, job="files", source=files)
    cli("run", "files")
    assert "input files    2; `--output json` lists them" in cli("state", "show", "x").out
    first, second = cli("state", "show", "x", "-o", "json").json()["input_files"]
    modified_at = "2001-09-09T01:46:40Z"
    assert first == {"file": "x/1.csv", "bytes": 5, "modified_at": modified_at, "checksum": None, "times_read": 1}
    assert (second["file"], second["bytes"]) == ("x/2.csv", 6)
    cli("run", "numbers")
    assert cli("state", "show", "a", "-o", "json").json()["input_files"] is None


def test_state_show_and_diff_tell_what_a_dataset_was_read_from(
    cli: Cli, project: Path, inline: list[InlineRunner], tmp_path: Path
) -> None:
    def declare(rows: int, **ids: str) -> None:
        named = {
            "type": "tests.unit.engine.task.test_origin:NamedRows",
            "datasets": {"a": {"rows": rows}},
            "origin": ids,
        }
        write_job(project, {}, source=named)

    declare(5, orders="id-1", users="id-2")
    cli("run")
    assert "read from      orders (id-1), users (id-2)" in cli("state", "show", "a").out
    assert cli("state", "show", "a", "-o", "json").json()["origin"] == {"orders": "id-1", "users": "id-2"}
    export = tmp_path / "before"
    export.write_text(cli("state", "export").out)
    declare(6, **{f"t{n}": "id-1" for n in range(5)})
    cli("run")
    assert "orders (id-1), t0 (id-1), t1 (id-1), t2 (id-1), 3 more" in cli("state", "show", "a").out
    assert "read from orders (id-1), users (id-2)" in " ".join(cli("state", "diff", str(export)).out.split())


def test_state_show_unknown_dataset_is_a_usage_error(cli: Cli, project: Path) -> None:
    called = cli("state", "show", "zz")
    assert called.code == 2
    assert "Nothing is published of 'zz'" in called.err


def test_state_show_dataset_of_two_jobs_needs_the_job(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    write_job(project, {"a": {"rows": 1}}, job="other")
    cli("run")
    called = cli("state", "show", "a")
    assert called.code == 2
    assert "is in several jobs: numbers, other" in called.err
    assert cli("state", "show", "a", "--job", "other", "-o", "json").json()["watermark"] == "1"


def test_commit_list_shows_unfinished_sequences_only_unless_asked(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    cli("run")
    assert cli("commit", "list").out == "No unfinished commit sequence; `--all` shows finished ones.\n"
    assert [s["state"] for s in cli("commit", "list", "--all", "-o", "json").json()["sequences"]] == ["committed"] * 2
    assert len(cli("commit", "list", "--all", "--limit", "1", "-o", "json").json()["sequences"]) == 1


def test_commit_list_and_show_a_sequence_that_a_kill_left(cli: Cli, killed: Path) -> None:
    sequences = cli("commit", "list", "--output", "json").json()["sequences"]
    assert {sequence["state"] for sequence in sequences} == {"prepared"}
    sequence = sequences[0]["sequence"]
    assert sequence in cli("commit", "list").out
    out = cli("commit", "show", sequence).out
    assert "state            prepared" in out
    assert "1 step, then one transaction that moves the watermark:" in out
    assert "  1. rename (staging)/" in out
    assert str(killed / "lake" / "test") not in out
    document = cli("commit", "show", sequence, "-o", "json").json()
    assert str(killed / "lake") in document["steps"][0]


def test_commit_show_unknown_sequence_is_a_usage_error(cli: Cli, project: Path) -> None:
    called = cli("commit", "show", "f00")
    assert called.code == 2
    assert "There is no commit sequence 'f00'" in called.err


def test_commit_recover_dry_run_changes_nothing_and_recover_finishes(cli: Cli, killed: Path) -> None:
    waiting = cli("commit", "recover", "--dry-run", "-o", "json").json()["sequences"]
    assert cli("commit", "recover", "--dry-run").out.startswith(f"{len(waiting)} sequence")
    assert len(cli("commit", "list", "-o", "json").json()["sequences"]) == len(waiting)
    called = cli("commit", "recover")
    assert called.code == 0
    assert "0 lost, 0 duplicated" in called.out
    assert cli("commit", "list", "-o", "json").json()["sequences"] == []
    assert cli("commit", "recover").out == "No unfinished commit sequence.\n"


@pytest.mark.parametrize(
    ("ended_by", "said"), [(KeyboardInterrupt(), "interrupted"), (ConnectionError("gone"), "error[system]: gone")]
)
def test_recovery_that_was_ended_does_not_say_that_nothing_is_unfinished(
    cli: Cli, killed: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException, said: str
) -> None:
    def ended(*_: object) -> None:
        raise ended_by

    monkeypatch.setattr(commit, "recover_job", ended)
    called = cli("commit", "recover")
    assert called.code
    assert called.out == ""
    assert called.err.startswith(said)


def test_recover_tells_a_quarantined_dataset_that_another_run_holds(cli: Cli, killed: Path) -> None:
    """It said "No unfinished commit sequence.", with exit code 0."""
    with open_project(killed).use_store() as store:
        held, *free = store.load_sequences("numbers")  # the run was killed as the second one was stored, or after
        for stored in (held, *free):
            store.quarantine(stored.id, "by a test")
        other = LeaseOwner.current("other")
        (lease,) = store.acquire_leases("numbers", [held.dataset_urn], other, timedelta(minutes=1)).granted.values()
        called = cli("commit", "recover", "--output", "json")
        found = {one["dataset"]: (one["state"], one["reason"]) for one in called.json()["recovered"]}
        assert called.code == called.json()["exit_code"] == 5
        assert {urn: state for urn, (state, _) in found.items()} == {
            held.dataset_urn: "quarantined",
            **{stored.dataset_urn: "committed" for stored in free},
        }
        assert "held by run other" in found[held.dataset_urn][1]
        assert f"of {held.dataset_urn} is quarantined: Dataset" in cli("commit", "recover").out
        store.release_leases("numbers", [lease])
    assert cli("commit", "recover").code == 0


def test_recover_passes_over_what_another_process_finished_meanwhile(
    cli: Cli, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as a conflict, without a word on the other datasets."""
    with open_project(killed).use_store() as store:
        first, *others = store.load_sequences("numbers")
        for stored in (first, *others):
            store.quarantine(stored.id, "by a test")
    acquire = LeaseKeeper.acquire

    def after_another_one(leases: LeaseKeeper, urns: Collection[str]) -> LeaseGrant:
        monkeypatch.setattr(LeaseKeeper, "acquire", acquire)
        assert cli("commit", "abandon", first.id, "-y").code == 0
        return acquire(leases, urns)

    monkeypatch.setattr(LeaseKeeper, "acquire", after_another_one)
    called = cli("commit", "recover", "--output", "json")
    recovered = [one["dataset"] for one in called.json()["recovered"]]
    assert (called.code, recovered) == (0, [stored.dataset_urn for stored in others])


def test_recovery_that_readers_of_manifests_do_not_see_has_failed(cli: Cli, killed: Path) -> None:
    """It ended with 0."""
    with no_manifests():
        called = cli("commit", "recover", "--output", "json")
    assert called.code == called.json()["exit_code"] == 1
    assert {(one["state"], one["manifest"]) for one in called.json()["recovered"]} == {("committed", "missing")}
    assert cli("run").code == 0
    assert cli("verify").code == 0


def test_recover_names_jobs_without_a_job_file_whose_sequences_wait(cli: Cli, killed: Path) -> None:
    """It said "No unfinished commit sequence.", though `commit list` shows some."""
    write_job(killed, {"z": {"rows": 1}}, job="other")
    (killed / "jobs/numbers.yaml").unlink()
    assert cli("commit", "recover", "-o", "json").json()["without_job_file"] == ["numbers"]
    for arguments in ((), ("--dry-run",)):
        called = cli("commit", "recover", *arguments)
        assert "the project has no job file of their jobs: numbers" in called.out
        assert "No unfinished" not in called.out


def test_sequence_of_a_job_without_a_job_file_is_given_up_by_one_of_its_name_and_output(cli: Cli, killed: Path) -> None:
    """The message named no way out."""
    (killed / "jobs/numbers.yaml").unlink()
    (first, *others) = cli("commit", "list", "-o", "json").json()["sequences"]
    for dry_run in ((), ("--dry-run",)):
        refused = cli("commit", "abandon", first["sequence"], "--yes", *dry_run)
        assert refused.code == 2
        assert "write one of that name with the former `output` and any source" in refused.err
    write_job(killed, {"z": {"rows": 1}})
    for one in (first, *others):
        assert cli("commit", "abandon", one["sequence"], "--yes").code == 0
    (killed / "jobs/numbers.yaml").unlink()
    assert cli("commit", "list", "-o", "json").json()["sequences"] == []


@pytest.mark.parametrize("command", [("verify",), ("commit", "recover")])
def test_json_names_all_jobs_while_the_store_is_away(
    cli: Cli, killed: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def away(project: Project) -> NoReturn:
        raise TransientError(problem="away")

    monkeypatch.setattr(Project, "open_store", away)
    called = cli(*command, "--output", "json")
    assert called.code == 1
    assert [(one["job"], one["error"]["message"]) for one in called.json()["jobs"]] == [("numbers", "away")]


def test_plan_names_what_is_finished_first(cli: Cli, killed: Path) -> None:
    called = cli("plan")
    assert "first: finish commit sequence " in called.out
    assert cli("plan", "-o", "json").json()["jobs"][0]["leftovers"][0]["state"] == "prepared"


def test_dataset_may_be_named_by_its_last_part(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    assert cli("state", "show", "c", "--output", "json").json()["dataset"] == "b/c"
    assert cli("show", "c", "--output", "json").json()["dataset"] == "b/c"
    assert "Did you mean b/c?" in cli("state", "reset", "c", "-m", "why", "--yes").err
    assert "Did you mean b/c?" in cli("state", "show", "b.c").err
