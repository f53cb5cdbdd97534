"""The warm worker with a real Spark: clients, worker and JVM are killed, and the rows are counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from .project import GOBBLIN, gobblin, make_project
from .test_interrupt import SLOW_SOURCE

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

DATASETS = [f"d{number}" for number in range(8)]


def job(rows: int) -> str:
    datasets = ", ".join(f"{urn}: {{rows: {rows}}}" for urn in DATASETS)
    return (
        f"job: slow\nsource:\n  type: slow:SlowSource\n  datasets: {{{datasets}}}\n"
        "extract: {namespace: test, table: slow}\noutput: {path: lake}\n"
    )


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Yield a project with a worker, which is ended afterwards."""
    root = make_project(tmp_path / "p", job(100))
    (root / "gobblin.yaml").write_text("project: shop\nspark: {keep_warm: 10m}\n")
    (root / "slow.py").write_text(SLOW_SOURCE)
    yield root
    gobblin(root, "worker", "stop", "--now")


def grow(root: Path, rows: int) -> None:
    (root / "jobs" / "orders.yaml").write_text(job(rows))


def worker(root: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(gobblin(root, "worker", "status", "-o", "json").stdout)["worker"]
    return found


def begun(root: Path, until: str) -> subprocess.Popen[str]:
    """Start a run and wait until it says something."""
    run = subprocess.Popen(
        [*GOBBLIN, "run"],
        cwd=root,
        env={**os.environ, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    while not (line := run.stdout.readline()).startswith(until):
        assert line, f"never said {until!r}"
    return run


def jvm_of(pid: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(pid), "java"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def require_rows_once(root: Path, rows: int) -> None:
    for urn in DATASETS:
        ids = pq.read_table(root / "lake/test/slow/main" / urn).column("id").to_pylist()
        assert sorted(ids) == list(range(rows)), urn


def test_runs_share_a_worker_and_whatever_is_killed_no_row_is_lost_or_doubled(root: Path) -> None:
    first = gobblin(root, "run")
    assert first.returncode == 0, first.stderr
    assert "A worker keeps Spark warm for 10m after the last run" in first.stdout
    found = worker(root)
    assert found is not None
    pid = found["pid"]

    # The same worker, and the document that a run without one prints.
    grow(root, 200)
    second = gobblin(root, "run", "-o", "json", "--progress", "json")
    document = json.loads(second.stdout)
    assert (second.returncode, document["exit_code"], document["jobs"][0]["status"]) == (0, 0, "succeeded")
    assert [json.loads(line)["event"] for line in second.stderr.splitlines()].count("task_done") == len(DATASETS)
    require_rows_once(root, 200)
    (root / "jobs" / "faulty.yaml").write_text("job: 7\n")
    assert gobblin(root, "run").returncode == 2
    (root / "jobs" / "faulty.yaml").unlink()

    # Ctrl-C.
    grow(root, 1200)
    run = begun(root, "read ")
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 130, said
    assert "Stopping: running work units end" in said

    # A killed client: its run is stopped, and the next run is not kept waiting by it.
    run = begun(root, "Spark starts")
    run.kill()
    run.communicate()
    found = worker(root)
    assert found is not None
    assert found["pid"] == pid

    # A killed JVM: the run says what failed.
    waited = gobblin(root, "run", "--progress", "none")  # beside the stopped run, or after it
    assert waited.returncode in (0, 4, 5), waited.stdout
    grow(root, 1500)
    run = begun(root, "Spark starts")
    os.kill(jvm_of(pid), signal.SIGKILL)
    said, error = run.communicate(timeout=120)
    assert run.returncode in (1, 4), said + error

    # A killed worker: the client says so, and what it means for the data.
    run = begun(root, "Spark starts")
    found = worker(root)
    assert found is not None
    assert found["pid"] != pid
    os.kill(found["pid"], signal.SIGKILL)
    _, error = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "error[worker-lost]: The warm worker" in error
    assert "No row is lost or doubled" in error

    last = gobblin(root, "run")
    assert last.returncode == 0, last.stdout + last.stderr
    require_rows_once(root, 1500)
    assert "command: ['run']" in gobblin(root, "worker", "logs").stdout
