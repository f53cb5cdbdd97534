"""A real NameNode and DataNodes for tests, from Hadoop's own jars; they end with the tests, whatever becomes of
these."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.ending import wait_or_kill
from tests.services.maven import jars

HERE = Path(__file__).parent / "hadoop"
BLOCK_BYTES = 1 << 20
DATANODES = 2


@dataclass(frozen=True)
class HdfsServer:
    """A running cluster."""

    url: str
    """`hdfs://host:port`, without a path."""
    datanode_port: int
    """Its web pages, which show the counters of all DataNodes."""

    def fsyncs(self) -> int:
        """Return how often DataNodes have synced a block to their disks."""
        query = "qry=Hadoop:service=DataNode,name=DataNodeActivity*"
        with urllib.request.urlopen(f"http://localhost:{self.datanode_port}/jmx?{query}") as answer:
            return sum(int(bean["FsyncCount"]) for bean in json.load(answer)["beans"])


def hadoop_jars() -> Path | str:
    """Return the folder of Hadoop's jars, downloading them the first time; or the reason why there is none."""
    if shutil.which("javac") is None:
        return "no JDK is installed here (looked for javac on PATH)"
    return jars("hadoop", ["org.apache.hadoop:hadoop-client-minicluster:3.4.1"]) or (
        "Hadoop's jars were not fetched before, and Maven is not installed here or cannot fetch them"
    )


@contextmanager
def running_hdfs(libraries: Path) -> Iterator[HdfsServer]:
    """Start a cluster in a folder of its own and end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="gobblin-hdfs-") as home, Path(home, "log").open("wb") as log:
        command = ["java", "-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-cp",
            f"{libraries}/*:{HERE}",
            str(HERE / "MiniDfs.java"),
        ]
        process = subprocess.Popen(
            [*command, f"{home}/dfs", str(BLOCK_BYTES), str(DATANODES)],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = next((line.split() for line in process.stdout if line.startswith("READY")), None)
            if ready is None:
                raise RuntimeError(f"HDFS did not start: {Path(home, 'log').read_text(errors='replace')[-2000:]}")
            yield HdfsServer(ready[1], int(ready[2]))
        finally:
            process.stdin.close()
            wait_or_kill(process)
