"""The sensor that fires flows: each fire time once, also if others fire at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import dagster as dg

from gobblin_dagster.orchestration import flow_schedule_sensor
from gobblin_dagster.service.model import FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.spec.load import load_project
from tests.services.postgres import named_url
from tests.unit.service.conftest import OwnClock

TEMPLATE = """
template: t
job:
  source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {}}
  extract: {namespace: test, table: rows}
  output: {path: lake}
"""


def make(root: Path, store: str, clock: OwnClock) -> CoreServices:
    (root / "gobblin.yaml").write_text(f"project: flows\nservice: {{store: '{named_url(store)}'}}\n")
    (root / "templates").mkdir()
    (root / "templates" / "t.template").write_text(TEMPLATE)
    core = CoreServices(root, load_project(root).service, ["false"], clock=clock)
    with core.store.write() as transaction:
        for number in range(20):
            config = FlowConfig(FlowId("g", f"n{number}"), "FS:///t.template", {}, Schedule("0 * * ? * *"))
            core.manager.create(transaction, config, "tester")
    return core


def tick(sensor: dg.SensorDefinition) -> str:
    told = sensor(dg.build_sensor_context())
    assert isinstance(told, dg.SkipReason)
    return str(told.skip_message)


def test_sensor_and_service_fire_each_time_once(tmp_path: Path) -> None:
    clock = OwnClock()
    core = make(tmp_path, "sqlite:///service.db", clock)
    sensor = flow_schedule_sensor(tmp_path, clock=clock)
    assert tick(sensor) == "No flow is due."
    for _ in range(3):
        clock.move(minutes=1)
        drivers = [threading.Thread(target=tick, args=[sensor]) for _ in range(2)]
        drivers.append(threading.Thread(target=core.scheduler.fire_due))
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
    with core.store.read() as transaction:
        for number in range(20):
            assert len(list_executions(transaction, FlowId("g", f"n{number}"), 10)) == 3
    clock.move(minutes=1)
    assert tick(sensor) == "Fired 20 flows: 20 executions."
    core.store.close()


def test_store_that_is_away_is_said(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: flows\nservice: {store: 'postgresql://u@127.0.0.1:1/none'}\n")
    assert "is away; flows that are due fire later" in tick(flow_schedule_sensor(tmp_path))
