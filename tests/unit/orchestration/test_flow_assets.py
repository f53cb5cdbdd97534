"""Flows of the executor `dagster`: assets with what the flow says, runs that the service orders, what is reported."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.orchestration.flow_assets import flow_definitions
from gobblin_dagster.service.executors.remote_dagster import KEY_TAG
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import Execution, load_execution
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs
from gobblin_dagster.service.store.order_rows import Order, add_orders, list_orders
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.flow_project import NEVER, URI, make_project, open_core, open_state, run_flow, store_flow

ORDERS = FlowId("shop/eu", "orders")


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoreServices]:
    make_project(tmp_path)
    opened = open_core(tmp_path)
    yield opened
    opened.datasets.close()
    opened.store.close()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


class Dagster:
    """The definitions of a project as a code server loads them, and its daemon."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.root, self.instance = root, instance
        self.load()

    def load(self) -> None:
        self.definitions = flow_definitions(self.root, runner=InlineRunner())

    def tick(self) -> list[dg.RunRequest] | str:
        sensor = self.definitions.resolve_sensor_def("flow_runs")
        told = sensor(dg.build_sensor_context(self.instance))
        assert isinstance(told, dg.SensorResult)
        return list(told.run_requests or ()) or str(told.skip_reason and told.skip_reason.skip_message)

    def requests(self) -> list[dg.RunRequest]:
        found = self.tick()
        assert isinstance(found, list), found
        return found

    def launch(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def(str(request.job_name))
        return job.execute_in_process(instance=self.instance, tags=dict(request.tags), raise_on_error=False)


def ask(core: CoreServices, flow: FlowId = ORDERS) -> ExecutionId:
    with core.store.write() as transaction:
        number = core.manager.run_now(transaction, flow)
    core.orchestrator.start_accepted()
    return ExecutionId(flow, number)


def shown(core: CoreServices, execution: ExecutionId) -> tuple[Execution, JobExecution]:
    with core.store.read() as transaction:
        found = load_execution(transaction, execution)
        [job] = load_jobs(transaction, execution)
    assert found is not None
    return found, job


def test_flows_are_assets_with_partitions_owner_tags_and_link(core: CoreServices, tmp_path: Path) -> None:
    config = FlowConfig(ORDERS, URI, {"flow.executor": "dagster"}, Schedule(NEVER), owning_group="data-team")
    with core.store.write() as transaction:
        core.manager.create(transaction, config, "tester")
    store_flow(core, FlowId("shop", "embedded"))
    definitions = flow_definitions(tmp_path)
    [spec] = definitions.resolve_all_asset_specs()
    [job] = core.compile(config).jobs
    assert spec.key == dg.AssetKey(["shop_eu", "orders", job.name, "main"])
    assert (spec.group_name, spec.owners) == ("shop_eu", ["team:data-team"])
    assert spec.tags["gobblin/executor"] == "dagster"
    assert (spec.metadata["gobblin/flow"], spec.metadata["gobblin/flow_schedule"]) == ("shop/eu/orders", NEVER)
    link = "http://127.0.0.1:6956/flowconfigsV2/(flowGroup:shop%2Feu,flowName:orders)"
    assert spec.metadata["gobblin/flow_link"] == dg.MetadataValue.url(link)
    assert isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition)
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "from gobblin_dagster.orchestration.project import defs; print(defs.resolve_all_asset_specs())",
        ],
        env={**os.environ, "GOBBLIN_PROJECT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert job.name in shown.stdout
    with core.store.write() as transaction:
        core.manager.delete(transaction, ORDERS, "tester")
    assert flow_definitions(tmp_path).resolve_all_asset_specs() == []


def test_ordered_job_runs_once_in_dagster_and_its_result_is_reported(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    assert "No job is ordered" in dagster.tick()
    execution = ask(core)
    [request] = dagster.requests()
    assert dagster.requests() == [request], "until the run exists, the same request: a tick may be killed"
    # What the flow becomes later is not what this execution runs.
    store_flow(core, ORDERS, rows="15", **{"flow.executor": "dagster"})
    assert dagster.launch(request).success
    assert "1 reports" in dagster.tick()
    found, job = shown(core, execution)
    assert (found.status, found.message) == (ExecutionStatus.COMPLETE, "20 rows in 1 job")
    assert (job.status, job.processed_count, job.message) == (ExecutionStatus.COMPLETE, 20, "2 committed")
    assert (job.low_watermark, job.high_watermark) == ("a: 0; b/c: 0", "a: 10; b/c: 10")
    assert instance.get_run_by_id(job.run_id) is not None
    with core.store.read() as transaction:
        assert list_orders(transaction, "dagster") == []
    assert "0 reports" in dagster.tick()
    # The datasets are partitions now.
    second = ask(core)
    assert dagster.launch(dagster.requests()[0]).success
    dagster.tick()
    assert shown(core, second)[0].message == "10 rows in 1 job"
    assert instance.get_dynamic_partitions(f"{job.job.name}.dataset_urn") == ["a", "b/c"]
    # There is nothing new.
    third = ask(core)
    assert dagster.launch(dagster.requests()[0]).success
    dagster.tick()
    found, job = shown(core, third)
    assert (found.status, job.message) == (ExecutionStatus.COMPLETE, "nothing to do")
    assert job.started_at is not None


def test_job_that_fails_is_tried_again_and_killed_one_is_cancelled(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, fail_at="5", **{"flow.executor": "dagster", "job.maxAttempts": "2"})
    dagster = Dagster(tmp_path, instance)
    execution = ask(core)
    [first] = dagster.requests()
    dagster.launch(first)
    dagster.tick()
    assert shown(core, execution)[1].status is ExecutionStatus.PENDING_RETRY
    [second] = dagster.requests()
    assert second.run_key != first.run_key
    dagster.launch(second)
    dagster.tick()
    found, job = shown(core, execution)
    assert (found.status, job.attempt) == (ExecutionStatus.FAILED, 2)
    assert "2 failed; a: " in job.message
    # Killed before Dagster has begun it.
    third = ask(core)
    assert len(dagster.requests()) == 1
    core.orchestrator.kill(third)
    dagster.tick()
    assert shown(core, third)[0].status is ExecutionStatus.CANCELLED
    with core.store.read() as transaction:
        assert list_orders(transaction, "dagster") == []


def write_template(root: Path, source: str) -> None:
    parts = "extract: {namespace: t, table: t}\n  output: {path: lake}"
    (root / "templates" / "rows.template").write_text(f"template: rows\njob:\n  source: {source}\n  {parts}\n")


def test_run_that_fails_in_its_plan_is_not_reported_as_one_with_nothing_to_do(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/none.db"
    write_template(tmp_path, f"{{type: query, url: '{url}', tables: [t], watermark: {{column: id, type: long}}}}")
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    execution = ask(core)
    dagster.launch(dagster.requests()[0])
    dagster.tick()
    found, job = shown(core, execution)
    assert found.status is ExecutionStatus.FAILED
    assert job.message == f"Dagster run {job.run_id} ended before any dataset; see its log"


def test_job_whose_variable_makes_no_sense_here_is_reported_as_failed_and_does_not_wait_for_ever(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_template(tmp_path, "{type: files, path: '{dataset}/*.csv', format: csv, files_per_work_unit: '${MANY}'}")
    store_flow(core, ORDERS, **{"flow.executor": "dagster", "job.maxAttempts": "3"})
    execution = ask(core)
    with core.store.read() as transaction:
        [order] = list_orders(transaction, "dagster")
    monkeypatch.setenv("MANY", "lots-of")
    dagster = Dagster(tmp_path, instance)
    dagster.tick()
    found, job = shown(core, execution)
    assert found.status is ExecutionStatus.FAILED
    assert job.message.endswith("source.files_per_work_unit: expected a whole number, got '${MANY}'")
    monkeypatch.setenv("MANY", "3")
    with core.store.write() as transaction:
        assert list_orders(transaction, "dagster") == []
        add_orders(transaction, [dataclasses.replace(order, attempt=9)])
    assert "1 wait until the definitions are loaded again" in dagster.tick()


def test_many_orders_that_wait_hide_neither_newer_ones_nor_stops(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    with core.store.write() as transaction:
        unknown = ExecutionId(FlowId("shop", "not_loaded"), 1)
        add_orders(transaction, [Order("dagster", unknown, f"job{number}", 1, 1) for number in range(60)])
    execution = ask(core)
    [request] = dagster.requests()
    with core.store.read() as transaction:
        [*_, known] = list_orders(transaction, "dagster")
    with core.store.write() as transaction:
        ordered = [dataclasses.replace(known, attempt=attempt) for attempt in range(2, 62)]
        add_orders(transaction, ordered)
    assert len(dagster.requests()) == 50, "Dagster makes a few runs a second"
    core.orchestrator.kill(execution)
    assert request not in dagster.requests(), "the order to stop stands behind 120 others"
    assert shown(core, execution)[0].status is ExecutionStatus.CANCELLED


def test_run_is_found_however_many_came_after_it(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    execution = ask(core)
    [request] = dagster.requests()
    dagster.launch(request)
    [job] = core.compile(FlowConfig(ORDERS, URI, {"flow.executor": "dagster"}, Schedule(NEVER))).jobs
    with open_state(tmp_path) as state:
        [record] = state.load_runs(job.name)
        for number in range(201):
            later = record.started_at + timedelta(seconds=number + 1)
            state.save_run(RunRecord(f"later{number}", job.name, later, RunStatus.SUCCEEDED))
    dagster.tick()
    assert shown(core, execution)[0].message == "20 rows in 1 job"


def test_run_that_ended_without_its_job_fails_and_what_was_committed_counts(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    execution = ask(core)
    [request] = dagster.requests()
    run = instance.create_run_for_job(
        dagster.definitions.resolve_job_def(str(request.job_name)), tags=dict(request.tags)
    )
    dagster.tick()
    assert shown(core, execution)[1].status is ExecutionStatus.ORCHESTRATED
    instance.report_run_failed(run)  # as run monitoring does if the run's process died
    dagster.tick()
    found, job = shown(core, execution)
    assert found.status is ExecutionStatus.FAILED
    assert f"its Dagster run {run.run_id} ended as FAILURE before the job did" in job.message
    again = ask(core)
    [request] = dagster.requests()
    result = dagster.launch(request)
    instance.report_run_canceled(result.dagster_run)
    dagster.tick()
    assert shown(core, again)[0].status is ExecutionStatus.COMPLETE, "Dagster's word on a run does not undo its commits"
    assert instance.get_runs(dg.RunsFilter(tags={KEY_TAG: str(request.run_key)}))


def test_orders_of_flows_that_are_not_loaded_wait_and_embedded_nodes_leave_them_alone(
    core: CoreServices, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    dagster = Dagster(tmp_path, instance)
    new = FlowId("shop", "new")
    store_flow(core, new, **{"flow.executor": "dagster"})
    execution = ask(core, new)
    assert "1 wait until the definitions are loaded again" in dagster.tick()
    core.executor._take_orders()
    dagster.load()
    [request] = dagster.requests()
    assert dagster.launch(request).success
    dagster.tick()
    assert shown(core, execution)[0].status is ExecutionStatus.COMPLETE


def test_flow_with_faults_stops_no_other_and_no_service_is_no_fault(
    core: CoreServices, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "gobblin.yaml").write_text("project: other\n")
    assert flow_definitions(other).resolve_all_asset_specs() == []
    assert not (other / ".gobblin").exists()
    store_flow(core, ORDERS, **{"flow.executor": "dagster"})
    (tmp_path / "templates" / "rows.template").rename(tmp_path / "gone")
    assert flow_definitions(tmp_path).resolve_all_asset_specs() == []
    assert "flow shop/eu/orders cannot be loaded" in caplog.text
    assert run_flow(tmp_path, core, FlowId("shop/eu", "orders")) == []
