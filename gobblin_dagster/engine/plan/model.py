"""What a run would do, as data: the plan of each dataset and of the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.watermark.fields import AnyRanges, AnyWatermark
from gobblin_dagster.core.work_unit import WorkUnit


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """What a run would do for one dataset."""

    dataset_urn: str
    commit_id: str
    """Names the files of the publication to come; 128 random bits."""
    version_read: int
    """Version of the state that the plan was made from; the commit refuses any other."""
    low: AnyWatermark | None
    """Next position to read; None where the dataset has neither state nor data."""
    expected_high: AnyWatermark | None
    work_units: tuple[WorkUnit, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know: late files, vanished files."""
    problem: str = ""
    """Why the dataset cannot be planned; it fails alone."""
    code: str = SourceError.code
    """That of `problem`."""
    quarantined: bool = False
    """Whether `problem` is a quarantined commit sequence that waits for a person."""
    previous_schemas: Mapping[str, str] = field(default_factory=dict)
    startpoint: Startpoint | None = None
    """The one in force, which the commit consumes."""
    begin: AnyRanges | None = None
    """What counts as read under the startpoint; None where that is what was committed."""
    expired: Startpoint | None = None
    """A startpoint that is not applied any more: the run deletes it, be there anything to commit or not."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of what is read, by name (`DatasetOffer.origin`); the commit keeps them."""

    @property
    def is_moving(self) -> bool:
        """Whether a run would commit anything: what it reads, or that it begins elsewhere."""
        return not self.problem and (self.has_work or self.begin is not None)

    @property
    def has_work(self) -> bool:
        """Whether anything is to be read."""
        return bool(self.work_units)

    @property
    def files(self) -> int | None:
        """Input files; None where the source has none."""
        return _total(unit.files for unit in self.work_units)

    @property
    def rows(self) -> int | None:
        """Expected rows; None where the source does not know."""
        return _total(unit.rows for unit in self.work_units)

    @property
    def size_bytes(self) -> int | None:
        """Expected bytes; None where the source does not know."""
        return _total(unit.size_bytes for unit in self.work_units)

    @property
    def cost_ms(self) -> int | None:
        """Expected milliseconds of all work units; None where no dataset of the plan has a history."""
        return _total(unit.cost_ms for unit in self.work_units)


def _total(parts: object) -> int | None:
    values = list(parts)  # type: ignore[call-overload]  # a generator of int | None
    return None if any(value is None for value in values) else sum(values)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A stored commit sequence that the next run recovers first, or that waits for a person."""

    sequence_id: str
    dataset_urn: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a run would do: data, printable and comparable; `run` executes exactly this object."""

    job: str
    run_id: str
    datasets: tuple[DatasetPlan, ...]
    packs: tuple[tuple[str, ...], ...] = ()
    """Work unit ids by pack; a Spark task runs one pack."""
    leftovers: tuple[Leftover, ...] = ()
    branches: tuple[str, ...] = ()
    """Branches that each dataset is published to, the quarantine included where a policy uses it."""
    scope: Literal["dataset", "job"] = "dataset"
    """Whether each dataset is published on its own, or all of the run together."""
    commit_steps: tuple[str, ...] = ()
    """What will be committed per dataset, in order, for people."""

    @property
    def has_work(self) -> bool:
        """Whether a run would read anything."""
        return any(dataset.has_work for dataset in self.datasets)

    @property
    def pack_weights(self) -> tuple[int, ...]:
        """Expected cost of each pack, as `WorkUnit.weight` counts it: milliseconds where datasets have a history."""
        weights = {unit.id: unit.weight for dataset in self.datasets for unit in dataset.work_units}
        return tuple(sum(weights[unit_id] for unit_id in pack) for pack in self.packs)

    @property
    def skew(self) -> float | None:
        """Weight of the heaviest pack as a multiple of the mean; 1.0 is even. None without packs."""
        weights = self.pack_weights
        return max(weights) * len(weights) / sum(weights) if weights else None

    @property
    def has_changes(self) -> bool:
        """Whether a run would change anything: new data, a startpoint to honour, or a sequence to finish."""
        return self.is_moving or bool(self.leftovers)

    @property
    def is_moving(self) -> bool:
        """Whether a run would commit anything of its own."""
        return any(dataset.is_moving for dataset in self.datasets)


def left_out(dataset: DatasetPlan, problem: str, code: str = SourceError.code) -> DatasetPlan:
    """Return the plan of a dataset of which nothing is read."""
    code = dataset.code if dataset.problem else code
    return dataclasses.replace(dataset, work_units=(), startpoint=None, begin=None, problem=problem, code=code)


def replanned(plan: JobPlan, datasets: Sequence[DatasetPlan]) -> JobPlan:
    """Return the plan with other datasets, without the work units that none of them has."""
    ours = {unit.id for dataset in datasets for unit in dataset.work_units}
    packs = (tuple(unit_id for unit_id in pack if unit_id in ours) for pack in plan.packs)
    return dataclasses.replace(plan, datasets=tuple(datasets), packs=tuple(filter(None, packs)))
