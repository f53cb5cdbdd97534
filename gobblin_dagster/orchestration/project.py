"""Dagster's entry for a project without definitions of its own: `dagster dev -m gobblin_dagster.orchestration.project`.

The project is the folder in GOBBLIN_PROJECT, or the nearest one from the current folder upwards.
"""

from __future__ import annotations

import os
from pathlib import Path

from gobblin_dagster.orchestration.definitions import build_definitions
from gobblin_dagster.spec.load import find_project

defs = build_definitions(find_project(Path(os.environ.get("GOBBLIN_PROJECT") or ".")))
