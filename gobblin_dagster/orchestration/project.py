"""Definitions of a project without a `definitions.py`: `dagster dev -m gobblin_dagster.orchestration.project`.

The project is the folder in GOBBLIN_PROJECT, or the nearest folder with a gobblin.yaml from the current one upwards.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from gobblin_dagster.orchestration.definitions import build_definitions
from gobblin_dagster.orchestration.flows import has_service
from gobblin_dagster.spec.load import find_project, load_project

_root = find_project(Path(os.environ.get("GOBBLIN_PROJECT") or "."))
if not has_service(_root):
    defs = build_definitions(_root)
else:
    # Loads the service, which other projects do not need: each run is a process that imports this package again.
    from gobblin_dagster.orchestration.flow_assets import flow_definitions

    defs = flow_definitions(_root)
    if (_root / load_project(_root).jobs).is_dir():  # a project may have flows alone
        defs = dg.Definitions.merge(build_definitions(_root), defs)
