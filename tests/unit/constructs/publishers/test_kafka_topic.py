"""Messages of a topic, without a broker; tests with a broker are in the integration tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException, Producer
from pydantic import ValidationError

from gobblin_dagster.constructs.clients.kafka import KafkaConnection
from gobblin_dagster.constructs.publishers.kafka_topic import (
    KafkaTopicOptions,
    KafkaTopicPublisher,
    SendToKafkaStep,
    commit_all,
)
from gobblin_dagster.constructs.publishers.tables import TableCommit, TableFile
from gobblin_dagster.core.constructs import ConstructContext, JudgesRows
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.storage import LocalStorage


def _step(path: str = "", key: str | None = None) -> SendToKafkaStep:
    commit = TableCommit("c", "job", "run", "a", "all", "0", "1", (TableFile(path, 1, 1),) if path else ())
    return SendToKafkaStep(commit, "rows", key, "commits", KafkaConnection(brokers="127.0.0.1:9"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([b"\x00\xff", None], [b"\x00\xff", None]), ([7, None], ["7", None]), (["", None], ["", None])],
)
def test_keys_are_texts_and_bytes_stay_bytes(values: list[Any], expected: list[Any]) -> None:
    assert _step(key="k")._keys(pa.record_batch({"k": pa.array(values)})) == expected


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1], pa.time64("ns")),
        pa.array([2932897], pa.date32()),
        pa.array([253402300799 * 10**6], pa.timestamp("us", "Asia/Tokyo")),
        pa.array([2**62], pa.duration("s")),
    ],
    ids=str,
)
def test_key_that_python_cannot_hold_waits_for_a_person(values: pa.Array) -> None:
    with pytest.raises(StepRefusedError, match=r"key column 'k' .*convert it to text"):
        _step(key="k")._keys(pa.record_batch({"k": values}))


def test_value_without_a_json_form_waits_for_a_person(tmp_path: Path) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table({"day": pa.array([2932897], pa.date32())}), content)
    (tmp_path / "f.parquet").write_bytes(content.getvalue())
    with pytest.raises(StepRefusedError, match="a time before 0001-01-01 or after 9999-12-31 has no JSON form"):
        _step(str(tmp_path / "f.parquet"))._send(None, LocalStorage())


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ({"topic": "gobblin-commits"}, "are one for Kafka"),
        ({"topic": "of.orders", "commits_topic": "of_orders"}, "are one for Kafka"),
        ({"topic": "my orders"}, "should match pattern"),
        ({"topic": "orders\n"}, "should match pattern"),
    ],
)
def test_topics_are_compared_as_brokers_do(topics: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        KafkaTopicOptions.model_validate({"brokers": "127.0.0.1:9", **topics})
    assert KafkaTopicOptions(brokers="127.0.0.1:9", topic="Orders", commits_topic="orders").topic == "Orders"


def test_key_that_is_no_column_is_refused_before_anything_is_read() -> None:
    options = KafkaTopicOptions(brokers="127.0.0.1:9", topic="orders", key="order")
    publisher = KafkaTopicPublisher(options, ConstructContext("job", ""))
    assert isinstance(publisher, JudgesRows)
    extract = Extract("x", "t")
    assert publisher.unfit_columns(extract, pa.schema({"id": "int64"})) == "there is no key column 'order'; found: id"
    assert not publisher.unfit_columns(extract, pa.schema({"order": "int64"}))
    nested = pa.schema({"order": pa.list_(pa.int64())})
    assert "is list<item: int64>, which is no key" in publisher.unfit_columns(extract, nested)


def test_messages_have_as_long_as_they_need_if_some_are_delivered_all_the_time() -> None:
    # The library's own brokers: they answer after 50 ms, to one batch of ten messages at a time.
    slow = {"test.mock.num.brokers": 1, "test.mock.broker.rtt": 50, "batch.num.messages": 10, "max.in.flight": 1}
    settings = {"bootstrap.servers": "", "log_level": 0, "linger.ms": 0, "transactional.id": "t", **slow}
    producer = Producer(settings)
    producer.init_transactions(10)
    producer.begin_transaction()
    for number in range(110):
        producer.produce("rows", str(number))
    with pytest.raises(KafkaException, match="Failed to flush"):
        producer.commit_transaction(0.25)
    commit_all(producer, 0.25)
    assert not len(producer)


def test_staged_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepRefusedError, match=r"staged file .*/gone\.parquet is gone"):
        _step(f"{tmp_path}/gone.parquet")._send(None, LocalStorage())
