"""The migrations make the tables that the code knows."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import StoreVersionError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.database.engine import WRITE, make_engine, parse_url
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FailureOption, FlowId
from gobblin_dagster.service.store.execution_rows import (
    load_execution,
    overdue_executions,
    running_by_group,
    running_by_owner,
    running_by_user,
)
from gobblin_dagster.service.store.flow_rows import FlowFilter, count_flows, value_digest
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.node_rows import load_nodes
from gobblin_dagster.service.store.schema import CHAIN
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import VERSION_TABLE, flow_properties, jobs, metadata
from gobblin_dagster.service.store.worker_rows import list_jobs


def test_migrations_make_the_tables_that_the_code_knows(store: ServiceStore) -> None:
    with store.read() as transaction:
        context = MigrationContext.configure(transaction, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []


FIRST = """
INSERT INTO gobblin_flow_executions VALUES
    ('g', 'n', 1, 1, 'run_now', 'RUNNING', '', 1, {no}, {no}, '2026-11-22 18:00:00', NULL);
INSERT INTO gobblin_job_executions VALUES
    ('g', 'n', 1, 'a', 0, '[]', 1, 'embedded', '{{}}', 'RUNNING', '', 1, 1, 'r', 0, '', '', NULL, NULL)
"""
"""Rows as the program of revision 0001 wrote them."""


def test_executions_of_the_first_revision_go_on_without_deadlines(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=("0001",)).upgrade(transaction, "the store")
        for statement in FIRST.format(no="false" if "postgres" in store_url else "0").split(";"):
            transaction.execute(text(statement))
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened, opened.read() as transaction:
        found = load_execution(transaction, ExecutionId(FlowId("g", "n"), 1))
        assert found is not None
        assert (found.status, found.finish_by) == (ExecutionStatus.RUNNING, None)
        [job] = load_jobs(transaction, found.id)
        assert (job.job.start_within_s, job.start_by) == (None, None)
        assert (found.on_failure, job.is_kill_requested) == (FailureOption.FINISH_ALL_POSSIBLE, False)
        assert overdue_executions(transaction, datetime(2030, 1, 1, tzinfo=UTC), 10) == []


PROPERTIES = """
INSERT INTO gobblin_flows VALUES
    ('g', 'n', 1, 1, '{"type": "FlowConfig/1"}', 'created', '2026-11-22 18:00:00', 'anna', {no}, '', 'FS:///a', NULL,
     {no}, NULL, NULL);
INSERT INTO gobblin_flow_properties VALUES ('g', 'n', 'user.to.proxy', 'anna'), ('g', 'n', 'größe', '')
"""
"""Rows as the program of revision 0004 wrote them."""


def test_properties_of_revision_0004_are_found_by_their_value(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=("0001", "0002", "0003", "0004")).upgrade(transaction, "the store")
        for statement in PROPERTIES.replace("{no}", "false" if "postgres" in store_url else "0").split(";"):
            transaction.exec_driver_sql(statement)
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened, opened.read() as transaction:
        rows = transaction.execute(select(flow_properties.c.value, flow_properties.c.value_digest)).all()
        assert {row.value: row.value_digest for row in rows} == {text: value_digest(text) for text in ("anna", "")}
        for properties, count in {(("user.to.proxy", "anna"),): 1, (("größe", ""),): 1, (("größe", "x"),): 0}.items():
            assert count_flows(transaction, FlowFilter(exact_properties=properties)) == count


def test_nodes_of_revision_0005_are_nodes_of_the_service(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=CHAIN.revisions[: CHAIN.revisions.index("0005") + 1]).upgrade(transaction, "the store")
        owner = json.dumps(asdict(LeaseOwner.current("one")))
        instants = ", ".join(["'2026-11-22 18:00:00'"] * 3)
        transaction.exec_driver_sql(f"INSERT INTO gobblin_nodes VALUES ('one', '{owner}', '', '0.1.0', {instants})")
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened, opened.read() as transaction:
        assert [(one.name, one.executor, one.about) for one in load_nodes(transaction)] == [("one", "", {})]
        assert list_jobs(transaction, "east") == []


def test_executions_of_revision_0006_are_nobodys(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=CHAIN.revisions[: CHAIN.revisions.index("0006") + 1]).upgrade(transaction, "the store")
        no = "false" if "postgres" in store_url else "0"
        transaction.exec_driver_sql(
            f"INSERT INTO gobblin_flow_executions VALUES ('g', 'n', 1, 1, 'run_now', 'RUNNING', '', 1, {no}, {no}, "
            "'2026-11-22 18:00:00', NULL, NULL, 'FINISH_RUNNING')"
        )
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened, opened.read() as transaction:
        found = load_execution(transaction, ExecutionId(FlowId("g", "n"), 1))
        assert found is not None
        assert (found.user, found.owner, found.on_failure) == ("", "", FailureOption.FINISH_RUNNING)
        assert (running_by_group(transaction), running_by_user(transaction)) == ({"g": 1}, {})
        assert running_by_owner(transaction) == {}
        assert transaction.execute(text("SELECT count(*) FROM gobblin_topology_files")).scalar_one() == 0
        assert transaction.execute(text("SELECT count(*) FROM gobblin_state_places")).scalar_one() == 0
        assert transaction.execute(text("SELECT count(*) FROM gobblin_ways")).scalar_one() == 0


JOBS = """
INSERT INTO gobblin_flow_properties VALUES ('g', 'all', 'flow.children', 'g/n', '');
INSERT INTO gobblin_job_executions SELECT 'g', 'n', 1, 'own', 0, '[]', 1, 'embedded', '{}', 'COMPLETE', '', 1, 1, 'r',
    0, '', '', NULL, NULL, NULL, NULL, '', {no};
INSERT INTO gobblin_job_executions SELECT 'g', 'all', 2, 'child', 0, '[]', 1, 'embedded', '{}', 'COMPLETE', '', 1, 1,
    'r', 0, '', '', NULL, NULL, NULL, NULL, '', {no}
"""
"""Rows as the program of revision 0011 wrote them: a job of a flow, and one of a flow of flows."""


def test_jobs_of_revision_0011_belong_to_their_flow_and_those_of_children_to_nobody(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=CHAIN.revisions[: CHAIN.revisions.index("0011") + 1]).upgrade(transaction, "the store")
        for statement in JOBS.replace("{no}", "false" if "postgres" in store_url else "0").split(";"):
            transaction.exec_driver_sql(statement)
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened, opened.read() as transaction:
        rows = transaction.execute(select(jobs.c.job_name, jobs.c.of_group, jobs.c.of_name, jobs.c.of_version)).all()
        assert sorted(map(tuple, rows)) == [("child", "", "", None), ("own", "g", "n", None)]


def test_store_of_a_newer_program_is_refused_and_left_alone(store: ServiceStore, store_url: str) -> None:
    with store.write() as transaction:
        transaction.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreVersionError, match="9999"):
        ServiceStore(store_url, SystemClock())
    with store.read() as transaction:
        assert transaction.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "9999"


def test_service_and_state_store_share_a_database(store: ServiceStore, store_url: str) -> None:
    from gobblin_dagster.state.sql.store import SqlStateStore

    SqlStateStore(store_url, SystemClock()).close()
    with store.read() as transaction:
        assert CHAIN.is_current(transaction, store.url)
    assert CHAIN.revisions[0] == "0001"
