"""A Spark Connect server with Iceberg and Delta on 127.0.0.1 for tests, ended by its own pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from gobblin_dagster.engine.spark import worker_daemon
from tests.services import maven
from tests.services.ports import free_port
from tests.services.quick_spark import QUICK

ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",)
DELTA = ("io.delta:delta-spark_4.1_2.13:4.2.0",)
# Quick for few rows. In the usual room for compiled code, methods would be thrown away and compiled again; classes of
# Spark's jars need no verification.
_JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms1g -Xmn600m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_START_S = 180
_ROOT = Path(__file__).parents[2]


def table_jars() -> list[Path] | None:
    """Return the jars of Iceberg and Delta; None where they, or Java, cannot be had."""
    if shutil.which("java") is None:
        return None
    folders = (maven.jars("iceberg", ICEBERG, alone=True), maven.jars("delta", DELTA))
    return (
        [jar for folder in folders if folder is not None for jar in sorted(folder.glob("*.jar"))]
        if all(folders)
        else None
    )


def table_conf(warehouse: Path) -> dict[str, str]:
    """Return settings of a session that reads and writes Iceberg tables (catalog `lake`) and Delta tables."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse / "iceberg"),
        "spark.sql.warehouse.dir": str(warehouse / "spark"),
    }


@contextmanager
def running_connect(home: Path, jars: list[Path]) -> Iterator[str]:
    """Start a server with its tables below `home`; yields its address `sc://host:port`."""
    port = free_port()
    settings = (
        table_conf(home)
        | QUICK
        | {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.broadcast.compress": "false",
            "spark.python.daemon.module": worker_daemon.__name__,
            "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} -Dderby.system.home={home}",
        }
    )
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2,4]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += [
        "--jars",
        ",".join(map(str, jars)),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # Functions are shipped by the names of their modules.
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with (home / "connect.log").open("wb") as log:
        process = subprocess.Popen([*command, "spark-internal"], stdout=log, stderr=log, cwd=home, env=environment)
    try:
        deadline = time.monotonic() + _START_S
        while not _is_open(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Spark Connect did not start: {(home / 'connect.log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()  # asked to end it waits for its sessions; it has nothing to keep
        process.wait()


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
