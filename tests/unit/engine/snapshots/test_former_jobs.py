"""A job that was renamed: its rows are not published to the same place once more, unless a person says so."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.project import JobLines, Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import schemes
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.constructs.publishers.table_jobs import start_at, table_job
from tests.unit.engine.jobs import project
from tests.unit.engine.made_up import SHELVES, ShelfStorage

APPEND: dict[str, Any] = {"type": "append"}
TABLE: dict[str, Any] = {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": "numbers"}


def opened(root: Path, *jobs: JobSpec) -> Project:
    """Return a project whose jobs come from files."""
    return dataclasses.replace(
        project(root, *jobs), lines={one.job: JobLines(root / f"{one.job}.yaml", {}) for one in jobs}
    )


def named(name: str, publisher: dict[str, Any], **parts: Any) -> JobSpec:
    return table_job(publisher, {"c": {"rows": 5}}, job=name, **parts)


def run(root: Path, *jobs: JobSpec) -> RunResult:
    """Run the first of the jobs that the project has."""
    return run_job(opened(root, *jobs), jobs[0], runner=InlineRunner())


def problem(root: Path, *jobs: JobSpec) -> str:
    (planned,) = plan_job(opened(root, *jobs), jobs[0]).datasets
    return planned.problem


def test_renamed_job_that_names_the_server_of_its_output_otherwise_publishes_no_row_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `hdfs:///lake` and `hdfs://node:8020/lake`; another server may have a folder of the same path."""
    monkeypatch.setattr(schemes, "_TARGETS", schemes._TARGETS | {"shelf": "tests.unit.engine.made_up:ShelfScheme"})
    monkeypatch.setattr(schemes, "_LOADED", {})
    monkeypatch.setitem(sys.modules, "shelf_client", ModuleType("shelf_client"))
    for name, server in {"first": "first", "also": "first", "second": "second"}.items():
        shelf = ShelfStorage(name)
        shelf._files = SHELVES[server]._files if server in SHELVES else shelf._files
        monkeypatch.setitem(SHELVES, name, shelf)

    def at(host: str, name: str) -> JobSpec:
        return named(name, APPEND, output={"path": f"shelf://{host}{tmp_path}/lake"})

    run(tmp_path, at("first", "former"))
    says = "job 'former', which this project does not have here any more, published this dataset up to 5"
    assert says in problem(tmp_path, at("also", "later"))
    assert problem(tmp_path, at("also", "later"), at("first", "former")) == ""
    assert problem(tmp_path, at("second", "later")) == ""


@pytest.mark.parametrize("publisher", [APPEND, TABLE, {"type": "delta"}], ids=["files", "table", "table in the output"])
def test_renamed_job_publishes_no_row_again_unless_a_person_says_so(tmp_path: Path, publisher: dict[str, Any]) -> None:
    former, later = named("former", publisher), named("later", publisher)
    run(tmp_path, former)
    says = "job 'former', which this project does not have here any more, published this dataset up to 5"
    assert says in problem(tmp_path, later)
    (failed,) = run(tmp_path, later).datasets
    assert says in failed.failures[0].message
    start_at(tmp_path, later, "0")
    assert run(tmp_path, later).status is RunStatus.SUCCEEDED
    assert problem(tmp_path, later) == ""


ICEBERG: dict[str, Any] = {"type": "iceberg", "table": "n.t", "mode": "merge", "key": ["id"]}


@pytest.mark.parametrize(
    ("publisher", "other"),
    [
        (TABLE, {"url": "sqlite:///jobs/../warehouse.db"}),
        (TABLE, {"url": "sqlite:///linked.db"}),
        (TABLE, {"url": "sqlite:///hard.db"}),
        (TABLE, {"url": "sqlite+pysqlite:///warehouse.db", "table": "main.Numbers"}),
        (TABLE, {"url": "", "url_env": "WAREHOUSE"}),
        (
            ICEBERG | {"catalog": {"type": "sql", "uri": "sqlite:///warehouse.db", "warehouse": "house"}},
            {"catalog": {"type": "sql", "uri": "sqlite+pysqlite:///linked.db", "warehouse": "house/"}},
        ),
        (
            ICEBERG | {"catalog": {"type": "sql", "uri": "sqlite:///hard.db", "warehouse": "house"}},
            {"catalog": {"uri": "sqlite:///warehouse.db", "warehouse": "house"}},
        ),
    ],
    ids=["..", "link", "hard link", "driver", "variable", "catalog by a link", "catalog without type"],
)
def test_renamed_job_that_writes_its_table_otherwise_publishes_no_row_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: dict[str, Any], other: dict[str, Any]
) -> None:
    monkeypatch.setenv("WAREHOUSE", f"sqlite:///{tmp_path}/warehouse.db")
    (tmp_path / "warehouse.db").touch()
    (tmp_path / "linked.db").symlink_to("warehouse.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "warehouse.db")
    former, later = named("former", publisher), named("later", publisher | other)
    assert run(tmp_path, former).status is RunStatus.SUCCEEDED
    says = "job 'former', which this project does not have here any more, published this dataset up to 5"
    assert says in problem(tmp_path, later)
    assert problem(tmp_path, later, former) == "", "both are there, and publish side by side on purpose"


@pytest.mark.parametrize(("table", "is_there"), [("warehouse", True), ("other", False)])
def test_table_itself_tells_what_the_settings_of_a_former_job_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, is_there: bool
) -> None:
    monkeypatch.setenv("WAREHOUSE", f"sqlite:///{tmp_path}/warehouse.db")
    run(tmp_path, named("former", TABLE | {"url": "", "url_env": "WAREHOUSE"}))
    monkeypatch.delenv("WAREHOUSE")
    says = "job 'former', which this project does not have here any more, published this dataset up to 5"
    assert (says in problem(tmp_path, named("later", TABLE | {"url": f"sqlite:///{table}.db"}))) is is_there


@pytest.mark.parametrize("folder", ["linked", "file://{root}/linked"])
def test_renamed_job_whose_output_is_a_link_publishes_no_row_again(tmp_path: Path, folder: str) -> None:
    (tmp_path / "linked").symlink_to("lake")
    run(tmp_path, named("former", APPEND))
    later = named("later", APPEND, output={"path": folder.format(root=tmp_path)})
    assert "published this dataset up to 5 to the same place" in problem(tmp_path, later)


@pytest.mark.parametrize(
    ("publisher", "change", "others"),
    [
        (APPEND, {}, [named("former", APPEND)]),
        (APPEND, {"output": {"path": "elsewhere"}}, []),
        (TABLE, {"publisher": TABLE | {"table": "another"}}, []),
        (APPEND, {"extract": {"namespace": "n", "table": "t", "is_full": True}}, []),
    ],
    ids=["both are there", "another output", "another table", "full extract"],
)
def test_job_beside_it_or_elsewhere_is_no_renamed_one(
    tmp_path: Path, publisher: dict[str, Any], change: dict[str, Any], others: list[JobSpec]
) -> None:
    run(tmp_path, named("former", publisher))
    later = named(**{"name": "later", "publisher": publisher} | change)
    assert run(tmp_path, later, *others).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("publisher", [APPEND, TABLE], ids=["files", "table"])
def test_job_that_gets_its_former_name_again_publishes_no_row_again_unless_a_person_says_so(
    tmp_path: Path, publisher: dict[str, Any]
) -> None:
    def of(name: str, rows: int) -> JobSpec:
        return table_job(publisher, {"c": {"rows": rows}}, job=name)

    run(tmp_path, of("former", 3))
    start_at(tmp_path, of("later", 3), "3")
    assert run(tmp_path, of("later", 5)).status is RunStatus.SUCCEEDED
    says = "job 'later', which this project does not have here any more, published this dataset up to 5"
    assert says in problem(tmp_path, of("former", 8))
    start_at(tmp_path, of("former", 8), "5")
    assert run(tmp_path, of("former", 8)).status is RunStatus.SUCCEEDED
    assert run(tmp_path, of("former", 9)).status is RunStatus.SUCCEEDED


def test_job_that_published_beside_another_and_is_gone_stops_nobody(tmp_path: Path) -> None:
    def of(name: str, rows: int) -> JobSpec:
        return table_job(TABLE, {"c": {"rows": rows}}, job=name)

    run(tmp_path, of("one", 3), of("other", 3))
    run(tmp_path, of("other", 3), of("one", 3))
    run(tmp_path, of("one", 5), of("other", 3))
    run(tmp_path, of("other", 5), of("one", 5))
    assert run(tmp_path, of("one", 8)).status is RunStatus.SUCCEEDED


def test_job_whose_name_another_one_has_now_is_a_former_one(tmp_path: Path) -> None:
    run(tmp_path, named("a", APPEND))
    elsewhere = named("a", APPEND, output={"path": "elsewhere"})
    says = "job 'a', which this project does not have here any more, published this dataset up to 5"
    assert says in problem(tmp_path, named("c", APPEND), elsewhere)


def test_startpoint_decides_nothing_in_view_of_what_came_after_it(tmp_path: Path) -> None:
    start_at(tmp_path, named("later", APPEND), "0")
    run(tmp_path, named("former", APPEND))
    assert "published this dataset up to 5 to the same place" in problem(tmp_path, named("later", APPEND))


def test_job_that_alternates_between_two_names_publishes_no_row_again(tmp_path: Path) -> None:
    def of(name: str, rows: int) -> JobSpec:
        return table_job(TABLE, {"c": {"rows": rows}}, job=name)

    run(tmp_path, of("one", 3))
    for name, mark in (("other", 3), ("one", 5)):
        start_at(tmp_path, of(name, mark), str(mark))
        assert run(tmp_path, of(name, mark + 2)).status is RunStatus.SUCCEEDED
    assert "published this dataset up to 7 to the same place" in problem(tmp_path, of("other", 9))


class _Prepared(SilentListener):
    """Does something once a commit is stored, and before anything of it is published."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def prepared(self, sequence: CommitSequence) -> None:
        self._then()


class _Killed(BaseException):
    """Ends a run as a crash would."""


@pytest.mark.parametrize("scope", ["dataset", "job"])
@pytest.mark.parametrize("publisher", [APPEND, TABLE], ids=["files", "table"])
def test_of_two_names_that_commit_in_the_same_moments_one_publishes(
    tmp_path: Path, publisher: dict[str, Any], scope: str
) -> None:
    former, later = (
        table_job(publisher, {"c": {"rows": 5}, "d": {"rows": 5}}, job=name, commit={"scope": scope, "parallelism": 1})
        for name in ("former", "later")
    )
    inner: list[RunResult] = []

    def begin_later() -> None:
        if not inner:
            inner.append(run(tmp_path, later))

    outer = run_job(opened(tmp_path, former), former, runner=InlineRunner(), commit_listener=_Prepared(begin_later))
    one, other = ({each.dataset_urn for each in result.datasets if each.is_committed} for result in (outer, inner[0]))
    assert not one & other, "no dataset is published by both"
    said = " ".join(failure.message for each in inner[0].datasets for failure in each.failures)
    assert (
        "job 'former', which this project does not have here any more, is publishing this dataset to the same place"
        in said
    )


@pytest.mark.parametrize("publisher", [APPEND, TABLE], ids=["files", "table"])
def test_commit_that_a_killed_run_left_is_not_finished_after_another_name_made_it(
    tmp_path: Path, publisher: dict[str, Any]
) -> None:
    former, later = named("former", publisher), named("later", publisher)

    def die() -> None:
        raise _Killed

    with pytest.raises(_Killed):
        run_job(opened(tmp_path, former), former, runner=InlineRunner(), commit_listener=_Prepared(die))
    assert "has a commit of this dataset to the same place that is not finished" in problem(tmp_path, later)
    start_at(tmp_path, later, "0")
    assert run(tmp_path, later).status is RunStatus.SUCCEEDED
    (recovered,) = run(tmp_path, former).recovered
    assert recovered.state is SequenceState.PREPARED
    assert "published this dataset up to 5 to the same place" in recovered.reason
    assert "`gobblin commit abandon` gives this commit up" in recovered.reason
