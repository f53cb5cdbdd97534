"""Places of flows: which jobs publish where, as flows are posted, change, begin and leave."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.event import listen

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.database.engine import WRITE, make_engine, parse_url
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.store.place_rows import jobs_beside, refresh_places, save_places
from gobblin_dagster.service.store.schema import CHAIN
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, flow

ONE, TWO = FlowId("g", "one"), FlowId("g", "two")
FLOW_OF_0012 = """
INSERT INTO gobblin_flows VALUES
    ('g', 'one', 3, 1, '{"type": "FlowConfig/1"}', 'created', '2026-11-22 18:00:00', 'anna', {no}, '', 'FS:///a', NULL,
     {no}, NULL, NULL)
"""
"""A row as the program of revision 0012 wrote it."""


def beside(store: ServiceStore, job: str) -> list[str]:
    with store.read() as transaction:
        return sorted(jobs_beside(transaction, job))


def test_jobs_beside_a_job_share_a_place_with_it(store: ServiceStore) -> None:
    with store.write() as transaction:
        save_places(transaction, ONE, {"a": {"lake", "table"}, "b": {"topic"}, "nothing": ()})
        save_places(transaction, TWO, {"c": {"table"}})
    assert [beside(store, job) for job in ("a", "b", "c", "nothing")] == [["a", "c"], ["b"], ["a", "c"], []]
    with store.write() as transaction:
        save_places(transaction, TWO, {"c": {"topic"}})
    assert [beside(store, job) for job in ("a", "b")] == [["a"], ["b", "c"]]


def test_flow_that_leaves_the_catalog_has_no_place(store: ServiceStore, create: Create, manager: FlowManager) -> None:
    one = flow("one", cron="0 0 * ? * *").id
    create(flow("one", cron="0 0 * ? * *"))
    with store.write() as transaction:
        save_places(transaction, one, {"a": {"lake"}})
        manager.pause(transaction, one, "me", paused=True)
    assert beside(store, "a") == ["a"]
    with store.write() as transaction:
        manager.delete(transaction, one, "me")
    assert beside(store, "a") == []


def test_flow_of_revision_0012_has_its_place_once_it_begins(store_url: str) -> None:
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        replace(CHAIN, revisions=CHAIN.revisions[: CHAIN.revisions.index("0012") + 1]).upgrade(transaction, "the store")
        no = "false" if "postgres" in store_url else "0"
        transaction.exec_driver_sql(FLOW_OF_0012.replace("{no}", no))
    engine.dispose()
    with ServiceStore(store_url, SystemClock()) as opened:
        with opened.read() as transaction:
            assert transaction.execute(text("SELECT count(*) FROM gobblin_flow_places")).scalar_one() == 0
        with opened.write() as transaction:
            refresh_places(transaction, {(ONE, 2): {"a": {"older"}}, (TWO, 1): {"b": {"lake"}}})
        assert beside(opened, "a") == beside(opened, "b") == [], "the one was changed since, the other was deleted"
        statements: list[str] = []
        for _ in range(2):
            with opened.write() as transaction:
                listen(transaction, "before_cursor_execute", lambda *told: statements.append(told[2].split()[0]))
                refresh_places(transaction, {(ONE, 3): {"a": {"lake"}}})
        assert statements == ["SELECT", "SELECT", "DELETE", "INSERT", "SELECT"], "the second execution has one to do"
        assert beside(opened, "a") == ["a"]
