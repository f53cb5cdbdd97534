"""The state store's PostgreSQL is away for seconds while a run publishes: what was read is published all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep, SequenceState
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.postgres import PostgresServer, binaries, running_postgres
from tests.unit.engine.jobs import by_urn, job_spec

pytestmark = pytest.mark.postgres
AWAY_S = 3


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own: others would not like what is done to it."""
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL server is installed here (looked for /usr/lib/postgresql/*/bin/initdb and on PATH)")
    with running_postgres(folder) as started:
        yield started


class _Outage:
    """Kills the server, and brings it back a while later."""

    def __init__(self, server: PostgresServer, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._thread = threading.Thread(target=self._come_back)
        self.is_over = threading.Event()

    def begin(self) -> None:
        self._server.kill()
        self._thread.start()

    def _come_back(self) -> None:
        time.sleep(self._seconds)
        self._server.start()
        self.is_over.set()

    def end(self) -> None:
        self._thread.join()


class _AfterReading(RunListener):
    def __init__(self, outage: _Outage) -> None:
        self._outage = outage

    def extracted(self) -> None:
        self._outage.begin()


class _WhilePublishing(SilentListener):
    def __init__(self, outage: _Outage) -> None:
        self._outage = outage
        self._lock = threading.Lock()
        self._has_begun = False

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._outage.begin()


@pytest.mark.parametrize("when", ["after reading", "while publishing"])
def test_run_waits_for_its_store_and_publishes_what_it_read(tmp_path: Path, server: PostgresServer, when: str) -> None:
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    url = server.url(server.new_database())
    project = Project(tmp_path, ProjectSpec(project="tests", state=url), (job,))
    outage = _Outage(server, AWAY_S)
    run_listener = _AfterReading(outage) if when == "after reading" else None
    listener = _WhilePublishing(outage) if when == "while publishing" else None
    try:
        result = run_job(
            project,
            job,
            runner=InlineRunner(),
            listeners=[run_listener] if run_listener else [],
            commit_listener=listener,
        )
    finally:
        outage.end()
    assert outage.is_over.is_set()
    assert result.status is RunStatus.SUCCEEDED
    assert {urn: one.rows_read for urn, one in by_urn(result).items()} == {"a": 5, "b": 5}
    with closing(project.open_store()) as store:
        assert {s.state for s in store.load_sequences(job.job, set(SequenceState))} == {SequenceState.COMMITTED}
        assert [run.status for run in store.load_runs(job.job)] == [RunStatus.SUCCEEDED]


def test_store_that_stays_away_leaves_prepared_sequences_for_the_next_run(
    tmp_path: Path, server: PostgresServer
) -> None:
    job = job_spec({"a": {"rows": 5}})
    url = server.url(server.new_database())
    project = Project(tmp_path, ProjectSpec(project="tests", state=url, lease_ttl_s=5), (job,))
    outage = _Outage(server, 12)
    try:
        result = run_job(project, job, runner=InlineRunner(), commit_listener=_WhilePublishing(outage))
        assert result.status is RunStatus.FAILED
    finally:
        outage.end()
    again = run_job(project, job, runner=InlineRunner())
    assert [one.state for one in again.recovered] == ["committed"]
    assert again.status is RunStatus.SUCCEEDED
