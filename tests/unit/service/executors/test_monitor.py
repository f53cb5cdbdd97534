"""The monitor of a worker: what it does with the jobs of a worker process that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.executors.messages import JobNews, Message, RunOrder, StopOrder
from gobblin_dagster.service.executors.monitor import MAX_RESTARTS, JobMonitor, Taken
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.store import ServiceStore

KEY = JobKey("g", "n", 1, "a", 1, 1)


class ListInlet:
    """Orders that the test writes, and reports that it reads."""

    def __init__(self) -> None:
        self.orders: list[Taken] = []
        self.reports: list[JobReport] = []

    def take_over(self) -> Sequence[JobKey]:
        return []

    def take(self, free: int) -> Sequence[Taken]:
        taken, self.orders = self.orders, []
        return taken

    def begin(self, key: JobKey, run_id: str) -> str | None:
        return "{}"

    def tell(self, report: JobReport) -> None:
        self.reports.append(report)


class DyingWorker:
    """Ends when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.number = 1
        self.ended: Callable[[int, str], None] = lambda *_: None
        self.tell: Callable[[JobNews], None] = lambda _: None

    def listen(self, tell: Callable[[JobNews], None], ended: Callable[[int, str], None]) -> None:
        self.tell, self.ended = tell, ended

    def send(self, message: Message) -> int:
        self.sent.append(message)
        return self.number

    def die(self, how: str) -> None:
        self.number += 1
        self.ended(self.number - 1, how)

    def shutdown(self) -> None: ...

    def kill(self) -> None: ...


def test_job_that_is_to_stop_is_not_begun_again_when_its_worker_ends() -> None:
    inlet, worker = ListInlet(), DyingWorker()
    monitor = JobMonitor("east", inlet, worker, SystemClock(), 1)
    inlet.orders = [Taken(KEY)]
    monitor.step()
    inlet.orders = [Taken(KEY, is_stop=True)]
    monitor.step()
    worker.die("code -9")
    monitor.step()
    assert [type(one) for one in worker.sent] == [RunOrder, StopOrder], "killed by a person, it ran again"
    assert [one.status for one in inlet.reports] == [ExecutionStatus.CANCELLED]


def test_job_that_ends_its_worker_again_and_again_is_given_up() -> None:
    inlet, worker = ListInlet(), DyingWorker()
    monitor = JobMonitor("east", inlet, worker, SystemClock(), 1)
    inlet.orders = [Taken(KEY)]
    for _ in range(MAX_RESTARTS + 1):
        monitor.step()
        worker.die("code -9")
    [report] = inlet.reports
    assert (report.status, report.message) == (
        ExecutionStatus.FAILED,
        "the worker ended 3 times while the job ran, last with code -9",
    )
    assert len(worker.sent) == MAX_RESTARTS + 1


def test_job_that_the_next_worker_has_is_not_handed_over_again_when_the_end_of_the_last_one_is_told() -> None:
    inlet, worker = ListInlet(), DyingWorker()
    monitor = JobMonitor("east", inlet, worker, SystemClock(), 1)
    worker.number = 2  # the first one has ended, and its reader was not there yet to say so
    inlet.orders = [Taken(KEY)]
    monitor.step()
    worker.ended(1, "code -9")
    monitor.step()
    assert [type(one) for one in worker.sent] == [RunOrder]


def test_report_that_cannot_be_stored_is_told_without_its_texts() -> None:
    class Choosy(ListInlet):
        def tell(self, report: JobReport) -> None:
            if report.message == "odd":
                raise OverflowError("no database holds this")
            super().tell(report)

    inlet, worker = Choosy(), DyingWorker()
    monitor = JobMonitor("east", inlet, worker, SystemClock(), 1)
    inlet.orders = [Taken(KEY)]
    monitor.step()
    worker.tell(JobNews(KEY, ExecutionStatus.COMPLETE, "odd", 7))
    assert [(one.status, one.processed_count) for one in inlet.reports] == [(ExecutionStatus.COMPLETE, 0)]
    assert "the log says why" in inlet.reports[0].message


class Lossy(Inbox):
    """Its database takes what a transaction did, and the answer is lost."""

    def take(self, free: int) -> Sequence[Taken]:
        if taken := super().take(free):
            raise TransientError(problem=f"the connection ended after {len(taken)} job(s) were taken")
        return taken


def test_job_whose_taking_was_never_answered_is_begun_once(tmp_path: Path) -> None:
    with ServiceStore(f"sqlite:///{tmp_path}/worker.db", SystemClock()) as store:
        StoreExecutor("east", store).add(RunOrder(KEY, "", "{}"))
        worker = DyingWorker()
        monitor = JobMonitor("east", Lossy("east", store, "one"), worker, SystemClock(), 1)
        with pytest.raises(TransientError):
            monitor.step()
        for _ in range(3):
            monitor.step()
    assert [type(one) for one in worker.sent] == [RunOrder]
