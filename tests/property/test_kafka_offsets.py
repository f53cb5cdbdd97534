"""Laws of planning offsets: under any arrivals, failures and retention, each offset is read once or stated as lost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.kafka_offsets import OffsetRules, PartitionOffsets, plan_offsets
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.watermark import CompositeWatermark

RULES = OffsetRules("earliest", 0, "nearest", 7)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "arrive": st.lists(st.integers(0, 25), min_size=1, max_size=3),
            "expire": st.integers(0, 10),
            "fail": st.lists(st.booleans(), min_size=8, max_size=8),
        }
    ),
    max_size=8,
)


class Log:
    """Partitions that grow and lose their oldest offsets."""

    def __init__(self) -> None:
        self.bounds: list[list[int]] = []

    def move(self, arrive: list[int], expire: int) -> None:
        for number, count in enumerate(arrive):
            if number == len(self.bounds):
                self.bounds.append([0, 0])
            self.bounds[number][1] += count
        for bound in self.bounds:
            bound[0] = min(bound[1], bound[0] + expire)

    def offsets(self) -> list[PartitionOffsets]:
        return [PartitionOffsets("t", n, first, end, end) for n, (first, end) in enumerate(self.bounds)]


def apply(committed: CommittedRanges, plan: Any, failed: list[bool], seen: Counter[tuple[str, int]]) -> CommittedRanges:
    """Commit the work units that do not fail, as policy `successful` does."""
    done = [unit for number, unit in enumerate(plan.work_units) if not failed[number % len(failed)]]
    if done:
        committed = committed.anchored(CompositeWatermark(plan.low))
    for unit in done:
        committed = committed.add(WatermarkInterval(unit.low, unit.expected_high))
        for name, part in unit.read["partitions"].items():
            high = unit.expected_high.components()[name]
            seen.update((name, offset) for offset in range(part["start"], high))
    return committed


@settings(max_examples=300)
@given(STEPS)
def test_every_offset_is_read_once_or_lost_and_the_plan_comes_to_rest(steps: list[dict[str, Any]]) -> None:
    log, committed, seen = Log(), CommittedRanges(CompositeWatermark, {}), Counter[tuple[str, int]]()
    for step in [*steps, {"arrive": [1], "expire": 0, "fail": [False]}]:
        log.move(step["arrive"], step["expire"])
        state = DatasetState("j", "t", 1, committed, 1, "r", NOW) if committed.ranges else None
        plan = plan_offsets("t", log.offsets(), state, RULES)
        before = committed
        committed = apply(committed, plan, step["fail"], seen)
        if before.watermark is not None:
            assert committed.watermark is not None
            assert before.watermark <= committed.watermark
    assert set(seen.values()) <= {1}
    final = plan_offsets("t", log.offsets(), DatasetState("j", "t", 1, committed, 1, "r", NOW), RULES)
    assert final.work_units == []
    for number, (first, end) in enumerate(log.bounds):
        name = f"t-{number}"
        assert {offset for offset in range(first, end) if (name, offset) not in seen} == set()
