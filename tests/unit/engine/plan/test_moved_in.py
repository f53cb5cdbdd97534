"""Jobs that exchanged their names or outputs publish nothing into the places of each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.publishers.table_jobs import start_at, table_job
from tests.unit.engine.jobs import project, run


def job(name: str, rows: int, **place: Any) -> JobSpec:
    return table_job(place.pop("publisher", {"type": "append"}), {"c": {"rows": rows}}, job=name, **place)


def problem(root: Path, one: JobSpec) -> str:
    (planned,) = plan_job(project(root, one), one).datasets
    return planned.problem


def table(name: str) -> dict[str, Any]:
    return {"publisher": {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": name}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"output": {"path": "first"}}, {"output": {"path": "second"}}),
        ({"extract": {"namespace": "n", "table": "first"}}, {"extract": {"namespace": "n", "table": "second"}}),
        (table("first"), table("second")),
    ],
    ids=["outputs", "folders of one output", "tables"],
)
def test_job_that_goes_on_in_the_place_of_another_is_refused_until_a_startpoint_says_where(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    run(tmp_path, job("a", 5, **first))
    run(tmp_path, job("b", 9, **second))
    exchanged = job("b", 11, **first)
    says = "this job published this dataset up to 9 to "
    assert says in problem(tmp_path, exchanged)
    (failed,) = run(tmp_path, exchanged).datasets
    assert failed.failures[0].message.startswith(says)
    assert "and job 'a' published it up to 5 to " in failed.failures[0].message
    assert "Else `gobblin startpoint set` says where" in failed.failures[0].message
    ordered = replace(project(tmp_path, exchanged), is_as_ordered=True)
    (planned,) = plan_job(ordered, exchanged).datasets
    assert "Else a startpoint in the state store of this worker's project says where" in planned.problem
    assert problem(tmp_path, job("b", 11, output={"path": "third"})) == "", "nobody publishes there"
    start_at(tmp_path, exchanged, "9")
    (moved,) = run(tmp_path, exchanged).datasets
    assert moved.rows_read == 2
    assert problem(tmp_path, job("b", 12, **first)) == ""
    assert "which lacks what it published since it left" in problem(tmp_path, job("b", 12, **second))


def test_job_that_goes_on_in_the_table_of_another_by_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linked.db").symlink_to("warehouse.db")
    other_name = {"publisher": table("first")["publisher"] | {"url": "sqlite+pysqlite:///linked.db"}}
    run(tmp_path, job("a", 5, **table("first")))
    run(tmp_path, job("b", 9, **table("second")))
    assert "and job 'a' published it up to 5 to " in problem(tmp_path, job("b", 11, **other_name))
    assert problem(tmp_path, job("a", 11, **other_name)) == ""
