"""The source `kafka` against Spark's own reader: JSON messages of a real broker become the same Parquet on both sides.

    python benchmarks/kafka_source.py [--rows 1000000]

Both sides take turns, each in a process of its own that does it twice; the second, warm time counts. Needs what tests
need (`make install`), Java and Maven.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sides import Comparison, write_by_spark, write_ours

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the broker is that of the tests

from tests.services import maven  # noqa: E402 - after the path to it
from tests.services.kafka import KafkaBroker, jars, running_kafka  # noqa: E402 - after the path to it

COLUMNS = {"id": "int64", "carrier": "string", "origin": "string", "distance": "int64", "delay": "float64"}
TOPIC, PARTITIONS = "flights", 4
# Spark's reader names a helper that was never published for 4.1.1; that of 4.0.0 serves.
SPARK_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def ours(brokers: str, targets: list[Path]) -> None:
    """Run a job for each target."""
    source = {
        "type": "kafka",
        "brokers": brokers,
        "topics": [TOPIC],
        "bootstrap": "earliest",
        "key": None,
        "metadata": [],
    }
    job = {
        "job": "bench",
        "source": {**source, "value": {"type": "json", "columns": COLUMNS}},
        "extract": {"namespace": "bench", "table": TOPIC},
        "output": {"path": "lake"},
    }
    write_ours(job, targets)


def spark(brokers: str, targets: list[Path]) -> None:
    """Write each target by Spark's own reader."""
    from pyspark.sql.functions import col, from_json  # noqa: PLC0415  # each side loads its own

    folder = maven.jars("spark-kafka", SPARK_JARS, alone=True)
    if folder is None:
        sys.exit("Spark's reader of Kafka cannot be fetched by Maven.")
    names = {"int64": "bigint", "float64": "double"}
    schema = ", ".join(f"{name} {names.get(kind, kind)}" for name, kind in COLUMNS.items())

    def write(session: Any, lake: Path) -> None:
        messages = session.read.format("kafka").options(
            **{"kafka.bootstrap.servers": brokers, "subscribe": TOPIC, "startingOffsets": "earliest"}
        )
        rows = messages.load().select(from_json(col("value").cast("string"), schema).alias("v")).select("v.*")
        rows.write.parquet(str(lake))

    write_by_spark(write, folder, targets)


def fill(broker: KafkaBroker, rows: int) -> None:
    """Write JSON messages into all partitions."""
    broker.new_topic(TOPIC, PARTITIONS)
    producer = broker.producer(compression_type="lz4", linger_ms="50")
    text = '{"id": %d, "carrier": "UA", "origin": "EWR", "distance": %d, "delay": %d.5}'
    for number in range(rows):
        value = (text % (number, number % 3000, number % 90)).encode()
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
        if number % 50_000 == 0:
            producer.flush()
    producer.flush()


@contextmanager
def filled_kafka(rows: int) -> Iterator[str]:
    """Start a broker with so many messages and yield its address."""
    libs = jars()
    if libs is None:
        sys.exit("Kafka cannot be fetched by Maven, or there is no Java.")
    with running_kafka(libs) as broker:
        fill(broker, rows)
        yield broker.address


if __name__ == "__main__":
    sides = {"ours": ours, "spark": spark}
    Comparison(__file__, "Kafka JSON", 1_000_000, sides, bar=2).main(__doc__, filled_kafka)
