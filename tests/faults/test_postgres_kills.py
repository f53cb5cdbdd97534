"""The state store's PostgreSQL dies and comes back under a run: before, after and within its transactions, at random
times."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.state import open_store
from gobblin_dagster.testing.faults import Action, Call, Fault, FaultPoints
from gobblin_dagster.testing.protocol.invariants import check_recovered
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, Example
from gobblin_dagster.testing.protocol.schedules import Report, Schedule, recovered, run_a, trace_of
from tests.e2e.project import GOBBLIN, WITHOUT_SPARK, gobblin, make_project
from tests.faults.test_real_kills import DATASETS, assert_exactly_once
from tests.faults.test_real_kills import JOB as ORDERS
from tests.services.missing import missing
from tests.services.postgres import PostgresServer, binaries, named_url, running_postgres

pytestmark = pytest.mark.postgres
SEED = 20151209


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own: others would not like what is done to it."""
    folder = binaries()
    if folder is None:
        missing("no PostgreSQL server is installed here (looked for /usr/lib/postgresql/*/bin/initdb and on PATH)")
    with running_postgres(folder) as started:
        yield started


def _before(server: PostgresServer) -> Action:
    def action(name: str, call: Call) -> Any:
        server.kill_and_start()
        return call()

    return action


def _after(server: PostgresServer) -> Action:
    def action(name: str, call: Call) -> Any:
        result = call()
        server.kill_and_start()
        return result

    return action


def _within(server: PostgresServer, after_s: float) -> Action:
    def action(name: str, call: Call) -> Any:
        timer = threading.Timer(after_s, server.kill)
        timer.start()
        try:
            return call()
        finally:
            timer.join()
            server.start()

    return action


def _schedules(example: Example, actions: dict[str, Callable[[], Action]]) -> Iterator[Schedule]:
    for number, name in enumerate(trace_of(example), 1):
        for what, make in actions.items() if name.startswith("store.") else ():
            example.reset()
            run_a(example, FaultPoints(Fault(number, make())))
            yield recovered(example, f"killed {what} {number} {name}")


@pytest.mark.parametrize(
    ("moment", "rounds"),
    [("before", 1), ("after", 1), ("within", 3), pytest.param("within", 8, marks=pytest.mark.storm)],
)
def test_server_killed_around_any_transaction_harms_nobody(
    scratch: Path, server: PostgresServer, moment: str, rounds: int
) -> None:
    rng = random.Random(SEED)
    actions: dict[str, Callable[[], Action]] = {
        "before": lambda: _before(server),
        "after": lambda: _after(server),
        "within": lambda: _within(server, rng.uniform(0, 0.005)),
    }
    example = Example(scratch / "lake", "postgres", store_url=server.url(server.new_database()))
    report = Report.of(one for _ in range(rounds) for one in _schedules(example, {moment: actions[moment]}))
    print(f"seed {SEED}: {report}")  # noqa: T201  # shown where the test fails, and with -s
    assert report.broken == (), str(report)
    assert report.schedules >= 6 * rounds


def test_commit_whose_answer_the_server_took_along_is_looked_up(scratch: Path, server: PostgresServer) -> None:
    """The server dies when the commit has reached its log and before it can say so: the run asks again, and goes on."""
    example = Example(scratch / "lake", "postgres", store_url=server.url(server.new_database()))
    number = trace_of(example).index("store.commit") + 1
    example.reset()

    def done_and_gone(name: str, call: Call) -> Any:
        call()
        server.kill_and_start()
        # Asked for once more, as after any answer that was lost: it is committed, and nothing is done twice.
        return call()

    assert example.run("A", FIRST_BATCH, points=FaultPoints(Fault(number, done_and_gone)))
    assert check_recovered(example, FIRST_BATCH) == []


def _states(url: str, job: str) -> dict[str, DatasetState]:
    store = open_store(url, Path())
    try:
        return store.load_dataset_states(job)
    finally:
        store.close()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("away_s", [0.0, 3.0])
def test_server_killed_under_a_real_run_every_row_is_published_once(
    tmp_path: Path, server: PostgresServer, away_s: float
) -> None:
    root = make_project(tmp_path / "p", ORDERS)
    url = server.url(server.new_database())
    (root / "gobblin.yaml").write_text(f"{WITHOUT_SPARK}state: {named_url(url)}\n")
    after_s = random.Random(f"{SEED} {away_s}").uniform(0.5, 4.0)
    run = subprocess.Popen([*GOBBLIN, "run"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(after_s)
    server.kill()
    time.sleep(away_s)
    server.start()
    said, _ = run.communicate(timeout=240)
    # Printed, so that the schedule can be repeated.
    print(f"seed {SEED}: away for {away_s} s after {after_s:.2f} s, exit code {run.returncode}")  # noqa: T201
    assert run.returncode in {0, 1, 3, 4}, said
    assert "Traceback" not in said
    if run.returncode:
        assert "cannot be used now" in said, said

    again = gobblin(root, "run")
    assert again.returncode == 0, again.stdout + again.stderr
    assert_exactly_once(root, said + again.stdout)
    assert _states(url, "orders").keys() == set(DATASETS)


@pytest.mark.e2e
def test_server_that_stays_away_is_named_and_nothing_hangs(tmp_path: Path, server: PostgresServer) -> None:
    root = make_project(tmp_path / "p", ORDERS)
    (root / "gobblin.yaml").write_text(f"{WITHOUT_SPARK}state: {named_url(server.url(server.new_database()))}\n")
    server.kill()
    try:
        done = gobblin(root, "run", timeout=90)
    finally:
        server.start()
    assert done.returncode not in {0, 137}
    assert "cannot be used now" in done.stderr
    assert server.password not in done.stdout + done.stderr
