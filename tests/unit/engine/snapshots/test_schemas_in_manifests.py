"""Readers of manifests get the types that readers of the state store get."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.data.write_projects_v2 import STATES, feed
from tests.unit.engine.older_projects import bring_back

URN = "test.feed"


@pytest.mark.parametrize("kind", STATES)
def test_lake_alone_tells_the_types_once_this_version_has_published(kind: str, tmp_path: Path) -> None:
    project = bring_back(kind, tmp_path / "project")
    lake = tmp_path / "project" / "lake"
    assert read_published(lake, "feed", URN).schemas == {}  # as the older version left it
    (tmp_path / "project" / "landing" / "three.csv").write_text("code,amount\n009,3.00\n")
    run_job(project, feed(), runner=InlineRunner())
    assert verify(project, feed()).is_whole
    shutil.move(lake, tmp_path / "alone")
    found = read_published(tmp_path / "alone", "feed", URN)
    assert found.schemas == load_published(project, feed(), URN).schemas
    rows = found.to_arrow("all").to_table().to_pylist()
    assert {"code": "009", "amount": Decimal("3.00")} in rows
    # An older snapshot is read with the newest types, as from the store.
    older = read_published(tmp_path / "alone", "feed", URN, 1).to_arrow("all").to_table()
    assert older.to_pylist() == [{"code": "007", "amount": Decimal("1.50")}]


def test_rollback_goes_back_to_the_types_of_its_snapshot(tmp_path: Path) -> None:
    project = bring_back("sql", tmp_path / "project")
    rollback(project, feed(), URN, 1)
    found = read_published(tmp_path / "project" / "lake", "feed", URN)
    assert found.schemas == load_published(project, feed(), URN).schemas != {}
