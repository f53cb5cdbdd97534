"""Topics that were deleted and created again, on a real broker: their data is not mistaken for the old topic's, and
nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from gobblin_dagster.constructs.clients import kafka as kafka_client
from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark
from tests.integration.kafka.conftest import KafkaJob
from tests.integration.kafka.meddling import Interrupts
from tests.integration.kafka.test_offsets import wait_until
from tests.services.kafka import KafkaBroker
from tests.unit.engine.plan.test_startpoints import wish

pytestmark = pytest.mark.kafka
NewJob = Callable[..., KafkaJob]


def delete(broker: KafkaBroker, topic: str) -> None:
    broker.admin.delete_topics([topic])[topic].result()


def make_anew(broker: KafkaBroker, topic: str) -> None:
    """Delete a topic and make another one of its name, with one partition."""
    delete(broker, topic)
    wait_until(lambda: topic not in broker.admin.list_topics(timeout=5).topics)
    broker.new_topic(topic)


ANEW = pytest.mark.parametrize(
    ("policy", "ids", "note"),
    [
        ("nearest", [0, 1, 2, *range(10, 17)], "reading begins at 0 (on_out_of_range: nearest)."),
        ("earliest", [0, 1, 2, *range(10, 17)], "reading begins at 0 (on_out_of_range: earliest)."),
        ("latest", [0, 1, 2, 16], "(on_out_of_range: latest), {sent} offset(s) before it are not read."),
        ("skip", [0, 1, 2], "it is not read (on_out_of_range: skip)."),
    ],
)


@ANEW
@pytest.mark.parametrize("sent", [2, 3, 6], ids=["shorter", "as long", "outgrown"])
def test_topic_made_anew_goes_on_as_another_log_however_long_it_is(
    new_job: NewJob, broker: KafkaBroker, policy: str, ids: list[int], note: str, sent: int
) -> None:
    job = new_job(on_out_of_range=policy)
    job.send(range(3))
    job.run()
    first = job.state().origin
    make_anew(broker, job.topic)
    job.send(range(16 - sent, 16))
    (told,) = job.plan().notes
    assert f"{job.topic}-0: its topic was created again (its id is " in told
    assert told.endswith(note.format(sent=sent))
    job.run()
    job.send(range(16, 17))
    job.run()
    assert job.ids() == [number for number in ids if number < 3 or number >= 16 - sent]
    assert (job.state().origin != first) is (policy != "skip")
    parts = {f"{job.topic}-0": 3} | ({f"{job.topic}-0@2": sent + 1} if policy != "skip" else {})
    assert job.state().watermark == CompositeWatermark(parts)
    assert len(job.plan().notes) == (policy == "skip")  # reported again while it is not read


def test_partitions_that_a_topic_made_anew_gets_later_are_read_whole(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(partitions=2)
    job.send(range(3))
    job.send(range(3, 6), partition=1)
    job.run()
    make_anew(broker, job.topic)
    job.send(range(6, 8))
    job.run()
    broker.admin.create_partitions([NewPartitions(job.topic, 2)])[job.topic].result()
    job.send(range(8, 15), partition=1)  # more than the former partition 1 held
    job.run()
    assert job.ids() == list(range(15))
    assert job.plan().work_units == ()


def test_topic_of_a_group_made_anew_leaves_the_others_alone(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job()
    topics = [f"{job.topic}.{name}" for name in ("a", "b")]
    for number, topic in enumerate(topics):
        broker.new_topic(topic)
        job.send(range(10 * number, 10 * number + 3), topic=topic)
    job.options |= {"topics": [f"{job.topic}\\..*"], "group": "both"}
    job.run()
    make_anew(broker, topics[0])
    job.run()  # known from the first run on, though it is empty
    job.send(range(5, 10), topic=topics[0])
    job.send(range(13, 15), topic=topics[1])
    job.run()
    assert job.ids("both") == [0, 1, 2, *range(5, 15)]
    assert job.state("both").watermark == CompositeWatermark(
        {f"{topics[0]}-0": 3, f"{topics[0]}-0@2": 5, f"{topics[1]}-0": 5}
    )


def test_failed_rows_of_a_former_topic_are_stated_as_lost(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(offsets_per_work_unit=10)
    job.parts = {
        "converters": [{"type": "tests.integration.kafka.meddling:DeletesBefore30"}],
        "commit": {"policy": "successful"},
        "execution": {"merge_bytes": 0},
    }
    job.send(range(60))
    job.run()
    make_anew(broker, job.topic)
    (told,) = job.plan().notes
    assert "and 20 offset(s) of the former log that failed work units left are lost; reading begins at 0" in told


def test_topic_id_is_taken_over_where_a_state_has_none(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job()
    job.send(range(3))
    with monkeypatch.context() as old_broker:
        old_broker.setattr(kafka_client, "_id_text", lambda identity: "")
        job.run()
    assert job.state().origin == {}
    job.send(range(3, 5))
    assert job.plan().notes == ()
    job.run()
    assert list(job.state().origin) == [job.topic]
    make_anew(broker, job.topic)
    job.send(range(5, 20))
    job.run()
    assert job.ids() == list(range(20))


@pytest.mark.parametrize(
    ("age_s", "newer"), [(0, ", though messages before that were written later"), (3600, "")], ids=["newer", "older"]
)
def test_topic_made_anew_of_a_broker_without_ids_is_read_once_somebody_says_from_where(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, age_s: int, newer: str
) -> None:
    monkeypatch.setattr(kafka_client, "_id_text", lambda identity: "")
    job = new_job()
    job.send(range(3))
    job.run()
    make_anew(broker, job.topic)
    job.send(range(7, 9), time_ms=int((time.time() - age_s) * 1000))
    partition = f"{job.topic}-0"
    ends = f"what was read of it in leader epoch 0 ends at offset 2 now{newer}"
    anew = f"{partition} was committed up to 3, but {ends}: its topic was created again or truncated"
    for policy, then in (
        ("earliest", "reading begins at 0 (on_out_of_range: earliest), 0 offset(s) before it are not read."),
        ("latest", "reading begins at 2 (on_out_of_range: latest), 2 offset(s) before it are not read."),
        ("skip", "it is not read (on_out_of_range: skip)."),
    ):
        job.options["on_out_of_range"] = policy
        assert job.plan().notes == (f"{anew}; {then}",)
    job.options["on_out_of_range"] = "nearest"
    other = "offset 2 holds another message than the one that was read"
    for how, end, more in ((ends, 2, range(9, 12)), (other, 3, range(0))):
        (refused,) = job.run().datasets
        (failure,) = refused.failures
        assert f"{partition} was committed up to 3, but {how}: its log was cut and written again" in failure.message
        assert f"gobblin startpoint set {job.topic} <offset> --partition {partition} --on-rewind a" in failure.message
        assert f"With {end} as the offset, what is missing is given up." in failure.message
        assert job.ids() == [0, 1, 2]
        assert job.state().watermark == CompositeWatermark({partition: 3})
        job.send(more)
    wish(job.root, job.spec, Specific("0"), job.topic, partition=partition)
    job.run()
    assert job.ids() == [0, 1, 2, *range(7, 12)]
    assert job.state().watermark == CompositeWatermark({partition: 5})


READ_LITTLE = {"queued.min.messages": 1000, "fetch.message.max.bytes": 10_000}
"""Most messages are still at the broker when the first ones have been read."""


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({}, id="whole"),
        pytest.param({"commit": {"policy": "partial"}}, id="partial"),
        pytest.param({"execution": {"limit": {"rows": 20_000}}}, id="limited"),
    ],
)
def test_topic_made_anew_while_it_is_read_is_not_taken_for_the_one_that_was_planned(
    new_job: NewJob, broker: KafkaBroker, rules: dict[str, Any]
) -> None:
    job = new_job(config=READ_LITTLE)

    def meddle() -> None:
        make_anew(broker, job.topic)
        job.send(range(100_000, 140_000))

    Interrupts.action = meddle
    job.parts = {"converters": [{"type": "tests.integration.kafka.meddling:Interrupts"}], **rules}
    job.send(range(30_000))
    (failed,) = job.run().datasets
    assert "the topic was created again while it was read: its id is " in failed.failures[0].message
    assert job.ids() == []
    job.parts = {}
    job.run()
    assert job.ids() == list(range(100_000, 140_000))
    assert job.plan().work_units == ()


def test_topic_deleted_while_it_is_read_is_told(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(config=READ_LITTLE, timeout_s=5)
    job.parts = {"converters": [{"type": "tests.integration.kafka.meddling:Interrupts"}]}
    job.send(range(30_000))
    Interrupts.action = partial(delete, broker, job.topic)
    (failed,) = job.run().datasets
    (failure,) = failed.failures
    assert "gone since it was planned: Broker: Unknown topic or partition" in failure.message
    assert not failure.transient


def test_topic_deleted_when_all_of_it_was_read_is_published(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job()
    job.parts = {"converters": [{"type": "tests.integration.kafka.meddling:Interrupts"}]}
    job.send(range(10))
    Interrupts.action = partial(delete, broker, job.topic)
    job.run()
    assert job.ids() == list(range(10))


@pytest.mark.parametrize("text", ["oldest", "upcoming", "specific"])
def test_startpoint_on_a_topic_made_anew_is_one_of_its_own_offsets(
    new_job: NewJob, broker: KafkaBroker, text: str
) -> None:
    job = new_job(partitions=2)
    job.send(range(3))
    job.send(range(3, 6), partition=1)
    job.run()
    make_anew(broker, job.topic)
    job.send(range(10, 16))
    specific = Specific(json.dumps({f"{job.topic}-0@2": 5}))
    positions: dict[str, StartpointPosition] = {"oldest": Oldest(), "upcoming": Upcoming(), "specific": specific}
    wish(job.root, job.spec, positions[text], job.topic)
    assert [note for note in job.plan().notes if "created again" in note] == []
    job.run()
    assert list(job.state().origin) == [job.topic]
    broker.admin.create_partitions([NewPartitions(job.topic, 2)])[job.topic].result()
    job.send(range(16, 18))
    job.send(range(18, 24), partition=1)
    job.run()
    first = {"oldest": 10, "upcoming": 16, "specific": 15}[text]
    assert job.ids() == [*range(6), *range(first, 24)]
