"""Throttling: jobs of a flow, and of an executor, share a speed, and never have more than it together."""

from __future__ import annotations

import itertools
import json

import pytest

from gobblin_dagster.core.errors import InvalidFlowError
from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.catalog.templates import keys_body
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.embedded import EmbeddedExecutor
from gobblin_dagster.service.executors.rates import NO_LIMIT, Rate, job_rate, width, with_rate
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, DagJob, ExecutionId, ExecutionStatus, FlowConfig, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import flow


def jobs(executor: str = "embedded", **parents: str) -> tuple[DagJob, ...]:
    return tuple(DagJob(name, executor, "{}", tuple(before)) for name, before in parents.items())


@pytest.mark.parametrize(
    ("dag", "wide"),
    [
        ({}, 0),
        ({"a": ""}, 1),
        ({"a": "", "b": "a", "c": "b"}, 1),
        ({"a": "", "b": "", "c": ""}, 3),
        ({"a": "", "b": "a", "c": "a", "d": "bc"}, 2),
        ({"a": "", "b": "", "c": "a", "d": "ab", "e": "b"}, 3),
        ({"c": "ab", "d": "ab"}, 2),
    ],
)
def test_width_is_how_many_jobs_may_run_at_once(dag: dict[str, str], wide: int) -> None:
    assert width(jobs(**dag)) == wide


def test_width_of_all_small_dags_is_their_largest_set_of_jobs_without_an_order() -> None:
    names = "abcd"
    pairs = list(itertools.combinations(names, 2))
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        edges = {pair for pair, is_on in zip(pairs, chosen, strict=True) if is_on}
        before = {pair for pair in pairs if _leads(edges, *pair)}
        found = max(
            len(some)
            for size in range(1, 5)
            for some in itertools.combinations(names, size)
            if not any(pair in before for pair in itertools.combinations(some, 2))
        )
        dag = {name: "".join(first for first, second in edges if second == name) for name in names}
        assert width(jobs(**dag)) == found, dag


def _leads(edges: set[tuple[str, str]], first: str, last: str) -> bool:
    return (first, last) in edges or any(_leads(edges, second, last) for one, second in edges if one == first)


def test_jobs_that_begin_later_get_what_those_that_ended_leave(store: ServiceStore) -> None:
    dag = Dag(jobs(a="", b="", c="b", d="c"))
    orchestrator = Orchestrator(store, lambda *_: dag)
    limits = {"flow.rowsPerSecond": "300", "flow.bytesPerSecond": "1000"}
    config = flow(properties=limits)
    execution = _start(store, orchestrator, config)
    executor = EmbeddedExecutor(store, orchestrator.report, "node")
    rows: dict[str, float] = {}

    def begin() -> None:
        for taken in executor.take(10):
            body = executor.begin(taken.key, f"run-{taken.key.job}")
            assert body is not None
            rows[taken.key.job] = json.loads(body)["execution"]["rate"]["rows_per_second"]

    def end(job: str) -> None:
        orchestrator.report(JobReport(execution, job, 1, 1, ExecutionStatus.COMPLETE))
        begin()

    begin()
    assert rows == {"a": 150, "b": 150}
    end("b")
    assert rows["c"] == 150, "a still runs"
    end("a")
    end("c")
    assert rows["d"] == 300, "it is alone"
    with store.read() as transaction:
        assert job_rate(transaction, execution, Rate(rows_per_second=20)) == Rate(20, 1000)
        assert job_rate(transaction, ExecutionId(config.id, 7)) == NO_LIMIT


def test_executor_gives_each_of_its_jobs_at_once_the_same_part(store: ServiceStore) -> None:
    orchestrator = Orchestrator(store, lambda *_: Dag(jobs("east", a="", b="")))
    _start(store, orchestrator, flow())
    whole = Rate(bytes_per_second=1000)
    Dispatcher(store, StoreExecutor("east", store), orchestrator.report, jobs_at_once=4, rate=whole.split(4)).step()
    inbox = Inbox("east", store, "worker")
    bodies = [inbox.begin(one.key, "run") for one in inbox.take(10)]
    assert [json.loads(body or "") for body in bodies] == [{"execution": {"rate": {"bytes_per_second": 250}}}] * 2


def test_job_keeps_a_rate_of_its_own_that_is_lower() -> None:
    own = json.dumps({"execution": {"packs": 2, "rate": {"rows_per_second": 5, "bytes_per_second": 5}}})
    assert json.loads(with_rate(own, Rate(10, 2))) == {
        "execution": {"packs": 2, "rate": {"rows_per_second": 5, "bytes_per_second": 2}}
    }
    assert with_rate(own, NO_LIMIT) is own


def test_job_for_a_cluster_of_gobblin_s_keeps_its_keys_as_they_are() -> None:
    keys = keys_body({"source.class": "org.apache.gobblin.example.Source"})
    assert with_rate(keys, Rate(5)) is keys


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"flow.rowsPerSecond": "0"}, '/properties/flow.rowsPerSecond.*"0" is not a whole number of 1 or more'),
        ({"flow.bytesPerSecond": "1e6"}, '"1e6" is not a whole number of 1 or more, in a second'),
        ({"flow.rowsPerSecond": "5", "flow.executor": "dagster"}, "does not slow down runs of Dagster; leave it out"),
    ],
)
def test_rate_with_a_fault_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidFlowError, match=told):
        FlowSettings.of(properties)


def _start(store: ServiceStore, orchestrator: Orchestrator, config: FlowConfig) -> ExecutionId:
    manager = FlowManager(store, lambda *_: Dag(()), orchestrator)
    with store.write() as transaction:
        execution = ExecutionId(config.id, manager.create(transaction, config, "me").execution)
    orchestrator.start_accepted()
    with store.read() as transaction:
        assert load_execution(transaction, execution) is not None
    return execution
