"""Packing of work units into MultiWorkUnits: worst-fit decreasing."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from gobblin_dagster.core.work_unit import MultiWorkUnit, WorkUnit


def pack_worst_fit(units: Sequence[WorkUnit], bins: int) -> tuple[MultiWorkUnit, ...]:
    """Spread work units over at most `bins` packs of about equal weight.

    The heaviest unit goes first, always into the lightest pack; packs come back heaviest first, so that Spark starts the
    longest task first. Order inside a pack is heaviest first. Deterministic for equal input.

    Source: gobblin-kafka `KafkaWorkUnitPacker.worstFitDecreasingBinPacking`. Differs: packs are returned heaviest first.
    """
    if not units:
        return ()
    heap = [(0, number) for number in range(max(1, min(bins, len(units))))]
    packs: list[list[WorkUnit]] = [[] for _ in heap]
    for unit in sorted(units, key=lambda unit: (-unit.weight, unit.id)):
        weight, number = heapq.heappop(heap)
        packs[number].append(unit)
        heapq.heappush(heap, (weight + unit.weight, number))
    packed = [MultiWorkUnit(tuple(pack)) for pack in packs if pack]
    return tuple(sorted(packed, key=lambda pack: -pack.weight))
