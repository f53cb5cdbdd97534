"""A real standalone Spark cluster on 127.0.0.1: a master and workers of one core each, ended by their own pids."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.services.ending import wait_or_kill

_START_S = 300
_HOME = Path(pyspark.__file__).parent


@contextmanager
def running_spark_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a cluster with its logs in a folder; yields the master's URL once all workers are registered."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as ends:
        log = folder / "master.log"
        _start(ends, log, "master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0")
        _wait_for(log, "New state: ALIVE", 1)
        for number in range(workers):
            options = ("-c", "1", "-m", "1g", "-h", "127.0.0.1", "--webui-port", "0", "-d", str(folder / f"w{number}"))
            _start(ends, folder / f"worker-{number}.log", "worker.Worker", *options, url)
        _wait_for(log, "Registering worker", workers)
        yield url


def _start(ends: ExitStack, log: Path, kind: str, *arguments: str) -> None:
    environment = os.environ | {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    def end() -> None:
        process.terminate()
        wait_or_kill(process)

    ends.callback(end)


def _wait_for(log: Path, words: str, times: int) -> None:
    deadline = time.monotonic() + _START_S
    while log.read_text(errors="replace").count(words) < times:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Spark did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
