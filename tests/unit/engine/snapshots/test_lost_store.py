"""A store that was restored from an older copy: commands that change published data refuse, as runs do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import job_spec, project, run

OLDER = "restored from an older copy"
TABLE = {"name": "all", "publisher": {"type": "sql_table", "url": "sqlite:///w.db", "table": "t"}}


def _job(rows: int, *branches: dict[str, Any], rule: str = "id <> 2") -> JobSpec:
    parts: dict[str, Any] = {"fork": {"branches": list(branches)}} if branches else {}
    policies = [{"name": "small", "type": "sql", "rule": rule}]
    return job_spec({"a": {"rows": rows}}, row_policies=policies, commit={"keep_snapshots": 1}, **parts)


def _copied(root: Path) -> Callable[[], None]:
    shutil.copytree(root / ".gobblin", root / "backup")

    def restore() -> None:
        shutil.rmtree(root / ".gobblin")
        shutil.copytree(root / "backup", root / ".gobblin")

    return restore


def _compact(project: Project, job: JobSpec) -> str:
    return compact(project, job)[0].problem


def _clean(project: Project, job: JobSpec) -> str:
    return clean(project, job).expired[0].kept_because


def _rollback(project: Project, job: JobSpec) -> str:
    with pytest.raises(UsageError) as refused:
        rollback(project, job, "a", 1)
    return str(refused.value)


def _replay(project: Project, job: JobSpec) -> str:
    with pytest.raises(UsageError) as refused:
        replay_quarantine(project, job, "a")
    return str(refused.value)


@pytest.mark.parametrize("command", [_compact, _clean, _rollback, _replay])
def test_command_changes_nothing_of_an_output_that_is_newer_than_the_store(
    tmp_path: Path, command: Callable[[Project, JobSpec], str]
) -> None:
    for rows in (4, 8):
        run(tmp_path, _job(rows))
    rollback(project(tmp_path, _job(8)), _job(8), "a", 1)
    run(tmp_path, _job(8))
    restore = _copied(tmp_path)
    run(tmp_path, _job(12))
    restore()
    files = {path for path in (tmp_path / "lake").rglob("*") if path.is_file()}
    assert OLDER in command(project(tmp_path, _job(12)), _job(12))
    assert {path for path in (tmp_path / "lake").rglob("*") if path.is_file()} == files
    (refused,) = run(tmp_path, _job(12)).datasets
    assert OLDER in refused.failures[0].message


@pytest.mark.parametrize("command", [_compact, _replay], ids=["compact makes no row newer", "replay is refused"])
def test_command_does_not_let_a_run_load_rows_again_that_only_a_table_knows(
    tmp_path: Path, command: Callable[[Project, JobSpec], str]
) -> None:
    """The commit that was lost wrote no file, so no manifest shows it."""
    rule = "id NOT IN (2, 5)"
    for rows in (4, 6):
        run(tmp_path, _job(rows, TABLE, rule=rule))
    restore = _copied(tmp_path)
    job = _job(9, TABLE, rule=rule)
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    restore()
    command(project(tmp_path, job), job)
    assert run(tmp_path, job).status is RunStatus.FAILED
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'w.db'}")
    with closing(engine.connect()) as connection:
        assert sorted(connection.execute(sa.text("SELECT id FROM t")).scalars()) == [0, 1, 3, 4, 6, 7, 8]
    engine.dispose()
