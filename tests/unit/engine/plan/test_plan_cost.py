"""What planning keeps to itself: it looks at very many values, and leaves the process as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import job_spec, project


class Watching(RowsSource):
    """Fails where the collector runs while it plans; fails in any case for a dataset `bad`."""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Plan as the rows say."""
        assert not gc.isenabled()
        for offer in super().plan(context):
            if offer.dataset_urn == "bad":
                raise RuntimeError("a bug of a source")
            yield offer


def test_cycle_collector_rests_while_a_plan_is_made_and_runs_after_it(tmp_path: Path) -> None:
    job = job_spec({}, source={"type": f"{__name__}:Watching", "datasets": {"a": {"rows": 3}}})
    assert plan_job(project(tmp_path, job), job).has_work
    assert gc.isenabled()


def test_cycle_collector_runs_after_a_plan_that_failed(tmp_path: Path) -> None:
    job = job_spec({}, source={"type": f"{__name__}:Watching", "datasets": {"bad": {"rows": 3}}})
    with pytest.raises(RuntimeError, match="a bug of a source"):
        plan_job(project(tmp_path, job), job)
    assert gc.isenabled()


def test_process_without_a_cycle_collector_gets_none_from_a_plan(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}})
    gc.disable()
    try:
        plan_job(project(tmp_path, job), job)
        assert not gc.isenabled()
    finally:
        gc.enable()
