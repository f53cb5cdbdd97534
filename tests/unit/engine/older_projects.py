"""Projects that older programs wrote, brought back to a folder: see `tests/data/write_projects_v2.py`."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from gobblin_dagster.engine.project import Project
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import open_store
from tests.data.write_projects_v2 import ROOT, STATES, SetClock, feed, numbers

DATA = Path(__file__).parents[2] / "data"


def bring_back(kind: str, folder: Path, *, opened_before: bool = True) -> Project:
    """Return a project of version 2 in a folder; `opened_before` it was moved there, or only afterwards, by this
    program."""
    shutil.copytree(DATA / f"project_v2_{kind}", folder)
    if kind == "sql":
        with closing(sqlite3.connect(folder / "state.db")) as connection:
            connection.executescript((folder / "state.sql").read_text())
    if opened_before:
        url = f"sqlite:///{folder}/state.db" if kind == "sql" else f"files:{folder}/state"
        open_store(url, ROOT).close()
    clock = SetClock()
    clock.instant += timedelta(days=1)
    return Project(folder, ProjectSpec(project="older", state=STATES[kind]), (numbers(20), feed()), clock)
