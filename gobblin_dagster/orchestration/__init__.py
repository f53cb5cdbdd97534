"""The Dagster layer: jobs as assets, datasets as partitions, commits as materializations.

Only this package and `cli` import Dagster; it may import everything up to `testing`.

Read first: `assets.py` (a job as an asset), then `io_manager.py` (its `handle_output` publishes) and `sensors.py`.
"""

from gobblin_dagster.orchestration.alerts import Alert, Webhook, run_alert_sensor
from gobblin_dagster.orchestration.assets import gobblin_assets, gobblin_job
from gobblin_dagster.orchestration.component import GobblinJobComponent
from gobblin_dagster.orchestration.definitions import build_definitions
from gobblin_dagster.orchestration.flows import flow_schedule_sensor
from gobblin_dagster.orchestration.io_manager import CommitStepIOManager
from gobblin_dagster.orchestration.orders import order_definitions
from gobblin_dagster.orchestration.published import PublishedDatasets
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.schedules import job_schedule
from gobblin_dagster.orchestration.sensors import new_data_sensor, sweep_sensor
from gobblin_dagster.orchestration.sla import sla_sensor
from gobblin_dagster.orchestration.translator import BranchData, GobblinTranslator

__all__ = [
    "Alert",
    "BranchData",
    "CommitStepIOManager",
    "GobblinJobComponent",
    "GobblinSparkResource",
    "GobblinTranslator",
    "PublishedDatasets",
    "Webhook",
    "build_definitions",
    "flow_schedule_sensor",
    "gobblin_assets",
    "gobblin_job",
    "job_schedule",
    "new_data_sensor",
    "order_definitions",
    "run_alert_sensor",
    "sla_sensor",
    "sweep_sensor",
]
