"""Logins and encryption on a real broker: allowed users read, others get an error with the reason, and no password
is shown anywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import EnvironmentFaultError, SourceError, TransientError
from tests.integration.kafka.conftest import KafkaJob
from tests.services.certificates import Authority
from tests.services.kafka import SASL_PASSWORD, SASL_USER, KafkaBroker

pytestmark = pytest.mark.kafka
NewJob = Callable[..., KafkaJob]
KEY_PASSWORD = "open-the-key"  # a test's


def test_user_with_a_password_reads_and_a_wrong_password_is_told_at_once(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": SASL_USER}
    job = new_job(
        brokers=broker.sasl_address, config=login, config_env={"sasl.password": "LAKE_PASSWORD"}, timeout_s=300
    )
    job.send(range(3))
    monkeypatch.setenv("LAKE_PASSWORD", "wrong-word")
    with pytest.raises(SourceError, match="Invalid username or password") as caught:
        job.run()  # long before 300 seconds are over
    monkeypatch.setenv("LAKE_PASSWORD", SASL_PASSWORD)
    job.run()
    assert job.ids() == [0, 1, 2]
    written = [file.read_bytes() for file in job.root.rglob("*") if file.is_file()]
    assert not any(word in f"{caught.value}{caplog.text}{written}" for word in (SASL_PASSWORD, "wrong-word"))


@pytest.mark.parametrize("group", [None, "both"])
def test_topic_that_the_login_may_not_describe_fails_with_the_right(
    new_job: NewJob, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", SASL_PASSWORD)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": SASL_USER}
    job = new_job(brokers=broker.sasl_address, config=login, config_env={"sasl.password": "LAKE_PASSWORD"}, group=group)
    hidden = f"{job.topic}.hidden"
    broker.new_topic(hidden)
    job.options["topics"] = [job.topic.replace(".", "[.]"), hidden]
    for topic in (job.topic, hidden):
        job.send(range(3), topic=topic)
    job.run()  # a topic that was read, and then may not be described any more
    broker.forbid(hidden)
    plans = {one.dataset_urn: one.problem for one in job.plans()}
    assert plans.keys() == ({job.topic, hidden} if group is None else {group})
    assert (
        f"topic {hidden}: Broker: Topic authorization failed: the login needs the permissions" in plans[group or hidden]
    )
    job.options["topics"] = [job.topic + ".*"]  # it names it no longer, but has read it
    assert {one.dataset_urn: one.problem for one in job.plans()} == plans
    job.options["exclude"] = [hidden]
    assert not any(one.problem for one in job.plans())


def test_secret_comes_from_the_environment_and_goes_nowhere(
    new_job: NewJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = new_job(config_env={"sasl.password": "KAFKA_TEST_PASSWORD"})
    with pytest.raises(EnvironmentFaultError, match=r"'sasl\.password' is taken from KAFKA_TEST_PASSWORD"):
        job.run()
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", "hunter2-secret")
    job.send(range(3))
    with caplog.at_level(logging.DEBUG):
        job.run()
    assert job.ids() == [0, 1, 2]
    assert "hunter2-secret" not in caplog.text
    texts = [path.read_bytes() for path in Path(job.root).rglob("*") if path.is_file()]
    assert not any(b"hunter2-secret" in text for text in texts)


def ssl_options(broker: KafkaBroker, kind: str) -> dict[str, Any]:
    """Return what a job says to read through an encrypted listener; secrets are in the environment."""
    config: dict[str, Any] = {"security.protocol": kind, "ssl.ca.location": str(broker.certificates.ca)}
    if kind == "SASL_SSL":
        config |= {"sasl.mechanism": "PLAIN", "sasl.username": SASL_USER}
        return {"brokers": broker.sasl_ssl_address, "config": config, "config_env": {"sasl.password": "LAKE_PASSWORD"}}
    certificate, key = broker.certificates.signed("client", password=KEY_PASSWORD)
    config |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    return {"brokers": broker.ssl_address, "config": config, "config_env": {"ssl.key.password": "KEY_PASSWORD"}}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Put the right passwords into the environment; returns them."""
    monkeypatch.setenv("LAKE_PASSWORD", SASL_PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    return SASL_PASSWORD, KEY_PASSWORD


@pytest.mark.parametrize("kind", ["SSL", "SASL_SSL"])
def test_encrypted_listener_is_planned_and_read_and_no_secret_is_told(
    new_job: NewJob, broker: KafkaBroker, kind: str, secrets: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    job = new_job(**ssl_options(broker, kind))
    job.options["config"]["debug"] = "security,broker,conf"
    job.send(range(5))
    with caplog.at_level(logging.DEBUG):
        plan = job.plan()
        job.run()
    assert job.ids() == list(range(5))
    written = [file.read_bytes() for file in job.root.rglob("*") if file.is_file()]
    assert not any(word in f"{plan}{caplog.text}{written}" for word in secrets)


def test_login_that_is_refused_while_reading_is_told(
    new_job: NewJob, broker: KafkaBroker, secrets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job(**ssl_options(broker, "SASL_SSL"), timeout_s=300)
    job.send(range(5))
    (unit,) = job.plan().work_units
    job.options["timeout_s"] = 5  # which is waited for
    monkeypatch.setenv("LAKE_PASSWORD", "wrong-word")  # as on a worker that has another one
    context = ConstructContext("events", str(job.root))
    extractor = registry.create(ConstructKind.SOURCE, job.spec.source, context).extractor(unit)
    try:
        with pytest.raises(TransientError, match=r"the end 5 is not reached: .*Invalid username or password"):
            list(extractor.chunks())
    finally:
        extractor.close()


def refused(job: KafkaJob) -> str:
    """Return why a job's brokers cannot be asked."""
    with pytest.raises(SourceError, match="cannot be asked") as caught:
        job.run()
    return str(caught.value)


def test_wrong_password_over_ssl_is_told_at_once(
    new_job: NewJob, broker: KafkaBroker, secrets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job(**ssl_options(broker, "SASL_SSL"), timeout_s=300)
    monkeypatch.setenv("LAKE_PASSWORD", "wrong-word")
    said = refused(job)
    assert "Invalid username or password" in said
    assert "wrong-word" not in said


def test_certificate_that_nobody_vouches_for_is_told_at_once(
    new_job: NewJob, broker: KafkaBroker, secrets: tuple[str, ...], tmp_path: Path
) -> None:
    job = new_job(**ssl_options(broker, "SASL_SSL"), timeout_s=300)
    job.options["config"]["ssl.ca.location"] = str(Authority(tmp_path / "others", "others").ca)
    assert "certificate verify failed" in refused(job)


def test_client_without_the_certificate_that_is_asked_for_is_told(
    new_job: NewJob, broker: KafkaBroker, secrets: tuple[str, ...]
) -> None:
    job = new_job(brokers=broker.ssl_address, timeout_s=300)
    job.options["config"] = {"security.protocol": "SSL", "ssl.ca.location": str(broker.certificates.ca)}
    assert "alert" in refused(job)


@pytest.mark.parametrize(
    ("protocol", "listener", "timeout_s", "said"),
    [
        ("PLAINTEXT", "sasl_ssl", 4, "is a login or encryption asked for: `security.protocol`?"),
        ("PLAINTEXT", "sasl", 4, "is a login or encryption asked for: `security.protocol`?"),
        ("SSL", "plain", 5, "SSL connection closed by peer"),
    ],
)
def test_protocol_that_the_listener_does_not_speak_is_told(
    new_job: NewJob, broker: KafkaBroker, protocol: str, listener: str, timeout_s: float, said: str
) -> None:
    addresses = {"sasl_ssl": broker.sasl_ssl_address, "plain": broker.address, "sasl": broker.sasl_address}
    job = new_job(brokers=addresses[listener], timeout_s=timeout_s, config={"security.protocol": protocol})
    if protocol == "SSL":
        job.options["config"] |= {"ssl.ca.location": str(broker.certificates.ca)}
    assert said in refused(job)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("ssl.ca.location", "ssl.ca.location"),
        ("ssl.key.location", "ssl.key.location"),
        ("ssl.key.password", "ssl.key.location failed"),
    ],
)
def test_wrong_file_or_password_of_a_key_is_told(
    new_job: NewJob,
    broker: KafkaBroker,
    secrets: tuple[str, ...],
    setting: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = new_job(**ssl_options(broker, "SSL"))
    if setting == "ssl.key.password":
        monkeypatch.setenv("KEY_PASSWORD", "wrong-word")
    else:
        job.options["config"][setting] = "not/there.pem"
    with pytest.raises(EnvironmentFaultError, match=said) as caught:
        job.run()
    assert "wrong-word" not in str(caught.value)
