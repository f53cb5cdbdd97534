"""Publishing to topics of a real broker: what readers of committed messages see."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from gobblin_dagster.constructs.publishers.kafka_topic import SendToKafkaStep
from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import StepRefusedError, StorageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.storage import LocalStorage
from tests.integration.kafka.test_offsets import wait_until
from tests.services.kafka import SASL_PASSWORD, SASL_USER, KafkaBroker
from tests.unit.constructs.publishers.table_jobs import ROWS, check_exactly_once, check_lost_store, ids, table_job
from tests.unit.engine.jobs import project, run


def publisher(broker: KafkaBroker, topic: str) -> dict[str, Any]:
    return {
        "type": "kafka_topic",
        "brokers": broker.address,
        "topic": topic,
        "key": "id",
        "commits_topic": f"{topic}.commits",
    }


def committed(broker: KafkaBroker, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (key, value) of all messages that a reader of committed ones sees."""
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "the broker did not answer"
        if message.error() is not None:
            break
        found.append(((message.key() or b"").decode(), json.loads(message.value() or b"null")))
    consumer.close()
    return found


def numbers(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(value["id"] for _, value in committed(broker, topic))


def test_rows_are_messages_with_keys_and_no_file_is_in_the_output(tmp_path: Path, broker: KafkaBroker) -> None:
    broker.new_topic("published")
    result = run(tmp_path, table_job(publisher(broker, "published"), ROWS))

    assert result.status is RunStatus.SUCCEEDED, [one.failures for one in result.datasets]
    assert numbers(broker, "published") == ids(ROWS)
    assert ("3", {"id": 3, "dataset": "c", "value": "v3"}) in committed(broker, "published")
    assert not list((tmp_path / "lake/test").rglob("*.parquet"))


def test_rows_are_sent_once_whatever_fails_and_whatever_else_is_in_the_commits_topic(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.new_topic("repeated")
    broker.new_topic("repeated.commits", partitions=3)  # a topic that we make has one
    others = broker.producer()
    for key in (None, b"\xff", b"gobblin/numbers"):
        others.produce("repeated.commits", b"\xff", key)
    others.flush(30)
    check_exactly_once(
        tmp_path, publisher(broker, "repeated"), lambda: numbers(broker, "repeated"), SendToKafkaStep, monkeypatch
    )


def test_setting_that_the_client_refuses_is_told_before_reading_and_can_be_corrected(
    tmp_path: Path, broker: KafkaBroker
) -> None:
    broker.new_topic("settings")
    good = publisher(broker, "settings")
    (result,) = run(tmp_path, table_job(good | {"config": {"acks": "0"}}, {"c": {"rows": 2}})).datasets
    assert "`acks` must be set to `all`" in result.failures[0].message
    assert result.rows_read == 0
    assert run(tmp_path, table_job(good, {"c": {"rows": 2}})).status is RunStatus.SUCCEEDED


def test_message_that_is_too_large_is_named_with_what_to_do_and_waits(tmp_path: Path, broker: KafkaBroker) -> None:
    broker.new_topic("large")
    small = publisher(broker, "large") | {"config": {"message.max.bytes": "1000"}}
    add = {"type": "add", "columns": {"text": "x" * 1500}}
    (result,) = run(tmp_path, table_job(small, {"c": {"rows": 2}}, converters=[add])).datasets
    assert result.failures[0].code == "quarantined"
    assert "message 1 has 1,5" in result.failures[0].message
    assert "`config: {message.max.bytes: ...}`" in result.failures[0].message
    assert numbers(broker, "large") == []


def test_messages_above_what_the_topic_takes_wait_until_it_takes_them(tmp_path: Path, broker: KafkaBroker) -> None:
    broker.new_topic("narrow", config={"max.message.bytes": "1000"})
    job = table_job(
        publisher(broker, "narrow") | {"config": {"compression.type": "none"}},
        {"c": {"rows": 2}},
        converters=[{"type": "add", "columns": {"text": "x" * 1500}}],
    )
    (result,) = run(tmp_path, job).datasets
    assert "above its `max.message.bytes`. Raise it, and the next run" in result.failures[0].message
    broker.configure("narrow", "max.message.bytes", "10000")
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert numbers(broker, "narrow") == [0, 1]


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set_back"])
def test_store_that_does_not_know_what_the_topic_notes_sends_nothing(
    tmp_path: Path, broker: KafkaBroker, is_lost: bool
) -> None:
    topic = f"kept-{is_lost}"
    broker.new_topic(topic)
    says = f"Kafka topic {topic}.commits, beside topic {topic}, notes commit "
    check_lost_store(tmp_path, publisher(broker, topic), lambda: numbers(broker, topic), says, is_lost=is_lost)


def test_other_topic_than_before_is_refused(tmp_path: Path, broker: KafkaBroker) -> None:
    """The commit is in the former topic; with the same commits topic, or another one."""
    for topic in ("former", "later"):
        broker.new_topic(topic)
    run(tmp_path, table_job(publisher(broker, "former"), {"c": {"rows": 10}}))
    for commits in ("former.commits", "later.commits"):
        job = table_job(publisher(broker, "later") | {"commits_topic": commits}, {"c": {"rows": 20}})
        (failed,) = run(tmp_path, job).datasets
        assert "and notes no other: the table or topic was deleted, or is another one" in failed.failures[0].message
    assert numbers(broker, "later") == []


def test_topic_that_was_created_again_lacks_what_was_sent_to_the_former_one(
    tmp_path: Path, broker: KafkaBroker
) -> None:
    broker.new_topic("again")
    run(tmp_path, table_job(publisher(broker, "again"), {"c": {"rows": 10}}))
    broker.admin.delete_topics(["again"])["again"].result()
    wait_until(lambda: "again" not in broker.admin.list_topics(timeout=5).topics)
    broker.new_topic("again")
    (failed,) = run(tmp_path, table_job(publisher(broker, "again"), {"c": {"rows": 20}})).datasets
    assert "lacks commit" in failed.failures[0].message
    assert numbers(broker, "again") == []


def test_topic_that_is_not_there_is_named_as_the_reason_and_the_next_run_makes_good(
    tmp_path: Path, broker: KafkaBroker
) -> None:
    job = table_job(publisher(broker, "not-yet") | {"timeout_s": 2}, ROWS)
    failed = run(tmp_path, job)
    assert all("Unknown topic or partition" in one.problem for one in failed.datasets), failed
    broker.new_topic("not-yet")
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert numbers(broker, "not-yet") == ids(ROWS)


def test_run_that_wakes_late_sends_nothing(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run stops in the middle of its transaction, another finishes the sequence, and the first goes on."""
    broker.new_topic("fenced")
    job = table_job(publisher(broker, "fenced"), {"c": {"rows": 50}})
    send, execute = SendToKafkaStep._send, SendToKafkaStep.execute

    def sleepy(self: SendToKafkaStep, producer: Any, storage: Storage) -> None:
        send(self, producer, storage)
        producer.flush(30)
        monkeypatch.setattr(SendToKafkaStep, "_send", send)
        other = threading.Thread(target=execute, args=(self, storage))
        other.start()
        other.join()

    monkeypatch.setattr(SendToKafkaStep, "_send", sleepy)
    result = run(tmp_path, job)

    assert "fenced" in result.datasets[0].failures[0].message.lower()
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert numbers(broker, "fenced") == list(range(50))


def test_broker_that_is_away_is_a_clear_failure_and_the_next_run_makes_good(
    tmp_path: Path, broker: KafkaBroker
) -> None:
    broker.new_topic("away")
    away = publisher(broker, "away") | {"timeout_s": 1}
    result = run(tmp_path, table_job(away | {"brokers": "127.0.0.1:1"}, {"c": {"rows": 3}}))

    assert result.status is RunStatus.FAILED
    assert "cannot publish to Kafka topic away" in result.datasets[0].failures[0].message


@pytest.mark.parametrize(("topic", "commit"), [("behind", ""), ("behind-abandoned", "/" + "0" * 32)])
def test_notes_behind_the_transaction_of_a_killed_run_count(
    tmp_path: Path, broker: KafkaBroker, topic: str, commit: str
) -> None:
    """Brokers hide them until that transaction, or that of `abandon`, ends: the next plan waits for it, and ends it."""
    broker.new_topic(topic)
    to_topic = publisher(broker, topic)
    run(tmp_path, table_job(to_topic, {"c": {"rows": 5}}))
    name = f"gobblin/numbers/other/all/{topic}"
    killed = broker.producer(transactional_id=name)
    killed.init_transactions(30)
    killed.begin_transaction()
    killed.produce(f"{topic}.commits", b"0", (name + commit).encode())
    killed.flush(30)

    rows = {"c": {"rows": 9}}
    assert run(tmp_path, table_job(to_topic, rows)).status is RunStatus.SUCCEEDED
    rows = {"c": {"rows": 12}}
    result = run(tmp_path, table_job(to_topic | {"timeout_s": 3}, rows))
    assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures
    assert numbers(broker, topic) == list(range(12))
    with pytest.raises(KafkaException, match="fenced"):
        killed.commit_transaction(30)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_run_that_wakes_after_its_commit_was_abandoned_sends_nothing(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    topic = f"abandoned-{in_transaction}"
    broker.new_topic(topic)
    to_topic = publisher(broker, topic)
    job = table_job(to_topic, {"c": {"rows": 20}})
    run(tmp_path, table_job(to_topic, {"c": {"rows": 10}}))
    execute, send = SendToKafkaStep.execute, SendToKafkaStep._send
    opened = project(tmp_path, job)

    def abandon() -> None:
        monkeypatch.undo()
        with closing(opened.open_store()) as store:
            (waiting,) = store.load_sequences("numbers", {SequenceState.PREPARED})
            abandon_sequence(opened, store, waiting.id)
            # A command that was killed when the topic had the note, and the store did not.
            frozen[0].forbid()
            (recovered,) = recover_job(JobContext.of(opened, job, store))
            assert recovered.state is SequenceState.QUARANTINED
            assert abandon_sequence(opened, store, waiting.id).state is SequenceState.ABORTED
        assert run(tmp_path, job).status is RunStatus.SUCCEEDED

    frozen: list[SendToKafkaStep] = []

    def freeze(self: SendToKafkaStep, _: Storage) -> None:
        frozen.append(self)
        raise OSError("frozen")

    def freeze_inside(_: SendToKafkaStep, producer: Any, storage: Storage) -> None:
        abandon()
        send(frozen[0], producer, storage)

    monkeypatch.setattr(SendToKafkaStep, "execute", freeze)
    run(tmp_path, job)
    if in_transaction:
        monkeypatch.setattr(SendToKafkaStep, "_send", freeze_inside)
        with pytest.raises(StorageError, match="fenced"):
            execute(frozen[0], LocalStorage())
    else:
        abandon()
        with pytest.raises(StepRefusedError, match="notes that this commit was abandoned"):
            execute(frozen[0], LocalStorage())
    assert numbers(broker, topic) == list(range(20))
    assert run(tmp_path, table_job(to_topic, {"c": {"rows": 30}})).status is RunStatus.SUCCEEDED
    assert numbers(broker, topic) == list(range(30))


def test_own_topic_is_not_read_from_a_broker_by_another_address(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ("read-own", "read-own.commits", "read-other")
    producer = broker.producer()
    for topic in topics:
        broker.new_topic(topic)
        producer.produce(topic, b"1")
    producer.flush(30)
    monkeypatch.setenv("LAKE_PASSWORD", SASL_PASSWORD)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": SASL_USER}
    source: dict[str, Any] = {
        "brokers": broker.sasl_address,
        "config": login,
        "config_env": {"sasl.password": "LAKE_PASSWORD"},
    }
    source |= {"type": "kafka", "topics": ["read-.*"], "bootstrap": "earliest", "key": None}
    to_topic = {**publisher(broker, "read-own"), "key": None}
    read = run(tmp_path, table_job(to_topic, {}, source=source)).datasets
    assert {one.dataset_urn for one in read if "publishes to it" in str(one.failures)} == {*topics[:2]}
    (read_together,) = run(tmp_path, table_job(to_topic, {}, job="together", source=source | {"group": "all"})).datasets
    assert "publishes to it" in read_together.failures[0].message
