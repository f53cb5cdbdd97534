"""The source `kafka` and the step of the publisher `kafka_topic` keep what their protocols demand, on a real broker."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, DataPublisher, PublishView
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance import CommitStepConformance, SourceConformance
from tests.services.kafka import KafkaBroker


class TestKafkaSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def topic(self, broker: KafkaBroker) -> None:
        name = f"conformance-{uuid.uuid4().hex}"
        broker.new_topic(name, 1, None)
        producer = broker.producer()
        for number in range(5):
            producer.produce(name, json.dumps({"id": number}).encode(), partition=0)
        producer.flush()
        self.expected = {name: [{"key": None, "id": number} for number in range(5)]}
        self.spec = {
            "type": "kafka",
            "brokers": broker.address,
            "topics": [name],
            "bootstrap": "earliest",
            "value": {"type": "json", "columns": {"id": "int64"}},
            "metadata": [],
        }


class TestSendToKafkaStep(CommitStepConformance):
    @pytest.fixture(autouse=True)
    def topic(self, broker: KafkaBroker, tmp_path: Path) -> None:
        self.root, self.broker = str(tmp_path), broker

    def new_storage(self) -> Storage:
        return LocalStorage(durable=False)

    def prepare(self, storage: Storage) -> CommitStep:
        path = Path(self.root, f"{uuid.uuid4().hex}.parquet")
        pq.write_table(pa.table({"id": [1, 2]}), path)
        topic = f"conformance-{path.stem}"
        self.broker.new_topic(topic)
        options = {"brokers": self.broker.address, "topic": topic, "commits_topic": f"{topic}.commits"}
        context = ConstructContext(job="conformance", base_dir=self.root, dataset_urn="a/b")
        spec = ConstructSpec.model_validate({"type": "kafka_topic", **options})
        publisher: DataPublisher = registry.create(ConstructKind.PUBLISHER, spec, context)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        view = PublishView(
            job="conformance",
            run_id="run-1",
            commit_id=path.stem,
            dataset_urn="a/b",
            branch="main",
            extract=Extract("raw", "rows"),
            output_root=self.root,
            folder=self.root,
            now=datetime(2026, 11, 21, 8, tzinfo=UTC),
            files=[PublishedFile("main", str(path), path.stat().st_size, digest, 2, 1)],
            staged={str(path): str(path)},
            schema="id: int64",
            low="0",
            high="2",
        )
        (step,) = publisher.publish(view).steps
        return step
