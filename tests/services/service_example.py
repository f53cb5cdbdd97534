"""`examples/service` with a broker and a database of its own: python -m tests.services.service_example FOLDER.

Copies the example into the folder, starts both servers, and calls `run.sh` there as a user does; ends them afterwards.
With `--cluster`, the workers' jobs run on a standalone Spark cluster of two workers, which is started too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.services.kafka import jars, running_kafka
from tests.services.ports import free_port
from tests.services.postgres import binaries, running_postgres
from tests.services.spark_cluster import running_spark_cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"
TOPICS = ("west-orders", "west-reports")


def copy_example(folder: Path, broker: str) -> None:
    """Copy the example, and let it use ports of this machine that are free.

    Args:
        folder: where to; does not exist yet.
        broker: address of the broker.
    """
    shutil.copytree(EXAMPLE, folder)
    changes = {"127.0.0.1:9092": broker, "8443": str(free_port()), "6956": str(free_port())}
    for path in [*folder.rglob("*.yaml")]:
        text = path.read_text()
        for old, new in changes.items():
            text = text.replace(old, new)
        path.write_text(text)


def main() -> int:
    """Run the example; return the exit code of its script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cluster", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    libs, programs = jars(), binaries()
    if libs is None or programs is None:
        sys.stderr.write("A Kafka broker (Maven, Java) and a PostgreSQL server are needed here.\n")
        return 2
    with ExitStack() as services:
        broker = services.enter_context(running_kafka(libs))
        database = services.enter_context(running_postgres(programs))
        for topic in TOPICS:
            broker.new_topic(topic, 2)
        copy_example(folder, broker.address)
        if arguments.cluster:
            (folder / "spark").mkdir()
            master = services.enter_context(running_spark_cluster(folder / "spark"))
            for name in ("west", "south"):
                settings = folder / name / "gobblin.yaml"
                spark = f"{{master: '{master}', conf: {{spark.driver.host: 127.0.0.1, spark.cores.max: '1'}}}}"
                settings.write_text(settings.read_text().replace('{master: "local[1]"}', spark))
        url = database.url(database.new_database())
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            [folder / "run.sh"], env={**os.environ, "SHOP_DATABASE": url, "PATH": path}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
