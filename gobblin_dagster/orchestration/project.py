"""Definitions of a project without a `definitions.py`: `dagster dev -m gobblin_dagster.orchestration.project`.

The project is the folder in GOBBLIN_PROJECT, or the nearest folder with a gobblin.yaml from the current one upwards.
"""

from __future__ import annotations

import os
from pathlib import Path

from gobblin_dagster.orchestration.definitions import build_definitions
from gobblin_dagster.spec.load import find_project

defs = build_definitions(find_project(Path(os.environ.get("GOBBLIN_PROJECT") or ".")))
