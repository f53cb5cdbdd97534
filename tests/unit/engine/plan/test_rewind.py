"""Startpoints that go back into published data: refused, or appended, replaced, merged; and re-reads with an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Oldest, OnRewind, Specific
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.engine.snapshots.rejected_rows import count_quarantined
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run
from tests.unit.engine.parts import parts_job
from tests.unit.engine.plan.test_startpoint_keys import ids
from tests.unit.engine.plan.test_startpoints import planned, state, store_of, waiting, wish


def job(rows: int, **parts: Any) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, **parts)


def grown(root: Path, *ends: int) -> JobSpec:
    """Publish a dataset in several commits, which end at these ids."""
    for end in ends:
        run(root, job(end))
    return job(ends[-1])


def test_going_back_is_refused_unless_asked_for(tmp_path: Path) -> None:
    spec = grown(tmp_path, 10)
    saved = wish(tmp_path, spec, Specific("4"), on_rewind="refuse")
    problem = planned(tmp_path, spec).problem
    assert "readers of 'all', 'masked' would see the rows of [4, 10) twice" in problem
    assert "--on-rewind replace" in problem
    assert by_urn(run(tmp_path, spec))["a"].outcome is DatasetOutcome.FAILED
    assert published(tmp_path, spec, "a") == list(range(10))
    assert list(waiting(tmp_path, spec)) == ["a"]
    assert waiting(tmp_path, spec)["a"].id == saved.id


@pytest.mark.parametrize("position", [Specific("10"), Specific("12")], ids=["here", "forward"])
def test_not_going_back_is_never_refused(tmp_path: Path, position: Specific) -> None:
    grown(tmp_path, 10)
    wish(tmp_path, job(13), position, on_rewind="refuse")
    run(tmp_path, job(13))
    assert published(tmp_path, job(13), "a") == [*range(10), *range(int(position.watermark), 13)]


def test_append_says_that_readers_see_rows_twice(tmp_path: Path) -> None:
    spec = grown(tmp_path, 10)
    wish(tmp_path, spec, Specific("4"), on_rewind="append")
    assert planned(tmp_path, spec).notes[1] == "readers of 'all', 'masked' see the rows of [4, 10) twice."
    run(tmp_path, spec)
    assert published(tmp_path, spec, "a") == sorted([*range(10), *range(4, 10)])


@pytest.mark.parametrize("start", [4, 8, 0], ids=["commit", "last commit", "all"])
def test_replace_takes_the_files_of_the_rows_out_of_the_snapshot(tmp_path: Path, start: int) -> None:
    spec = grown(tmp_path, 4, 8, 12)
    before = state(tmp_path, spec)
    wish(tmp_path, spec, Specific(str(start)), on_rewind="replace")
    assert f"the rows of [{start}, 12) are read again" in planned(tmp_path, spec).notes[1]
    assert by_urn(run(tmp_path, spec))["a"].rows_read == 12 - start
    for branch in ("all", "masked"):
        assert published(tmp_path, spec, "a", branch) == list(range(12))
    after = state(tmp_path, spec)
    assert before is not None
    assert after is not None
    assert (after.generation, after.snapshot) == (1, before.snapshot + 1)
    more = job(14)
    run(tmp_path, more)
    assert published(tmp_path, more, "a") == list(range(14))
    wish(tmp_path, more, Specific("12"), on_rewind="replace")
    run(tmp_path, more)
    assert published(tmp_path, more, "a") == list(range(14))


@pytest.mark.parametrize("start", [0, 4], ids=["all", "commit"])
def test_replace_takes_rejected_rows_out_of_the_quarantine_that_are_read_again(tmp_path: Path, start: int) -> None:
    """They were there twice, and a replay published them twice."""
    policy = {"name": "few", "type": "sql", "rule": "id not in (2, 5)", "on_violation": "quarantine"}
    for end in (4, 8):
        run(tmp_path, job(end, row_policies=[policy]))
    spec = job(8, row_policies=[policy])
    wish(tmp_path, spec, Specific("4"), on_rewind="append")
    assert (
        planned(tmp_path, spec)
        .notes[1]
        .endswith("twice. Rejected rows of them stay in quarantine, those that are rejected again too.")
    )
    wish(tmp_path, spec, Specific(str(start)), on_rewind="replace")
    assert by_urn(run(tmp_path, spec))["a"].rows_read == 8 - start
    with store_of(tmp_path, spec) as store:
        assert [(one.policy, one.rows) for one in count_quarantined(store, "numbers")] == [("few", 2)]
    mended = job(8, row_policies=[policy | {"rule": "id >= 0"}])
    assert replay_quarantine(project(tmp_path, mended), mended, "a").rows == {"few": 2}
    for branch in ("all", "masked"):
        assert published(tmp_path, mended, "a", branch) == list(range(8))


def test_replace_after_a_reset_is_refused_until_the_watermark_is_back(tmp_path: Path) -> None:
    """The state does not know what was published: the rows came twice, without a word."""
    spec = grown(tmp_path, 4, 12)
    with store_of(tmp_path, spec) as store:
        apply_change(store, plan_reset(store.load_dataset_states("numbers")["a"], who="anna", why="", now=store.now()))
    wish(tmp_path, spec, Specific("4"), on_rewind="replace")
    assert "the dataset was reset" in planned(tmp_path, spec).problem
    wish(tmp_path, spec, Specific("12"), on_rewind="refuse")
    run(tmp_path, spec)
    wish(tmp_path, spec, Specific("4"), on_rewind="replace")
    assert by_urn(run(tmp_path, spec))["a"].rows_read == 8
    assert published(tmp_path, spec, "a") == list(range(12))


def test_replace_of_a_part_of_a_file_is_refused(tmp_path: Path) -> None:
    spec = grown(tmp_path, 4, 8)
    wish(tmp_path, spec, Specific("6"), on_rewind="replace")
    assert "would take only a part of [4, 8) again, which snapshot 2 published" in planned(tmp_path, spec).problem


def test_replace_of_compacted_files_needs_all_rows(tmp_path: Path) -> None:
    spec = grown(tmp_path, 4, 8)
    compact(project(tmp_path, spec), spec)
    wish(tmp_path, spec, Specific("4"), on_rewind="replace")
    assert "it was compacted" in planned(tmp_path, spec).problem
    wish(tmp_path, spec, Oldest(), on_rewind="replace")
    run(tmp_path, spec)
    assert published(tmp_path, spec, "a") == list(range(8))


@pytest.mark.parametrize("until", [None, Specific("8")], ids=["end", "range"])
def test_replace_by_a_run_that_ends_early_is_refused(tmp_path: Path, until: Specific | None) -> None:
    grown(tmp_path, 4, 8) if until is None else grown(tmp_path, 4, 8, 12)
    cut = job_spec({"a": {"rows": 8 if until is None else 12, "unit_rows": 2}}, execution={"max_work_units": 1})
    wish(tmp_path, cut, Specific("4"), on_rewind="replace", until=until)
    assert "this run would leave out [6, 8)" in planned(tmp_path, cut).problem


def test_startpoints_that_a_run_has_no_room_for_wait_and_are_judged_later(tmp_path: Path) -> None:
    """Their positions were committed without a word, and the next run published the rows twice."""
    both = {"a": {"rows": 4}, "b": {"rows": 4}}
    run(tmp_path, job_spec(both))
    cut = job_spec(both, execution={"max_work_units": 1})
    for urn in both:
        wish(tmp_path, cut, Specific("2"), urn, on_rewind="refuse")
    for _ in range(3):
        run(tmp_path, cut)
    for urn in both:
        assert published(tmp_path, cut, urn) == [0, 1, 2, 3]
    assert set(waiting(tmp_path, cut)) == {"a", "b"}


def test_replace_publishes_nothing_if_a_work_unit_fails(tmp_path: Path) -> None:
    spec = grown(tmp_path, 4, 8)
    wish(tmp_path, spec, Specific("4"), on_rewind="replace")
    broken = job_spec({"a": {"rows": 8, "unit_rows": 2, "fail_at": 7}}, commit={"policy": "successful"})
    assert by_urn(run(tmp_path, broken))["a"].outcome is DatasetOutcome.FAILED
    assert published(tmp_path, spec, "a") == list(range(8))


def test_output_that_replaces_itself_needs_no_word(tmp_path: Path) -> None:
    spec = job(10, publisher="replace")
    run(tmp_path, spec)
    wish(tmp_path, spec, Oldest(), on_rewind="refuse")
    assert "published without doubles: 'all' by replace" in planned(tmp_path, spec).notes[1]
    run(tmp_path, spec)
    assert published(tmp_path, spec, "a") == list(range(10))


@pytest.mark.parametrize(("most", "is_cut"), [(1, True), (2, False), (None, False)], ids=["limited", "enough", "whole"])
def test_versions_of_rows_need_an_order_to_be_read_again_in_parts(
    tmp_path: Path, most: int | None, is_cut: bool
) -> None:
    history = {"publisher": {"type": "delta", "mode": "scd2", "key": ["id"]}}
    rows = {"a": {"rows": 10, "unit_rows": 3}}
    run(tmp_path, job_spec(rows, **history))
    spec = job_spec(rows, **history, execution={"max_work_units": most})
    wish(tmp_path, spec, Specific("4"), on_rewind="refuse")
    assert ("Set `extract.delta_fields`, or the publisher's `valid_at`" in planned(tmp_path, spec).problem) is is_cut
    ordered = {"extract": {"namespace": "test", "table": "numbers", "delta_fields": ["value"]}}
    assert not planned(tmp_path, job_spec(rows, **history, **ordered, execution={"max_work_units": most})).problem


def test_upsert_needs_an_output_that_merges(tmp_path: Path) -> None:
    spec = grown(tmp_path, 10)
    wish(tmp_path, spec, Specific("4"), on_rewind="upsert")
    assert "needs outputs that merge rows by a key" in planned(tmp_path, spec).problem


def test_startpoints_that_differ_are_refused(tmp_path: Path) -> None:
    spec = parts_job({"a": {"p0": 4, "p1": 4}})
    run(tmp_path, spec)
    wish(tmp_path, spec, Specific("1"), partition="p0", on_rewind="append")
    wish(tmp_path, spec, Specific("1"), partition="p1", on_rewind="replace")
    assert "differ in --on-rewind: append, replace" in planned(tmp_path, spec).problem


@pytest.mark.parametrize(("low", "high"), [(4, 8), (0, 4), (8, 12), (2, 9)])
@pytest.mark.parametrize("how", ["append", "replace"])
def test_range_is_read_again_and_the_watermark_stays(tmp_path: Path, low: int, high: int, how: OnRewind) -> None:
    grown(tmp_path, 4, 8, 12)
    more = job(15)
    wish(tmp_path, more, Specific(str(low)), until=Specific(str(high)), on_rewind=how)
    if how == "replace" and low == 2:
        assert "would take only a part of" in planned(tmp_path, more).problem
        return
    assert by_urn(run(tmp_path, more))["a"].rows_read == high - low
    after = state(tmp_path, more)
    assert after is not None
    assert (after.watermark, str(after.committed)) == (LongWatermark(12), "[0, 12)")
    again = list(range(low, high)) if how == "append" else []
    assert published(tmp_path, more, "a") == sorted([*range(12), *again])
    assert waiting(tmp_path, more) == {}
    assert by_urn(run(tmp_path, more))["a"].rows_read == 3, "what is new comes with the run after it"
    assert published(tmp_path, more, "a") == sorted([*range(15), *again])


def test_range_of_one_partition_leaves_the_others(tmp_path: Path) -> None:
    spec = parts_job({"a": {"p0": 6, "p1": 6}})
    run(tmp_path, spec)
    wish(tmp_path, spec, Specific("1"), partition="p0", until=Specific("3"))
    assert by_urn(run(tmp_path, spec))["a"].rows_read == 2
    assert ids(tmp_path, spec) == ["p0:1", "p0:2"]
    after = state(tmp_path, spec)
    assert after is not None
    assert after.watermark is not None
    assert dict(after.watermark.components()) == {"p0": 6, "p1": 6}


@pytest.mark.parametrize(
    ("low", "high", "problem"),
    [
        ("4", "4", "there is nothing between both ends"),
        ("6", "4", "there is nothing between both ends"),
        ("8", "12", "was never read: a re-read ends at or before the watermark, 10"),
    ],
)
def test_range_that_is_none_is_refused(tmp_path: Path, low: str, high: str, problem: str) -> None:
    spec = grown(tmp_path, 10)
    wish(tmp_path, spec, Specific(low), until=Specific(high))
    assert problem in planned(tmp_path, spec).problem


def test_range_of_a_dataset_that_was_never_read_is_refused(tmp_path: Path) -> None:
    wish(tmp_path, job(10), Specific("1"), until=Specific("2"))
    assert "nothing of the dataset was committed" in planned(tmp_path, job(10)).problem
