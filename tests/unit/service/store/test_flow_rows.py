"""Flows as rows: versions, filters, paging, and the list of changes."""

from __future__ import annotations

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Change, FlowId
from gobblin_dagster.service.store.flow_rows import (
    FlowFilter,
    PropertyFilter,
    changes_after,
    count_flows,
    list_flows,
    list_versions,
    newest_change,
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
        versions = list_versions(transaction, FlowId("g", "n"))
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
