"""Laws of planning offsets: under arrivals, failures, retention and topics made anew, each is read once or stated as
lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.kafka.offsets import OffsetPlan, OffsetRules, PartitionOffsets, plan_offsets
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval

RULES = OffsetRules("earliest", 0, "nearest", 7)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "arrive": st.lists(st.integers(0, 25), min_size=1, max_size=3),
            "expire": st.integers(0, 10),
            "anew": st.sampled_from([False, False, True]),
            "fail": st.lists(st.booleans(), min_size=8, max_size=8),
        }
    ),
    max_size=8,
)


class Log:
    """Partitions that grow and lose their oldest offsets, of a topic that may be created again."""

    def __init__(self) -> None:
        self.bounds: list[list[int]] = []
        self.number = 0

    def move(self, arrive: list[int], expire: int, *, anew: bool) -> None:
        if anew:
            self.bounds, self.number = [], self.number + 1
        for number, count in enumerate(arrive):
            if number == len(self.bounds):
                self.bounds.append([0, 0])
            self.bounds[number][1] += count
        for bound in self.bounds:
            bound[0] = min(bound[1], bound[0] + expire)

    def offsets(self) -> list[PartitionOffsets]:
        topic_id = f"id-{self.number}"
        return [PartitionOffsets("t", n, first, end, end, topic_id) for n, (first, end) in enumerate(self.bounds)]


Seen: TypeAlias = Counter[tuple[int, int, int]]
"""How often each offset was read, by topic, partition and offset."""


def apply(state: DatasetState, plan: OffsetPlan, failed: list[bool], seen: Seen, topic: int) -> DatasetState:
    """Commit the work units that do not fail, as policy `successful` does."""
    committed = state.committed
    done = [unit for number, unit in enumerate(plan.work_units) if not failed[number % len(failed)]]
    if done:
        committed = committed.anchored(CompositeWatermark(plan.low))
    for unit in done:
        committed = committed.add(WatermarkInterval(unit.low, unit.expected_high))
        partitions: Any = unit.read["partitions"]
        for name, part in partitions.items():
            high: Any = unit.expected_high.components()[name]
            seen.update((topic, part["partition"], offset) for offset in range(part["start"], high))
    return replace(state, committed=committed, origin={**state.origin, **(plan.origin if done else {})})


@settings(max_examples=300)
@given(STEPS)
def test_every_offset_is_read_once_or_lost_and_the_plan_comes_to_rest(steps: list[dict[str, Any]]) -> None:
    log, seen = Log(), Seen()
    state = DatasetState("j", "t", 1, CommittedRanges(CompositeWatermark, {}), 1, "r", NOW)
    for step in [*steps, {"arrive": [1], "expire": 0, "anew": False, "fail": [False]}]:
        log.move(step["arrive"], step["expire"], anew=step["anew"])
        before = state
        state = apply(state, plan_offsets("t", log.offsets(), state, RULES), step["fail"], seen, log.number)
        if before.watermark is not None:
            assert state.watermark is not None
            assert before.watermark <= state.watermark
    assert set(seen.values()) <= {1}
    assert plan_offsets("t", log.offsets(), state, RULES).work_units == []
    for number, (first, end) in enumerate(log.bounds):
        assert {offset for offset in range(first, end) if (log.number, number, offset) not in seen} == set()
