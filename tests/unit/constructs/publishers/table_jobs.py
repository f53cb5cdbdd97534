"""Jobs with one branch that is published to a table, and failures between the step and the commit."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.publishers import sql_load, sql_table
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.startpoint import Specific, Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.run.store_check import refused_datasets
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.sql.store import SqlStateStore
from tests.unit.engine.jobs import job_spec, project, run

ROWS = {"a/b": {"rows": 10}, "c": {"rows": 5}}


def table_job(publisher: dict[str, Any], datasets: dict[str, dict[str, Any]], **parts: Any) -> JobSpec:
    """Return a job of one branch `all` that is published by `publisher`."""
    return job_spec(datasets, fork={"branches": [{"name": "all", "publisher": publisher}]}, **parts)


def ids(datasets: dict[str, dict[str, Any]]) -> list[int]:
    """Return the sorted ids of the rows that the datasets have."""
    return sorted(number for dataset in datasets.values() for number in range(dataset["rows"]))


def check_exactly_once(
    root: Path,
    publisher: dict[str, Any],
    read: Callable[[], list[int]],
    step: type[CommitStep],
    patch: pytest.MonkeyPatch,
) -> None:
    """Fail before the step, inside it after its work, and at the commit; a run after each makes good, and nothing is
    twice."""
    rows = 0
    for fail in (_before(step), _after(step), at_commit):
        rows += 7
        datasets = {"a/b": {"rows": rows}, "c": {"rows": rows}}
        job = table_job(publisher, datasets)
        with patch.context() as patched:
            fail(patched)
            assert run(root, job).status is RunStatus.FAILED
        result = run(root, job)
        assert result.status is RunStatus.SUCCEEDED
        assert {one.state for one in result.recovered} == {"committed"}
        assert read() == ids(datasets)
    assert run(root, job).datasets[0].rows_read == 0
    assert read() == ids(datasets)


def set_back(root: Path, publisher: dict[str, Any], *, is_lost: bool = False) -> None:
    """Publish 10 rows and then 10 more, and bring back the store as it was between, or take it away."""
    run(root, table_job(publisher, {"c": {"rows": 10}}))
    shutil.copytree(root / ".gobblin", root / "backup")
    run(root, table_job(publisher, {"c": {"rows": 20}}))
    shutil.rmtree(root / ".gobblin")
    if not is_lost:
        shutil.copytree(root / "backup", root / ".gobblin")


def check_lost_store(
    root: Path,
    publisher: dict[str, Any],
    read: Callable[[], list[int]],
    says: str,
    *,
    is_lost: bool,
    has_manifests: bool = True,
) -> None:
    """Check that a commit in the target that the store does not know is refused, and accepted if a person says so."""
    set_back(root, publisher, is_lost=is_lost)
    if not has_manifests:
        shutil.rmtree(root / "lake" / "_gobblin" / "manifests")
    job = table_job(publisher, {"c": {"rows": 30}})
    (planned,) = plan_job(project(root, job), job).datasets
    (result,) = run(root, job).datasets
    if not is_lost:  # without the source, nobody knows the datasets of a lost store
        with closing(project(root, job).open_store()) as store:
            assert refused_datasets(JobContext.of(project(root, job), job, store)) == {"c": planned.problem}
    assert result.failures[0].message == planned.problem
    assert says in planned.problem
    assert "Restore the newest copy" in planned.problem
    assert read() == list(range(20))
    start_at(root, job, "20")
    assert run(root, job).status is RunStatus.SUCCEEDED
    assert run(root, table_job(publisher, {"c": {"rows": 40}})).status is RunStatus.SUCCEEDED
    assert read() == list(range(40))


def check_turns(
    root: Path,
    publisher: dict[str, Any],
    waiting: Callable[[], bool],
    patched: pytest.MonkeyPatch,
    **of_late: Any,
) -> None:
    """Check that of two jobs that replace one new table at once the later one is refused.

    `waiting` returns whether a connection to the database waits for another one; `of_late` are options of the later
    job's publisher.
    """
    late: list[RunResult] = []
    others = {"c": {"rows": 2}}

    def load_late() -> None:
        late.append(run(root, table_job(publisher | of_late, others, job="late")))

    other = threading.Thread(target=load_late)
    load_rows = sql_load.load_rows

    def load_meanwhile(*arguments: Any) -> None:
        if other.ident is None:
            other.start()
            while other.is_alive() and not waiting():
                other.join(0.05)
        load_rows(*arguments)

    patched.setattr(sql_table, "load_rows", load_meanwhile)
    assert run(root, table_job(publisher, {"c": {"rows": 4}})).status is RunStatus.SUCCEEDED
    other.join()
    assert "of job 'numbers'" in late[0].datasets[0].failures[0].message


def start_at(root: Path, job: JobSpec, position: str) -> None:
    """Set a startpoint of dataset `c`."""
    now = datetime.now(UTC)
    one = Startpoint(job.job, "c", Specific(position), now, now + timedelta(days=1), "anna@host", "lost")
    with closing(project(root, job).open_store()) as store:
        store.save_startpoint(one)


def _before(step: type[CommitStep]) -> Callable[[pytest.MonkeyPatch], None]:
    def fail(self: CommitStep, storage: Storage) -> None:
        raise OSError("no connection")

    return lambda patched: patched.setattr(step, "execute", fail)


def _after(step: type[CommitStep]) -> Callable[[pytest.MonkeyPatch], None]:
    execute = step.execute

    def fail(self: CommitStep, storage: Storage) -> None:
        execute(self, storage)
        raise OSError("the answer was lost")

    return lambda patched: patched.setattr(step, "execute", fail)


def at_commit(patched: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the store is away")

    patched.setattr(SqlStateStore, "commit", fail)
