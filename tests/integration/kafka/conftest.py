"""One broker for all tests of this folder; each test makes topics of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import JobSpec
from tests.integration.kafka.meddling import Meddler
from tests.services.kafka import KafkaBroker, jars, running_kafka
from tests.services.missing import missing
from tests.unit.engine.jobs import project, run


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    libs = jars()
    if libs is None:
        missing("Kafka's jars are not there: neither in the cache nor by Maven (mvn), or there is no Java")
    with running_kafka(libs) as server:
        Meddler.address = server.address
        yield server


@dataclass
class KafkaJob:
    """A job on one topic (or a few), run without Spark."""

    root: Path
    broker: KafkaBroker
    topic: str
    options: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> JobSpec:
        source = {"type": "kafka", "brokers": self.broker.address, "topics": [self.topic], "bootstrap": "earliest"}
        body: dict[str, Any] = {
            "job": "events",
            "source": source | {"value": {"type": "json", "columns": {"id": "int64"}}, "timeout_s": 20} | self.options,
            "extract": {"namespace": "test", "table": "events"},
            "output": {"path": "lake"},
        }
        return JobSpec.model_validate(body | self.parts)

    def send(self, ids: range, partition: int = 0, topic: str | None = None, time_ms: int = 0) -> None:
        """Produce `{"id": n}` with key `k<n % 10>` and wait until all are there; `time_ms` 0 is now."""
        producer = self.broker.producer(batch_num_messages="500")
        for number in ids:
            producer.produce(
                topic or self.topic,
                json.dumps({"id": number}).encode(),
                f"k{number % 10}".encode(),
                partition=partition,
                timestamp=time_ms,
            )
            producer.poll(0)
        producer.flush()

    def run(self) -> RunResult:
        return run(self.root, self.spec)

    def plan(self) -> DatasetPlan:
        (dataset,) = self.plans()
        return dataset

    def plans(self) -> Sequence[DatasetPlan]:
        return plan_job(project(self.root, self.spec), self.spec).datasets

    def state(self, urn: str | None = None) -> DatasetState:
        store = project(self.root, self.spec).open_store()
        try:
            return store.load_dataset_states("events")[urn or self.topic]
        finally:
            store.close()

    def files(self, urn: str | None = None) -> list[PublishedFile]:
        store = project(self.root, self.spec).open_store()
        try:
            return list(store.load_snapshot("events", urn or self.topic))
        finally:
            store.close()

    def table(self, urn: str | None = None) -> pa.Table:
        return pa.concat_tables([pq.read_table(file.path) for file in self.files(urn)])

    def ids(self, urn: str | None = None) -> list[int]:
        ids: list[int] = sorted(self.table(urn)["id"].to_pylist()) if self.files(urn) else []
        return ids


@pytest.fixture
def new_job(broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., KafkaJob]:
    """Return a maker of jobs: `new_job(partitions=2, topic_config={...}, **source_options)`, with a topic named as the
    test."""

    def make(partitions: int = 1, topic_config: dict[str, str] | None = None, **options: Any) -> KafkaJob:
        topic = "".join(c if c.isalnum() else "." for c in request.node.name.removeprefix("test_"))
        broker.new_topic(topic, partitions, topic_config)
        return KafkaJob(tmp_path, broker, topic, options)

    return make
