"""`execution.retry_failed`: whether later runs read failed ranges again, and that nothing is ever read twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit.policy import RetryFailed, is_retried
from gobblin_dagster.engine.maintenance import state_change, state_history
from gobblin_dagster.engine.maintenance.state_export import Standing, diff_states
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

NOW = project(Path("/"), job_spec({})).clock.now()


def job(rows: int, retry: str, fail_at: int | None = None, policy: str = "successful") -> JobSpec:
    dataset: dict[str, Any] = {"rows": rows, "unit_rows": 10, "fail_at": fail_at}
    return job_spec({"a": dataset}, commit={"policy": policy}, execution={"retry_failed": retry})


def state(root: Path, spec: JobSpec) -> DatasetState:
    store = project(root, spec).open_store()
    try:
        return store.load_dataset_states(spec.job)["a"]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("rule", "policies"),
    [
        ("always", {"full", "successful", "partial"}),
        ("never", set()),
        ("onfull", {"full"}),
        ("onpartial", {"partial"}),
    ],
)
def test_rule_holds_under_policies_as_in_the_original(rule: RetryFailed, policies: set[str]) -> None:
    assert {policy for policy in ("full", "successful", "partial") if is_retried(rule, policy)} == policies


def test_always_reads_the_gap_alone_and_nothing_twice(tmp_path: Path) -> None:
    run(tmp_path, job(30, "always", fail_at=15))
    assert by_urn(run(tmp_path, job(35, "always")))["a"].rows_read == 15
    assert published(tmp_path, job(35, "always"), "a") == list(range(35))


@pytest.mark.parametrize("rule", ["never", "onfull", "onpartial"])
def test_range_that_is_given_up_is_told_and_not_read_again(tmp_path: Path, rule: str) -> None:
    result = by_urn(run(tmp_path, job(30, rule, fail_at=15)))["a"]
    assert "gave up [10, 20): it is not read again." in result.notes
    assert result.actual_high == LongWatermark(30)
    assert by_urn(run(tmp_path, job(30, rule)))["a"].outcome == "idle"
    assert by_urn(run(tmp_path, job(35, rule)))["a"].rows_read == 5
    assert published(tmp_path, job(35, rule), "a") == [*range(10), *range(20, 35)]
    found = state(tmp_path, job(35, rule))
    assert (str(found.given_up), str(found.committed)) == ("[10, 20)", "[0, 10), [20, 35)")
    assert found.watermark == LongWatermark(35)


def test_last_and_first_range_can_be_given_up(tmp_path: Path) -> None:
    run(tmp_path, job(30, "never", fail_at=25))
    assert state(tmp_path, job(30, "never")).watermark == LongWatermark(30)
    run(tmp_path, job(50, "never", fail_at=35))
    assert str(state(tmp_path, job(50, "never")).given_up) == "[20, 40)"
    other = tmp_path / "other"
    other.mkdir()
    run(other, job(30, "never", fail_at=5))
    assert by_urn(run(other, job(30, "never")))["a"].outcome == "idle"


@pytest.mark.parametrize("rule", ["never", "onfull"])
def test_under_policy_full_all_is_read_again_since_nothing_was_published(tmp_path: Path, rule: str) -> None:
    run(tmp_path, job(30, rule, fail_at=15, policy="full"))
    assert by_urn(run(tmp_path, job(30, rule, policy="full")))["a"].rows_read == 30


def test_dataset_of_which_nothing_was_published_gives_nothing_up(tmp_path: Path) -> None:
    run(tmp_path, job(10, "never", fail_at=5))
    assert by_urn(run(tmp_path, job(10, "never")))["a"].rows_read == 10


def test_person_can_have_a_range_read_after_all(tmp_path: Path) -> None:
    spec = job(30, "never")
    run(tmp_path, job(30, "never", fail_at=15))
    change = state_change.plan_retry(state(tmp_path, spec), who="ann", why="mended", now=NOW)
    assert change.consequence == "[10, 20) is read by the next run, and nothing else again"
    opened = project(tmp_path, spec)
    store = opened.open_store()
    state_change.apply_change(store, change)
    entries = state_history.history(store, spec.job, "a")
    store.close()
    left_out = "without [10, 20), which failed; gave up [10, 20): it is not read again"
    assert [(entry.by, entry.why) for entry in entries] == [("run", left_out), ("person", "retry: mended")]
    assert by_urn(run(tmp_path, spec))["a"].rows_read == 10
    assert published(tmp_path, spec, "a") == list(range(30))
    with pytest.raises(UsageError, match="No range of dataset 'a' was given up"):
        state_change.plan_retry(state(tmp_path, spec), who="ann", why="again", now=NOW)


def test_reset_forgets_what_was_given_up(tmp_path: Path) -> None:
    spec = job(30, "never")
    run(tmp_path, job(30, "never", fail_at=15))
    change = state_change.plan_reset(state(tmp_path, spec), who="ann", why="anew", now=NOW)
    assert change.after.given_up is None
    assert change.after.watermark is None


def test_comparison_of_stores_tells_what_one_of_them_gave_up(tmp_path: Path) -> None:
    spec = job(30, "never")
    run(tmp_path, job(30, "never", fail_at=15))
    key, ours = ("numbers", "a"), state(tmp_path, spec)
    here, there = (Standing({key: one}) for one in (ours, dataclasses.replace(ours, given_up=None)))
    assert diff_states(here, here) == []
    assert [found.dataset_urn for found in diff_states(here, there)] == ["a"]
