"""Small jobs over made-up rows, for tests of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import DatasetResult, RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import STATE_STORE, ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner

STATE = STATE_STORE
"""URL of the state store of these projects; tests of other stores set it (`monkeypatch`)."""
TWO_BRANCHES = {
    "branches": [{"name": "all"}, {"name": "masked", "converters": [{"type": "drop", "columns": ["value"]}]}]
}


def job_spec(datasets: dict[str, dict[str, Any]], **parts: Any) -> JobSpec:
    """Return a job that reads made-up datasets into two branches."""
    body: dict[str, Any] = {
        "job": "numbers",
        "source": {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": datasets},
        "extract": {"namespace": "test", "table": "numbers"},
        "fork": TWO_BRANCHES,
        "output": {"path": "lake"},
    }
    return JobSpec.model_validate(body | parts)


def project(root: Path, *jobs: JobSpec) -> Project:
    """Return a project in a folder, without files."""
    return Project(root, ProjectSpec(project="tests", state=STATE), jobs)


def run(root: Path, job: JobSpec, selection: Selection | None = None, listener: RunListener | None = None) -> RunResult:
    """Run a job without Spark."""
    return run_job(
        project(root, job), job, runner=InlineRunner(), selection=selection, listeners=[listener] if listener else []
    )


def published(root: Path, job: JobSpec, urn: str, branch: str = "all") -> list[int]:
    """Return the sorted ids of a dataset's newest snapshot, read from its files."""
    import pyarrow.parquet as pq

    store = project(root, job).open_store()
    try:
        files = [file for file in store.load_snapshot(job.job, urn) if file.branch == branch]
        return sorted(value for file in files for value in pq.read_table(file.path)["id"].to_pylist())
    finally:
        store.close()


def by_urn(result: RunResult) -> dict[str, DatasetResult]:
    """Return a run's datasets by urn."""
    return {dataset.dataset_urn: dataset for dataset in result.datasets}
