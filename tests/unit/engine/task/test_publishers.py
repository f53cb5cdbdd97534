from __future__ import annotations

from gobblin_dagster.constructs.publishers.sql_table import SqlTablePublisher
from gobblin_dagster.core.constructs import ConstructContext, JudgesTargets, NamesTargets
from gobblin_dagster.engine.task.publishers import each_publisher
from tests.unit.engine.jobs import job_spec


def test_each_branch_has_its_publisher_made_for_it_and_no_other() -> None:
    table = {"type": "sql_table", "url": "sqlite:////x.db", "table": "t"}
    fork = {"branches": [{"name": "files"}, {"name": "rows", "publisher": table, "schema_contract": "evolve"}]}
    job, context = job_spec({}, fork=fork), ConstructContext("numbers", "/", "a")
    assert [branch.name for branch, _ in each_publisher(job, context)] == ["files", "rows"]
    ((branch, publisher),) = each_publisher(job, context, NamesTargets | JudgesTargets)
    assert branch.name == "rows"
    assert isinstance(publisher, SqlTablePublisher)
    assert publisher.keeps_rows_in == "sqlite:////x.db#main.t"
