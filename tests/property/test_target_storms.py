"""Commands in random order, killed at random moments, over sources, targets and state stores of every kind.

Each row must be where the positions that were committed say, once, and what commands say must be true.
Many more: `make target-storm`, or `python -m tests.property.targets SECONDS SEED SERVERS...`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.targets.storm import storm
from tests.property.targets.world import SERVERS, world


def test_commands_in_any_order_over_targets(tmp_path: Path) -> None:
    with world() as made:
        storm(tmp_path, made, 2, 5)


@pytest.mark.storm
@pytest.mark.parametrize("server", ["", *SERVERS])
def test_commands_that_are_killed_over_servers(tmp_path: Path, server: str) -> None:
    with world("processes", *filter(None, [server])) as made:
        for seed in range(5):
            storm(tmp_path, made, seed, 30)
