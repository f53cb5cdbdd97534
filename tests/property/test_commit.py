"""Laws of the commit, whatever is published, fails, crashes and comes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit.manifest import read_manifest
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.engine.commit.steps import RenameFileStep
from tests.unit.engine.commit.world import JOB, ROOT, World


@dataclass(frozen=True)
class Run:
    """One run: how much the source grew, how its work is cut, what fails, how far it comes."""

    growth: int
    unit_size: int
    fails: frozenset[int]
    """Numbers of the work units that fail."""
    steps_before_crash: int | None
    """Moves done before the run dies, at most; None where it ends well."""
    loses_staging: bool
    """Whether staging is wiped by the crash."""


runs = st.lists(
    st.builds(
        Run,
        growth=st.integers(0, 12),
        unit_size=st.integers(1, 6),
        fails=st.frozensets(st.integers(1, 4), max_size=2),
        steps_before_crash=st.none() | st.integers(0, 4),
        loses_staging=st.booleans(),
    ),
    max_size=6,
)


def _missing(world: World, end: int) -> list[tuple[int, int]]:
    """Return the ranges below `end` that are not committed: what a source plans."""
    state = world.state()
    parts = [part for part in state.committed.ranges[""] if part[0] != part[1]] if state else []
    edges = [0, *(int(edge) for part in parts for edge in part if isinstance(edge, int)), end]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]


def _units(world: World, run: Run, commit_id: str, end: int) -> list[TaskState]:
    units: list[TaskState] = []
    for low, high in _missing(world, end):
        for start in range(low, high, run.unit_size):
            number = len(units) + 1
            state = WorkingState.FAILED if number in run.fails else WorkingState.SUCCESSFUL
            stop = min(start + run.unit_size, high)
            units.append(world.unit(commit_id, number=number, low=start, high=stop, state=state))
    return units


def _prepare(world: World, run: Run, commit_id: str, end: int) -> tuple[CommitSequence, int] | None:
    units = _units(world, run, commit_id, end)
    if not choose_publishable("successful", units).publish:
        return None
    sequence = world.sequence(commit_id, units=units, planned_low=LongWatermark(0))
    epoch = world.epoch()
    world.committer().prepare(sequence, epoch)
    return sequence, epoch


def _do(world: World, run: Run, commit_id: str, end: int) -> None:
    prepared = _prepare(world, run, commit_id, end)
    if prepared is None:
        return
    sequence, epoch = prepared
    if run.steps_before_crash is None:
        world.committer().publish(sequence, epoch, verify_sources=False)
        return
    for step in sequence.steps[: run.steps_before_crash]:
        assert isinstance(step, RenameFileStep)
        world.storage.make_dirs(step.target.rpartition("/")[0])
        step.execute(world.storage)
    if run.loses_staging:
        world.storage.delete_tree(sequence.staging_dirs[0])
    recovery = world.committer().recover(world.stored(sequence), epoch)
    all_moved = run.steps_before_crash >= len(sequence.steps)
    lost = run.loses_staging and not all_moved
    assert recovery.outcome is (SequenceState.ABORTED if lost else SequenceState.COMMITTED)


def _rows(world: World) -> Counter[int]:
    """Return the published rows as a reader of the manifest gets them."""
    files = read_manifest(world.storage, ROOT, JOB, "a")
    return Counter(int(line) for file in files for line in world.storage.read(file.path).split())


def _committed(world: World) -> Counter[int]:
    state = world.state()
    parts = state.committed.ranges.get("", ()) if state else ()
    return Counter(
        row for low, high in parts if isinstance(low, int) and isinstance(high, int) for row in range(low, high)
    )


def _go_through(world: World, history: Sequence[Run]) -> int:
    end = 0
    for number, run in enumerate(history):
        end += run.growth
        _do(world, run, f"c{number}", end)
    return end


@given(runs)
def test_ranges_partition_what_was_published(history: list[Run]) -> None:
    world = World()
    end = _go_through(world, history)
    assert _rows(world) == _committed(world)
    assert max(_rows(world).values(), default=1) == 1
    final = Run(growth=0, unit_size=100, fails=frozenset(), steps_before_crash=None, loses_staging=False)
    _do(world, final, "final", end)
    assert _rows(world) == Counter(range(end))
    assert len(world.visible()) == len(read_manifest(world.storage, ROOT, JOB, "a"))


@given(runs)
def test_watermark_version_and_snapshot_never_go_back(history: list[Run]) -> None:
    world = World()
    seen = (LongWatermark(0), 0, 0)
    end = 0
    for number, run in enumerate(history):
        end += run.growth
        _do(world, run, f"c{number}", end)
        state = world.state()
        if state is None:
            continue
        assert isinstance(state.watermark, LongWatermark)
        now = (state.watermark, state.version, state.snapshot)
        assert seen[0] <= now[0]
        assert seen[1:] <= now[1:]
        seen = now


@given(runs, st.integers(1, 3))
def test_replaying_any_sequence_changes_nothing(history: list[Run], times: int) -> None:
    world = World()
    _go_through(world, history)
    before = (world.visible(), world.state(), _rows(world))
    epoch = world.epoch()
    for stored in world.store.load_sequences(JOB, states=tuple(SequenceState)):
        for _ in range(times):
            assert world.committer().recover(stored, epoch).outcome is stored.state
    assert (world.visible(), world.state(), _rows(world)) == before
