"""Startpoints on a real broker: offsets given, looked up by time, the first and the next one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from gobblin_dagster.core.startpoint import Oldest, Specific, Startpoint, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark
from tests.integration.kafka.conftest import KafkaJob
from tests.integration.kafka.test_offsets import wait_until
from tests.unit.engine.plan.test_startpoints import waiting, wish

pytestmark = pytest.mark.kafka
NewJob = Callable[..., KafkaJob]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def want(job: KafkaJob, position: StartpointPosition) -> Startpoint:
    return wish(job.root, job.spec, position, job.topic)


def send_at(job: KafkaJob, number: int, instant: datetime, partition: int = 0) -> None:
    """Produce a message of another time than now."""
    producer = job.broker.producer()
    timestamp = int(instant.timestamp() * 1000)
    producer.produce(job.topic, json.dumps({"id": number}).encode(), partition=partition, timestamp=timestamp)
    producer.flush()


@pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
def test_run_begins_at_the_offset_of_each_partition(new_job: NewJob, is_first: bool) -> None:
    job = new_job(partitions=2)
    job.send(range(10))
    job.send(range(100, 105), partition=1)
    everything = [*range(10), *range(100, 105)]
    before = [] if is_first else everything
    if not is_first:
        job.run()
    want(job, Specific(json.dumps({f"{job.topic}-0": 8, f"{job.topic}-1": 5})))
    job.run()
    assert job.ids() == sorted([*before, 8, 9])
    want(job, Oldest())
    job.run()
    assert job.ids() == sorted([*before, 8, 9, *everything])
    assert waiting(job.root, job.spec) == {}
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 10, f"{job.topic}-1": 5})


def test_partition_that_is_not_named_stays_where_it_is(new_job: NewJob) -> None:
    job = new_job(partitions=2)
    job.send(range(10))
    job.send(range(100, 105), partition=1)
    job.run()
    want(job, Specific(json.dumps({f"{job.topic}-1": 3})))
    job.run()
    assert job.ids() == sorted([*range(10), *range(100, 105), 103, 104])


def test_timestamp_is_the_first_offset_at_or_after_it(new_job: NewJob) -> None:
    job = new_job(partitions=2, topic_config={"retention.ms": "-1"})
    for hour in range(5):
        send_at(job, hour, NOON + timedelta(hours=hour))
    send_at(job, 100, NOON, partition=1)
    want(job, Timestamp(NOON + timedelta(hours=2, minutes=30)))
    assert job.plan().low == CompositeWatermark({f"{job.topic}-0": 3, f"{job.topic}-1": 1})
    job.run()
    assert job.ids() == [3, 4], "a partition with nothing that late begins at its end"


def test_instant_before_1970_or_inside_of_a_millisecond_is_one_of_messages_too(new_job: NewJob) -> None:
    job = new_job(topic_config={"retention.ms": "-1"})
    for number in range(3):
        send_at(job, number, NOON + timedelta(milliseconds=number))
    places = {
        datetime(1900, 1, 1, tzinfo=UTC): 0,
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC): 0,  # -1 ms, which brokers take for the end
        NOON + timedelta(milliseconds=1): 1,
        NOON + timedelta(milliseconds=1, microseconds=1): 2,
    }
    for instant, offset in places.items():
        want(job, Timestamp(instant))
        assert job.plan().low == CompositeWatermark({f"{job.topic}-0": offset})


def test_upcoming_reads_what_comes_and_nothing_before(new_job: NewJob) -> None:
    job = new_job()
    job.send(range(10))
    want(job, Upcoming())
    assert job.plan().low == CompositeWatermark({f"{job.topic}-0": 10})
    job.run()
    job.send(range(10, 15))
    job.run()
    assert job.ids() == list(range(10, 15))
    assert waiting(job.root, job.spec) == {}


@pytest.mark.parametrize("bootstrap", ["latest", "skip"])
def test_startpoint_counts_more_than_the_bootstrap(new_job: NewJob, bootstrap: str) -> None:
    job = new_job(bootstrap=bootstrap)
    job.send(range(10))
    want(job, Oldest())
    job.run()
    assert job.ids() == list(range(10))


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ({"0": 5}, "there is no partition"),
        ({"{topic}-0": 11}, "has the offsets 0 to 10, and 11 is not among them"),
        ({"{topic}-0": -1}, "and -1 is not among them"),
    ],
    ids=["partition", "behind", "before"],
)
def test_offset_that_the_broker_has_not_is_refused(new_job: NewJob, offsets: dict[str, int], problem: str) -> None:
    job = new_job()
    job.send(range(10))
    saved = want(job, Specific(json.dumps({name.format(topic=job.topic): n for name, n in offsets.items()})))
    (failed,) = job.run().datasets
    assert problem in failed.failures[0].message
    assert waiting(job.root, job.spec) == {job.topic: saved}


def test_topic_made_anew_goes_on_at_the_startpoint(new_job: NewJob) -> None:
    job = new_job()
    job.send(range(10))
    job.run()
    job.broker.admin.delete_topics([job.topic])[job.topic].result()
    wait_until(lambda: job.topic not in job.broker.admin.list_topics(timeout=5).topics)
    job.broker.new_topic(job.topic)
    job.send(range(20, 25))
    want(job, Specific(json.dumps({f"{job.topic}-0@2": 3})))
    job.run()
    assert job.ids() == [*range(10), 23, 24]
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 10, f"{job.topic}-0@2": 5})


@pytest.mark.parametrize(
    ("position", "read"),
    [(Specific("8"), [8, 9]), (Oldest(), list(range(10))), (Timestamp(NOON + timedelta(hours=7)), [7, 8, 9])],
    ids=["specific", "oldest", "timestamp"],
)
def test_startpoint_of_a_partition_moves_this_partition_alone(
    new_job: NewJob, position: StartpointPosition, read: list[int]
) -> None:
    job = new_job(partitions=2, topic_config={"retention.ms": "-1"})
    for hour in range(10):
        send_at(job, hour, NOON + timedelta(hours=hour))
        send_at(job, 100 + hour, NOON + timedelta(hours=hour), partition=1)
    everything = [*range(10), *range(100, 110)]
    job.run()
    wish(job.root, job.spec, position, job.topic, partition=f"{job.topic}-0")
    job.run()
    assert job.ids() == sorted([*everything, *read])
    assert job.state().watermark == CompositeWatermark({f"{job.topic}-0": 10, f"{job.topic}-1": 10})


def test_upcoming_of_a_partition_skips_this_partition_alone_and_a_range_is_bounded(new_job: NewJob) -> None:
    job = new_job(partitions=2)
    job.send(range(5))
    job.send(range(100, 105), partition=1)
    wish(job.root, job.spec, Upcoming(), job.topic, partition=f"{job.topic}-0")
    job.run()
    assert job.ids() == list(range(100, 105))
    job.send(range(5, 8))
    ends = {"until": Specific("3"), "partition": f"{job.topic}-1"}
    wish(job.root, job.spec, Specific("1"), job.topic, **ends)
    job.run()
    assert job.ids() == sorted([*range(100, 105), 101, 102])
    job.run()
    assert job.ids() == sorted([*range(100, 105), 101, 102, 5, 6, 7])
    wish(job.root, job.spec, Oldest(), job.topic, partition=f"{job.topic}-9")
    assert f"the source does not have partition {job.topic}-9 now" in job.plan().notes[0]
