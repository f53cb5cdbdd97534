"""`examples/service`: one flow with two destinations, on three executors; its files as they are, without Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg2
import pyarrow.dataset as ds
import pytest

from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.service_example import TOPICS, copy_example
from tests.services.worker_channel import InlineChannel

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

ENDS = {"gobblin.flow.sourceIdentifier": "landing", "gobblin.flow.destinationIdentifier": "shop,second-lake"}


@pytest.fixture
def database(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = postgres_server.url(postgres_server.new_database())
    monkeypatch.setenv("SHOP_DATABASE", url)
    return url


@pytest.fixture
def example(broker: KafkaBroker, tmp_path: Path) -> Path:
    for topic in TOPICS:
        broker.new_topic(topic)
    copy_example(tmp_path / "example", broker.address)
    addresses = ["service=IP:127.0.0.1", "south=IP:127.0.0.1"]
    subprocess.run([tmp_path / "example" / "certificates.sh", *addresses], cwd=tmp_path / "example", check=True)
    return tmp_path / "example"


@pytest.fixture
def core(example: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreServices]:
    """The service and both workers, in threads."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    root = example / "service"
    spec = load_project(root)
    command = [sys.executable, "-m", "tests.services.inline_worker", str(root)]
    service = CoreServices(root, spec.service, command, spec.allow.lists, state=spec.state)
    with ExitStack() as ends:
        service.start()
        ends.callback(service.stop)
        for name in ("west", "south"):
            own = load_project(example / name)
            node = WorkerNode(name, example / name, own, [], channel=InlineChannel(Project(example / name, own)))
            node.start()
            ends.callback(node.stop)
        yield service


def test_each_row_is_once_in_both_destinations(core: CoreServices, example: Path, database: str) -> None:
    flow = FlowId("shop", "orders")
    with core.store.write() as transaction:
        execution = ExecutionId(flow, core.manager.create(transaction, FlowConfig(flow, "", ENDS), "tester").execution)
    deadline = time.monotonic() + 120
    while True:
        with core.store.read() as transaction:
            found = load_execution(transaction, execution)
            jobs = load_jobs(transaction, execution)
        if found is not None and found.is_over:
            break
        assert time.monotonic() < deadline, jobs
        time.sleep(0.05)
    assert found.status is ExecutionStatus.COMPLETE, [job.message for job in jobs]
    assert {job.job.executor: job.processed_count for job in jobs} == {"embedded": 7, "west": 7, "south": 7}
    copied = ds.dataset(example / "second-lake" / "shop" / "orders", format="parquet").to_table()
    assert sorted(copied["amount"].to_pylist()) == [12, 13, 15, 40, 44, 85, 210]
    with psycopg2.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT region, count(*), sum(amount) FROM orders GROUP BY region ORDER BY region")
        assert cursor.fetchall() == [("eu", 5, 360), ("us", 2, 59)]
    connection.close()
