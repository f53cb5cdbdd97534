"""Flows as rows: versions, filters, paging, and the list of changes."""

from __future__ import annotations

import secrets
from dataclasses import replace

from sqlalchemy.event import listen

from gobblin_dagster.service.catalog.flow_config import MAX_INDEXED, NAME_LENGTH
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Change, FlowId
from gobblin_dagster.service.store.flow_rows import (
    PAGE_LENGTH,
    FlowFilter,
    PropertyFilter,
    changes_after,
    count_flows,
    list_flows,
    newest_change,
    value_digest,
    version_page,
)
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, flow


def names(store: ServiceStore, where: FlowFilter, start: int = 0, count: int | None = None) -> list[str]:
    with store.read() as transaction:
        return [spec.id.name for spec in list_flows(transaction, where, start, count)]


def test_filters_find_by_field_and_by_property(store: ServiceStore, create: Create) -> None:
    create(flow("orders", cron="0 0 * ? * *", properties={"user.to.proxy": "anna", "path": "/a_b/c"}))
    create(flow("Items", "FS:///b", owning_group="team", properties={"path": "/axb/c"}))
    assert names(store, FlowFilter()) == ["Items", "orders"]
    assert names(store, FlowFilter(name="orders")) == ["orders"]
    assert names(store, FlowFilter(group="other")) == []
    assert names(store, FlowFilter(template_uris="FS:///b")) == ["Items"]
    assert names(store, FlowFilter(cron="0 0 * ? * *")) == ["orders"]
    assert names(store, FlowFilter(owning_group="team")) == ["Items"]
    assert names(store, FlowFilter(properties=(PropertyFilter("user.to.proxy"),))) == ["orders"]
    assert names(store, FlowFilter(properties=(PropertyFilter("path", "a_b"),))) == ["orders"], "`_` is no wildcard"
    assert names(store, FlowFilter(exact_properties=(("path", "/axb/c"),))) == ["Items"]
    assert names(store, FlowFilter(search="ITEM")) == ["Items"]
    assert names(store, FlowFilter(search="%")) == []


def test_flows_that_stay_are_paged_once_while_others_come_and_go(
    store: ServiceStore, manager: FlowManager, create: Create
) -> None:
    large = {"gobblin.note": "x" * (PAGE_LENGTH // 2)}
    for name in "bdfh":
        create(flow(name, properties=large))
    pages = manager.find(FlowFilter(), 0, None)
    found = [spec.id.name for spec in next(pages).specs]
    assert found == ["b", "d"]
    create(flow("a"))
    create(flow("g"))
    with store.write() as transaction:
        manager.delete(transaction, FlowId("g", "b"), "anna")
        manager.delete(transaction, FlowId("g", "d"), "anna")
    found += [spec.id.name for page in pages for spec in page.specs]
    assert found == ["b", "d", "f", "g", "h"]
    assert [page.is_last for page in manager.find(FlowFilter(group="other"))] == [True], "there is always a page"


def test_flows_are_found_by_the_index_of_values(store: ServiceStore, create: Create) -> None:
    create(flow(properties={"user.to.proxy": "anna"}))
    with store.read() as transaction:
        asked: list[str] = []
        listen(transaction, "before_cursor_execute", lambda *told: asked.append(told[2]))
        where = FlowFilter(exact_properties=(("user.to.proxy", "anna"),))
        assert count_flows(transaction, where) == 1
        if store.url.startswith("sqlite"):
            values = ("user.to.proxy", value_digest("anna"), "", "anna")
            plan = " ".join(str(row) for row in transaction.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked[0]}", values))
            assert "gobblin_flow_properties_by_value (name=? AND value_digest=?)" in plan
            assert "SCAN gobblin_flow" not in plan, "no flow that has another value is looked at"


def test_longest_names_that_are_accepted_can_be_stored(store: ServiceStore, create: Create) -> None:
    def signs(count: int) -> str:  # four bytes each, which no compression makes shorter
        return "".join(chr(0x10000 + secrets.randbelow(0xF000)) for _ in range(count))

    config = flow(properties={signs(MAX_INDEXED): signs(200_000)}, owning_group=signs(MAX_INDEXED))
    create(replace(config, id=FlowId(signs(NAME_LENGTH), signs(NAME_LENGTH))))
    assert len(names(store, FlowFilter(owning_group=config.owning_group))) == 1


def test_pages_follow_each_other_without_gap(store: ServiceStore, create: Create) -> None:
    for number in range(7):
        create(flow(f"f{number}"))
    pages = [names(store, FlowFilter(), start, 3) for start in (0, 3, 6, 9)]
    assert pages == [["f0", "f1", "f2"], ["f3", "f4", "f5"], ["f6"], []]
    with store.read() as transaction:
        assert count_flows(transaction, FlowFilter()) == 7


def test_versions_go_on_where_a_deleted_flow_stopped(store: ServiceStore, manager: FlowManager, create: Create) -> None:
    create(flow(cron="0 0 * ? * *"))
    with store.write() as transaction:
        manager.delete(transaction, FlowId("g", "n"), "tester")
    create(flow(cron="0 30 * ? * *"))
    with store.read() as transaction:
        versions = version_page(transaction, FlowId("g", "n")).specs
    assert [(one.version, one.change) for one in versions] == [
        (1, Change.CREATED),
        (2, Change.DELETED),
        (3, Change.CREATED),
    ]


def test_pairs_that_would_be_one_path_are_two_flows(store: ServiceStore, create: Create) -> None:
    create(flow(id=FlowId("a", "b/c")))
    create(flow(id=FlowId("a/b", "c")))
    with store.read() as transaction:
        assert len(list_flows(transaction, FlowFilter())) == 2


def test_other_nodes_read_changes_in_order(store: ServiceStore, create: Create) -> None:
    with store.read() as transaction:
        before = newest_change(transaction)
    for number in range(3):
        create(flow(f"f{number}"))
    with store.read() as transaction:
        assert [one.id.name for one in changes_after(transaction, before)] == ["f0", "f1", "f2"]
        assert changes_after(transaction, newest_change(transaction)) == []
