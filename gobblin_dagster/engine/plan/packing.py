"""Pack work units into MultiWorkUnits: worst-fit decreasing, over single units or over groups of one dataset."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gobblin_dagster.core.work_unit import MultiWorkUnit, WorkUnit

Packing: TypeAlias = Literal["single_level", "bi_level"]
GROUPS_PER_PACK = 3
"""Average number of groups in a pack if datasets are large. More groups balance better; fewer keep datasets
together."""


def pack_units(units: Sequence[WorkUnit], bins: int, packing: Packing = "single_level") -> tuple[MultiWorkUnit, ...]:
    """Spread work units over at most `bins` packs of about equal weight, heaviest pack first.

    Spark then starts the longest task first. `single_level` spreads the units one by one, which balances best.
    `bi_level` first joins units of one dataset to groups and spreads the groups, so each dataset has fewer packs and
    fewer files. Equal input gives equal packs.
    """
    if packing == "single_level":
        return pack_worst_fit(units, bins)
    return _spread(group_by_dataset(units, bins), bins)


def pack_worst_fit(units: Sequence[WorkUnit], bins: int) -> tuple[MultiWorkUnit, ...]:
    """Put each unit, heaviest first, into the lightest pack; inside a pack the heaviest unit comes first.

    Source: gobblin-kafka `KafkaWorkUnitPacker.worstFitDecreasingBinPacking`. Differs: packs are returned heaviest
    first.
    """
    return _spread([MultiWorkUnit((unit,)) for unit in units], bins)


def group_by_dataset(units: Sequence[WorkUnit], bins: int) -> list[MultiWorkUnit]:
    """Join the units of each dataset to groups of at most a third of a pack; a heavier unit is a group of its own.

    A dataset that fits is one group. Otherwise its units go, heaviest first, into the fullest group that has room for
    them.

    Source: gobblin-kafka `KafkaBiLevelWorkUnitPacker`. Differs: the units of a group stay separate units, so each fails
    and is retried alone; the weight of a group is the sum of its units (the original takes the weight of the first
    unit).
    """
    room = sum(unit.weight for unit in units) / max(1, bins) / GROUPS_PER_PACK
    by_dataset: dict[str, list[WorkUnit]] = {}
    for unit in units:
        by_dataset.setdefault(unit.dataset_urn, []).append(unit)
    groups: list[MultiWorkUnit] = []
    for members in by_dataset.values():
        if sum(unit.weight for unit in members) <= room:
            groups.append(MultiWorkUnit(tuple(_heaviest_first(members))))
        else:
            groups += _best_fit(members, room)
    return groups


def _best_fit(units: Sequence[WorkUnit], room: float) -> list[MultiWorkUnit]:
    bins: list[tuple[int, list[WorkUnit]]] = []
    for unit in _heaviest_first(units):
        fitting = [number for number, (weight, _) in enumerate(bins) if weight + unit.weight <= room]
        if fitting:
            number = max(fitting, key=lambda one: bins[one][0])
            weight, members = bins[number]
            bins[number] = (weight + unit.weight, [*members, unit])
        else:
            bins.append((unit.weight, [unit]))
    return [MultiWorkUnit(tuple(members)) for _, members in bins]


def _spread(groups: Sequence[MultiWorkUnit], bins: int) -> tuple[MultiWorkUnit, ...]:
    """Put each group, heaviest first, into the lightest pack."""
    heap = [(0, number) for number in range(max(1, min(bins, len(groups))))]
    packs: list[list[WorkUnit]] = [[] for _ in heap]
    for group in sorted(groups, key=lambda group: (-group.weight, group.work_units[0].id)):
        weight, number = heapq.heappop(heap)
        packs[number].extend(group.work_units)
        heapq.heappush(heap, (weight + group.weight, number))
    packed = [MultiWorkUnit(tuple(pack)) for pack in packs if pack]
    return tuple(sorted(packed, key=lambda pack: -pack.weight))


def _heaviest_first(units: Sequence[WorkUnit]) -> list[WorkUnit]:
    return sorted(units, key=lambda unit: (-unit.weight, unit.id))
