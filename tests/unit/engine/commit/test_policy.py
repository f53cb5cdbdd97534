from __future__ import annotations

from typing import Literal

import pytest

from gobblin_dagster.core.task_state import WorkingState
from gobblin_dagster.engine.commit.policy import choose_publishable
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
