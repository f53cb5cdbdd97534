"""Definitions for plain `dagster dev`: the project in GOBBLIN_PROJECT, else the demo, which is made if missing."""

import os
import tempfile
from pathlib import Path

import dagster as dg

from gobblin_dagster import write_demo
from gobblin_dagster.demo.downstream import flight_delays
from gobblin_dagster.orchestration import build_definitions

DEMO = Path(__file__).parent / "demo"


def demo() -> Path:
    """Return the demo's folder; it appears whole, because several processes may ask for it at once."""
    if not (DEMO / "gobblin.yaml").exists():
        with tempfile.TemporaryDirectory(dir=DEMO.parent, prefix=".demo-") as made:
            write_demo(Path(made) / "demo")
            (Path(made) / "demo").rename(DEMO)
    return DEMO


project = os.environ.get("GOBBLIN_PROJECT")
defs = (
    build_definitions(project)
    if project
    else dg.Definitions.merge(build_definitions(demo()), dg.Definitions(assets=[flight_delays]))
)
