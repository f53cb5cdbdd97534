"""The source `kafka` against Spark's own reader: JSON messages of a real broker become the same Parquet on both sides.

    python benchmarks/kafka_source.py [--rows 1000000]

Both sides take turns, each in a process of its own that does it twice; the second, warm time counts. Needs what tests need
(`make install`), Java and Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb

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
    """Run a job for each target and print the seconds of each."""
    from gobblin_dagster.engine.job import run_job  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.launch import LazySparkLane  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.project import open_project  # noqa: PLC0415  # each side loads its own

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
    lane = None
    for target in targets:
        (target / "jobs").mkdir(parents=True)
        spec = {"project": "bench", "spark": {"master": f"local[{os.cpu_count()},4]"}}
        (target / "gobblin.yaml").write_text(json.dumps(spec), encoding="utf-8")
        (target / "jobs" / "bench.yaml").write_text(json.dumps(job), encoding="utf-8")
        project = open_project(target)
        lane = lane or LazySparkLane(project.spec.spark)
        begun = time.perf_counter()
        result = run_job(project, project.job("bench"), lane=lane)
        if result.exit_code != 0:
            sys.exit(str(result.datasets))
        print(time.perf_counter() - begun, flush=True)


def spark(brokers: str, targets: list[Path]) -> None:
    """Write each target by Spark's own reader and print the seconds of each."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # each side loads its own
    from pyspark.sql.functions import col, from_json  # noqa: PLC0415  # each side loads its own

    folder = maven.jars("spark-kafka", SPARK_JARS, alone=True)
    if folder is None:
        sys.exit("Spark's reader of Kafka cannot be fetched by Maven.")
    session = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(folder.glob("*.jar"))))
        .getOrCreate()
    )
    names = {"int64": "bigint", "float64": "double"}
    schema = ", ".join(f"{name} {names.get(kind, kind)}" for name, kind in COLUMNS.items())
    for target in targets:
        begun = time.perf_counter()
        messages = session.read.format("kafka").options(
            **{"kafka.bootstrap.servers": brokers, "subscribe": TOPIC, "startingOffsets": "earliest"}
        )
        values = messages.load().select(from_json(col("value").cast("string"), schema).alias("v")).select("v.*")
        values.write.parquet(str(target / "lake"))
        print(time.perf_counter() - begun, flush=True)


SIDES = {"ours": ours, "spark": spark}


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


def main() -> None:
    """Measure both sides in turns and print their rows per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="messages (default: 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default: 3)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        SIDES[args.side](args.more[0], [Path(target) for target in args.more[1:]])
        return
    libs = jars()
    if libs is None:
        sys.exit("Kafka cannot be fetched by Maven, or there is no Java.")
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    with running_kafka(libs) as broker, tempfile.TemporaryDirectory() as work:
        fill(broker, args.rows)
        for number in range(args.rounds):
            for name in SIDES:
                targets = [f"{work}/{name}-{number}-{turn}" for turn in ("cold", "warm")]
                command = [sys.executable, __file__, "--side", name, broker.address, *targets]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
                seconds[name].append(float(done.stdout.split()[-1]))
                files = [str(file) for file in Path(targets[-1], "lake").rglob("*.parquet")]
                query = "select count(*), sum(id)::bigint from read_parquet($1)"
                found = duckdb.execute(query, [files]).fetchall()[0]
                if found != (args.rows, args.rows * (args.rows - 1) // 2):
                    sys.exit(f"{name} wrote other rows: {found}")
                print(f"{name}, round {number + 1}: {seconds[name][-1]:.1f} s, {found[0]:,} rows", flush=True)
    mine, theirs = (median(seconds[name]) for name in SIDES)
    rates = f"{args.rows / mine:,.0f} rows/s, Spark's own reader {args.rows / theirs:,.0f} rows/s"
    print(f"Kafka JSON -> Parquet, {os.cpu_count()} cores, warm: {rates}: {theirs / mine:.1f}x (bar: >= 2x)")
    print(f"Load average of the machine: {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
