"""Our side: a project with one job, run through the engine as `gobblin run` does.

A process of its own that runs the job once for each target folder named on its standard input. Its first run is cold,
the next ones are warm: Spark stays.

    python benchmarks/ours.py fork <folder of flights>
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from data import columns

from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.spark.lazy import LazySparkRunner

BRANCHES = {
    "fork": [{"name": "all"}, {"name": "masked", "converters": [{"type": "drop", "columns": ["tailnum"]}]}],
    "single": [{"name": "all"}],
    "idle": [{"name": "all"}],
}


def make_project(target: Path, flights: Path, scenario: str) -> Project:
    """Write project and job file below a target folder; JSON is YAML."""
    job = {
        "job": "bench",
        "source": {
            "type": "files",
            "path": f"{flights}/{{dataset}}/{{date:%Y-%m-%d}}.csv",
            "format": {"type": "csv", "null_values": ["NA"]},
        },
        "extract": {"namespace": "bench", "table": "flights"},
        "converters": [{"type": "columns", "columns": columns()}],
        "fork": {"branches": BRANCHES[scenario]},
        "output": {"path": "lake"},
    }
    spec = {"project": "bench", "spark": {"master": f"local[{os.cpu_count()},4]"}}
    (target / "jobs").mkdir(parents=True)
    (target / "gobblin.yaml").write_text(json.dumps(spec), encoding="utf-8")
    (target / "jobs" / "bench.yaml").write_text(json.dumps(job), encoding="utf-8")
    return open_project(target)


def published(target: Path) -> dict[str, list[str]]:
    """Return the published files by branch, as the newest snapshots name them."""
    found: dict[str, list[str]] = {}
    store = open_project(target).open_store()
    try:
        for urn in store.load_dataset_states("bench"):
            for file in store.load_snapshot("bench", urn):
                found.setdefault(file.branch, []).append(file.path)
    finally:
        store.close()
    return found


def main(scenario: str, flights: Path) -> None:
    """Run the job for each target folder that is asked for."""
    runner = None
    for line in sys.stdin:
        project = make_project(Path(line.strip()), flights, scenario)
        runner = runner or LazySparkRunner(project.spec.spark)
        result = run_job(project, project.job("bench"), runner=runner)
        if result.exit_code != 0:
            sys.exit(str([dataset.failures for dataset in result.datasets if dataset.failures][:1]))
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
