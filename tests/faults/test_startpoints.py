"""A run under a startpoint killed at each of its operations: honoured once, consumed with its commit
alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.startpoint import Specific, Startpoint, StartpointPosition, Upcoming
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.faults.strikes import copies_of, strike_each_operation
from tests.unit.engine.jobs import job_spec, project, published, run
from tests.unit.engine.plan.test_startpoints import state, store_of, waiting, wish

ROWS, MORE = 10, 15
START, LATER = 4, 7
TWICE = f": readers of 'all', 'masked' see the rows of [{START}, {ROWS}) twice"


def job(rows: int = ROWS, **commit: Any) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, **({"commit": commit} if commit else {}))


def work(opened: Project, spec: JobSpec) -> None:
    run_job(opened, spec, runner=InlineRunner())


@pytest.fixture
def template(scratch: Path) -> Path:
    folder = scratch / "template"
    folder.mkdir()
    return folder


def unfanned(root: Path, spec: JobSpec) -> dict[str, Startpoint]:
    """Return what waits, whether or not the killed run has fanned it out already."""
    return {urn: replace(one, generation=0) for urn, one in waiting(root, spec).items()}


def honoured(root: Path, spec: JobSpec) -> list[str]:
    """Return the commits that a startpoint explains, by reason."""
    with store_of(root, spec) as store:
        return [entry.why for entry in history(store, spec.job, "a") if entry.by == "startpoint"]


@pytest.mark.parametrize("position", [Specific(str(START)), Specific(str(ROWS))], ids=["going-back", "nothing-new"])
def test_startpoint_is_gone_exactly_where_the_watermark_moved(template: Path, position: StartpointPosition) -> None:
    root, restore = copies_of(template)
    run(template, job())
    saved = wish(template, job(), position)
    again = list(range(int(str(position)), ROWS))
    restore()
    seen = set()
    for _ in strike_each_operation(partial(project, root, job()), partial(work, spec=job())):
        killed = state(root, job())
        assert killed is not None
        is_consumed = killed.version == 2
        seen.add(is_consumed)
        assert unfanned(root, job()) == ({} if is_consumed else {"a": saved})
        assert killed.generation == int(is_consumed and bool(again))
        for _ in range(2):
            run(root, job())
            assert published(root, job(), "a") == sorted([*range(ROWS), *again])
            assert waiting(root, job()) == {}
        assert honoured(root, job()) == [f"startpoint {position}: snow{TWICE if again else ''}"]
        restore()
    assert seen == {True, False}, "some kills must come before the commit, some after it"


def test_upcoming_skips_nothing_that_came_after_it_was_pinned(template: Path) -> None:
    root, restore = copies_of(template)
    saved = wish(template, job(), Upcoming())
    restore()
    ends = set()
    for _ in strike_each_operation(partial(project, root, job()), partial(work, spec=job())):
        (left,) = waiting(root, job()).values() or (None,)
        is_pinned = left is None or left.pinned is not None
        assert left is None or left.id == saved.id
        run(root, job(MORE))
        assert published(root, job(), "a") == (list(range(ROWS, MORE)) if is_pinned else [])
        after = state(root, job())
        assert after is not None
        assert after.watermark == LongWatermark(MORE)
        assert waiting(root, job()) == {}
        ends.add(is_pinned)
        restore()
    assert ends == {True, False}


def test_delivery_without_write_ahead_consumes_it_with_its_record(template: Path) -> None:
    root, restore = copies_of(template)
    spec = job(delivery="at_least_once")
    run(template, spec)
    saved = wish(template, spec, Specific(str(START)))
    restore()
    for _ in strike_each_operation(partial(project, root, job()), partial(work, spec=spec)):
        killed = state(root, spec)
        assert killed is not None
        assert unfanned(root, spec) == ({} if killed.version == 2 else {"a": saved})
        run(root, spec)
        assert published(root, spec, "a") == sorted([*range(ROWS), *range(START, ROWS)])
        assert honoured(root, spec) == [f"startpoint {START}: snow{TWICE}"]
        restore()


def test_second_startpoint_set_after_a_kill_is_applied_once_after_what_the_killed_run_had_prepared(
    template: Path,
) -> None:
    """Of two startpoints of one key, the killed run's own is applied with its commit, or replaced and never applied."""
    root, restore = copies_of(template)
    run(template, job())
    first = wish(template, job(), Specific(str(START)))
    restore()
    seen = set()
    for _ in strike_each_operation(partial(project, root, job()), partial(work, spec=job()), kind="store."):
        second = wish(root, job(), Specific(str(LATER)), why="rain")
        run(root, job())
        applied = [why.partition(":")[0] for why in honoured(root, job())]
        both = [f"startpoint {START}", f"startpoint {LATER}"]
        assert applied in (both, both[1:])
        again = [*range(START, ROWS)] if applied == both else []
        assert published(root, job(), "a") == sorted([*range(ROWS), *again, *range(LATER, ROWS)])
        assert waiting(root, job()) == {}
        with store_of(root, job()) as store:
            told = [(event.startpoint.id, event.change) for event in store.load_startpoint_events(job().job)]
        assert told[-2:] == [(second.id, "set"), (second.id, "fanned out")]
        # A sequence that was prepared is committed by the next run, although its startpoint was replaced meanwhile.
        seen.add((applied == both, (first.id, "replaced") in told))
        restore()
    assert seen == {(True, False), (True, True), (False, True)}
