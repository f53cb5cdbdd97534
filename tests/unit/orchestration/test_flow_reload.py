"""The listener that has Dagster load its definitions again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import pytest

from gobblin_dagster.orchestration.flow_reload import ReloadDagster
from gobblin_dagster.service.catalog.listeners import make_listeners
from gobblin_dagster.service.model import Change, FlowConfig, FlowId, FlowSpec
from gobblin_dagster.spec.job import ConstructSpec
from tests.services.json_api import Asked, Reply, running_api

LOADED = {"data": {"reloadRepositoryLocation": {"__typename": "WorkspaceLocationEntry"}}}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


DAGSTER = {"flow.executor": "dagster"}


def changed(
    name: str, change: Change = Change.CREATED, properties: Mapping[str, str] = MappingProxyType({})
) -> FlowSpec:
    return FlowSpec(FlowConfig(FlowId("g", name), "FS:///t", dict(properties)), 1, change, NOW, "tester")


def test_changes_of_flows_in_dagster_load_its_definitions_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Semaphore(0)

    def reply(request: Asked) -> Reply:
        told = json.loads(request.body)
        assert (request.path, told["variables"]) == ("/graphql", {"name": "gobblin"})
        asked.release()
        return Reply(LOADED)

    with running_api(reply) as api:
        settings = {"type": "gobblin_dagster.orchestration.flow_reload:ReloadDagster", "url": api.url, "wait_s": 0}
        [listener] = make_listeners([ConstructSpec.model_validate(settings)])
        assert isinstance(listener, ReloadDagster)
        listener.flow_changed(changed("embedded"))
        # Dagster is not there yet, and then cannot load the definitions: it is asked until it has.
        api.faults += [Reply({}, 503), Reply({"data": {"reloadRepositoryLocation": {"message": "no such module"}}})]
        ours = changed("ours", properties=DAGSTER)
        listener.flow_changed(ours)
        assert asked.acquire(timeout=30)
        assert len(api.asked) == 3
        listener.flow_changed(replace(ours, change=Change.DELETED))
        assert asked.acquire(timeout=30)
        listener.flow_changed(replace(ours, change=Change.DELETED))
        assert asked.acquire(timeout=30)
        listener.flow_changed(changed("ours"))
        listener.flow_changed(changed("embedded", Change.UPDATED))
        assert not asked.acquire(timeout=0.2), "these flows do not run in Dagster"
    assert caplog.text.count("does not load its definitions again") == 1, "said once, not at each try"


def test_flow_that_leaves_dagster_loads_its_definitions_again() -> None:
    asked = threading.Semaphore(0)

    def reply(_: Asked) -> Reply:
        asked.release()
        return Reply(LOADED)

    with running_api(reply) as api:
        listener = ReloadDagster(api.url, wait_s=0)
        listener.flow_changed(changed("n", properties=DAGSTER))
        assert asked.acquire(timeout=30)
        listener.flow_changed(changed("n", Change.UPDATED))
        assert asked.acquire(timeout=30)
