"""`gobblin startpoint set|list|remove`: shown, confirmed, honoured by the next run."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gobblin_dagster.core.startpoint import Specific, Startpoint
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job

WHY_TWICE = "startpoint 20: snow: readers of 'main' see the rows of [20, 25) twice"
WHY = ("--reason", "snow", "--on-rewind", "append")


@pytest.fixture
def ran(cli: Cli, project: Path, inline: list[InlineRunner]) -> Path:
    assert cli("run").code == 0
    return project


def waiting(cli: Cli) -> dict[str, str]:
    """Return positions by dataset."""
    listed = cli("startpoint", "list", "-o", "json").json()["startpoints"]
    return {one["dataset"]: one["position"] for one in listed}


def rows_read(cli: Cli) -> dict[str, int]:
    datasets = cli("run", "-o", "json").json()["jobs"][0]["datasets"]
    return {one["dataset"]: one["rows_read"] for one in datasets}


def test_next_run_begins_at_the_startpoint_and_the_one_after_does_not(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "20", *WHY, "--yes")
    assert called.code == 0
    assert "a        20         25              5\n" in called.out
    assert called.out.endswith("Done; it counts from the next run on.\n")
    assert waiting(cli) == {"a": "20"}
    assert rows_read(cli) == {"a": 5, "b/c": 0}
    assert waiting(cli) == {}
    assert rows_read(cli) == {"a": 0, "b/c": 0}


def test_plan_shows_the_startpoint(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "upcoming", *WHY, "--yes")
    shown = cli("plan", "--detailed-exitcode")
    assert shown.code == 3
    assert "a: begins at 25, by the startpoint upcoming of " in shown.out
    (first, second) = cli("plan", "-o", "json").json()["jobs"][0]["datasets"]
    assert (first["startpoint"]["position"], first["startpoint"]["why"]) == ("upcoming", "snow")
    assert second["startpoint"] is None


def test_history_explains_it(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    cli("run")
    entries = cli("state", "history", "a", "-o", "json").json()["history"]
    assert [(entry["by"], entry["why"]) for entry in entries] == [("run", ""), ("startpoint", WHY_TWICE)]


def test_dry_run_stores_nothing(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "20", *WHY, "--dry-run")
    assert called.code == 0
    assert called.out.endswith("Nothing was changed.\n")
    (shown,) = cli("startpoint", "set", "a", "20", *WHY, "--dry-run", "-o", "json").json()["startpoints"]
    assert (shown["begins_at"], shown["expected_high"]) == ("20", "25")
    assert waiting(cli) == {}


def test_without_a_terminal_it_is_refused(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "20", *WHY)
    assert (called.code, waiting(cli)) == (2, {})
    assert "Repeat with --yes" in called.err


def test_set_replaces_what_the_dataset_has(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    called = cli("startpoint", "set", "a", "oldest", *WHY, "--yes")
    assert "instead of 20" in called.out
    assert waiting(cli) == {"a": "oldest"}


def test_star_sets_all_that_have_none_and_each_consumes_its_own(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    assert cli("startpoint", "set", "*", "oldest", *WHY, "--yes").code == 0
    assert waiting(cli) == {"a": "20", "b/c": "oldest"}
    assert cli("run", "--select", "a").code == 0
    assert waiting(cli) == {"b/c": "oldest"}
    assert rows_read(cli) == {"a": 0, "b/c": 3}


def test_star_leaves_datasets_alone_that_appear_later(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "*", "upcoming", *WHY, "--yes")
    write_job(ran, {"a": {"rows": 25}, "b/c": {"rows": 3}, "new": {"rows": 4}})
    assert rows_read(cli) == {"a": 0, "b/c": 0, "new": 4}


def test_dataset_that_was_never_published_may_have_one(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    assert cli("startpoint", "set", "a", "22", *WHY, "--yes").code == 0
    assert rows_read(cli) == {"a": 3, "b/c": 3}


@pytest.mark.parametrize(
    ("position", "code", "problem"),
    [
        ("x", 1, "'x' is no watermark of type 'long'"),
        ("timestamp:2013-01-31", 1, "ids know no times"),
        ("timestamp:tomorrow", 2, "The instant in 'timestamp:tomorrow' cannot be read"),
        ("timestamp:9999-12-31T23:00-02:00", 2, "The instant in 'timestamp:9999-12-31T23:00-02:00' cannot be read"),
    ],
    ids=["watermark", "unsupported", "instant", "instant that UTC cannot write"],
)
def test_position_that_is_none_is_refused_when_it_is_set(
    cli: Cli, ran: Path, position: str, code: int, problem: str
) -> None:
    called = cli("startpoint", "set", "a", position, *WHY, "--yes")
    assert called.code == code
    assert problem in called.out + called.err
    assert waiting(cli) == {}


def test_refused_startpoint_is_said_to_be_refused_in_json_too(cli: Cli, ran: Path) -> None:
    (shown,) = cli("startpoint", "set", "a", "x", *WHY, "--yes", "-o", "json").json()["startpoints"]
    assert shown["state"] == "refused"


def test_dataset_that_the_source_lacks_is_refused(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "typo", "20", *WHY, "--yes")
    assert called.code == 2
    assert "The source of job 'numbers' has no dataset 'typo'." in called.err


def test_job_that_reads_everything_has_no_startpoint(cli: Cli, ran: Path) -> None:
    write_job(ran, {"a": {"rows": 25}}, extract={"namespace": "test", "table": "numbers", "is_full": True})
    for dataset in ("a", "*"):
        called = cli("startpoint", "set", dataset, "20", *WHY, "--yes")
        assert called.code == 2
        assert "Job 'numbers' reads everything in each run" in called.err


def test_of_many_those_that_cannot_be_resolved_are_left_out(cli: Cli, ran: Path) -> None:
    write_job(ran, {"a": {"rows": 25}, "b/c": {"rows": 3, "problem": "its folder is gone"}})
    called = cli("startpoint", "set", "*", "oldest", *WHY, "--yes")
    assert called.code == 4
    assert "its folder is gone" in called.out
    assert waiting(cli) == {"a": "oldest"}


def test_remove_takes_it_back(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "*", "oldest", *WHY, "--yes")
    called = cli("startpoint", "remove", "a", "--dry-run")
    assert called.out.startswith("a (numbers): oldest, set by ")
    assert set(waiting(cli)) == {"a", "b/c"}
    assert cli("startpoint", "remove", "a", "--yes").code == 0
    assert set(waiting(cli)) == {"b/c"}
    assert cli("startpoint", "remove", "*", "--yes", "-o", "json").json()["startpoints"][0]["dataset"] == "b/c"
    refused = cli("startpoint", "remove", "a", "--yes")
    assert (refused.code, "Dataset 'a' has no startpoint" in refused.err) == (2, True)


def test_list_shows_state_and_expiry(cli: Cli, ran: Path) -> None:
    assert cli("startpoint", "list").out == "0 startpoints\n"
    cli("startpoint", "set", "a", "20", *WHY, "--expires", "2", "--yes")
    (one,) = cli("startpoint", "list", "-o", "json").json()["startpoints"]
    assert (one["state"], one["why"], one["pinned"]) == ("waiting", "snow", None)
    assert one["expires_at"][:8] >= one["created_at"][:8]
    shown = cli("startpoint", "list").out
    assert shown.startswith("1 startpoint\ndataset")
    assert "waiting" in shown


def test_job_is_named_where_several_have_the_dataset(cli: Cli, ran: Path) -> None:
    write_job(ran, {"a": {"rows": 5}}, job="others")
    refused = cli("startpoint", "set", "new", "oldest", *WHY, "--yes")
    assert refused.code == 2
    assert "is not clear: numbers, others" in refused.err
    assert cli("startpoint", "set", "a", "oldest", *WHY, "--yes", "--job", "others").code == 0
    assert cli("startpoint", "set", "a", "oldest", *WHY, "--yes", "--job", "numbers").code == 0
    several = cli("startpoint", "remove", "a", "--yes")
    assert "in several jobs: numbers, others" in several.err


def test_who_set_it_is_kept(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    store = open_project(ran).open_store()
    try:
        saved = store.load_startpoints("numbers")["a"]
    finally:
        store.close()
    assert "@" in saved.who
    assert (saved.expires_at - saved.created_at).days == 7


def test_expired_one_is_told_by_list_and_plan_and_deleted_by_run_or_clean(cli: Cli, ran: Path) -> None:
    then = datetime(2013, 1, 31, tzinfo=UTC)

    def wish() -> None:
        with closing(open_project(ran).open_store()) as store:
            store.save_startpoint(Startpoint("numbers", "a", Specific("20"), then, then, "anna@host"))

    wish()
    assert cli("startpoint", "list").out.startswith("1 startpoint, 1 expired: the next run of the dataset deletes it")
    told = "a: its startpoint 20 of anna@host expired at 2013-01-31 00:00Z and is not applied; the run deletes it."
    assert told in cli("plan").out
    assert told in cli("run").out
    *_, event = cli("startpoint", "history", "-o", "json").json()["events"]
    assert (event["change"], event["position"], event["who"]) == ("expired", "20", "anna@host")
    assert waiting(cli) == {}
    wish()
    said = "a: startpoint 20 of anna@host expired at 2013-01-31 00:00:00Z, "
    assert said + "would be deleted" in cli("clean", "--dry-run").out
    assert waiting(cli) == {"a": "20"}
    assert cli("clean", "-o", "json").json()["jobs"][0]["startpoints"][0]["dataset"] == "a"
    assert waiting(cli) == {}
    assert "nothing to clean up" in cli("clean").out


def test_expiry_beyond_the_calendar_is_refused(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "20", *WHY, "--yes", "--expires", "9999999")
    assert (called.code, "Invalid value for '--expires'" in called.err) == (2, True)


def test_startpoint_for_all_jobs_is_previewed_for_each_and_applied_by_each(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    write_job(project, {"a": {"rows": 25}, "b/c": {"rows": 3}})
    text = (project / "jobs/numbers.yaml").read_text()
    (project / "jobs/second.yaml").write_text(text.replace("numbers", "second"))
    assert cli("run").code == 0
    called = cli("startpoint", "set", "a", "20", "--all-jobs", "--job", "numbers", *WHY, "--yes")
    assert called.code == 0
    shown = [line.split()[:4] for line in called.out.splitlines() if line.startswith("a ") and "(" not in line]
    assert shown == [["a", "numbers", "20", "25"], ["a", "second", "20", "25"]]
    (listed,) = cli("startpoint", "list", "-o", "json").json()["startpoints"]
    assert (listed["job"], listed["position"]) == ("*", "20")
    jobs = cli("run", "-o", "json").json()["jobs"]
    assert [one["rows_read"] for job in jobs for one in job["datasets"]] == [5, 0, 5, 0]
    jobs = cli("run", "-o", "json").json()["jobs"]
    assert [one["rows_read"] for job in jobs for one in job["datasets"]] == [0, 0, 0, 0]
    assert cli("startpoint", "remove", "a", "--all-jobs", "--yes").code == 0
    events = cli("startpoint", "history", "-o", "json").json()["events"]
    assert [(one["job"], one["change"]) for one in events] == [
        ("*", "set"),
        ("numbers", "fanned out"),
        ("numbers", "applied"),
        ("second", "fanned out"),
        ("second", "applied"),
        ("*", "removed"),
    ]
    assert "fanned out" in cli("startpoint", "history").out


def test_history_tells_the_commit_that_applied_it(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    cli("run")
    *_, set_, fanned, applied = cli("startpoint", "history", "-o", "json").json()["events"]
    commits = cli("state", "history", "a", "-o", "json").json()["history"]
    runs = cli("state", "runs", "-o", "json").json()["runs"]
    assert (applied["change"], applied["commit"], applied["watermark"]) == ("applied", commits[-1]["sequence"], "25")
    assert (applied["by"], applied["id"], applied["why"]) == (runs[0]["run_id"], set_["id"], "snow")
    assert [(one["commit"], one["watermark"]) for one in (set_, fanned)] == [(None, None)] * 2
    shown = cli("startpoint", "history").out.splitlines()[-1]
    assert (applied["commit"] in shown, applied["by"] in shown, shown.endswith("  25")) == (True, True, True)


def test_partition_of_a_dataset_without_partitions_is_refused(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "5", "--partition", "a-0", *WHY, "--yes")
    assert called.code == 1
    assert "no partitions with positions of their own" in " ".join(called.out.split())
    assert waiting(cli) == {}


def test_going_back_is_refused_without_a_word_on_what_becomes_of_the_rows(cli: Cli, ran: Path) -> None:
    called = cli("startpoint", "set", "a", "20", "--reason", "snow", "--yes")
    assert called.code == 1
    assert "readers of 'main' would see the rows of [20, 25) twice" in " ".join(called.out.split())
    assert waiting(cli) == {}
    called = cli("startpoint", "set", "a", "0", "--reason", "snow", "--on-rewind", "replace", "--yes")
    assert called.code == 0
    assert "1 file(s) that hold them leave the snapshot" in " ".join(called.out.split())
    assert rows_read(cli) == {"a": 25, "b/c": 0}


def test_range_is_read_again(cli: Cli, ran: Path) -> None:
    assert cli("startpoint", "set", "a", "5", "--until", "9", *WHY, "--yes").code == 0
    assert waiting(cli) == {"a": "5"}
    assert rows_read(cli) == {"a": 4, "b/c": 0}


def test_state_show_tells_which_startpoint_waits_and_which_one_the_newest_commit_consumed(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "20", *WHY, "--yes")
    (waits,) = cli("state", "show", "a", "-o", "json").json()["startpoints_waiting"]
    assert (waits["position"], waits["job"], waits["why"]) == ("20", "numbers", "snow")
    assert "startpoints waiting" in cli("state", "show", "a").out
    cli("run")
    shown = cli("state", "show", "a", "-o", "json").json()
    assert (shown["startpoint_applied"]["id"], shown["startpoints_waiting"]) == (waits["id"], [])
    assert "by version 2: begins at 20, by the startpoint 20 of" in " ".join(cli("state", "show", "a").out.split())
    write_job(ran, {"a": {"rows": 26}, "b/c": {"rows": 3}})
    cli("run")
    assert cli("state", "show", "a", "-o", "json").json()["startpoint_applied"] is None, "of the newest commit alone"


def test_run_tells_the_startpoint_that_each_commit_consumed(cli: Cli, ran: Path) -> None:
    cli("startpoint", "set", "a", "5", "--until", "9", *WHY, "--yes")
    first, second = cli("run", "-o", "json").json()["jobs"][0]["datasets"]
    told = first["startpoint"]
    assert (told["position"], told["until"], told["why"], second["startpoint"]) == ("5", "9", "snow", None)


def test_expired_startpoint_for_all_jobs_is_told_once_and_deleted_by_the_run(cli: Cli, ran: Path) -> None:
    then = datetime(2013, 1, 31, tzinfo=UTC)
    with closing(open_project(ran).open_store()) as store:
        store.save_startpoint(Startpoint("*", "a", Specific("20"), then, then, "anna@host"))
    assert "a: its startpoint 20 of anna@host expired" in cli("run").out
    assert waiting(cli) == {}
    *_, event = cli("startpoint", "history", "-o", "json").json()["events"]
    assert (event["change"], event["job"]) == ("expired", "*")
    assert "expired" not in cli("run").out
