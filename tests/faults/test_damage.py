"""Damage done between runs: published files, manifests, and a state store that was set back under a table."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.maintenance.verify import Differs, verify
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.testing.damage import DAMAGES, Damage
from tests.unit.constructs.publishers.table_jobs import table_job
from tests.unit.engine.jobs import job_spec, project, run

TABLE: dict[str, Any] = {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": "numbers"}
SIZES = (3, 5, 8)


def _published_rows(root: Path, urn: str) -> int:
    return sum(file.rows for file in read_published(root / "lake", "numbers", urn).files if file.branch == "all")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_runs_after_damage_lose_and_double_nothing_and_make_manifests_whole(tmp_path: Path, damage: Damage) -> None:
    for rows in SIZES:
        run(tmp_path, job_spec({"a": {"rows": rows}, "b": {"rows": rows}}))
    damage.strike(str(tmp_path / "lake"), "numbers", "a")
    job = job_spec({"a": {"rows": 10}, "b": {"rows": 10}})
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    with closing(project(tmp_path, job).open_store()) as store:
        held = {urn: store.load_snapshot("numbers", urn) for urn in ("a", "b")}
    assert {urn: sum(f.rows for f in files if f.branch == "all") for urn, files in held.items()} == {"a": 10, "b": 10}
    assert _published_rows(tmp_path, "b") == 10
    done = verify(project(tmp_path, job), job, None, checksum=True, repair=True)
    assert {diff.what for one in done.datasets for diff in one.differences} | {diff.what for diff in done.extra} <= {
        damage.differs
    }
    if damage.differs is not Differs.MANIFEST_UNKNOWN:
        assert _published_rows(tmp_path, "a") == 10


@pytest.mark.parametrize("known", range(len(SIZES)), ids=lambda known: f"{known} of 3 commits known")
def test_store_set_back_to_any_commit_puts_no_row_twice_into_a_table(tmp_path: Path, known: int) -> None:
    for number, rows in enumerate(SIZES):
        if number == known and number:
            shutil.copytree(tmp_path / ".gobblin", tmp_path / "backup")
        run(tmp_path, table_job(TABLE, {"a": {"rows": rows}, "b": {"rows": rows}}))
    shutil.rmtree(tmp_path / ".gobblin")
    if known:
        shutil.copytree(tmp_path / "backup", tmp_path / ".gobblin")
    for _ in range(2):
        result = run(tmp_path, table_job(TABLE, {"a": {"rows": 10}, "b": {"rows": 10}}))
        assert all("gobblin_commits" in one.failures[0].message for one in result.datasets)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/warehouse.db")
    with engine.connect() as connection:
        found = connection.execute(
            sa.text("SELECT dataset, count(*), count(DISTINCT id) FROM numbers GROUP BY 1")
        ).all()
    engine.dispose()
    assert [tuple(row) for row in found] == [("a", 8, 8), ("b", 8, 8)]
