"""Places of flows: which jobs publish where, as flows are posted, change, begin and leave."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.event import listen

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.database.engine import WRITE, make_engine, parse_url
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.store.place_rows import Target, jobs_beside, refresh_places, save_places
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


PLACE_OF_0013 = """
INSERT INTO gobblin_flow_places VALUES ('a', 'lake', 'g', 'one'), ('b', 'lake', 'g', 'two')
"""
"""Rows as the program of revision 0013 wrote them."""


def before(store_url: str, revision: str, *rows: str) -> None:
    """Make a store of an earlier revision with rows in it."""
    engine = make_engine(parse_url(store_url)).execution_options(**{WRITE: True})
    with engine.begin() as transaction:
        earlier = CHAIN.revisions[: CHAIN.revisions.index(revision) + 1]
        replace(CHAIN, revisions=earlier).upgrade(transaction, "the store")
        for row in rows:
            transaction.exec_driver_sql(row.replace("{no}", "false" if "postgres" in store_url else "0"))
    engine.dispose()


def at(*places: str, rows: str = "") -> Target:
    return Target(frozenset(places), rows)


def twins(store: ServiceStore, job: str) -> list[str]:
    with store.read() as transaction:
        return sorted(name for name, is_twin in jobs_beside(transaction, job).items() if is_twin)


def beside(store: ServiceStore, job: str) -> list[str]:
    with store.read() as transaction:
        return sorted(jobs_beside(transaction, job))


def test_jobs_beside_a_job_share_a_place_with_it(store: ServiceStore) -> None:
    with store.write() as transaction:
        save_places(transaction, ONE, {"a": at("lake", "table"), "b": at("topic"), "nothing": at()})
        save_places(transaction, TWO, {"c": at("table")})
    assert [beside(store, job) for job in ("a", "b", "c", "nothing")] == [["a", "c"], ["b"], ["a", "c"], []]
    with store.write() as transaction:
        save_places(transaction, TWO, {"c": at("topic")})
    assert [beside(store, job) for job in ("a", "b")] == [["a"], ["b", "c"]]


def test_jobs_publish_the_same_rows_if_they_have_them_and_a_place_in_common(store: ServiceStore) -> None:
    with store.write() as transaction:
        save_places(transaction, ONE, {"a": at("lake", "table", rows="x"), "b": at("topic", rows="x"), "c": at()})
        save_places(transaction, TWO, {"d": at("table", rows="x"), "e": at("lake", rows="y"), "f": at("topic")})
        save_places(transaction, FlowId("g", "parent"), {"a": at("lake", "table", rows="x")})
    assert [twins(store, job) for job in "abcdef"] == [["d"], [], [], ["a"], [], []]
    assert beside(store, "a") == ["a", "d", "e"]


def test_flow_that_leaves_the_catalog_has_no_place(store: ServiceStore, create: Create, manager: FlowManager) -> None:
    one = flow("one", cron="0 0 * ? * *").id
    create(flow("one", cron="0 0 * ? * *"))
    with store.write() as transaction:
        save_places(transaction, one, {"a": at("lake")})
        manager.pause(transaction, one, "me", paused=True)
    assert beside(store, "a") == ["a"]
    with store.write() as transaction:
        manager.delete(transaction, one, "me")
    assert beside(store, "a") == []


def test_jobs_of_revision_0013_have_no_rows_in_common_until_their_flows_begin(store_url: str) -> None:
    before(store_url, "0013", FLOW_OF_0012, FLOW_OF_0012.replace("'one'", "'two'"), PLACE_OF_0013)
    with ServiceStore(store_url, SystemClock()) as opened:
        assert (beside(opened, "a"), twins(opened, "a")) == (["a", "b"], [])
        with opened.write() as transaction:
            refresh_places(transaction, {(ONE, 3): {"a": at("lake", rows="x")}})
        assert (beside(opened, "a"), twins(opened, "a")) == (["a", "b"], [])
        with opened.write() as transaction:
            refresh_places(transaction, {(TWO, 3): {"b": at("lake", rows="x")}})
        assert (twins(opened, "a"), twins(opened, "b")) == (["b"], ["a"])


def test_flow_of_revision_0012_has_its_place_once_it_begins(store_url: str) -> None:
    before(store_url, "0012", FLOW_OF_0012)
    with ServiceStore(store_url, SystemClock()) as opened:
        with opened.read() as transaction:
            assert transaction.execute(text("SELECT count(*) FROM gobblin_flow_places")).scalar_one() == 0
        with opened.write() as transaction:
            refresh_places(transaction, {(ONE, 2): {"a": at("older")}, (TWO, 1): {"b": at("lake")}})
        assert beside(opened, "a") == beside(opened, "b") == [], "the one was changed since, the other was deleted"
        statements: list[str] = []
        for _ in range(2):
            with opened.write() as transaction:
                listen(transaction, "before_cursor_execute", lambda *told: statements.append(told[2].split()[0]))
                refresh_places(transaction, {(ONE, 3): {"a": at("lake")}})
        assert statements == ["SELECT", "SELECT", "DELETE", "INSERT", "SELECT"], "the second execution has one to do"
        assert beside(opened, "a") == ["a"]
