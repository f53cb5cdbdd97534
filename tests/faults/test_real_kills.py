"""SIGKILL at random times under a real `gobblin run`: to the driver, to the Spark JVM, to a Python worker.

With Spark and without. The run that follows needs no Spark, whatever the killed one ran on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.project import GOBBLIN, WITH_SPARK, WITHOUT_SPARK, gobblin, make_project

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
VICTIMS = {
    "driver": ("", 6.0),
    "Spark JVM": ("SparkSubmit", 2.0),
    "Python worker": ("worker_daemon", 0.3),
    "driver without Spark": ("", 2.0),
    "process without Spark": ("fork_server", 0.8),
}
"""What is killed: a part of its command line (the driver is known by its pid), and the longest wait in seconds."""


def _children(pid: int) -> list[tuple[int, str]]:
    """Return (pid, command line) of all that a process started, also through others."""
    found = []
    with suppress(OSError):  # it has ended meanwhile, as each of the others may
        for path in Path("/proc").glob(f"{pid}/task/*/children"):
            for child in path.read_text().split():
                with suppress(OSError):
                    command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                    found += [(int(child), command), *_children(int(child))]
    return found


def _kill_while_running(root: Path, part: str, after_s: float, chance: random.Random) -> tuple[bool, list[int]]:
    """Start a run and kill its victim some seconds after it appeared.

    Tell whether it was still there, and which processes of this project's own the run had then. Of the processes
    without Spark one is killed, of others all.
    """
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
    own = [pid for pid, command in _children(run.pid) if "fork_server" in command]
    if part == "fork_server":
        victims = chance.choices(own or victims)
    is_killed = False
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
            is_killed = True
        except ProcessLookupError:
            continue
    run.wait(timeout=120)
    return is_killed, own


def _wait_until_gone(pids: list[int]) -> None:
    """Wait until processes have ended that nobody told to; the test's own time limit ends the wait."""
    while any("fork_server" in command for command in map(_command, pids)):
        time.sleep(0.05)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()  # empty for one that ended and was not asked for its end
    except OSError:
        return ""


def assert_exactly_once(root: Path, said: str) -> None:
    for urn in DATASETS:
        rows = pq.read_table(root / "lake/shop/orders/main" / urn).column("id").to_pylist()
        assert Counter(rows) == Counter(range(ROWS)), f"{urn}: {len(rows)} rows; {said}"


@pytest.mark.slow
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_at_a_random_time_every_row_is_published_once(tmp_path: Path, victim: str) -> None:
    root = make_project(tmp_path / "p", JOB, WITHOUT_SPARK if "without Spark" in victim else WITH_SPARK)
    part, longest_s = VICTIMS[victim]
    chance = random.Random(f"{SEED} {victim}")
    after_s = chance.uniform(0, longest_s)
    is_killed, processes = _kill_while_running(root, part, after_s, chance)
    _wait_until_gone(processes)
    # Printed, so that the schedule can be repeated.
    print(f"seed {SEED}: {victim} after {after_s:.2f} s, {'killed' if is_killed else 'had ended'}")  # noqa: T201
    (root / "gobblin.yaml").write_text(WITHOUT_SPARK)
    again = gobblin(root, "run")
    assert again.returncode == 0, again.stdout + again.stderr
    assert_exactly_once(root, again.stdout)
