"""What Dagster shows after runs: partition status, metadata and checks, under every kind of failure."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunStatus
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.watermark.types import HourWatermark
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.backfill import BACKFILL_TAG
from gobblin_dagster.orchestration.events import Publication, RecentRun, materialization
from gobblin_dagster.orchestration.partitions import to_key, to_urn
from gobblin_dagster.orchestration.rejected import rejected_examples
from gobblin_dagster.orchestration.report import LONGEST, shortened
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import project, published, run
from tests.unit.orchestration.world import BAD_BRANCH, World


def test_untagged_run_adds_partitions_and_materializes_all_branches(world: World) -> None:
    assert world.run_all().success
    assert world.instance.get_dynamic_partitions("numbers.dataset_urn") == ["a", "b/1", "c%20c"]
    assert world.status("all") == world.status("masked") == ({"a", "b/1", "c%20c"}, set())


def test_materialization_carries_watermarks_and_counts(world: World) -> None:
    result = world.run_all()
    (event,) = world.events("a")
    assert {name: event[name] for name in (md.LOW, md.EXPECTED_HIGH, md.ACTUAL_HIGH)} == {
        md.LOW: "0",
        md.EXPECTED_HIGH: "30",
        md.ACTUAL_HIGH: "30",
    }
    assert (event[md.ROWS], event[md.ROWS_READ], event[md.FILES], event[md.SNAPSHOT]) == (30, 30, 1, 1)
    assert event[md.MOVED] is True
    assert event[md.RUN_ID] == result.run_id
    assert event[md.DATASET_URN] == "a"
    (file,) = Path(event[md.PATH]).iterdir()
    assert file.stat().st_size == event[md.BYTES]
    assert event[md.COMMIT_ID] in file.name
    assert event[md.URI] == Path(event[md.PATH]).as_uri()
    assert [(one.name, one.type) for one in event[md.COLUMNS].columns] == [
        ("id", "int64"),
        ("dataset", "string"),
        ("value", "string"),
    ]


def test_commits_tell_how_far_they_are_behind_and_what_the_newest_runs_did(world: World) -> None:
    world.run_all()
    world.datasets["a"] = {"rows": 50, "unit_rows": 10, "fail_at": 45}
    world.parts = {"commit": {"policy": "successful"}}
    assert not world.run_all().success
    second, first = world.events("a")
    assert (first[md.LAG_POSITIONS], second[md.LAG_POSITIONS]) == (0, 10)
    assert md.LAG_S not in second
    told = [[cell.strip() for cell in line.split("|")[2:-1]] for line in second[md.RECENT].splitlines()[2:]]
    assert told == [
        ["committed", "10", "███████", "0", "40", "10", "█" * 20],
        ["committed", "30", "█" * 20, "0", "30", "0", ""],
    ]


def test_lag_of_the_newest_runs_is_a_time_if_watermarks_are_times(world: World) -> None:
    begun = datetime(2024, 1, 5, 12, tzinfo=UTC)
    highs = {begun: "2024-01-05T06Z", begun - timedelta(days=1): "2024-01-04", begun - timedelta(days=2): "7"}
    recent = [
        RecentRun(at, DatasetRunRecord(DatasetOutcome.COMMITTED, high=high, rows=5)) for at, high in highs.items()
    ]
    reached = DatasetResult("a", DatasetOutcome.COMMITTED, actual_high=HourWatermark(begun - timedelta(hours=6)))
    event = materialization(world.binding, "all", Publication(reached, "1f0c", recent=recent))
    shown = str(event.metadata[md.RECENT].value).splitlines()
    told = [[cell.strip() for cell in line.split("|")[6:-1]] for line in shown[2:]]
    assert told == [
        ["2024-01-05T06Z", "6:00:00", "█" * 10],
        ["2024-01-04", "12:00:00", "█" * 20],
        ["7", "", ""],
    ]


class WithPages(InlineRunner):
    """Has addresses of pages, as Spark has with its pages switched on."""

    def pages(self) -> dict[str, str]:
        return {"pages": "http://127.0.0.1:4040", "history": "http://spark.example:18080/history/local-1"}


def test_output_of_a_run_carries_its_profile_and_its_log_links_to_pages_of_spark(world: World) -> None:
    world.runner = WithPages
    result = world.run_all()
    handled = dg.DagsterEventType.HANDLED_OUTPUT
    entries: list[Any] = [one.event_specific_data for one in result.all_events if one.event_type is handled]
    (told,) = [entry.metadata for entry in entries if md.PROFILE in entry.metadata]
    assert told[md.SPARK_PAGES] == dg.UrlMetadataValue("http://127.0.0.1:4040")
    assert told[md.SPARK_HISTORY] == dg.UrlMetadataValue("http://spark.example:18080/history/local-1")
    said = [entry.user_message for entry in world.instance.all_logs(result.run_id) if not entry.is_dagster_event]
    assert [one for one in said if one.startswith("Spark shows the work of this run:\nhttp://127.0.0.1:4040\n")]
    profile = told[md.PROFILE].value
    assert (profile["rows"], profile["work_units"]) == (55, 3)
    assert list(profile["seconds"]) == ["plan", "start", "extract", "convert", "write", "commit", "report"]


def test_rejected_rows_are_told_by_origin_and_rule_and_never_by_value(world: World) -> None:
    world.datasets = {"it's": {"rows": 6}, "good": {"rows": 1}}
    only_numbers = {"type": "columns", "columns": {"text": {"type": "int64", "nulls": []}}}
    # Named like the converter, whose reasons quote values.
    namesake = {"name": "numbers", "type": "not_null", "columns": ["id"], "on_violation": "quarantine"}
    world.parts = {
        "converters": [
            {"type": "sql", "select": "*, CASE WHEN id = 1 THEN value ELSE id::VARCHAR END AS text"},
            only_numbers | {"name": "numbers", "on_error": "quarantine"},
        ],
        "row_policies": [{"name": "low", "type": "sql", "rule": "(id | 0) < 3", "on_violation": "quarantine"}],
        "fork": {"branches": [{"name": "all"}, {"name": "masked", "row_policies": [namesake]}]},
    }
    assert world.run_all().success
    (event,), (good,) = world.events("it's"), world.events("good")
    assert event[md.REJECTED_ROWS].splitlines() == [
        "| rejected by | reason | file | row |",
        "|---|---|---|--:|",
        "| numbers |  | it's.rows | 2 |",
        *(f"| low | not true: (id \\| 0) < 3 | it's.rows | {row} |" for row in (4, 5, 6)),
        "",
        "`gobblin quarantine show 'it'\"'\"'s' --job numbers` shows the rows.",
    ]
    assert event[md.DURATION_S] > 0
    assert md.REJECTED_ROWS not in good
    with closing(world.binding.project.open_store()) as store:
        files = store.load_snapshot("numbers", "it's")
    (gone,) = [file for file in files if file.branch == "quarantine"]
    Path(gone.path).unlink()
    assert rejected_examples(world.job, "it's", files) == "", (
        "what cannot be read does not keep commits from being told"
    )


def test_rejected_rows_are_counted_per_policy_in_metadata_and_checks(world: World) -> None:
    policy = {"name": "has_value", "type": "not_null", "columns": ["value"], "on_violation": "quarantine"}
    world.parts = {"row_policies": [policy], "task_policies": [{"type": "row_count"}]}
    assert world.run_all().success
    (event,) = world.events("a")
    assert (event[md.REJECTED + "has_value"], event[md.QUARANTINED], event[md.ROWS]) == (3, 3, 27)
    checks = evaluations(world, "all")
    assert checks["has_value", "a"] == (False, 3)
    assert checks["row_count", "b/1"][0] is True
    assert {name for name, _ in checks} == {"has_value", "row_count"}
    assert {key.name for key in world.check_keys()} == {"has_value", "row_count"}


def evaluations(world: World, branch: str) -> dict[tuple[str, str], tuple[bool, Any]]:
    """Return (passed, rows that failed) of every check of a branch, by check and partition."""
    found = {}
    for key in world.check_keys():
        if key.asset_key == world.binding.keys[branch]:
            for record in world.instance.event_log_storage.get_asset_check_execution_history(key, limit=100):
                event = record.event.dagster_event if record.event else None
                if event is not None and record.partition is not None:
                    said = event.asset_check_evaluation_data
                    rows = said.metadata.get(md.ROWS_FAILED)
                    found[key.name, record.partition] = (said.passed, rows.value if rows else None)
    return found


CHECKED = {
    "row_policies": [{"name": "has_value", "type": "not_null", "columns": ["value"], "on_violation": "quarantine"}],
    "task_policies": [{"type": "row_count"}],
}


def test_checks_show_each_partition_as_passed_or_failed(world: World) -> None:
    """Dagster shows what a check said as long as it was said of the newest materialization, and else nothing."""
    world.parts = CHECKED
    assert world.run_all().success
    everything = {"a", "b/1", "c%20c"}
    assert world.checked("row_count") == world.checked("row_count", "masked") == {"succeeded": everything}
    assert world.checked("has_value") == {"failed": everything}


def test_checks_are_left_out_where_they_are_not_wanted_and_their_counts_are_not(world: World) -> None:
    world.parts, world.checks = CHECKED, False
    assert world.check_keys() == set()
    assert world.run_all().success
    (event,) = world.events("a")
    assert event[md.REJECTED + "has_value"] == 3
    assert world.checked("row_count") == world.checked("has_value") == {}


def test_checks_of_failures_alone_say_nothing_of_policies_that_held(world: World) -> None:
    policy = {"name": "not_three", "type": "sql", "rule": "id <> 3", "on_violation": "drop"}
    world.parts, world.checks = CHECKED | {"row_policies": [policy]}, "failures"
    assert len(world.check_keys()) == 4
    assert world.run_all().success
    assert world.checked("row_count") == {}
    assert world.checked("not_three") == {"failed": {"a", "b/1", "c%20c"}}
    world.datasets["a"]["rows"] = 31
    assert world.run_all().success
    assert world.checked("not_three") == {"failed": {"b/1", "c%20c"}}, "the second commit of `a` broke nothing"


def test_run_plans_no_check_for_no_partition(world: World) -> None:
    """Dagster would show such a check as skipped, or failed, whatever it said of each partition."""
    world.parts = CHECKED
    world.datasets["b/1"]["fail_at"] = 1
    assert not world.run_all().success
    for key in world.check_keys():
        found = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
        assert {record.partition for record in found} == {"a", "c%20c"}


def test_checks_of_partitions_that_a_run_leaves_alone_stay_as_they_are(world: World) -> None:
    world.parts = CHECKED
    world.add_partitions("a", "b/1", "c c")
    assert world.run_all().success
    world.datasets["b/1"]["rows"] = 11
    assert world.run_range("a", "c%20c").success
    everything = {"a", "b/1", "c%20c"}
    assert world.checked("row_count") == {"succeeded": everything}
    assert world.checked("has_value") == {"failed": everything}
    world.datasets["b/1"] |= {"rows": 15, "fail_at": 13}
    world.datasets["c c"]["rows"] = 21
    assert not world.run_range("a", "c%20c").success
    assert world.checked("row_count") == {"succeeded": {"a", "c%20c"}, "execution_failed": {"b/1"}}
    assert world.checked("has_value") == {"failed": {"a", "c%20c"}, "execution_failed": {"b/1"}}


def test_checks_of_commits_made_elsewhere_are_shown_by_the_next_run(world: World) -> None:
    world.parts = CHECKED
    world.run_elsewhere()
    assert world.run_all().success
    assert world.checked("row_count") == {"succeeded": {"a", "b/1", "c%20c"}}


def test_check_that_keeps_a_dataset_from_being_published_is_failed(world: World) -> None:
    world.parts = CHECKED | {
        "task_policies": [{"type": "row_count"}, {"type": "row_count_range", "name": "enough", "min": 10}]
    }
    assert not world.run_all().success
    assert world.checked("enough") == {"succeeded": {"a", "c%20c"}, "failed": {"b/1"}}
    world.datasets["a"]["rows"] = 31
    assert not world.run_all().success
    assert world.checked("enough") == {"succeeded": {"c%20c"}, "failed": {"a", "b/1"}}


def test_one_bad_dataset_of_three_is_the_only_failed_partition(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    result = world.run_all()
    assert not result.success
    assert world.status("all") == world.status("masked") == ({"a", "c%20c"}, {"b/1"})
    assert "2 committed, 1 failed" in world.error(result)
    assert "'b/1': Dataset 'b/1', file b/1.rows, row 2: is told to fail." in world.error(result)


def test_a_failing_branch_fails_its_dataset_in_every_branch(world: World) -> None:
    world.parts = {"fork": BAD_BRANCH}
    world.datasets["bad_branch"] = {"rows": 3}
    assert not world.run_all().success
    good = {"a", "b/1", "c%20c"}
    assert world.status("all") == world.status("masked") == (good, {"bad_branch"})


def test_failure_of_a_run_names_the_datasets_that_wait_for_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SqlStateStore, "commit", _store_away)
        assert not world.run_all().success
    store = project(world.root, world.job).open_store()
    (stuck,) = store.load_sequences("numbers", urns=["b/1"])
    store.quarantine(stuck.id, "its files are gone")
    store.close()
    world.datasets["a"]["fail_at"] = 35
    world.datasets["a"]["rows"] = 40

    failure = world.failure(world.run_all())

    assert failure[md.FAILED_DATASETS] == ["a", "b/1"]
    assert failure[md.QUARANTINED_DATASETS] == ["b/1"]


def _store_away(*_: Any, **__: Any) -> None:
    raise OSError("the store is away")


def test_a_dataset_that_cannot_be_planned_fails_alone(world: World) -> None:
    world.datasets["b/1"]["problem"] = "its folder is gone"
    result = world.run_all()
    assert "its folder is gone" in world.error(result)
    assert world.status() == ({"a", "c%20c"}, {"b/1"})


def test_range_run_reads_its_partitions_and_no_other(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    assert world.run_range("a", "b/1").success
    assert world.status() == ({"a", "b/1"}, set())
    assert len(world.events("a")) == 1  # nothing automatic beside ours, which would hide the watermark


def test_range_run_with_a_failure_keeps_idle_and_committed_partitions_green(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    assert world.run_range("a").success
    world.datasets["c c"]["fail_at"] = 1
    assert not world.run_range("a", "c%20c").success
    assert world.status("all") == world.status("masked") == ({"a", "b/1"}, {"c%20c"})
    assert [event[md.MOVED] for event in world.events("a")] == [True], "nothing below is made again"


def test_partition_that_recovers_from_failure_turns_green(world: World) -> None:
    world.datasets["a"]["fail_at"] = 1
    assert not world.run_all().success
    del world.datasets["a"]["fail_at"]
    assert world.run_range("a").success
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_dataset_that_fails_after_earlier_success_turns_red_and_keeps_its_data(world: World) -> None:
    assert world.run_all().success
    world.datasets["a"] |= {"rows": 40, "fail_at": 35}
    assert not world.run_all().success
    assert world.status() == ({"b/1", "c%20c"}, {"a"})
    assert published(world.root, world.job, "a") == list(range(30))
    assert world.instance.get_materialized_partitions(world.binding.keys["all"]) == {"a", "b/1", "c%20c"}


def test_run_for_one_partition_that_fails_is_red(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    world.datasets["a"]["fail_at"] = 1
    assert not world.run_range("a").success
    assert world.status("all") == world.status("masked") == (set(), {"a"})


def test_selected_branch_never_narrows_the_commit(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    world.datasets["b/1"]["fail_at"] = 1
    assert not world.run_range("a", "c%20c", select=["all"]).success
    assert world.status("all") == world.status("masked") == ({"a", "c%20c"}, {"b/1"})
    assert published(world.root, world.job, "a", "masked") == list(range(30))


def test_config_urns_choose_scattered_datasets(world: World) -> None:
    assert world.run_all(["a", "c c"]).success
    assert world.status() == ({"a", "c%20c"}, set())
    assert not world.events("b/1")


def test_idle_run_logs_nothing_and_is_green(world: World) -> None:
    world.run_all()
    assert world.run_all().success
    assert len(world.events("a")) == 1


def test_new_rows_move_only_their_dataset(world: World) -> None:
    world.run_all()
    world.datasets["a"]["rows"] = 31
    assert world.run_all().success
    newest, _ = world.events("a")
    assert (newest[md.LOW], newest[md.ACTUAL_HIGH], newest[md.ROWS], newest[md.SNAPSHOT]) == ("30", "31", 1, 2)
    assert len(world.events("b/1")) == 1


def test_partly_committed_dataset_is_green_and_the_run_names_what_failed(world: World) -> None:
    world.parts = {"commit": {"policy": "successful"}}
    world.datasets["a"] |= {"unit_rows": 10, "fail_at": 15}
    result = world.run_all()
    assert not result.success
    assert "1 of the committed only in part" in world.error(result)
    assert world.status() == ({"a", "b/1", "c%20c"}, set())
    (event,) = world.events("a")
    assert "is told to fail" in event[md.FAILURES]
    assert event[md.ROWS] == 20


@pytest.mark.parametrize("policy", ["successful", "partial"])
@pytest.mark.parametrize(("strict", "status"), [(False, "partial"), (True, "failed")], ids=["lenient", "strict"])
def test_run_with_a_failed_work_unit_fails_with_the_status_of_the_command_line(
    world: World, tmp_path: Path, policy: str, strict: bool, status: str
) -> None:
    world.parts = {"commit": {"policy": policy, "failed_units_fail_run": strict}}
    world.datasets["a"] |= {"unit_rows": 10, "fail_at": 15}
    result = world.run_all()
    assert not result.success
    (tmp_path / "other").mkdir()
    assert world.failure(result)[md.RUN_STATUS] == status == run(tmp_path / "other", world.job).status
    assert f"Run {status}. Datasets: 3 committed, 1 of the committed only in part." in world.error(result)
    assert world.status() == ({"a", "b/1", "c%20c"}, set())
    assert published(world.root, world.job, "a") == [*range(10), *range(20, 30)]


def test_run_that_commits_nothing_is_failed(world: World) -> None:
    for dataset in world.datasets.values():
        dataset["fail_at"] = 1
    assert world.failure(world.run_all())[md.RUN_STATUS] == "failed"


def test_every_urn_finds_its_way_to_a_partition_and_back(world: World) -> None:
    urns = ["a/b", "with space", "..", "ünïcode", "a,b|c", "%41", "x:y"]
    world.datasets = {urn: {"rows": 2} for urn in urns}
    assert world.run_all().success
    keys = world.instance.get_dynamic_partitions("numbers.dataset_urn")
    assert sorted(map(to_urn, keys)) == sorted(urns)
    assert sorted(keys) == sorted(DatasetUrn(urn).partition_key for urn in urns)
    assert not {" ", ","} & set("".join(keys))
    assert world.run_range(DatasetUrn("a,b|c").partition_key).success


def test_commits_made_elsewhere_appear_once_at_the_next_run(world: World) -> None:
    first = world.run_elsewhere()
    world.datasets["a"]["rows"] = 32
    second = world.run_elsewhere()
    assert world.run_all().success
    (event,) = world.events("a")  # the newest commit of two
    assert (event[md.RUN_ID], event[md.ACTUAL_HIGH]) == (second.run_id, "32")
    (event,) = world.events("b/1", "masked")
    assert event[md.RUN_ID] == first.run_id
    assert world.run_all().success
    assert len(world.events("a")) == 1


def test_dataset_reconciled_and_failing_in_one_run_is_red(world: World) -> None:
    world.run_elsewhere()
    world.datasets["a"] |= {"rows": 40, "fail_at": 35}
    world.add_partitions("a", "b/1", "c c")
    assert not world.run_range("a", "c%20c").success
    assert world.status("all") == world.status("masked") == ({"b/1", "c%20c"}, {"a"})
    assert len(world.events("b/1")) == 1


def test_run_holds_no_lease_and_leaves_no_staging_behind(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    world.run_all()
    store = world.binding.project.open_store()
    assert not store.load_leases("numbers")
    store.close()
    assert not list((world.root / "lake" / "_gobblin" / "staging").glob("*"))


def test_a_dataset_that_another_run_holds_does_not_fail(world: World) -> None:
    store = world.binding.project.open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner.current("other-run"), timedelta(minutes=5))
    result = world.run_all(busy_wait_s=0)
    store.close()
    assert result.success
    assert world.status() == ({"b/1", "c%20c"}, set())


def test_a_run_waits_for_a_dataset_that_another_run_holds(world: World) -> None:
    store = world.binding.project.open_store()
    held = store.acquire_leases("numbers", ["a"], LeaseOwner.current("other-run"), timedelta(minutes=5))
    timer = threading.Timer(0.5, store.release_leases, ("numbers", list(held.granted.values())))
    timer.start()
    result = world.run_all()
    timer.join()
    store.close()
    assert result.success
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_a_run_tells_a_new_instance_what_it_does_not_show(world: World) -> None:
    world.run_all()
    with dg.DagsterInstance.ephemeral() as other:
        world.instance = other
        world.add_partitions("a", "b/1", "c c")
        assert world.run_range("a", "c%20c").success
        assert world.status() == ({"a", "b/1", "c%20c"}, set())
        assert world.run_range("a", "c%20c").success
        assert len(world.events("a")) == 1


def test_the_page_of_a_failed_partition_says_why_and_what_to_do(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    result = world.run_all()
    assert not result.success
    advice = "run again: what was not committed is read again."
    assert advice in world.error(result)
    for branch in ("all", "masked"):
        wanted = dg.AssetRecordsFilter(world.binding.keys[branch], asset_partitions=["b/1"])
        (record,) = world.instance.fetch_observations(wanted, limit=10).records
        said = record.event_log_entry.asset_observation
        assert said is not None
        assert said.description is not None
        assert said.description.startswith("b/1: not committed: ")
        why = str(said.metadata[md.FAILURES].value)
        assert "row 2" in why
        assert why.endswith(advice)


def test_long_reason_keeps_its_end_which_says_what_to_do() -> None:
    assert shortened("a" * LONGEST) == "a" * LONGEST
    assert shortened("a" * LONGEST + "Run again.").endswith("aaa ... " + "a" * (LONGEST // 2 - 10) + "Run again.")


def test_each_event_names_its_dataset_and_what_happened(world: World) -> None:
    world.parts = {"task_policies": [{"type": "row_count"}]}
    world.run_all()
    wanted = dg.AssetRecordsFilter(world.binding.keys["all"], asset_partitions=["a"])
    (record,) = world.instance.fetch_materializations(wanted, limit=10).records
    said = record.asset_materialization
    assert said is not None
    assert said.description == "a: 30 rows, watermark 0 -> 30"
    (key,) = [one for one in world.check_keys() if one.asset_key == world.binding.keys["all"]]
    history = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    told = {
        str(one.event.dagster_event.event_specific_data) for one in history if one.event and one.event.dagster_event
    }
    assert all(any(f"description='{urn}: " in text for text in told) for urn in ("a", "b/1", "c c"))


def test_a_commit_that_is_told_again_has_the_data_version_of_the_first_time(world: World) -> None:
    world.run_all()
    world.datasets["c c"]["rows"] = 40
    world.datasets["b/1"] = {"rows": 9, "fail_at": 7}
    assert not world.run_range("a", "c%20c", tags={BACKFILL_TAG: "bkfl1"}).success
    versions = {urn: [one[md.COMMIT_ID] for one in world.events(urn)] for urn in ("a", "c c")}
    assert len(versions["a"]) == 2
    assert len(set(versions["a"])) == 1
    assert len(set(versions["c c"])) == 2
    for urn, ids in versions.items():
        wanted = dg.AssetRecordsFilter(world.binding.keys["all"], asset_partitions=[to_key(urn)])
        told = [one.asset_materialization for one in world.instance.fetch_materializations(wanted, limit=9).records]
        assert [event.tags[md.DATA_VERSION] for event in told if event and event.tags] == ids


def test_source_that_cannot_be_loaded_fails_the_run_with_its_own_words(world: World) -> None:
    world.parts = {
        "source": {"type": "files", "path": "nowhere/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    }
    result = world.run_all()
    assert not result.success
    assert "nowhere" in world.error(result)


def test_translator_says_how_a_branch_looks(world: World) -> None:
    from gobblin_dagster.orchestration import BranchData, GobblinTranslator

    class Mine(GobblinTranslator):
        def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data).replace_attributes(key=["lake", data.branch.name], owners=["team:data"])
            return spec.merge_attributes(tags={"tier": "bronze"})

    world.translator = Mine()
    (assets,) = world.definitions.assets or ()
    assert isinstance(assets, dg.AssetsDefinition)
    spec = assets.specs_by_key[dg.AssetKey(["lake", "all"])]
    assert (spec.owners, spec.tags["tier"], spec.group_name) == (["team:data"], "bronze", "numbers")
    assert world.run_all().success
    assert world.status("masked") == ({"a", "b/1", "c%20c"}, set())


def test_nothing_is_left_to_report_after_a_run(world: World) -> None:
    world.run_elsewhere()
    world.datasets["a"]["rows"] = 31
    world.datasets["b/1"] |= {"rows": 9, "fail_at": 7}
    world.run_all()
    store = world.binding.project.open_store()
    assert store.load_unreported("numbers") == []
    store.close()


def test_log_of_a_run_is_few_messages_however_many_datasets_move(world: World) -> None:
    world.datasets = {f"d{number:03}": {"rows": 1} for number in range(30)}
    result = world.run_all()
    entries = world.instance.all_logs(result.run_id)
    said = [entry.user_message for entry in entries if not entry.is_dagster_event]
    assert len(said) == 2
    assert said[0].startswith("30 of 30 datasets have something new\nd000: 0 -> 1\n")
    assert said[0].endswith("and 10 more")
    assert said[1] == "Datasets: 30 committed; 30 rows read"


def test_notes_of_the_plan_stand_in_the_log_of_the_run(world: World) -> None:
    world.datasets["a"]["note"] = "2 path(s) left out: x.csv."
    result = world.run_all()
    entries = world.instance.all_logs(result.run_id)
    said = [entry.user_message for entry in entries if not entry.is_dagster_event]
    assert "What the plan says of datasets:\na: 2 path(s) left out: x.csv." in said


def test_log_of_a_run_says_nothing_of_outputs_that_stand_for_checks(world: World) -> None:
    world.parts["task_policies"] = [{"type": "row_count"}]
    result = world.run_all()
    assert result.success
    assert not [one for one in world.instance.all_logs(result.run_id) if "did not yield" in one.user_message]


def test_log_of_a_run_tells_types_that_were_inferred(world: World) -> None:
    (world.root / "2013-01-01.csv").write_text("day,count\n2013-01-01,5\n")
    world.parts["source"] = {"type": "files", "path": "{date:%Y-%m-%d}.csv", "format": "csv"}
    result = world.run_all()
    said = [entry.user_message for entry in world.instance.all_logs(result.run_id) if not entry.is_dagster_event]
    assert [one for one in said if one.startswith("Types of columns:") and "count" in one]


def test_failed_run_has_its_profile_and_pages_of_spark_too(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    world.runner = WithPages
    failure = world.failure(world.run_all())
    assert failure[md.SPARK_PAGES] == "http://127.0.0.1:4040"
    profile = failure[md.PROFILE]
    assert profile["work_units"] == 3
    assert profile["seconds"]["extract"] >= 0


def test_run_that_is_terminated_while_it_publishes_stays_in_the_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> None:
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(RunListener, "dataset_done", terminated)
    assert not world.run_all().success
    store = world.binding.project.open_store()
    (record,) = store.load_runs("numbers")
    assert record.status is RunStatus.INTERRUPTED
    assert store.load_dataset_states("numbers"), "something was committed before"
    assert not [lease for lease in store.load_leases("numbers").values() if lease.is_held(store.now())]
    store.close()
    monkeypatch.undo()
    assert world.run_all().success
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_run_whose_output_dagster_cannot_log_holds_no_dataset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    events = type(world.instance.event_log_storage)
    store_event = events.store_event

    def refuse(self: Any, event: dg.EventLogEntry) -> None:
        if event.dagster_event is not None and event.dagster_event.event_type is dg.DagsterEventType.STEP_OUTPUT:
            raise sqlite3.OperationalError("database or disk is full")
        store_event(self, event)

    monkeypatch.setattr(events, "store_event", refuse)
    assert not world.run_all().success
    with closing(world.binding.project.open_store()) as store:
        assert [record.status for record in store.load_runs("numbers")] == [RunStatus.FAILED]
        assert not [lease for lease in store.load_leases("numbers").values() if lease.is_held(store.now())]
    monkeypatch.undo()
    assert world.run_all().success
    assert world.status() == ({"a", "b/1", "c%20c"}, set())
