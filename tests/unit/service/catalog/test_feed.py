"""The feed of changes: each node hears of each change once, in order; a listener that fails harms nobody."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.service.catalog.feed import CatalogFeed, LoggingListener
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import FlowSpec
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, flow

CRON = "0 0 * ? * *"


class Heard:
    """Notes what it hears; fails with flows named `bad`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def flow_changed(self, spec: FlowSpec) -> None:
        self.told.append(f"{spec.id.name} {spec.change} {spec.version}")
        if spec.id.name == "bad":
            raise RuntimeError("a fault of the listener")


def test_every_node_hears_of_each_change_once_and_in_order(
    store: ServiceStore, store_url: str, manager: FlowManager, create: Create
) -> None:
    create(flow("before", cron=CRON))
    here, there = Heard(), Heard()
    with ServiceStore(store_url, SystemClock()) as other:
        feeds = [CatalogFeed(store, [here]), CatalogFeed(other, [there])]
        create(flow("n", cron=CRON))
        with store.write() as transaction:
            manager.update(transaction, flow("n", templates="FS:///z", cron=CRON), "tester")
            manager.delete(transaction, flow("n").id, "tester")
        assert [feed.poll() for feed in feeds] == [3, 3]
        assert [feed.poll() for feed in feeds] == [0, 0]
    assert here.told == there.told == ["n created 1", "n updated 2", "n deleted 3"]


def test_listener_that_fails_harms_neither_the_others_nor_what_follows(
    store: ServiceStore, create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = Heard(), Heard()
    feed = CatalogFeed(store, [first, last, LoggingListener()])
    for name in ("bad", "good"):
        create(flow(name, cron=CRON))
    assert feed.poll() == 2
    assert first.told == last.told == ["bad created 1", "good created 1"]
    assert "failed with flow g/bad, version 1" in caplog.text


def test_change_that_is_taken_back_is_not_told(store: ServiceStore, manager: FlowManager) -> None:
    heard = Heard()
    feed = CatalogFeed(store, [heard])

    def fail() -> None:
        with store.write() as transaction:
            manager.create(transaction, flow("n", cron=CRON), "tester")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert feed.poll() == 0


def test_store_that_is_put_back_is_noticed_and_its_new_changes_are_told(
    store: ServiceStore, manager: FlowManager, create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    feed = CatalogFeed(store, [heard])
    for name in ("a", "b", "c"):
        create(flow(name, cron=CRON))
    assert feed.poll() == 3
    with store.write() as transaction:  # what a backup of an hour ago has: the numbers are given again
        for table in ("gobblin_flow_versions", "gobblin_flows"):
            transaction.execute(text(f"DELETE FROM {table} WHERE flow_name IN ('b', 'c')"))
        if transaction.dialect.name == "sqlite":
            transaction.execute(text("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'gobblin_flow_versions'"))
        else:
            number = "pg_get_serial_sequence('gobblin_flow_versions', 'number')"
            transaction.execute(text(f"SELECT setval({number}, 1)"))
    for name in ("x", "y", "z"):
        create(flow(name, cron=CRON))
    assert feed.poll() == 3
    assert heard.told[3:] == ["x created 1", "y created 1", "z created 1"]
    assert "the newest 2 changes that listeners heard of are gone" in caplog.text
    assert feed.poll() == 0
