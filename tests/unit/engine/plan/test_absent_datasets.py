"""Datasets that a run leaves out, for whatever reason and however long, and what is remembered of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.maintenance import state_history
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

RUNS = 20


def job(rows: int, *urns: str) -> JobSpec:
    return job_spec({urn: {"rows": rows} for urn in urns})


def state(root: Path, urn: str) -> DatasetState:
    store = project(root, job(0, urn)).open_store()
    try:
        return store.load_dataset_states("numbers")[urn]
    finally:
        store.close()


@pytest.mark.parametrize("how", ["absent", "excluded", "not selected", "failing"])
def test_dataset_left_out_for_20_runs_keeps_its_watermark(tmp_path: Path, how: str) -> None:
    # The original: "if a data set is skipped in a job run for whatever reason, its watermark will be unavailable".
    run(tmp_path, job(10, "a", "b"))
    before = state(tmp_path, "a")
    selection = {"excluded": Selection(exclude=("a",)), "not selected": Selection(select=("b",))}.get(how)
    for number in range(RUNS):
        rows = 11 + number
        spec = job(rows, "b") if how == "absent" else job(rows, "a", "b")
        if how == "failing":
            spec = job_spec({"a": {"rows": rows, "fail_at": 10}, "b": {"rows": rows}})
        assert by_urn(run(tmp_path, spec, selection))["b"].rows_read == 1
    assert state(tmp_path, "a") == before
    last = job(10 + RUNS, "a", "b")
    result = by_urn(run(tmp_path, last))
    assert (result["a"].rows_read, result["b"].outcome) == (RUNS, "idle")
    assert published(tmp_path, last, "a") == list(range(10 + RUNS))


def test_only_the_newest_runs_are_remembered_and_all_that_moved_a_watermark(tmp_path: Path) -> None:
    for rows in range(1, 7):
        spec = job(rows, "a")
        few = Project(tmp_path, ProjectSpec(project="tests", history_runs=3), (spec,))
        run_job(few, spec, runner=InlineRunner())
    store = project(tmp_path, job(0, "a")).open_store()
    runs = store.load_runs("numbers")
    assert [run.datasets["a"].high for run in runs] == ["6", "5", "4"]
    assert [str(entry.watermark_after) for entry in state_history.history(store, "numbers", "a")] == list("123456")
    store.close()


def test_source_may_ask_what_became_of_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both are work unit states in the original; here a source that does not ask costs no query.
    bad = job_spec(
        {"a": {"rows": 30, "unit_rows": 10, "fail_at": 15}, "b": {"rows": 5}}, commit={"policy": "successful"}
    )
    run(tmp_path, bad)
    run(tmp_path, bad)
    seen: list[SourceContext] = []
    plan = RowsSource.plan

    def asking(self: RowsSource, context: SourceContext) -> Iterator[DatasetOffer]:
        seen.append(context)
        return plan(self, context)

    monkeypatch.setattr(RowsSource, "plan", asking)
    plan_job(project(tmp_path, bad), bad)
    (context,) = seen
    newest, oldest = context.previous_runs()
    assert (newest.datasets["a"].outcome, newest.datasets["a"].failed_ranges) == ("failed", ("[10, 20)",))
    assert (oldest.datasets["a"].outcome, oldest.datasets["a"].high) == ("committed", "10")
    assert "b" not in newest.datasets
    assert context.states["a"].failed_ranges == ("[10, 20)",)
