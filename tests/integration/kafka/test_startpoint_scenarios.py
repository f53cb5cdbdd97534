"""The cases of startpoints on a real broker; the state store is SQLite."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from confluent_kafka import TopicPartition

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Oldest, Specific, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.spec.job import JobSpec
from tests.integration.kafka.conftest import KafkaJob
from tests.integration.kafka.test_offsets import wait_until
from tests.integration.kafka.test_startpoints import send_at
from tests.integration.startpoint_scenarios import NOON, StartpointScenarios, World

pytestmark = pytest.mark.kafka


@dataclass
class Topics(World):
    """A topic for each dataset; messages of partition 0 have the times of `when`."""

    job: KafkaJob = field(kw_only=True)

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    def add(self, numbers: range, which: int = 0) -> None:
        if which and "topics" not in self.job.options:
            self.job.broker.new_topic(self.urns[which], 1, {"retention.ms": "-1"})
            self.job.options["topics"] = list(self.urns)
        producer = self.job.broker.producer()
        for number in numbers:
            at = int(self.when(number).timestamp() * 1000)
            producer.produce(self.urns[which], json.dumps({"id": number}).encode(), partition=0, timestamp=at)
        producer.flush()

    def at(self, number: int) -> str:
        return json.dumps({f"{self.urns[0]}-0": number})

    def when(self, number: int) -> datetime:
        return NOON + timedelta(hours=number)

    def beyond(self) -> str:
        return self.at(6)

    def unreachable(self) -> JobSpec:
        return self.job.spec.model_copy(
            update={"source": self.job.spec.source.model_copy(update={"brokers": "127.0.0.1:1", "timeout_s": 1})}
        )

    def vanish(self) -> None:
        admin = self.job.broker.admin
        admin.delete_topics([self.urns[0]])[self.urns[0]].result()
        wait_until(lambda: self.urns[0] not in admin.list_topics(timeout=5).topics)

    def purge(self, upto: int) -> None:
        """Delete the messages of partition 0 below an offset, as retention does."""
        (done,) = self.job.broker.admin.delete_records([TopicPartition(self.urns[0], 0, upto)]).values()
        done.result()


class TestKafka(StartpointScenarios):
    """Topics of a broker."""

    @pytest.fixture
    def world(self, new_job: Callable[..., KafkaJob]) -> Iterator[Topics]:
        job = new_job(partitions=2, topic_config={"retention.ms": "-1"})
        with closing(Topics(job.root, (job.topic, f"{job.topic}.more"), job=job)) as world:
            yield world

    def test_x1_new_startpoint_of_one_partition_keeps_the_uncommitted_fan_out_of_another(self, world: Topics) -> None:
        first, second = (f"{world.urns[0]}-{number}" for number in (0, 1))
        world.add(range(5))
        world.job.send(range(100, 105), partition=1)
        world.run()
        world.write(Specific("3"), first)
        world.die()
        world.write(Oldest(), second)
        assert [(one.partition, one.generation) for one in world.waiting()] == [(first, 2), (second, 0)]
        world.run()
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4, *sorted([*range(100, 105)] * 2)]
        assert world.waiting() == []

    def test_x2_keys_whose_names_with_dots_read_alike_are_different_keys(self, world: Topics) -> None:
        """Topic `t` in one partition and topic `t.more` in another one: joined with dots, their keys would be one."""
        topic, more = world.urns
        world.add(range(5))
        world.add(range(5), 1)
        world.run()
        world.write(Specific("4"), f"{topic}-0")
        world.write(Specific("2"), f"{more}-0", which=1)
        assert len(world.waiting()) == 2
        world.run()
        assert world.ids() == [0, 1, 2, 3, 4, 4]
        assert world.ids(1) == [0, 1, 2, 2, 3, 3, 4, 4]

    @pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
    def test_all_four_types_of_one_partition_leave_the_other_one(self, world: Topics, is_first: bool) -> None:
        mine = f"{world.urns[0]}-0"
        world.add(range(5))
        world.job.send(range(100, 103), partition=1)
        before = [] if is_first else list(range(5))
        if not is_first:
            world.run()
        for position, read in (
            (Specific("3"), [3, 4]),
            (Timestamp(world.when(2)), [2, 3, 4]),
            (Oldest(), [0, 1, 2, 3, 4]),
            (Upcoming(), []),
        ):
            world.write(position, mine)
            assert world.run().outcome is DatasetOutcome.COMMITTED
            before += read
            assert world.ids() == sorted([*before, 100, 101, 102]), str(position)
            assert world.state().watermark == CompositeWatermark({mine: 5, f"{world.urns[0]}-1": 3})

    def test_x8_position_that_was_there_when_it_was_set_is_refused_when_it_is_gone(self, world: Topics) -> None:
        world.add(range(5))
        world.run()
        saved = world.write(Specific(world.at(2)))
        world.purge(4)
        assert "has the offsets 4 to 5, and 2 is not among them" in world.run().failures[0].message
        assert (world.state().version, world.waiting()) == (1, [saved])

    def test_x11_partition_that_vanished_is_reported_and_its_startpoint_expires(self, world: Topics) -> None:
        """A topic that is created again may have fewer partitions."""
        gone = f"{world.urns[0]}-1"
        world.add(range(5))
        world.run()
        saved = world.write(Oldest(), gone)
        world.vanish()
        world.job.broker.new_topic(world.urns[0], 1)
        world.job.send(range(10, 12))
        assert any(f"{gone} at oldest waits" in note for note in world.plan().notes)
        world.run()
        assert world.waiting() == [saved]
        past = saved.created_at - timedelta(days=30)
        world.put(replace(saved, created_at=past, expires_at=past + timedelta(days=7)))
        world.run()
        assert (world.waiting(), world.changes()[-1]) == ([], "expired")

    @pytest.mark.parametrize(("is_first", "has_partition"), [(True, True), (False, False)], ids=["partition", "whole"])
    def test_pinned_position_skips_nothing_of_a_topic_that_is_created_again(
        self, world: Topics, has_partition: bool, is_first: bool
    ) -> None:
        world.add(range(10))
        if not is_first:
            world.run()
        world.write(Upcoming(), f"{world.urns[0]}-0" if has_partition else "")
        world.die()
        world.vanish()
        world.job.broker.new_topic(world.urns[0], 2)
        world.job.send(range(100, 115))
        world.run()
        assert world.ids() == [*([] if is_first else range(10)), *range(100, 115)]
        assert world.waiting() == []

    def test_offset_of_a_topic_that_was_created_again_is_refused(self, world: Topics) -> None:
        """Fanned out, it keeps the id of the topic; offset 2 of the new topic is another message."""
        world.add(range(5))
        world.write(Specific("2"), f"{world.urns[0]}-0")
        world.die()
        world.vanish()
        world.job.broker.new_topic(world.urns[0], 2)
        world.job.send(range(100, 105))
        (saved,) = world.waiting()
        assert f"{world.urns[0]} was created again or changed since then" in world.run().failures[0].message
        assert world.waiting() == [saved]

    def test_timestamps_are_those_of_messages(self, world: Topics) -> None:
        send_at(world.job, 7, NOON - timedelta(days=30))
        world.add(range(5))
        world.write(Timestamp(NOON))
        world.run()
        assert world.ids() == [0, 1, 2, 3, 4]
