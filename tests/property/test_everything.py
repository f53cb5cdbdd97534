"""Everything at once: jobs of every publisher, rows, startpoints, rollbacks, compaction, replay and cleaning, in all
weather.

A plain model says what each commit must leave. At every moment both kinds of readers find just that in every snapshot
that is kept, no watermark is ahead, and each startpoint waits or was consumed by one commit. After a quiet run nothing
is unfinished, the datasets of a run are published together where the job says so, tables hold what snapshots do, and no
file is nobody's. In the end nothing is left to do.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.property.everything.model import KINDS
from tests.property.everything.rules import rage
from tests.property.everything.storm import Storm

STATES = {"sqlite": "sqlite:///state.db", "files": "files:state"}
# Each publisher once, on both kinds of stores in turn; `make crash-storm` has the others.
PAIRS = [
    pytest.param(STATES[kind], second, id=f"{second}-{kind}", marks=[pytest.mark.storm] * ((at + turn) % 2))
    for at, second in enumerate(KINDS)
    for turn, kind in enumerate(STATES)
]


@pytest.mark.parametrize(("state", "second"), PAIRS)
def test_whatever_comes_together_every_snapshot_holds_what_the_model_says(
    tmp_path: Path, state: str, second: str
) -> None:
    rage(Storm(tmp_path, state, KINDS[second], random.Random(f"{second} in {state}")))
