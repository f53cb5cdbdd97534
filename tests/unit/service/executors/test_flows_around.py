"""What an order says of the flows around its job, and orders that say nothing, or what nobody can read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.service.catalog.templates import keys_body
from gobblin_dagster.service.executors.flows_around import FlowsAround, split_body, with_flows_around
from gobblin_dagster.service.executors.job_body import body_needs, read_job_body
from gobblin_dagster.service.model import FlowConfig, FlowId, Schedule
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.project import ProjectSpec
from tests.services.flow_project import NEVER, make_project, open_core, store_flow

JOB = {
    "job": "rows",
    "source": {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": {"ä": {"rows": 5}}},
    "extract": {"namespace": "test", "table": "rows"},
    "output": {"path": "lake"},
}
AROUND = FlowsAround(
    frozenset({"0123456789ab", "ba9876543210"}), datetime(2026, 11, 27, 12, tzinfo=UTC), frozenset({"0123456789ab"})
)


@pytest.mark.parametrize("body", [json.dumps(JOB), keys_body({"source.class": "Source", "service": "x"})])
def test_body_is_read_as_it_was_without_what_is_around_it(body: str) -> None:
    told = with_flows_around(body, AROUND)
    found, around = split_body(told)
    assert (json.loads(found), around) == (json.loads(body), AROUND)
    assert split_body(body) == (body, None), "an older service says nothing"
    assert body_needs("rows", told) == body_needs("rows", body)


def test_job_is_read_from_an_order_with_flows_and_one_that_cannot_be_read_is_a_fault_of_its_key(tmp_path: Path) -> None:
    spec, told = ProjectSpec(project="east"), with_flows_around(json.dumps(JOB), AROUND)
    assert read_job_body("rows", told, tmp_path, spec) == read_job_body("rows", json.dumps(JOB), tmp_path, spec)
    none: dict[str, Any] = {"jobs": [], "changed_at": None}
    for odd in ({}, none | {"jobs": 3}, none | {"changed_at": "2026-11-27T12:00:00"}, none | {"twins": 3}, ["jobs"], 7):
        with pytest.raises(InvalidSpecError, match="service"):
            read_job_body("rows", json.dumps(JOB | {"service": odd}), tmp_path, spec)


def test_order_of_an_older_service_tells_no_twin() -> None:
    older = '{"jobs":["0123456789ab","ba9876543210"],"changed_at":"2026-11-27T12:00:00+00:00"}'
    assert FlowsAround.read(older) == FlowsAround(AROUND.jobs, AROUND.changed_at)
    assert FlowsAround.read(AROUND.write()) == AROUND


def test_flows_around_a_job_are_those_of_the_catalog_that_publish_to_its_place(tmp_path: Path) -> None:
    make_project(tmp_path)
    core = open_core(tmp_path)
    try:
        store_flow(core, one := FlowId("shop", "one"))
        store_flow(core, two := FlowId("shop", "two"))
        store_flow(core, FlowId("shop", "other"), folder="elsewhere")
        assert around(core.store).has("shop__two__rows")
        assert not around(core.store).has("shop__other__rows")
        assert around(core.store).has_twin("shop__two__rows")
        assert not around(core.store).has_twin("shop__one__rows"), "the job itself"
        store_flow(core, two, rows="12")
        assert around(core.store).has("shop__two__rows")
        assert not around(core.store).has_twin("shop__two__rows"), "it publishes other rows"
        store_flow(core, two, folder="elsewhere")
        assert not around(core.store).has("shop__two__rows"), "it has not run since it was changed"
        with core.store.write() as transaction:
            core.manager.delete(transaction, one, "me")
        assert around(core.store).jobs == frozenset()
        older = core.manager.check(core.manager.in_version(one, 1))
        with core.store.write() as transaction:
            core.manager.roll_back(transaction, older, "me")
        with core.store.write() as transaction:
            core.manager.create(transaction, FlowConfig(FlowId("g", "parent"), "", PARENT, Schedule(NEVER)), "me")
        assert around(core.store).has("shop__one__rows"), "a parent is not one of its own"
    finally:
        core.datasets.close()
        core.store.close()


PARENT = {"flow.children": "shop/one"}


def around(store: ServiceStore) -> FlowsAround:
    with store.read() as transaction:
        return FlowsAround.of(transaction, "shop__one__rows")
