"""SIGKILL at random times under a real `gobblin run`: to the driver, to the Spark JVM, to a Python worker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.project import GOBBLIN, gobblin, make_project

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

SEED = 20151209
ROWS = 3000
DATASETS = [f"d{number}" for number in range(4)]
OFFERS = ", ".join(f"{urn}: {{rows: {ROWS}, unit_rows: 1000}}" for urn in DATASETS)
JOB = f"""\
job: orders
source:
  type: gobblin_dagster.testing.rows_source:RowsSource
  datasets: {{{OFFERS}}}
extract: {{namespace: shop, table: orders}}
output: {{path: lake}}
"""
VICTIMS = {"driver": "", "Spark JVM": "SparkSubmit", "Python worker": "worker_daemon"}
"""What is killed, by a part of its command line; the driver is known by its pid."""


def _children(pid: int) -> list[tuple[int, str]]:
    """Return (pid, command line) of all that a process started, also through others."""
    found = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in path.read_text().split():
            try:
                command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # ended meanwhile
            found += [(int(child), command), *_children(int(child))]
    return found


def _kill_while_running(root: Path, part: str, after_s: float) -> bool:
    """Start a run and kill its victim some seconds after it appeared; tell whether it was still there."""
    run = subprocess.Popen(
        [*GOBBLIN, "run"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    victims: list[int] = []
    while run.poll() is None and not victims:
        children = _children(run.pid)
        victims = [pid for pid, command in children if part in command] if part else [run.pid]
        time.sleep(0.01)
    assert victims, f"the run ended, and nothing that it started was called {part!r}"
    time.sleep(after_s)
    is_killed = False
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
            is_killed = True
        except ProcessLookupError:
            continue
    run.wait(timeout=120)
    return is_killed


def assert_exactly_once(root: Path, said: str) -> None:
    for urn in DATASETS:
        rows = pq.read_table(root / "lake/shop/orders/main" / urn).column("id").to_pylist()
        assert Counter(rows) == Counter(range(ROWS)), f"{urn}: {len(rows)} rows; {said}"


@pytest.mark.slow
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_at_a_random_time_every_row_is_published_once(tmp_path: Path, victim: str) -> None:
    root = make_project(tmp_path / "p", JOB)
    longest_s = {"driver": 6.0, "Spark JVM": 2.0, "Python worker": 0.3}[victim]
    after_s = random.Random(f"{SEED} {victim}").uniform(0, longest_s)
    is_killed = _kill_while_running(root, VICTIMS[victim], after_s)
    # Printed, so that the schedule can be repeated.
    print(f"seed {SEED}: {victim} after {after_s:.2f} s, {'killed' if is_killed else 'had ended'}")  # noqa: T201
    again = gobblin(root, "run")
    assert again.returncode == 0, again.stdout + again.stderr
    assert_exactly_once(root, again.stdout)
