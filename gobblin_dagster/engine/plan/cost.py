"""Estimate the cost of work units in milliseconds, from recent runs of their datasets. Only packing uses it.

A source knows bytes, or rows, or nothing, and a row of one dataset may cost a hundred times a row of another. The state
keeps the recent speed of each dataset (`DatasetState.pace`), which turns all of them into one unit without an extra
query.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobblin_dagster.core.dataset_state import DatasetState, Pace
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.plan.model import DatasetPlan


@dataclass(frozen=True, slots=True)
class _Rates:
    """Milliseconds per byte, per row and per work unit; 0 if unknown."""

    per_byte: float = 0.0
    per_row: float = 0.0
    per_unit: float = 0.0

    @classmethod
    def of(cls, pace: Pace) -> _Rates:
        return cls(
            per_byte=pace.ms / pace.bytes_read if pace.bytes_read else 0.0,
            per_row=pace.ms / pace.rows if pace.rows else 0.0,
            per_unit=pace.ms,
        )

    def cost(self, unit: WorkUnit) -> float | None:
        """Return the cost of a unit in milliseconds, by its bytes, else by its rows, else per unit; None if unknown."""
        if unit.size_bytes is not None and self.per_byte:
            return unit.size_bytes * self.per_byte
        if unit.rows is not None and self.per_row:
            return unit.rows * self.per_row
        return self.per_unit or None


def with_costs(datasets: Sequence[DatasetPlan], states: Mapping[str, DatasetState]) -> tuple[DatasetPlan, ...]:
    """Return the datasets with a cost for each work unit; unchanged if no dataset has a history.

    The size that the source gives for a unit is multiplied by the dataset's own rate. A dataset without history gets
    the geometric mean of the other datasets' rates.

    Source: gobblin-kafka `KafkaAvgRecordTimeBasedWorkUnitSizeEstimator` and
    `KafkaAvgRecordSizeBasedWorkUnitSizeEstimator`.
    Differs: works for any source; uses bytes if they are known, and the usual cost of a work unit if the source knows
    no size.
    """
    working = [dataset for dataset in datasets if dataset.has_work]
    known = {d.dataset_urn: _Rates.of(s.pace) for d in working if (s := states.get(d.dataset_urn)) and s.pace.ms}
    if not known:
        return tuple(datasets)
    usual = _Rates(
        per_byte=_geometric_mean([rates.per_byte for rates in known.values()]),
        per_row=_geometric_mean([rates.per_row for rates in known.values()]),
        per_unit=_geometric_mean([rates.per_unit for rates in known.values()]),
    )

    def costed(dataset: DatasetPlan) -> DatasetPlan:
        rates = known.get(dataset.dataset_urn, usual)
        units = [
            dataclasses.replace(unit, cost_ms=max(1, round(rates.cost(unit) or usual.cost(unit) or 0)))
            for unit in dataset.work_units
        ]
        return dataclasses.replace(dataset, work_units=tuple(units))

    return tuple(costed(dataset) if dataset.has_work else dataset for dataset in datasets)


def _geometric_mean(values: Sequence[float]) -> float:
    positive = [value for value in values if value > 0]
    return math.exp(sum(map(math.log, positive)) / len(positive)) if positive else 0.0
