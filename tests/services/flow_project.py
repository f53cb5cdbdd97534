"""A project with one template and a service that does not run: its flows are stored, and their jobs run in process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gobblin_dagster.core.errors import FlowExistsError
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.flow_jobs import flow_jobs
from gobblin_dagster.service.model import FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.inline_runner import InlineRunner

TEMPLATE = """
template: rows
parameters:
  rows: {type: integer, default: "10"}
  fail_at: {type: integer, default: "-1"}
  folder: {type: path, default: lake}
job:
  source:
    type: gobblin_dagster.testing.rows_source:RowsSource
    datasets: {a: {rows: "${rows}", fail_at: "${fail_at}"}, b/c: {rows: "${rows}", fail_at: "${fail_at}"}}
  extract: {namespace: test, table: rows}
  row_policies: [{name: has_value, type: not_null, columns: [value], on_violation: quarantine}]
  output: {path: "${folder}"}
"""
URI = "FS:///rows.template"
NEVER = "0 0 0 ? 1 1 2050"


def make_project(root: Path) -> None:
    """Write `gobblin.yaml` and the template."""
    (root / "gobblin.yaml").write_text("project: tests\n")
    (root / "templates").mkdir()
    (root / "templates" / "rows.template").write_text(TEMPLATE)


def open_core(root: Path) -> CoreServices:
    """Open the service of a project; nothing of it runs."""
    spec = load_project(root)
    return CoreServices(root, spec.service, ["false"], state=spec.state)


def store_flow(core: CoreServices, flow: FlowId, **properties: str) -> None:
    """Create a flow that never fires, or change it."""
    config = FlowConfig(flow, URI, properties, Schedule(NEVER))
    with core.store.write() as transaction:
        try:
            core.manager.create(transaction, config, "tester")
        except FlowExistsError:
            core.manager.update(transaction, config, "tester")


def run_flow(root: Path, core: CoreServices, flow: FlowId) -> list[RunResult]:
    """Run the jobs of a flow as the worker does."""
    spec = load_project(root)
    jobs = flow_jobs(core.store, core.compile, flow)
    project = Project(root.resolve(), spec)
    read = [read_job_body(job.name, job.body, project.root, spec) for job in jobs]
    return [run_job(project, job, runner=InlineRunner()) for job in read]


def open_state(root: Path) -> closing[StateStore]:
    """Open the project's state store."""
    return closing(Project(root.resolve(), load_project(root)).open_store())
