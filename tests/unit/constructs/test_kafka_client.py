"""Connections to Kafka: what they say of a broker that is away."""

from __future__ import annotations

import subprocess
import sys

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
