"""Offsets on a real broker: what is read, once, whatever happens to the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewPartitions

from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.watermark import CompositeWatermark
from tests.integration.kafka.conftest import KafkaJob
from tests.integration.kafka.meddling import FailsByChance
from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.kafka
NewJob = Callable[..., KafkaJob]


def test_each_run_reads_what_is_new_and_nothing_twice(new_job: NewJob) -> None:
    job = new_job(partitions=2)
    job.send(range(50))
    job.send(range(50, 80), partition=1)
    assert job.run().status is RunStatus.SUCCEEDED
    assert job.ids() == list(range(80))
    (idle,) = job.run().datasets
    assert idle.outcome is DatasetOutcome.IDLE
    job.send(range(80, 100), partition=1)
    job.run()
    assert job.ids() == list(range(100))
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 50, f"{job.topic}-1": 50})


def test_limited_runs_read_on_at_each_partitions_offset(new_job: NewJob) -> None:
    job = new_job(partitions=2)
    job.parts = {"execution": {"block_bytes": 1 << 16, "limit": {"rows": 250}}}
    job.send(range(1000))
    job.send(range(1000, 1600), partition=1)
    read: list[int] = []
    while job.plan().has_work:
        before = job.ids()
        assert job.run().status is RunStatus.SUCCEEDED
        assert len(job.ids()) == len(set(job.ids()))
        read.append(len(job.ids()) - len(before))
    assert read == [500, 500, 350, 250]
    assert job.ids() == list(range(1600))


def test_messages_before_one_that_does_not_decode_are_published(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(partitions=2)
    job.parts = {"commit": {"policy": "partial"}}
    job.send(range(50))
    job.send(range(50, 600), partition=1)
    producer = broker.producer()
    producer.produce(job.topic, b"no JSON", partition=1)
    producer.flush()
    (part,) = job.run().datasets
    assert (part.outcome, len(part.failures)) == (DatasetOutcome.COMMITTED, 1)
    assert job.ids() == list(range(600))
    job.options["on_undecodable"] = "null"
    (rest,) = job.run().datasets
    assert rest.failures == ()
    assert sorted(number for number in job.table()["id"].to_pylist() if number is not None) == list(range(600))


def test_reading_ends_at_the_offsets_that_the_plan_saw(new_job: NewJob) -> None:
    job = new_job(offsets_per_work_unit=7)
    job.parts = {"converters": [{"type": "tests.integration.kafka.meddling:SendsMore"}]}
    job.send(range(20))
    job.run()
    assert job.ids() == list(range(20))
    job.parts = {}
    assert job.plan().low == CompositeWatermark({f"{job.topic}-0": 20})
    job.run()
    assert job.ids() == [*range(20), *[1000] * 3]  # one for each work unit


def test_latest_begins_at_the_first_run_and_loses_nothing_afterwards(new_job: NewJob) -> None:
    job = new_job(bootstrap="latest")
    job.send(range(10))
    (first,) = job.run().datasets
    assert first.outcome is DatasetOutcome.COMMITTED
    assert "10 offset(s) before it are not read" in first.notes[0]
    job.send(range(10, 15))  # with the beginning not kept, the next run would begin behind these
    job.run()
    assert job.ids() == list(range(10, 15))


@pytest.mark.parametrize("options", [{"bootstrap": "latest"}, {"bootstrap": "lookback", "lookback": 2}])
def test_topic_that_was_empty_loses_nothing_of_what_comes(new_job: NewJob, options: dict[str, Any]) -> None:
    job = new_job(**options)
    job.run()
    job.send(range(5))
    job.run()
    assert job.ids() == list(range(5))


def test_lookback_begins_before_the_end(new_job: NewJob) -> None:
    job = new_job(bootstrap="lookback", lookback=4)
    job.send(range(10))
    job.run()
    assert job.ids() == [6, 7, 8, 9]


def test_skip_leaves_a_topic_alone(new_job: NewJob) -> None:
    job = new_job(bootstrap="skip")
    job.send(range(10))
    (dataset,) = job.run().datasets
    assert dataset.outcome is DatasetOutcome.IDLE
    assert "is not read" in job.plan().notes[0]


def test_new_partition_is_read_from_its_beginning(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(bootstrap="latest")
    job.send(range(10))
    job.run()
    broker.admin.create_partitions([NewPartitions(job.topic, 2)])[job.topic].result()
    job.send(range(10, 15), partition=1)
    job.run()
    assert job.ids() == list(range(10, 15))


@pytest.mark.parametrize(
    ("policy", "ids"),
    [
        ("nearest", [*range(10), *range(50, 110)]),
        ("earliest", [*range(10), *range(50, 110)]),
        ("latest", [*range(10), *range(100, 110)]),
        ("skip", list(range(10))),
    ],
)
def test_retention_that_passes_the_watermark_follows_the_policy(
    new_job: NewJob, broker: KafkaBroker, policy: str, ids: list[int]
) -> None:
    job = new_job(on_out_of_range=policy)
    job.send(range(10))
    job.run()
    job.send(range(10, 100))
    delete_before(broker, job.topic, 50)
    assert "40 offset(s) [10, 50) are " in job.plan().notes[0] or "[10, 50) are gone" in job.plan().notes[0]
    job.run()
    job.send(range(100, 110))
    job.run()
    assert job.ids() == ids
    assert job.plan().work_units == ()


def test_offsets_that_vanish_while_they_are_read_fail_the_work_unit_and_are_stated_next_time(
    new_job: NewJob, broker: KafkaBroker
) -> None:
    job = new_job(offsets_per_work_unit=10)
    job.parts = {
        "converters": [{"type": "tests.integration.kafka.meddling:DeletesBefore30"}],
        "commit": {"policy": "successful"},
        "execution": {"merge_bytes": 0},  # the first work unit, read well, is not to be read again with the others
    }
    job.send(range(60))
    (dataset,) = job.run().datasets
    assert [failure.code for failure in dataset.failures] == ["extract", "extract"]
    assert all("gone since it was planned" in failure.message for failure in dataset.failures)
    job.parts = {}
    assert sum("are lost" in note for note in job.plan().notes) == 1
    job.run()
    assert job.ids() == [*range(10), *range(30, 60)]
    assert job.plan().work_units == ()


def test_topic_that_vanished_keeps_its_watermark(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job()
    job.send(range(3))
    job.run()
    broker.admin.delete_topics([job.topic])[job.topic].result()
    wait_until(lambda: job.topic not in broker.admin.list_topics(timeout=5).topics)
    (dataset,) = job.run().datasets
    assert dataset.outcome is DatasetOutcome.IDLE
    assert "all of its topics are gone" in job.plan().notes[0]
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 3})


def test_aborted_and_open_transactions_are_passed_over_and_never_loop(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job()
    producer = broker.producer(transactional_id=job.topic)
    producer.init_transactions()

    def transact(ids: range, *, commit: bool) -> None:
        producer.begin_transaction()
        for number in ids:
            producer.produce(job.topic, b'{"id": %d}' % number)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()

    transact(range(10), commit=True)
    transact(range(10, 20), commit=False)  # the log ends with messages that nobody may see, and control records
    job.run()
    assert job.ids() == list(range(10))
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 22})
    assert job.plan().work_units == ()

    producer.begin_transaction()
    producer.produce(job.topic, b'{"id": 20}')
    producer.flush()
    job.send(range(30, 33))  # behind an open transaction: not to be read yet
    assert job.plan().work_units == ()
    waits = f"{job.topic}-0: 4 offset(s) from 22 on are read when a transaction that is open has ended"
    assert job.plan().notes == (f"{waits} (isolation: read_committed).",)
    producer.commit_transaction()
    job.run()
    assert job.ids() == [*range(10), 20, 30, 31, 32]


def test_uncommitted_rows_are_read_when_asked_for(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(isolation="read_uncommitted")
    producer = broker.producer(transactional_id=job.topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(job.topic, b'{"id": 1}')
    producer.flush()
    producer.abort_transaction()
    job.run()
    assert job.ids() == [1]


def test_compacted_topic_reaches_its_end_though_offsets_are_missing(new_job: NewJob, broker: KafkaBroker) -> None:
    compacting = {
        "cleanup.policy": "compact",
        "segment.ms": "50",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "1",
    }
    job = new_job(topic_config=compacting, metadata=["offset"], offsets_per_work_unit=40)
    job.send(range(100))
    time.sleep(0.1)  # a segment is rolled by the first message after `segment.ms`
    job.send(range(100, 110))

    def is_compacted() -> bool:
        left = KafkaJob(job.root / str(time.monotonic_ns()), broker, job.topic)
        left.run()
        return len(left.ids()) < 60

    wait_until(is_compacted)
    job.run()
    assert set(range(100, 110)) <= set(job.ids())
    assert len(job.ids()) < 60
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 110})
    assert job.plan().work_units == ()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.storm) for seed in (1, 2))])
def test_incremental_equals_full_under_random_arrivals_and_failures(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(FailsByChance, "chance", chance)
    job = new_job(partitions=2, offsets_per_work_unit=8)
    failing = {
        "converters": [{"type": "tests.integration.kafka.meddling:FailsByChance"}],
        "commit": {"policy": "successful"},
    }
    sent = 0
    for step in range(5):
        if step == 3:
            broker.admin.create_partitions([NewPartitions(job.topic, 3)])[job.topic].result()
        for partition in range(2 if step < 3 else 3):
            count = chance.randrange(20)
            job.send(range(sent, sent + count), partition=partition)
            sent += count
        job.parts = failing
        job.run()
    job.parts = {}
    job.run()
    assert job.ids() == list(range(sent))
    assert job.plan().work_units == ()


def delete_before(broker: KafkaBroker, topic: str, offset: int) -> None:
    """Delete messages as retention does."""
    for future in broker.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the broker did not come to it in time"
        time.sleep(0.1)
