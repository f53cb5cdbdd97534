"""Looking for new data: what counts as new, how long one waits, and the process that looks with Spark."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.errors import EnvironmentFaultError, SourceError
from gobblin_dagster.core.startpoint import Oldest, Startpoint
from gobblin_dagster.engine.new_data import (
    NewData,
    NewDataPoller,
    PollResult,
    SharedStore,
    SparkPollProcess,
    look,
    plans_with_spark,
)
from gobblin_dagster.spec.project import SparkSpec
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import job_spec, project, run

SNAPSHOT = {"namespace": "test", "table": "numbers", "type": "snapshot_only"}


def test_look_names_datasets_with_work_and_those_that_cannot_be_planned(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 0}, "c": {"rows": 1, "problem": "its folder is gone"}})
    assert look(project(tmp_path, job), job) == PollResult(3, (NewData("a", "3", 0),), ("its folder is gone",))
    run(tmp_path, job)
    assert look(project(tmp_path, job), job).new == ()


def test_job_that_reads_everything_has_something_new_only_behind_what_is_committed(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 5}}, extract=SNAPSHOT)
    run(tmp_path, job)
    assert look(project(tmp_path, job), job).new == ()
    more = job_spec({"a": {"rows": 4}, "b": {"rows": 5}}, extract=SNAPSHOT)
    assert look(project(tmp_path, more), more).new == (NewData("a", "4", 1),)


def test_startpoint_is_something_new(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}})
    run(tmp_path, job)
    store = project(tmp_path, job).open_store()
    now = datetime.now(UTC)
    wish = Startpoint("numbers", "a", Oldest(), now, now + timedelta(days=1), "anna@host")
    store.save_startpoint(wish)
    store.close()
    assert look(project(tmp_path, job), job).new == (NewData("a", "3", 1, wish.id),)


def test_only_sources_that_spark_reads_are_looked_at_with_spark() -> None:
    spark = {
        "source": {"type": "spark", "format": "parquet", "path": "p", "watermark": {"column": "id", "type": "long"}}
    }
    assert [plans_with_spark(job_spec({}, **parts)) for parts in (spark, {})] == [True, False]


def test_rows_are_not_counted_to_find_something_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counting query is the dear one: with an index the highest value costs nothing."""
    import sqlite3

    from gobblin_dagster.constructs.sources.query.relation import Relation

    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("create table orders (id integer primary key)")
        database.execute("insert into orders values (7)")
    source = {"type": "query", "url": f"sqlite:///{tmp_path}/shop.db", "tables": ["orders"]}
    job = job_spec({}, source=source | {"watermark": {"column": "id", "type": "long"}})
    monkeypatch.delattr(Relation, "counts")
    assert [one.high for one in look(project(tmp_path, job), job).new] == ["8"]


class Slow:
    """A poll that goes on until it is ended."""

    def __init__(self, answer: Callable[[], PollResult]) -> None:
        self.go = threading.Event()
        self.looks = 0
        self._answer = answer

    def __call__(self, store: StateStore | None) -> PollResult:
        self.looks += 1
        assert self.go.wait(120)
        return self._answer()


@pytest.mark.parametrize("written", ["csv", {"type": "csv", "delimiter": ","}])
def test_files_are_not_opened_to_find_something_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: object
) -> None:
    """A plan for people opens them to infer types of columns; a sensor needs none."""
    (tmp_path / "2013-01-01.csv").write_text("day,count\n2013-01-01,5\n")
    job = job_spec({}, source={"type": "files", "path": "{date:%Y-%m-%d}.csv", "format": written})
    monkeypatch.delattr("gobblin_dagster.constructs.sources.files.source.infer_types")
    assert len(look(project(tmp_path, job), job).new) == 1


def test_slow_look_is_not_waited_for_and_answers_later_once() -> None:
    slow = Slow(lambda: PollResult(7))
    poller = NewDataPoller(slow)
    assert [poller.ask(0), poller.ask(0.01)] == [None, None]
    assert poller.seconds > 0
    slow.go.set()
    assert poller.ask(30) == PollResult(7)
    assert slow.looks == 1
    assert poller.ask(30) == PollResult(7)
    assert slow.looks == 2


@pytest.mark.parametrize("error", [SourceError(job="j", problem="gone", hint="x"), TimeoutError("the server")], ids=str)
def test_error_of_a_look_is_told_once_and_the_next_look_is_a_new_one(error: Exception) -> None:
    def fail() -> PollResult:
        raise error

    slow = Slow(fail)
    poller = NewDataPoller(slow)
    assert poller.ask(0) is None
    slow.go.set()
    for looks in (1, 2):
        with pytest.raises(type(error)):
            poller.ask(30)
        assert slow.looks == looks


class Closable:
    """Tells whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_late_look_keeps_the_store_that_looks_share_until_it_has_ended() -> None:
    store = Closable()
    shared = SharedStore(cast("StateStore", store))
    quick, slow = Slow(PollResult), Slow(PollResult)
    quick.go.set()
    assert NewDataPoller(quick).ask(30, shared) == PollResult()
    late = NewDataPoller(slow)
    assert late.ask(0, shared) is None
    shared.close()
    assert not store.is_closed
    slow.go.set()
    assert late.ask(30) == PollResult()
    for thread in [one for one in threading.enumerate() if one.name == "new-data-poller"]:
        thread.join(30)
    assert store.is_closed


@pytest.fixture
def poll_process() -> Iterator[SparkPollProcess]:
    made = SparkPollProcess(SparkSpec())
    yield made
    made.close()


def test_process_answers_one_question_after_the_other_and_starts_no_spark_before_a_source_asks(
    tmp_path: Path, poll_process: SparkPollProcess
) -> None:
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 5}})
    first = poll_process.ask(project(tmp_path, job), job)
    process = poll_process.process_id
    assert first == look(project(tmp_path, job), job)
    run(tmp_path, job)
    assert poll_process.ask(project(tmp_path, job), job) == PollResult(2)
    assert poll_process.process_id == process
    bad = job_spec({}, source={"type": "files", "path": "nowhere/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}})
    with pytest.raises(SourceError, match="nowhere"):
        poll_process.ask(project(tmp_path, bad), bad)
    assert poll_process.process_id == process


def test_process_that_is_gone_is_started_anew(tmp_path: Path, poll_process: SparkPollProcess) -> None:
    job = job_spec({"a": {"rows": 3}})
    poll_process.ask(project(tmp_path, job), job)
    first = poll_process.process_id
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert poll_process.ask(project(tmp_path, job), job).datasets == 1
    assert poll_process.process_id not in (None, first)


def test_process_that_dies_at_a_question_or_takes_too_long_is_an_error_of_that_question(
    tmp_path: Path, poll_process: SparkPollProcess
) -> None:
    killer = job_spec({}, source={"type": f"{__name__}:KillerSource", "datasets": {}})
    with pytest.raises(EnvironmentFaultError, match="job 'numbers' with Spark died"):
        poll_process.ask(project(tmp_path, killer), killer)
    good = job_spec({"a": {"rows": 3}})
    with pytest.raises(EnvironmentFaultError, match="took more than 0 s"):
        poll_process.ask(project(tmp_path, good), good, limit_s=0)
    assert poll_process.process_id is None
    assert poll_process.ask(project(tmp_path, good), good).datasets == 1


def test_process_ends_when_nobody_asks(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}})
    poll_process = SparkPollProcess(SparkSpec(), idle_s=0)
    poll_process.ask(project(tmp_path, job), job)
    first = poll_process.process_id
    for child in multiprocessing.active_children():
        child.join(120)
    assert poll_process.ask(project(tmp_path, job), job).datasets == 1
    assert poll_process.process_id != first
    poll_process.close()


def test_process_ends_with_the_one_that_asked_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from gobblin_dagster.engine.new_data import SparkPollProcess\n"
        "from gobblin_dagster.spec.project import SparkSpec\n"
        "from tests.unit.engine.jobs import job_spec, project\n"
        "if __name__ == '__main__':\n"
        "    poll_process, job = SparkPollProcess(SparkSpec()), job_spec({'a': {'rows': 3}})\n"
        f"    poll_process.ask(project(Path({str(tmp_path)!r}), job), job)\n"
        "    print(poll_process.process_id, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "killed.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    asked = [sys.executable, str(tmp_path / "killed.py")]
    with subprocess.Popen(asked, env=environment, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        process_id = int(killed.stdout.readline())
        assert killed.wait(120) == -signal.SIGKILL
    try:
        handle = os.pidfd_open(process_id)
    except ProcessLookupError:
        return  # it has ended already
    ended, _, _ = select.select([handle], [], [], 30)
    os.close(handle)
    assert ended


class KillerSource(RowsSource):
    """Ends its process as soon as it is asked for what is new."""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        os._exit(9)
