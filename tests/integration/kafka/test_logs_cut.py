"""Logs that were cut, as by an unclean election or a disk that was set back, and written again: nothing is lost, and
nothing is read twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gobblin_dagster.constructs.sources.kafka import extractor
from gobblin_dagster.constructs.sources.kafka.marks import mark_of
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Specific
from gobblin_dagster.core.watermark import CompositeWatermark
from tests.integration.kafka.conftest import KafkaJob
from tests.services.kafka import KafkaBroker
from tests.unit.engine.plan.test_startpoints import wish

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
NewJob = Callable[..., KafkaJob]
CUT = {"grown": (10, 15), "short": (10, 5), "last": (19, 5), "unknown": (10, 15), "given.up": (10, 15), "back": (10, 5)}
"""Where the log of each topic is cut, of 20 messages, and how many are written then."""


def test_messages_written_again_below_the_watermark_are_read(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job()
    job.options["topics"] = [f"{job.topic}\\..*"]
    topics = {name: f"{job.topic}.{name}" for name in CUT}
    sizes = {}
    for name, topic in topics.items():
        broker.new_topic(topic)
        job.send(range(CUT[name][0]), topic=topic)
        sizes[topic] = broker.log_file(topic).stat().st_size
        # Messages in "back" before the cut are newer than those behind it, as when a copy of the broker was written on.
        job.send(range(CUT[name][0], 20), topic=topic, time_ms=1_000_000_000_000 if name == "back" else 0)

    def marked(message: Any) -> RowMark:
        """As brokers that name no epoch; or such as are set back to a copy, and give an epoch a second time."""
        mark = mark_of(message)
        return replace(mark, epoch=-1) if message.topic().endswith(("unknown", "up")) else mark

    monkeypatch.setattr(extractor, "mark_of", marked)
    job.run()
    broker.stop(signal.SIGKILL)
    for topic, size in sizes.items():
        os.truncate(broker.log_file(topic), size)
    broker.start()
    for name, topic in topics.items():
        job.send(range(30, 30 + CUT[name][1]), topic=topic)

    result = {dataset.dataset_urn: dataset for dataset in job.run().datasets}
    for name in ("grown", "short", "last"):
        cut, more = CUT[name]
        assert result[topics[name]].notes == (
            f"{topics[name]}-0 was committed up to 20, but what was read of it in leader epoch 0 ends at offset {cut} "
            f"now: its log was truncated; reading begins at {cut} (on_out_of_range: nearest), and what was read from "
            "there on before, up to 20, stays published.",
        )
        assert job.ids(topics[name]) == [*range(20), *range(30, 30 + more)]
        assert job.state(topics[name]).watermark == CompositeWatermark(
            {f"{topics[name]}-0": 20, f"{topics[name]}-0@2": cut + more}
        )
    other = "offset 19 holds another message than the one that was read"
    later = "what was read of it in leader epoch 0 ends at offset 10 now, though messages before that were written"
    for name, first, how in (("unknown", 10, other), ("given.up", 20, other), ("back", 10, later)):
        topic = topics[name]
        assert result[topic].outcome is DatasetOutcome.FAILED
        (failure,) = result[topic].failures
        assert f"{topic}-0 was committed up to 20, but {how}" in failure.message
        assert f"gobblin startpoint set {topic} <offset> --partition {topic}-0" in failure.message
        wish(job.root, job.spec, Specific(str(first)), topic, partition=f"{topic}-0")
    for topic in topics.values():
        job.send(range(60, 62), topic=topic)
    job.run()
    for name, topic in topics.items():
        again = range(40, 45) if name == "given.up" else range(30, 30 + CUT[name][1])
        assert job.ids(topic) == [*range(20), *again, 60, 61]
