"""What Dagster loads: the repository's own definitions, and those that a project's folder gives."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.demo.project import write_demo
from gobblin_dagster.orchestration import build_definitions, gobblin_assets

ROOT = Path(__file__).parents[3]
BRANCHES = {"nyc/flights/all", "nyc/flights/masked"}
SHOWN = {*BRANCHES, "files/data/flights"}
"""The branches, and the folder that the job reads from."""


def load(file: Path) -> dg.Definitions:
    spec = importlib.util.spec_from_file_location("loaded_definitions", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    defs: dg.Definitions = module.defs
    return defs


def assets(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_all_asset_keys()}


def test_plain_dagster_dev_makes_the_demo_and_shows_it_with_an_asset_downstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOBBLIN_PROJECT", raising=False)
    copied = Path(shutil.copy(ROOT / "definitions.py", tmp_path))
    defs = load(copied)
    assert assets(defs) == SHOWN | {"nyc/flight_delays"}
    (node,) = (n for n in defs.resolve_asset_graph().asset_nodes if n.key.path[-1] == "flight_delays")
    assert {key.to_user_string() for key in node.parent_keys} == {"nyc/flights/all"}
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"definitions.py", "demo"}
    assert assets(load(copied)) == assets(defs)  # the second time the demo is there


def test_project_in_the_environment_is_shown_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo(tmp_path / "mine")
    monkeypatch.setenv("GOBBLIN_PROJECT", str(tmp_path / "mine"))
    assert assets(load(ROOT / "definitions.py")) == SHOWN
    module = importlib.import_module("gobblin_dagster.orchestration.project")
    assert assets(importlib.reload(module).defs) == SHOWN


def test_demo_folder_brings_definitions_of_its_own(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    assert assets(load(tmp_path / "demo" / "definitions.py")) == SHOWN | {"nyc/flight_delays"}


def test_location_has_one_name_everywhere() -> None:
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert entry["python_file"]["location_name"] == "gobblin"


def test_jobs_hold_only_their_branches_and_end_in_time(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    defs = load(tmp_path / "demo" / "definitions.py")
    job = defs.resolve_job_def("flights_job")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == BRANCHES
    assert int(job.tags["dagster/max_runtime"]) > 0
    assert job.executor_def is dg.in_process_executor


def test_project_of_several_jobs_has_one_sensor_of_each_kind(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    first = tmp_path / "demo" / "jobs" / "flights.yaml"
    text = first.read_text().replace("job: flights", "job: trains").replace("table: flights", "table: trains")
    first.with_name("trains.yaml").write_text(text)
    repository = build_definitions(tmp_path / "demo").get_repository_def()
    sensors = {one.name: {target.job_name for target in one.targets} for one in repository.sensor_defs}
    both = {"flights_job", "trains_job"}
    assert {name: jobs for name, jobs in sensors.items() if jobs == both} == {"demo_new_data": both, "demo_sweep": both}
    assert both <= set(repository.job_names)


def test_a_faulty_job_file_stops_no_other_job_and_says_why(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    job = tmp_path / "demo" / "jobs" / "flights.yaml"
    text = job.read_text()
    job.with_name("broken.yaml").write_text(text.replace("job: flights", "job: broken").replace("extract:", "extrakt:"))
    defs = build_definitions(tmp_path / "demo")
    assert assets(defs) == SHOWN
    faulty = defs.resolve_job_def("jobs_with_faults")
    fault = r"broken\.yaml:\d+: extrakt"
    assert re.search(fault, faulty.description or "")
    result = faulty.execute_in_process(raise_on_error=False)
    assert not result.success
    assert re.search(fault, str(result.all_events))


def test_job_with_an_asset_of_another_job_stops_no_other_job_and_says_why(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    job = tmp_path / "demo" / "jobs" / "flights.yaml"
    job.with_name("planes.yaml").write_text(job.read_text().replace("job: flights", "job: planes"))
    defs = build_definitions(tmp_path / "demo")
    assert assets(defs) == SHOWN
    said = defs.resolve_job_def("jobs_with_faults").description or ""
    assert "Job 'planes' has the asset nyc/flights/" in said
    assert "which job 'flights' has too. Give one of them an `asset.key`" in said
    job.with_name("planes.yaml").write_text(
        job.read_text().replace("job: flights", "job: planes") + '\nasset: {key: "nyc/planes/{branch}"}\n'
    )
    assert "nyc/planes/all" in assets(build_definitions(tmp_path / "demo"))


def test_assets_of_a_sound_job_load_beside_a_faulty_one(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    (tmp_path / "demo" / "jobs" / "broken.yaml").write_text("job: 5")
    assert {key.to_user_string() for key in gobblin_assets(tmp_path / "demo", "flights").keys} == BRANCHES
    with pytest.raises(InvalidSpecError, match="broken"):
        gobblin_assets(tmp_path / "demo", "broken")


def test_runs_of_a_job_take_a_slot_of_its_pool_while_they_read_and_commit(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    job = tmp_path / "demo" / "jobs" / "flights.yaml"

    def pools() -> dict[str, str | None]:
        made = gobblin_assets(tmp_path / "demo", "flights").node_def
        assert isinstance(made, dg.GraphDefinition)
        return {op.name: op.pool for op in made.iterate_op_defs()}

    assert pools() == {"flights_extract": "gobblin_flights", "flights_report": None}
    job.write_text(job.read_text() + "\npool: warehouse\n")
    assert pools()["flights_extract"] == "warehouse"
    job.write_text(job.read_text().replace("pool: warehouse", "pool: a b"))
    assert "pool" in (build_definitions(tmp_path / "demo").resolve_job_def("jobs_with_faults").description or "")


def with_schedule(root: Path, schedule: str) -> Path:
    write_demo(root / "demo")
    job = root / "demo" / "jobs" / "flights.yaml"
    job.write_text(job.read_text() + f"\nschedule: {schedule}\n")
    return root / "demo"


def test_a_job_file_gives_its_job_a_schedule(tmp_path: Path) -> None:
    root = with_schedule(tmp_path, '{cron: "30 2 * * *", time_zone: Europe/Berlin}')
    schedule = build_definitions(root).resolve_schedule_def("flights_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 2 * * *", "Europe/Berlin")
    assert schedule.job_name == "flights_job"
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ('{cron: "every day"}', "five fields"),
        ('{cron: "99 2 * * *"}', "99 2"),
        ('{cron: "0 2 * * *", time_zone: Mars/North}', "Mars/North"),
        ('{cron: "0 2 * * *", time_zone: ../etc/passwd}', "time zone"),
    ],
)
def test_a_schedule_that_no_clock_understands_is_a_fault_of_its_job_alone(
    tmp_path: Path, schedule: str, said: str
) -> None:
    faulty = build_definitions(with_schedule(tmp_path, schedule)).resolve_job_def("jobs_with_faults")
    assert said in (faulty.description or "")


def test_runs_load_neither_pandas_nor_the_service() -> None:
    """Each run of Dagster is a process that imports the layer again; both cost a fifth of that."""
    dear = "{'pandas', 'pyarrow.dataset', 'gobblin_dagster.service'}"
    code = f"import sys, gobblin_dagster.orchestration; print({dear} & {{*sys.modules}})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
