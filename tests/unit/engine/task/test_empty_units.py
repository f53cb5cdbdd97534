"""Work units without positions are committed without a task: no Spark is started for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published


class EagerSource(RowsSource):
    """Offers a work unit also where nothing is new."""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Add an empty work unit to each offer without any."""
        for offer in super().plan(context):
            if offer.work_units or offer.low is None:
                yield offer
            else:
                unit = WorkUnit("empty", offer.dataset_urn, offer.low, offer.low, rows=0)
                yield DatasetOffer(offer.dataset_urn, offer.low, offer.low, [unit])


def test_empty_unit_is_committed_and_starts_nothing(tmp_path: Path) -> None:
    job = job_spec({}, source={"type": f"{__name__}:EagerSource", "datasets": {"a": {"rows": 0}}})
    runner = InlineRunner()
    result = run_job(project(tmp_path, job), job, runner=runner)
    assert by_urn(result)["a"].outcome is DatasetOutcome.COMMITTED
    assert (result.exit_code, runner.is_started) == (0, False)


def test_empty_units_beside_others_are_committed_with_them(tmp_path: Path) -> None:
    datasets = {"a": {"rows": 0}, "b": {"rows": 30, "unit_rows": 10}}
    job = job_spec({}, source={"type": f"{__name__}:EagerSource", "datasets": datasets})
    runner = InlineRunner()
    result = run_job(project(tmp_path, job), job, runner=runner)
    assert {dataset.outcome for dataset in result.datasets} == {DatasetOutcome.COMMITTED}
    assert runner.is_started
    assert published(tmp_path, job, "b") == list(range(30))


@pytest.mark.parametrize(
    ("high", "rows", "read", "is_empty"),
    [(5, 0, {}, True), (5, None, {}, True), (5, None, {"nulls": True}, False), (5, 3, {}, False), (6, 0, {}, False)],
)
def test_unit_is_empty_only_where_it_can_bring_no_row(
    high: int, rows: int | None, read: dict[str, bool], is_empty: bool
) -> None:
    unit = WorkUnit("u", "a", LongWatermark(5), LongWatermark(high), read={**read}, rows=rows)
    assert unit.is_empty is is_empty
