"""Connections to Kafka: what they say of a broker that is away, what they refuse, how they write ids."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, Uuid
from pydantic import ValidationError

from gobblin_dagster.constructs.kafka_client import KafkaConnection, _id_text, telling

SCRIPT = """
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from gobblin_dagster.constructs.kafka_client import KafkaConnection, client_settings

admin = AdminClient(client_settings(KafkaConnection(brokers="127.0.0.1:1"), {}))
admin.poll(2)  # hands out what the library logged
try:
    admin.list_topics(timeout=1)
except KafkaException:
    print("away")
"""


def test_broker_that_is_away_is_told_by_the_error_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("away\n", "")


@pytest.mark.parametrize(
    ("halves", "text"),
    [((0, 0), ""), ((-1, -1), "_____________________w"), ((5, -7), "AAAAAAAAAAX_________-Q")],
    ids=["none", "all bits", "some"],
)
def test_id_of_a_topic_is_written_as_kafka_writes_it(halves: tuple[int, int], text: str) -> None:
    assert _id_text(Uuid(*halves)) == text


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase"])
def test_secret_is_refused_in_a_job_file(name: str) -> None:
    with pytest.raises(ValidationError, match="config_env"):
        KafkaConnection(brokers="b:1", config={name: "x"})


def test_what_says_most_is_the_last_refusal_then_the_last_fault() -> None:
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    away = KafkaError(KafkaError._TRANSPORT, "b:1: Connection refused (after 0ms in state CONNECT)")
    alert = KafkaError(KafkaError._TRANSPORT, "b:1: alert bad certificate: SSL alert number 42 (after 3ms)")
    login = KafkaError(KafkaError._AUTHENTICATION, "b:1: Invalid username or password")
    assert telling([]) == telling([down]) == ""
    assert telling([away, down]) == "b:1: Connection refused"
    assert telling([alert, away, down]) == "b:1: alert bad certificate: SSL alert number 42"
    assert telling([login, away]) == "b:1: Invalid username or password"
