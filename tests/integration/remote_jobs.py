"""A small job published to a far storage, and a child process that is killed in the middle of publishing."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.commit import CommitListener, crash_at, read_manifest
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import open_storage
from gobblin_dagster.storage.arrow import arrow_files
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec

URNS = ("a", "b/c d")
"""Names such that paths must be taken as they are written."""


@dataclass(frozen=True)
class RemoteJob:
    """Two datasets of some work units each, published below a URL."""

    root: Path
    output: str
    state: str
    """The state store's URL."""

    def spec(self, rows: int) -> JobSpec:
        """Return the job with so many rows in its source."""
        datasets = {urn: {"rows": rows, "unit_rows": rows // 3} for urn in URNS}
        return job_spec(datasets, output={"path": self.output}, commit={"parallelism": 2, "keep_snapshots": 1})

    def project(self, spec: JobSpec) -> Project:
        """Return the project around it."""
        return Project(self.root, ProjectSpec(project="tests", state=self.state), (spec,))

    def run(self, rows: int, listener: CommitListener | None = None) -> RunResult:
        """Run without Spark."""
        spec = self.spec(rows)
        return run_job(self.project(spec), spec, runner=InlineRunner(), commit_listener=listener)

    def crash(self, rows: int, steps: int) -> None:
        """Run in a process that kills itself after some commit steps."""
        code = "import sys; from tests.integration.remote_jobs import main; main(*sys.argv[1:])"
        arguments = [str(self.root), self.output, self.state, str(rows), str(steps)]
        child = subprocess.run([sys.executable, "-c", code, *arguments], check=False, cwd=Path(__file__).parents[2])
        assert child.returncode == -signal.SIGKILL

    def check_published_once(self, rows: int) -> None:
        """Require every row once in every branch, for readers of the store, of manifests and of folders."""
        spec = self.spec(rows)
        storage = open_storage(self.output)
        store = self.project(spec).open_store()
        try:
            snapshots = {urn: store.load_snapshot(spec.job, urn) for urn in URNS}
        finally:
            store.close()
        for urn, files in snapshots.items():
            assert read_manifest(storage, self.output, spec.job, urn) == files
            assert _ids(files, "all") == _ids(files, "masked") == list(range(rows))
            assert all(storage.sha256(file.path) == file.sha256 for file in files)
        visible = [path for path in storage.walk_files(self.output) if not path.startswith(f"{self.output}/_gobblin/")]
        assert sorted(visible) == sorted(file.path for files in snapshots.values() for file in files)
        assert list(storage.walk_files(f"{self.output}/_gobblin/staging")) == []

    def check_whole_way(self) -> None:
        """Publish, run idle, publish more, crash in the middle, recover: everything once, everywhere."""
        assert {result.outcome for result in self.run(30).datasets} == {DatasetOutcome.COMMITTED}
        self.check_published_once(30)
        assert {result.outcome for result in self.run(30).datasets} == {DatasetOutcome.IDLE}
        assert {result.rows_read for result in self.run(45).datasets} == {15}
        self.check_published_once(45)

        self.crash(90, steps=1)
        result = self.run(90)
        assert result.recovered
        for dataset in result.recovered:
            assert dataset.state == "committed"
            assert dataset.audit is not None
            assert (dataset.audit.lost, dataset.audit.duplicated) == (0, 0)
        assert {one.outcome for one in result.datasets} <= {DatasetOutcome.COMMITTED, DatasetOutcome.IDLE}
        self.check_published_once(90)

    def check_going_back(self) -> None:
        """Roll back, let what was left expire, read on: everything once again."""
        self.run(30)
        self.run(60)
        spec = self.spec(60)
        for urn in URNS:
            rollback(self.project(spec), spec, urn, 1)
            published = read_published(self.output, spec.job, urn)
            assert (published.snapshot, published.to_arrow("all").count_rows()) == (3, 30)
        result = clean(self.project(spec), spec)
        assert [(one.dataset_urn, one.snapshots, one.kept_because) for one in result.expired] == [
            (urn, (2,), "") for urn in URNS
        ]
        self.check_published_once(30)
        assert {one.rows_read for one in self.run(60).datasets} == {30}
        self.check_published_once(60)


def main(root: str, output: str, state: str, rows: str, steps: str) -> None:
    """Run in the child; does not return."""
    RemoteJob(Path(root), output, state).run(int(rows), crash_at(int(steps)))


def _ids(files: list[PublishedFile], branch: str) -> list[int]:
    filesystem, paths = arrow_files([file.path for file in files if file.branch == branch])
    table = ds.dataset(paths, filesystem=filesystem, format="parquet").to_table(columns=["id"])
    return sorted(table["id"].to_pylist())
