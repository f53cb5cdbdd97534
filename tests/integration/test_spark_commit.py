"""Commit steps as tasks of a real local Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.engine.commit import build, step_runner
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.spark.runner import SparkRunner
from tests.unit.engine.jobs import job_spec, project, published

pytestmark = pytest.mark.spark


class CountingRunner(SparkRunner):
    """A Spark runner that counts what it was asked for."""

    def execute_batches(self, paths: Sequence[str], output_root: str, *, verify_content: bool) -> list[str]:
        self.batches = len(paths)
        return super().execute_batches(paths, output_root, verify_content=verify_content)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingRunner]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    started = SparkRunner.start(project(log.parent).spec.spark, log)
    yield CountingRunner(started.session, started.cores)
    started.close()


def test_spark_tasks_move_the_files_of_a_large_dataset(
    tmp_path: Path, runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_runner, "FILES_PER_BATCH", 10)
    monkeypatch.setattr(build, "BATCH_ABOVE_FILES", 10)
    monkeypatch.setattr(build, "BATCH_FILES", 4)
    job = job_spec({"a": {"rows": 200, "unit_rows": 10}}, commit={"spark_threshold": 40}, execution={"merge_bytes": 0})
    result = run_job(project(tmp_path, job), job, runner=runner)
    assert result.exit_code == 0
    assert runner.batches >= 4
    for branch in ("all", "masked"):
        assert published(tmp_path, job, "a", branch) == list(range(200))
    assert not list((tmp_path / "lake/_gobblin/staging").rglob("*.json"))


def test_spark_that_loses_steps_says_so(tmp_path: Path, runner: CountingRunner) -> None:
    with pytest.raises(TransientError, match="Spark lost commit steps"):
        runner.execute_batches([str(tmp_path / "0.json")], "no-such-scheme://x/y", verify_content=False)
