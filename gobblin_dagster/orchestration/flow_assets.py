"""Flows whose jobs run in Dagster: assets, Dagster jobs, and the sensor that launches and watches their runs.

A flow asks for it with the property `flow.executor: dagster`. The service fires, compiles and decides, as for all
flows; Dagster runs the jobs and shows them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import dagster as dg

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import FlowCompileError, GobblinDagsterError, SpecError, TransientError, UsageError
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.assets import gobblin_assets, gobblin_job
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.flow_runs import FlowRuns
from gobblin_dagster.orchestration.flows import has_service
from gobblin_dagster.orchestration.sensors import RUNNING
from gobblin_dagster.orchestration.translator import BranchData, GobblinTranslator
from gobblin_dagster.service.catalog.flow_config import EXECUTOR, ExecutorName
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.executors.remote_dagster import EXECUTION_TAG, FLOW_TAG, JOB_TAG
from gobblin_dagster.service.flow_compiler import open_flow_compiler
from gobblin_dagster.service.model import DagJob, ExecutionId, FlowId, FlowSpec
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.flow_rows import FlowFilter, list_flows, newest_version
from gobblin_dagster.service.store.job_rows import load_job, open_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import load_project

log = logging.getLogger(__name__)

INTERVAL_S = 5
"""Seconds between two looks at what the service ordered, and at what became of runs."""
SENSOR = "flow_runs"
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
_OWNER = re.compile(r"[A-Za-z0-9_.-]+")


class FlowTranslator(GobblinTranslator):
    """Turns the branches of a flow's job into asset specs: key `group/flow/job/branch`, owners, tags, link.

    Args:
        flow: the flow.
        root: the project folder.
        url: where the service answers, for links.
    """

    def __init__(self, flow: FlowSpec, root: Path, url: str) -> None:
        self._flow = flow
        self._root = root
        self._url = url

    def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        """Return the asset spec of a branch; signs that Dagster's keys do not take become `_`."""
        flow = self._flow.id
        owner, schedule = self._flow.config.owning_group or "", self._flow.config.schedule
        parts = [_OTHER.sub("_", part) for part in (flow.group, flow.name, data.job.job, data.branch.name)]
        key = f"(flowGroup:{quote(flow.group, safe='')},flowName:{quote(flow.name, safe='')})"
        metadata = {
            md.FLOW: str(flow),
            md.FLOW_VERSION: self._flow.version,
            md.FLOW_LINK: dg.MetadataValue.url(f"{self._url}/flowconfigsV2/{key}"),
            md.FLOW_TEMPLATES: self._flow.config.template_uris,
        }
        if schedule is not None:
            metadata[md.FLOW_SCHEDULE] = schedule.cron
        made = super().get_asset_spec(data).replace_attributes(key=parts, group_name=_group(flow))
        owners = [f"team:{owner}"] if _OWNER.fullmatch(owner) else []
        return made.merge_attributes(
            owners=owners, tags={"gobblin/executor": ExecutorName.DAGSTER.value}, metadata=metadata
        )

    def job_of_run(self, job: JobSpec, tags: Mapping[str, str]) -> JobSpec:
        """Return the job as the execution has it that the run belongs to: flows may have changed since."""
        if not {FLOW_TAG, EXECUTION_TAG, JOB_TAG} <= {*tags}:
            return job  # somebody launched it in Dagster's pages
        spec = load_project(self._root)
        execution = ExecutionId(self._flow.id, int(tags[EXECUTION_TAG]))
        with (
            ServiceStore(parse_url(spec.service.store, self._root), SystemClock()) as store,
            store.read() as transaction,
        ):
            found = load_job(transaction, execution, tags[JOB_TAG])
        if found is None:
            raise UsageError(problem=f"Execution {execution} has no job {tags[JOB_TAG]!r} any more.")
        return read_job_body(found.job.name, found.job.body, self._root, spec)


def _group(flow: FlowId) -> str:
    return re.sub(r"\W+", "_", flow.group, flags=re.ASCII) or "flows"


def flow_definitions(
    project: Project | Path | str, *, runner: TaskRunner | None = None, clock: Clock | None = None
) -> dg.Definitions:
    """Return the assets and Dagster jobs of the flows whose property `flow.executor` is `dagster`, and their sensor.

    The sensor `flow_runs`, which runs by default, launches a Dagster run for each job that the service orders, once,
    and tells the service what became of it, as the run's record in the state store has it. Load the definitions again
    when flows change: `ReloadDagster` does so. A flow with faults stops no other; the log names it.

    Args:
        project: a project or its folder; `service.store` in its `gobblin.yaml` names the store.
        runner: as in `gobblin_assets`.
        clock: tells the time if the store has no clock of its own.

    Returns:
        No definitions if the project has no service, or if the service's store is away.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.
    """
    opened = project if isinstance(project, Project) else Project(Path(project).resolve(), load_project(Path(project)))
    if not has_service(opened):
        return dg.Definitions()
    url = f"http://{opened.spec.service.host}:{opened.spec.service.port}"
    assets, jobs = [], []
    try:
        found = _flow_jobs(opened, clock or SystemClock())
    except GobblinDagsterError as error:
        log.warning("flows cannot be loaded, reload the definitions later: %s", error)
        return dg.Definitions()
    for flow, job in found:
        try:
            spec = read_job_body(job.name, job.body, opened.root, opened.spec)
            translator = FlowTranslator(flow, opened.root, url)
            assets.append(gobblin_assets(opened, spec, translator=translator, runner=runner))
            jobs.append(gobblin_job(opened, spec, translator=translator))
        except SpecError as fault:
            log.warning("flow %s cannot be loaded: %s", flow.id, fault)
    sensors = [_flow_run_sensor(opened, jobs, clock or SystemClock())] if found else []
    return dg.Definitions(assets=assets, jobs=jobs, sensors=sensors, executor=dg.in_process_executor)


def _flow_jobs(project: Project, clock: Clock) -> list[tuple[FlowSpec, DagJob]]:
    """Return the jobs of the flows in the catalog, and those of executions that are not over."""
    spec = project.spec
    asked = FlowFilter(exact_properties=((EXECUTOR, ExecutorName.DAGSTER.value),))
    found: dict[str, tuple[FlowSpec, DagJob]] = {}
    with ServiceStore(parse_url(spec.service.store, project.root), clock) as store:
        compiler = open_flow_compiler(project.root, spec.service, spec.allow.lists, store)
        with store.read() as transaction:
            flows = list_flows(transaction, asked)
            going = open_jobs(transaction, ExecutorName.DAGSTER)
            newest = {flow: newest_version(transaction, flow) for flow in {execution.flow for execution, _ in going}}
    for flow in flows:
        try:
            found.update({job.name: (flow, job) for job in compiler.compile(flow.config).jobs})
        except FlowCompileError as error:
            log.warning("flow %s cannot be loaded: %s", flow.id, error)
    for execution, one in going:
        flow_of_job = newest[execution.flow]
        if flow_of_job is not None:
            found.setdefault(one.job.name, (flow_of_job, one.job))
    return [found[name] for name in sorted(found)]


def _flow_run_sensor(
    project: Project, jobs: list[dg.UnresolvedAssetJobDefinition], clock: Clock
) -> dg.SensorDefinition:
    names = frozenset(job.name for job in jobs)
    spec = project.spec

    def fault_of(job: DagJob) -> str:
        try:
            read_job_body(job.name, job.body, project.root, spec)
        except SpecError as fault:
            return str(fault)
        return ""

    @dg.sensor(
        name=SENSOR,
        jobs=jobs,
        minimum_interval_seconds=INTERVAL_S,
        default_status=RUNNING,
        description="Launches the jobs that the service orders, and tells the service what became of their runs.",
    )
    @without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            with (
                ServiceStore(parse_url(spec.service.store, project.root), clock) as store,
                closing(project.open_store()) as state,
            ):
                compiler = open_flow_compiler(project.root, spec.service, spec.allow.lists, store)
                runs = FlowRuns(store, Orchestrator(store, compiler.compile), state, context.instance)
                told = runs.watch()
                ordered = runs.take_orders(names, fault_of)
        except TransientError as error:
            return dg.SensorResult(skip_reason=dg.SkipReason(f"A store is away; orders wait. {error}"))
        if ordered.requests:
            return dg.SensorResult(run_requests=ordered.requests)
        waits = f", {ordered.unknown} wait until the definitions are loaded again" if ordered.unknown else ""
        return dg.SensorResult(skip_reason=dg.SkipReason(f"No job is ordered{waits}; {told} reports."))

    return evaluate
