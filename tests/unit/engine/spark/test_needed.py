from __future__ import annotations

from typing import Any

import pytest

from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.spark import lazy
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.engine.spark.needed import SMALL_BYTES, SMALL_ROWS, task_place
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import SparkSpec
from tests.unit.engine.jobs import job_spec


def _units(*sizes: tuple[int | None, int | None]) -> list[WorkUnit]:
    """Return work units of given bytes and rows."""
    low, high = LongWatermark(0), LongWatermark(1)
    return [WorkUnit(f"wu-{n}", "a", low, high, size_bytes=one, rows=rows) for n, (one, rows) in enumerate(sizes)]


def _job(**source: Any) -> JobSpec:
    return job_spec({"a": {"rows": 1}}, **({"source": source} if source else {}))


LITTLE = _units((10, None))


@pytest.mark.parametrize(
    ("spark", "job", "units", "said"),
    [
        ({}, _job(), LITTLE, "processes of this machine, without Spark: little is to be read."),
        ({}, _job(), _units((SMALL_BYTES, SMALL_ROWS * 9)), "processes of this machine, without Spark: little"),
        ({}, _job(), _units((None, SMALL_ROWS)), "processes of this machine, without Spark: little"),
        ({}, _job(), _units((10, None), (None, None)), "processes of this machine, without Spark: nothing says"),
        ({}, _job(), _units((SMALL_BYTES, None), (1, None)), "Spark: more than 256 MB are to be read."),
        ({}, _job(), _units((None, SMALL_ROWS), (None, 1)), "Spark: more than 5,000,000 rows are to be read."),
        ({}, _job(type="spark", table="a"), LITTLE, "Spark: the source reads with Spark."),
        ({"master": "yarn"}, _job(), LITTLE, "Spark: `spark.master` is yarn."),
        ({"master": "local-cluster[2,1,1024]"}, _job(), LITTLE, "Spark: `spark.master` is local-cluster"),
        ({"remote": "sc://host:15002"}, _job(), LITTLE, "Spark: `spark.remote` is set."),
        ({"conf": {"spark.ui.enabled": "true"}}, _job(), LITTLE, "Spark: `spark.conf` has settings."),
    ],
    ids=lambda one: one.rstrip(".") if isinstance(one, str) else "",
)
def test_small_work_on_a_local_master_needs_no_spark(
    spark: dict[str, Any], job: JobSpec, units: list[WorkUnit], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "has_session", lambda: False)  # other tests of this process may have one
    spec = SparkSpec.model_validate({"start": "when_needed", **spark})
    place = task_place(spec, job, units, is_running=False)
    assert str(place).startswith(said)
    assert LazySparkRunner(spec).place(job, units) == place
    assert task_place(spec, job, units, is_running=True).is_spark, "a Spark that has started is used"


def test_projects_that_do_not_ask_start_spark_as_before_and_are_told_nothing() -> None:
    assert SparkSpec().start == "always"
    assert LazySparkRunner(SparkSpec()).place(_job(), LITTLE) is None
