"""Workers of one executor with different packages: each takes what it can run, and says what nobody has."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.service.catalog.templates import keys_body
from gobblin_dagster.service.executors.claims import Claims
from gobblin_dagster.service.executors.job_body import body_needs
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.model import ExecutionStatus, JobKey
from gobblin_dagster.service.store.node_rows import Node, delete_node, save_node
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.worker_rows import list_jobs

from ..conftest import OwnClock

BARE = {"constructs": ["source.files"], "extras": [], "modules": ["shop"]}
WHOLE = {"constructs": ["source.files", "source.kafka"], "extras": ["kafka"], "modules": None}
OLD: dict[str, Any] = {"jobs_at_once": 4}
FROM_FILES = {"source": {"type": "files"}}
FROM_KAFKA = {"source": {"type": "kafka"}}


class East:
    """An executor whose workers share a store."""

    def __init__(self, store: ServiceStore, clock: OwnClock) -> None:
        self.store = store
        self.executor = StoreExecutor("east", store)
        self.seconds = 0.0
        self._clock = clock

    def order(self, execution: int, job: dict[str, Any]) -> JobKey:
        key = JobKey("g", "n", execution, "a", 1, 1)
        self.executor.add(RunOrder(key, "", json.dumps(job)))
        return key

    def is_alive(self, worker: str, about: dict[str, Any]) -> None:
        now = self._clock.now()
        owner = LeaseOwner.current(f"node {worker}")
        with self.store.write() as transaction:
            save_node(transaction, Node(worker, owner, "", "0", now, now, now, "east", about))

    def ends(self, worker: str) -> None:
        with self.store.write() as transaction:
            delete_node(transaction, worker)

    def claims(self, worker: str, about: dict[str, Any]) -> Claims:
        return Claims("east", self.store, worker, about, patience_s=60, clock=lambda: self.seconds)

    def take(self, claims: Claims, limit: int = 2) -> tuple[list[int], list[str]]:
        """Return the executions whose jobs were taken, and what was said of those that fail."""
        with self.store.write() as transaction:
            choice = claims.take(transaction, limit)
        return [key.execution for key in choice.taken], [report.message for report in choice.failed]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """SQLite is enough: workers claim on PostgreSQL in the suite over all executors."""
    return f"sqlite:///{tmp_path}/service.db"


@pytest.fixture
def east(store: ServiceStore, clock: OwnClock) -> East:
    return East(store, clock)


def test_worker_leaves_jobs_that_it_cannot_run_and_takes_those_behind_them(east: East) -> None:
    for execution in range(1, 21):
        east.order(execution, FROM_KAFKA)
    for execution in (21, 22, 23, 24):
        east.order(execution, FROM_FILES)
    bare, whole = east.claims("bare", BARE), east.claims("whole", WHOLE)
    assert east.take(bare, 0) == ([], [])
    assert [east.take(bare, 1)[0] for _ in range(3)] == [[], [], [21]], "it looks at more each time"
    assert east.take(whole)[0] == [1, 2]
    assert east.take(east.claims("old", OLD), 1)[0] == [3], "a worker that announces nothing takes every job"
    assert east.take(bare)[0] == [22, 23]


def test_many_jobs_that_are_left_are_looked_at_for_a_tenth_of_the_time(store: ServiceStore, east: East) -> None:
    ticks = itertools.count()
    claims = Claims("east", store, "bare", BARE, 1000, lambda: next(ticks))
    east.order(1, FROM_KAFKA)
    assert [east.take(claims) for _ in range(2)] == [([], [])] * 2, "each question for the time takes a second"
    east.order(2, FROM_FILES)
    looks = 0
    while not east.take(claims)[0]:
        looks += 1
    assert looks > 9


def test_job_whose_body_is_replaced_while_it_waits_is_looked_at_again(east: East) -> None:
    key = east.order(1, FROM_KAFKA)
    bare = east.claims("bare", BARE)
    assert east.take(bare) == ([], [])
    east.executor.update(RunOrder(key, "", json.dumps(FROM_FILES)))
    assert east.take(bare) == ([1], [])


def test_job_that_no_worker_can_run_waits_and_then_fails_with_what_is_missing(east: East) -> None:
    east.order(1, FROM_KAFKA | {"converters": [{"type": "other.module:Mask"}]})
    bare = east.claims("bare", BARE)
    east.is_alive("bare", BARE)
    east.is_alive("second", BARE | {"constructs": ["source.files", "source.kafka"], "modules": None})
    assert east.take(bare) == ([], [])
    east.seconds = 59
    assert east.take(bare) == ([], [])
    east.seconds = 60
    told = "no worker of east has extra kafka; it waited 60 s for one that has"
    assert east.take(bare) == ([], [told]), "the worker that lacks least counts"


@pytest.mark.parametrize("other", [WHOLE, OLD], ids=["can", "does not say"])
def test_job_is_left_for_as_long_as_another_worker_may_run_it(east: East, other: dict[str, Any]) -> None:
    east.order(1, FROM_KAFKA)
    bare = east.claims("bare", BARE)
    east.is_alive("other", other)
    east.take(bare)
    east.seconds = 1000
    assert east.take(bare) == ([], []), "the other one has no room"
    east.ends("other")
    east.seconds += 59
    assert east.take(bare) == ([], [])
    east.seconds += 1
    assert east.take(bare)[1]


def test_failure_is_reported_to_the_service_and_ends_the_job(east: East, store: ServiceStore) -> None:
    east.order(1, FROM_KAFKA)
    inbox = Inbox("east", store, "bare", BARE, patience_s=0)
    assert inbox.take(2) == []
    [report] = east.executor.take_reports(10)
    assert (report.status, report.may_retry) == (ExecutionStatus.FAILED, True), "another worker may be there then"
    assert report.message.startswith("no worker of east has source kafka, extra kafka")
    assert east.executor.list() == []


def test_jobs_of_a_worker_that_is_gone_are_free_for_those_that_can_run_them(east: East, store: ServiceStore) -> None:
    lost = [east.order(1, FROM_KAFKA), east.order(2, FROM_FILES), east.order(3, FROM_KAFKA)]
    gone, bare, whole = Inbox("east", store, "gone", WHOLE), Inbox("east", store, "b", BARE), Inbox("east", store, "w")
    gone.take(5)
    for key in lost:
        assert gone.begin(key, "run")
    assert bare.take_over() == [lost[1]]
    with store.read() as transaction:
        assert [job.holder for job in list_jobs(transaction, "east")] == ["", "b", ""]
    east.executor.delete(lost[2])
    assert [report.status for report in east.executor.take_reports(9) if report.key == lost[2]][-1] is (
        ExecutionStatus.CANCELLED
    ), "nobody runs it"
    assert [one.key for one in whole.take(5)] == [lost[0]]
    assert whole.begin(lost[0], "again"), "what it publishes is exactly once in any case"


def test_needs_of_a_body_are_those_of_its_job_and_a_body_with_faults_needs_nothing() -> None:
    keys = {"source.class": "org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource"}
    found = body_needs("a", keys_body(keys | {"topic.whitelist": "orders", "kafka.brokers": "b:9092"}))
    assert "source.kafka" in found.constructs
    assert found.extras >= {"kafka"}
    own = body_needs("a", json.dumps({"source": {"type": "nowhere:Source"}, "output": {"path": "s3://a/b"}}))
    assert (own.targets, own.extras) == (frozenset({"nowhere:Source"}), frozenset({"s3"}))
    none = replace(found, constructs=frozenset(), extras=frozenset())
    odd = ['{"source": {"type": 7}}', '{"source": [[]]}', '{"fork": {"branches": 1}}', "[" * 100_000]
    for body in ("", "7", "null", "{", *odd, keys_body({"source.class": "\x00"})):
        assert body_needs("a", body) == none, body


def test_needs_of_a_body_import_nothing_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_by_a_body.py").write_text("class Source: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    kinds = {"source": "named_by_a_body:Source", "publisher": {"type": "named_by_a_body:Publisher"}}
    decoder = {"type": "kafka", "decoder": {"type": "named_by_a_body:Decoder"}}
    for job in (kinds, {"source": decoder}):
        assert body_needs("a", json.dumps(job)) != body_needs("a", "{}")
    assert "named_by_a_body" not in sys.modules
