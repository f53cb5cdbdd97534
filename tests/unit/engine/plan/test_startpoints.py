"""Runs that begin at a startpoint: what is read, what is consumed, and what is left for the next run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Oldest, Specific, Startpoint, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark, LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.plan.startpoints import begin_at
from gobblin_dagster.engine.run.job_run import JobRun, plan_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsExtractor, RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

TEN = {"a": {"rows": 10}}
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class PlainRows:
    """Rows of a source that looks nothing up."""

    Options = RowsSource.Options

    def __init__(self, options: RowsSource.Options, context: ConstructContext) -> None:
        self._rows = RowsSource(options, context)

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        return self._rows.plan(context)

    def extractor(self, unit: WorkUnit) -> RowsExtractor:
        return self._rows.extractor(unit)

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int:
        return self._rows.count_rows(dataset_urn, ranges)


class Unreachable(RowsSource):
    """Rows of a source whose look-up fails."""

    def resolve_startpoint(self, dataset_urn: str, *_: Any) -> NoReturn:
        raise TransientError(problem=f"the server of {dataset_urn} is away.")


def plain(job: JobSpec) -> JobSpec:
    """The same job over a source that looks nothing up."""
    options = {"type": "tests.unit.engine.plan.test_startpoints:PlainRows", "datasets": TEN}
    return job_spec(TEN, source=options)


@contextmanager
def store_of(root: Path, job: JobSpec) -> Iterator[StateStore]:
    store = project(root, job).open_store()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def run_of(root: Path, job: JobSpec) -> Iterator[JobRun]:
    with store_of(root, job) as store, JobRun(JobContext.of(project(root, job), job, store), InlineRunner()) as run_:
        yield run_


def wish(root: Path, job: JobSpec, position: StartpointPosition, urn: str = "a", **parts: Any) -> Startpoint:
    """Store a startpoint."""
    now = datetime.now(UTC)
    startpoint = Startpoint(job.job, urn, position, now, now + timedelta(days=1), "anna@host", "snow")
    startpoint = replace(startpoint, **parts)
    with store_of(root, job) as store:
        store.save_startpoint(startpoint)
    return startpoint


def waiting(root: Path, job: JobSpec) -> dict[str, Startpoint]:
    with store_of(root, job) as store:
        return store.load_startpoints(job.job)


def up_to(end: int) -> CommittedRanges:
    return CommittedRanges(LongWatermark, {"": ((0, end),)})


def state(root: Path, job: JobSpec, urn: str = "a") -> DatasetState | None:
    with store_of(root, job) as store:
        return store.load_dataset_states(job.job, [urn]).get(urn)


def planned(root: Path, job: JobSpec, urn: str = "a") -> DatasetPlan:
    return next(one for one in plan_job(project(root, job), job).datasets if one.dataset_urn == urn)


@pytest.mark.parametrize(
    ("position", "read", "generation"),
    [
        (Specific("4"), [4, 5, 6, 7, 8, 9], 1),
        (Specific("10"), [], 0),
        (Oldest(), list(range(10)), 1),
        (Upcoming(), [], 0),
    ],
    ids=["back", "here", "oldest", "upcoming"],
)
def test_run_begins_at_the_startpoint_and_consumes_it(
    tmp_path: Path, position: StartpointPosition, read: list[int], generation: int
) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    wish(tmp_path, job, position)
    result = by_urn(run(tmp_path, job))["a"]
    assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, len(read))
    assert published(tmp_path, job, "a") == sorted([*range(10), *read])
    after = state(tmp_path, job)
    assert after is not None
    assert (after.watermark, after.version, after.generation) == (LongWatermark(10), 2, generation)
    assert waiting(tmp_path, job) == {}
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.IDLE


@pytest.mark.parametrize(
    ("position", "read"),
    [(Specific("4"), [4, 5, 6, 7, 8, 9]), (Oldest(), list(range(10))), (Upcoming(), [])],
    ids=["specific", "oldest", "upcoming"],
)
def test_first_run_of_a_dataset_begins_at_the_startpoint(
    tmp_path: Path, position: StartpointPosition, read: list[int]
) -> None:
    job = job_spec(TEN)
    wish(tmp_path, job, position)
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == read
    after = state(tmp_path, job)
    assert after is not None
    assert (after.watermark, after.version) == (LongWatermark(10), 1)
    assert waiting(tmp_path, job) == {}
    more = job_spec({"a": {"rows": 12}})
    run(tmp_path, more)
    assert published(tmp_path, more, "a") == [*read, 10, 11]


def test_going_forward_skips_and_what_was_skipped_is_never_read(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}})
    run(tmp_path, job)
    more = job_spec(TEN)
    wish(tmp_path, more, Specific("7"))
    run(tmp_path, more)
    run(tmp_path, more)
    assert published(tmp_path, more, "a") == [0, 1, 2, 7, 8, 9]
    after = state(tmp_path, more)
    assert after is not None
    assert (str(after.committed), after.generation) == ("[0, 10)", 0)


def test_plan_shows_the_startpoint_and_changes_nothing(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    saved = wish(tmp_path, job, Upcoming())
    plan = plan_job(project(tmp_path, job), job)
    assert plan.has_changes
    assert not plan.has_work
    shown = plan.datasets[0]
    assert shown.startpoint == replace(saved, pinned=up_to(10))
    assert shown.notes == ("begins at 10, by the startpoint upcoming of anna@host: snow.",)
    assert waiting(tmp_path, job) == {"a": saved}


def test_upcoming_is_pinned_by_the_first_run_so_that_a_crash_skips_nothing(tmp_path: Path) -> None:
    job = job_spec(TEN)
    saved = wish(tmp_path, job, Upcoming(), expires_at=datetime.now(UTC) + timedelta(hours=1))
    with run_of(tmp_path, job) as dies:
        dies.extract(dies.plan())
    assert waiting(tmp_path, job) == {"a": replace(saved, pinned=up_to(10), generation=1)}
    more = job_spec({"a": {"rows": 15}})
    run(tmp_path, more)
    assert published(tmp_path, more, "a") == [10, 11, 12, 13, 14]
    assert waiting(tmp_path, more) == {}


def test_plan_made_before_another_run_pinned_the_startpoint_begins_at_that_pin(tmp_path: Path) -> None:
    """Else rows that came between both plans, of which one ended in a crash, would never be read."""
    saved = wish(tmp_path, job_spec(TEN), Upcoming())
    more = job_spec({"a": {"rows": 15}})
    with run_of(tmp_path, more) as late:
        plan = late.plan()
        with run_of(tmp_path, job_spec(TEN)) as dies:
            dies.extract(dies.plan())
        assert waiting(tmp_path, more) == {"a": replace(saved, pinned=up_to(10), generation=1)}
        late.publish(late.extract(plan))
    assert published(tmp_path, more, "a") == [10, 11, 12, 13, 14]


def test_startpoint_set_while_a_run_works_is_left_for_the_next_run(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    wish(tmp_path, job, Specific("8"))
    with run_of(tmp_path, job) as running:
        decided = running.extract(running.plan())
        newer = wish(tmp_path, job, Specific("9"))
        running.publish(decided)
    assert published(tmp_path, job, "a") == sorted([*range(10), 8, 9])
    assert waiting(tmp_path, job) == {"a": newer}
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == sorted([*range(10), 8, 9, 9])
    assert waiting(tmp_path, job) == {}


def test_failed_run_leaves_the_startpoint_for_the_next_one(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    broken = job_spec({"a": {"rows": 10, "fail_at": 6}})
    saved = wish(tmp_path, job, Specific("4"))
    assert run(tmp_path, broken).status is RunStatus.FAILED
    assert waiting(tmp_path, job) == {"a": replace(saved, generation=2)}
    before = state(tmp_path, job)
    assert before is not None
    assert (before.version, before.generation) == (1, 0)
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == sorted([*range(10), *range(4, 10)])
    assert waiting(tmp_path, job) == {}


def test_two_runs_with_one_startpoint_honour_it_once(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    wish(tmp_path, job, Specific("8"))
    with run_of(tmp_path, job) as late:
        planned_before = late.plan()
        run(tmp_path, job)
        result = late.publish(late.extract(planned_before))
    assert by_urn(result)["a"].outcome is DatasetOutcome.IDLE
    assert published(tmp_path, job, "a") == sorted([*range(10), 8, 9])


def test_startpoint_of_a_busy_dataset_waits(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    saved = wish(tmp_path, job, Specific("10"))
    with store_of(tmp_path, job) as store:
        owner = LeaseOwner("run-x", "elsewhere", "boot", 1, "1")
        store.acquire_leases(job.job, ["a"], owner, timedelta(minutes=1))
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.BUSY
    assert waiting(tmp_path, job) == {"a": saved}


@pytest.mark.parametrize(
    ("position", "problem"),
    [
        (Specific("2013-01-31"), "'2013-01-31' is no watermark of type 'long'"),
        (Specific("x"), "is no watermark of type 'long'. Write it as 42. Set another one"),
        (Timestamp(NOON), "ids know no times"),
    ],
    ids=["type", "text", "timestamp"],
)
def test_startpoint_that_cannot_be_resolved_fails_its_dataset_alone(
    tmp_path: Path, position: StartpointPosition, problem: str
) -> None:
    job = job_spec({**TEN, "b": {"rows": 5}})
    saved = wish(tmp_path, job, position)
    results = by_urn(run(tmp_path, job))
    assert results["a"].outcome is DatasetOutcome.FAILED
    assert results["a"].failures[0].code == "startpoint"
    assert problem in results["a"].failures[0].message
    assert "Set another one with `gobblin startpoint set`" in results["a"].failures[0].message
    assert results["b"].outcome is DatasetOutcome.COMMITTED
    assert waiting(tmp_path, job) == {"a": saved}


def test_source_that_cannot_be_asked_fails_the_dataset_and_keeps_the_startpoint(tmp_path: Path) -> None:
    job = job_spec(TEN, source={"type": "tests.unit.engine.plan.test_startpoints:Unreachable", "datasets": TEN})
    saved = wish(tmp_path, job, Upcoming())
    failed = by_urn(run(tmp_path, job))["a"]
    assert "the server of a is away" in failed.failures[0].message
    assert waiting(tmp_path, job) == {"a": saved}


@pytest.mark.parametrize("position", [Upcoming(), Timestamp(NOON)], ids=["upcoming", "timestamp"])
def test_source_that_looks_nothing_up_says_so(tmp_path: Path, position: StartpointPosition) -> None:
    job = plain(job_spec(TEN))
    wish(tmp_path, job, position)
    assert "this source cannot look up such a position" in planned(tmp_path, job).problem


@pytest.mark.parametrize("has_state", [True, False])
def test_source_that_looks_nothing_up_takes_watermarks_and_oldest(tmp_path: Path, has_state: bool) -> None:
    job = plain(job_spec(TEN))
    if has_state:
        run(tmp_path, job)
    for position, read in ((Specific("7"), 3), (Oldest(), 10)):
        wish(tmp_path, job, position)
        assert by_urn(run(tmp_path, job))["a"].rows_read == read
        assert waiting(tmp_path, job) == {}


LONG_AGO = datetime(2026, 1, 31, 5, tzinfo=UTC)
EXPIRED = "its startpoint 4 of anna@host expired at 2026-01-31 05:00Z and is not applied; the run deletes it."


@pytest.mark.parametrize(("rows", "outcome"), [(10, DatasetOutcome.IDLE), (12, DatasetOutcome.COMMITTED)])
def test_expired_startpoint_is_not_applied_and_deleted_by_the_run_that_says_so(
    tmp_path: Path, rows: int, outcome: DatasetOutcome
) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    saved = wish(tmp_path, job, Specific("4"), expires_at=LONG_AGO)
    later = job_spec({"a": {"rows": rows}})
    assert planned(tmp_path, later).notes == (EXPIRED,)
    assert waiting(tmp_path, job) == {"a": saved}, "a plan changes nothing"
    assert by_urn(run(tmp_path, later))["a"].outcome is outcome
    assert published(tmp_path, job, "a") == list(range(rows))
    assert waiting(tmp_path, job) == {}
    assert planned(tmp_path, later).notes == ()


def test_expired_startpoint_of_a_dataset_that_the_source_lacks_is_deleted(tmp_path: Path) -> None:
    job = job_spec(TEN)
    wish(tmp_path, job, Specific("4"), urn="gone", expires_at=LONG_AGO)
    assert planned(tmp_path, job, "gone").notes == (EXPIRED,)
    run(tmp_path, job)
    assert waiting(tmp_path, job) == {}


def test_startpoint_in_the_place_of_an_expired_one_is_left_for_the_next_run(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    wish(tmp_path, job, Specific("4"), expires_at=LONG_AGO)
    with run_of(tmp_path, job) as running:
        plan = running.plan()
        newer = wish(tmp_path, job, Specific("9"))
        running.publish(running.extract(plan))
    assert waiting(tmp_path, job) == {"a": newer}


def test_run_of_other_datasets_leaves_an_expired_startpoint(tmp_path: Path) -> None:
    job = job_spec(TEN | {"b": {"rows": 1}})
    saved = wish(tmp_path, job, Specific("4"), expires_at=LONG_AGO)
    run(tmp_path, job, Selection(("b",)))
    assert waiting(tmp_path, job) == {"a": saved}


def test_clean_deletes_expired_startpoints_of_any_dataset(tmp_path: Path) -> None:
    job = job_spec(TEN, extract={"namespace": "test", "table": "numbers", "type": "snapshot_only"})
    run(tmp_path, job)
    expired = [wish(tmp_path, job, Specific("4"), urn=urn, expires_at=LONG_AGO) for urn in ("a", "gone")]
    kept = {
        "b": wish(tmp_path, job, Specific("4"), urn="b"),
        "c": wish(tmp_path, job, Upcoming(), urn="c", pinned=up_to(7), expires_at=LONG_AGO),
    }
    for dry_run in (True, False):
        assert clean(project(tmp_path, job), job, dry_run=dry_run).startpoints == tuple(expired)
    assert waiting(tmp_path, job) == kept
    assert clean(project(tmp_path, job), job).startpoints == ()


def test_pinned_startpoint_does_not_expire(tmp_path: Path) -> None:
    job = job_spec(TEN)
    wish(tmp_path, job, Upcoming(), pinned=up_to(7), expires_at=datetime(2026, 1, 31, tzinfo=UTC))
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == [7, 8, 9]


def test_startpoint_of_a_dataset_that_the_source_lacks_waits_and_is_named(tmp_path: Path) -> None:
    job = job_spec(TEN)
    saved = wish(tmp_path, job, Specific("4"), urn="gone")
    shown = planned(tmp_path, job, "gone")
    assert "its startpoint waits" in shown.notes[0]
    assert "the source has no such dataset" in shown.notes[0]
    result = run(tmp_path, job)
    assert by_urn(result)["gone"].outcome is DatasetOutcome.IDLE
    assert result.exit_code == 0
    assert waiting(tmp_path, job) == {"gone": saved}


def test_oldest_of_an_empty_dataset_waits_for_its_first_rows(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 0}})
    saved = wish(tmp_path, job, Oldest())
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.IDLE
    assert waiting(tmp_path, job) == {"a": saved}
    run(tmp_path, job_spec(TEN))
    assert waiting(tmp_path, job) == {}


def test_at_least_once_consumes_it_too(tmp_path: Path) -> None:
    job = job_spec(TEN, commit={"delivery": "at_least_once"})
    run(tmp_path, job)
    wish(tmp_path, job, Specific("8"))
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == sorted([*range(10), 8, 9])
    assert waiting(tmp_path, job) == {}


def test_work_units_that_fail_under_a_startpoint_stay_gaps(tmp_path: Path) -> None:
    broken = job_spec({"a": {"rows": 10, "unit_rows": 2, "fail_at": 4}}, commit={"policy": "successful"})
    wish(tmp_path, broken, Specific("4"))
    run(tmp_path, broken)
    assert published(tmp_path, broken, "a") == [6, 7, 8, 9]
    assert waiting(tmp_path, broken) == {}
    run(tmp_path, job_spec(TEN))
    assert published(tmp_path, broken, "a") == [4, 5, 6, 7, 8, 9]


def test_history_explains_the_change_by_the_startpoint(tmp_path: Path) -> None:
    job = job_spec(TEN)
    run(tmp_path, job)
    wish(tmp_path, job, Specific("8"))
    run(tmp_path, job)
    wish(tmp_path, job, Upcoming())
    run(tmp_path, job)
    with store_of(tmp_path, job) as store:
        entries = history(store, job.job, "a")
    assert [(e.by, e.why, e.rows) for e in entries] == [
        ("run", "", 10),
        ("startpoint", "startpoint 8: snow: readers of 'all', 'masked' see the rows of [8, 10) twice", 2),
        ("startpoint", "startpoint upcoming: snow", 0),
    ]
    assert entries[1].who == "anna@host"


def test_many_datasets_have_startpoints_of_their_own(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 10}, "b": {"rows": 10}, "c": {"rows": 10}})
    run(tmp_path, job)
    wish(tmp_path, job, Specific("4"), "a")
    wish(tmp_path, job, Oldest(), "b")
    results = by_urn(run(tmp_path, job))
    assert {urn: one.rows_read for urn, one in results.items()} == {"a": 6, "b": 10, "c": 0}
    assert waiting(tmp_path, job) == {}


def test_source_is_not_asked_where_no_startpoint_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SourceContext] = []
    right = RowsSource.plan

    def plan(self: RowsSource, context: SourceContext) -> Any:
        asked.append(context)
        return right(self, context)

    monkeypatch.setattr(RowsSource, "plan", plan)
    planned(tmp_path, job_spec(TEN))
    assert len(asked) == 1


ALL: dict[str, Any] = {"t-0": ((0, 100),), "t-1": ((0, 80),)}
FIRST = {**ALL, "t-1": ((0, 60),)}


@pytest.mark.parametrize(
    ("position", "parts", "begin", "kept"),
    [
        pytest.param(Specific("100"), {"partition": "t-0"}, ALL, ["t-1"], id="a partition at its watermark"),
        pytest.param(Specific('{"t-0": 100}'), {}, ALL, ["t-1"], id="a position that names one"),
        pytest.param(Specific('{"t-0": 100, "t-1": 60}'), {}, FIRST, [], id="one at its watermark, another back"),
        pytest.param(Upcoming(), {}, ALL, [], id="all of them"),
        pytest.param(Oldest(), {"until": Specific("5")}, ALL, ["t-0", "t-1"], id="read again in the middle"),
    ],
)
def test_row_marks_are_forgotten_of_the_components_that_a_startpoint_names(
    position: StartpointPosition, parts: dict[str, Any], begin: dict[str, Any], kept: list[str]
) -> None:
    committed = CommittedRanges(CompositeWatermark, {**ALL, "t-0": ((0, 10), (20, 100))})
    marks = {"t-0": RowMark(97, "a"), "t-1": RowMark(79, "b")}
    before = DatasetState("j", "t", 1, committed, 1, "r", NOON, row_marks=marks)
    startpoint = replace(Startpoint("j", "t", position, NOON, NOON, "anna@host"), **parts)
    begun = begin_at(before, "j", "t", CommittedRanges(CompositeWatermark, begin), NOON, [startpoint])
    assert sorted(begun.row_marks) == kept
