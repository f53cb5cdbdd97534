from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import pytest

from gobblin_dagster.core.errors import WorkingStateError
from gobblin_dagster.core.task_state import WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.policy import Decision, choose_publishable
from tests.unit.engine.commit.world import World

S, F, C, P = WorkingState.SUCCESSFUL, WorkingState.FAILED, WorkingState.CANCELLED, WorkingState.PENDING


@pytest.mark.parametrize(
    ("policy", "states", "published", "failed"),
    [
        pytest.param("full", [S, S], [1, 2], [], id="full publishes all"),
        pytest.param("full", [S, F], [], [2], id="full publishes nothing after a failure"),
        pytest.param("full", [S, C], [], [], id="full publishes nothing after a cancellation, which is no failure"),
        pytest.param("full", [S, P], [], [2], id="a unit that never came back failed"),
        pytest.param("full", [], [], [], id="nothing of nothing"),
        pytest.param("successful", [S, F, S], [1, 3], [2], id="successful publishes what succeeded"),
        pytest.param("successful", [S, C], [1], [], id="successful leaves out the cancelled"),
        pytest.param("successful", [F, WorkingState.SKIPPED], [], [1], id="successful may publish nothing"),
    ],
)
def test_policy_chooses(
    policy: Literal["full", "successful"], states: list[WorkingState], published: list[int], failed: list[int]
) -> None:
    world = World()
    units = [world.unit(number=number, state=state) for number, state in enumerate(states, 1)]
    decision = choose_publishable(policy, units)
    assert [unit.work_unit_id for unit in decision.publish] == [f"wu-{number}" for number in published]
    assert [unit.work_unit_id for unit in decision.failed] == [f"wu-{number}" for number in failed]


def test_partial_publishes_the_parts_of_failed_units_which_stay_failed() -> None:
    world = World()
    broken = world.unit(number=2, low=10, high=20, state=F)
    part = dataclasses.replace(broken, actual_high=LongWatermark(14))
    units = [world.unit(number=1), part, world.unit(number=3, low=20, high=30, state=F)]
    decision = choose_publishable("partial", units)
    assert [unit.work_unit_id for unit in decision.publish] == ["wu-1", "wu-2"]
    assert [unit.work_unit_id for unit in decision.failed] == ["wu-2", "wu-3"]
    assert choose_publishable("successful", units).publish == (units[0],)
    assert choose_publishable("full", units).publish == ()
    after = world.sequence(units=units, policy="partial", planned_low=LongWatermark(0)).after
    assert after.failed_ranges == ("[14, 20)", "[20, 30)")
    assert after.watermark == LongWatermark(14)


def test_what_was_cancelled_is_never_published() -> None:
    world = World()
    sequence = partial(
        build_sequence,
        commit_id="c1",
        job="job",
        run_id="run",
        dataset_urn="a",
        before=None,
        output_root="/out",
        staging_dirs=(),
        now=datetime(2013, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(WorkingStateError, match="that is cancelled cannot become committed"):
        sequence(decision=Decision(publish=(world.unit(state=C),), failed=()))
