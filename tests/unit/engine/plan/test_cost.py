"""What earlier runs say of the cost of work units, and how even packs become by it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gobblin_dagster.core.dataset_state import DatasetState, Pace
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.plan.cost import with_costs
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
from gobblin_dagster.engine.plan.packing import pack_units
from gobblin_dagster.engine.run.job_run import plan_job
from tests.unit.engine.jobs import job_spec, project, run

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def plan(urn: str, count: int = 1, *, size_bytes: int | None = None, rows: int | None = None) -> DatasetPlan:
    units = tuple(
        WorkUnit(f"{urn}-{n}", urn, LongWatermark(n), LongWatermark(n + 1), size_bytes=size_bytes, rows=rows)
        for n in range(count)
    )
    return DatasetPlan(urn, "c" * 32, 1, LongWatermark(0), LongWatermark(count), units)


def states(**paces: Pace) -> dict[str, DatasetState]:
    none = CommittedRanges(LongWatermark, {})
    return {urn: DatasetState("j", urn, 1, none, 1, "r", NOW, pace=pace) for urn, pace in paces.items()}


def costs(*datasets: DatasetPlan, **paces: Pace) -> list[int | None]:
    return [d.work_units[0].cost_ms for d in with_costs(datasets, states(**paces))]


def test_pace_is_a_moving_mean_that_forgets() -> None:
    pace = Pace().then(Pace(rows=100, bytes_read=1000, ms=50))
    assert pace == Pace(rows=100, bytes_read=1000, ms=50)
    assert pace.then(Pace(rows=200, bytes_read=1000, ms=150)) == Pace(rows=130, bytes_read=1000, ms=80)
    for _ in range(30):
        pace = pace.then(Pace(rows=7, bytes_read=7, ms=7))
    assert round(pace.ms) == 7


def test_without_history_units_are_left_as_the_source_gave_them() -> None:
    assert costs(plan("a", size_bytes=5), plan("b")) == [None, None]


def test_size_of_the_source_counts_at_the_datasets_own_rate() -> None:
    slow, fast = Pace(rows=10, bytes_read=1000, ms=500), Pace(rows=10, bytes_read=1000, ms=5)
    assert costs(plan("a", size_bytes=4000), plan("b", size_bytes=4000), a=slow, b=fast) == [2000, 20]
    assert costs(plan("a", rows=40), plan("b", rows=40), a=slow, b=fast) == [2000, 20]
    assert costs(plan("a"), plan("b"), a=slow, b=fast) == [500, 5]


def test_dataset_without_history_counts_at_the_geometric_mean_of_the_others() -> None:
    slow, fast = Pace(bytes_read=1000, ms=1000), Pace(bytes_read=1000, ms=10)
    assert costs(plan("a"), plan("b"), plan("new", size_bytes=1000), a=slow, b=fast) == [1000, 10, 100]


def test_history_makes_packs_even_where_rows_mislead() -> None:
    # 8 datasets whose rows cost 100 times those of the 24 others, all with as many rows.
    urns = [f"d{n:02}" for n in range(32)]
    paces = {urn: Pace(rows=10, ms=1000 if n % 4 == 0 else 10) for n, urn in enumerate(urns)}
    datasets = [plan(urn, rows=10) for urn in urns]
    informed = with_costs(datasets, states(**paces))

    def skew(by: tuple[DatasetPlan, ...] | list[DatasetPlan]) -> float:
        packs = tuple(tuple(u.id for u in p.work_units) for p in pack_units([d.work_units[0] for d in by], 4))
        found = JobPlan("j", "r", tuple(informed), packs).skew
        assert found is not None
        return round(found, 2)

    assert (skew(datasets), skew(informed)) == (3.88, 1.0)


def test_runs_keep_the_pace_of_each_dataset_and_the_plan_uses_it(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 40, "unit_rows": 10}})
    assert plan_job(project(tmp_path, job), job).datasets[0].cost_ms is None
    run(tmp_path, job)
    store = project(tmp_path, job).open_store()
    pace = store.load_dataset_states(job.job)["a"].pace
    store.close()
    assert (pace.rows, pace.bytes_read) == (10, 80)
    assert pace.ms > 0
    more = job_spec({"a": {"rows": 60, "unit_rows": 10}, "b": {"rows": 10}})
    planned = {dataset.dataset_urn: dataset for dataset in plan_job(project(tmp_path, more), more).datasets}
    assert planned["a"].cost_ms == pytest.approx(2 * pace.ms, abs=2)  # each of two units is rounded, to 1 at least
    assert planned["b"].cost_ms == pytest.approx(pace.ms, abs=1)


def test_packs_can_be_numbered_and_dataset_kept_together(tmp_path: Path) -> None:
    datasets = {urn: {"rows": 40, "unit_rows": 10} for urn in "abcdefghijkl"}
    even = job_spec(datasets, execution={"packs": 3})
    together = job_spec(datasets, execution={"packs": 3, "packing": "bi_level"})
    plans = [plan_job(project(tmp_path, job), job) for job in (even, together)]
    assert [(len(one.packs), one.skew) for one in plans] == [(3, 1.0), (3, 1.0)]
    urn_of = {unit.id: d.dataset_urn for d in plans[1].datasets for unit in d.work_units}
    assert [len({urn_of[unit] for unit in pack}) for pack in plans[1].packs] == [4, 4, 4]
