"""The broker goes away in the middle of a run: no row is lost, none is doubled."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from tests.integration.kafka.conftest import KafkaJob
from tests.integration.kafka.meddling import Interrupts
from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
NewJob = Callable[..., KafkaJob]
ROWS = 30_000
# Little is fetched ahead, so that most rows still lie on the broker when it goes away.
READ_LITTLE = {"config": {"queued.min.messages": 1000, "fetch.message.max.bytes": 10_000}}
INTERRUPTS = {"converters": [{"type": "tests.integration.kafka.meddling:Interrupts"}]}


def filled(new_job: NewJob, **options: object) -> KafkaJob:
    job = new_job(**READ_LITTLE, **options)
    job.parts = INTERRUPTS
    job.send(range(ROWS))
    return job


def test_broker_that_comes_back_in_time_goes_unnoticed(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = filled(new_job)

    def restart() -> None:
        broker.stop(signal.SIGKILL)
        broker.start()

    monkeypatch.setattr(Interrupts, "action", staticmethod(restart))
    result = job.run()
    assert Interrupts.action is None
    assert result.status is RunStatus.SUCCEEDED
    assert job.ids() == list(range(ROWS))
    assert job.plan().work_units == ()


def test_broker_that_stays_away_fails_the_work_unit_and_the_next_run_completes(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = filled(new_job, timeout_s=2, offsets_per_work_unit=ROWS // 2)
    job.parts = INTERRUPTS | {"commit": {"policy": "successful"}, "execution": {"retries": {"count": 0}}}
    monkeypatch.setattr(Interrupts, "action", staticmethod(lambda: broker.stop(signal.SIGKILL)))
    try:
        (dataset,) = job.run().datasets
    finally:
        broker.start()
    assert dataset.outcome is DatasetOutcome.FAILED
    assert [failure.transient for failure in dataset.failures] == [True, True]
    assert "no message for 2 s" in dataset.failures[0].message
    del job.options["timeout_s"]  # a broker that has just started may take longer
    assert job.run().status is RunStatus.SUCCEEDED
    assert job.ids() == list(range(ROWS))
    assert job.plan().work_units == ()


def test_work_unit_is_tried_again_from_its_beginning_in_the_same_run(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = filled(new_job, timeout_s=2)
    # However long a loaded machine takes to start the broker, some attempt finds it.
    job.parts = INTERRUPTS | {"execution": {"retries": {"count": 60, "backoff_s": 0.1, "max_backoff_s": 1}}}
    starter = threading.Thread(target=broker.start)

    def away_for_longer_than_the_timeout() -> None:
        broker.stop(signal.SIGKILL)
        threading.Timer(3, starter.start).start()

    monkeypatch.setattr(Interrupts, "action", staticmethod(away_for_longer_than_the_timeout))
    result = job.run()
    starter.join()
    assert result.status is RunStatus.SUCCEEDED
    assert job.ids() == list(range(ROWS))
    assert job.plan().work_units == ()
