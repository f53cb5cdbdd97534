"""Where Spark is started to look at a source `spark`: by Dagster's sensor, and by `gobblin commit recover`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.engine import new_data
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.orchestration import new_data_sensor, sensors
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from tests.services.quick_spark import QUICK
from tests.unit.engine.jobs import published

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = """
job: numbers
source: {type: spark, format: parquet, path: data, partitions: 2, watermark: {column: id, type: long}}
extract: {namespace: test, table: d}
fork: {branches: [{name: all}]}
output: {path: lake}
"""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A project whose table holds ids 0 to 199."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: watched\n")
    (tmp_path / "jobs" / "numbers.yaml").write_text(JOB)
    write(tmp_path, range(200))
    return tmp_path


def write(root: Path, ids: range) -> None:
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), root / "data" / f"{ids.start}.parquet")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ticks that wait for their answer; the process with Spark ends with the test."""
    monkeypatch.setattr(sensors, "PATIENCE_S", 120.0)
    yield
    cached = new_data._poll_process
    assert cached.cache_info().currsize == 1, "one process serves all jobs of a project"
    cached.cache_clear()


def tick(project: Project, sensor: dg.SensorDefinition, instance: dg.DagsterInstance) -> Any:
    with dg.build_sensor_context(instance=instance) as context:
        return sensor.evaluate_tick(context)


@pytest.mark.usefixtures("patient")
def test_sensor_finds_new_rows_of_a_table_with_one_spark_for_all_its_ticks(made: Path) -> None:
    project = open_project(made)
    sensor = new_data_sensor(project, "numbers")
    resource = GobblinSparkResource.of_project(project)
    poll_process = new_data._poll_process(resource.spec.model_dump_json(), resource.log_path)
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = tick(project, sensor, instance).run_requests
        assert request.run_config == run_config("numbers", ["test.d"])
        process = poll_process.process_id
        (again,) = tick(project, sensor, instance).run_requests
        assert again.run_key == request.run_key
        runner = LazySparkRunner(resource.spec, resource.log_path)
        run_job(project, project.job("numbers"), runner=runner)
        runner.close()
        assert tick(project, sensor, instance).skip_message == "None of 1 datasets has new data to read."
        write(made, range(500, 510))
        (later,) = tick(project, sensor, instance).run_requests
        assert later.run_key != request.run_key
        (made / "data").rename(made / "away")
        said = tick(project, sensor, instance).skip_message
    assert said.startswith(
        "None of 1 datasets has new data to read. 1 cannot be planned; the first one: Source of job 'numbers': "
        "test.d: [PATH"
    )
    assert poll_process.process_id == process
    poll_process.close()


def test_recovered_rows_of_a_table_are_counted_anew(made: Path) -> None:
    def gobblin(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "gobblin_dagster", *arguments]
        return subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True, check=False)

    (made / "gobblin.yaml").write_text(f"project: watched\nspark: {json.dumps({'conf': QUICK})}\n")
    assert gobblin("run", "--crash-at", "commit:1").returncode == -9
    recovered = gobblin("commit", "recover", "--output", "json")
    assert recovered.returncode == 0, recovered.stderr
    (dataset,) = json.loads(recovered.stdout)["recovered"]
    assert (dataset["audit"]["source_rows"], dataset["audit"]["lost"], dataset["audit"]["duplicated"]) == (200, 0, 0)
    assert published(made, open_project(made).job("numbers"), "test.d") == list(range(200))
