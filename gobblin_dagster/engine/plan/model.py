"""The plan of a job and of each dataset, as data: what a run would read and commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.utils.table import Column, Table, mark
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark.fields import AnyRanges, AnyWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.runner import TaskPlace


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """The plan of one dataset: what a run would read and commit."""

    dataset_urn: str
    commit_id: str
    """Part of the names of the files to be published; 128 random bits."""
    version_read: int
    """Version of the state that the plan was made from; the commit is refused if the state has another version by
    then."""
    low: AnyWatermark | None
    """Next position to read, inclusive; None if the dataset has neither state nor data."""
    expected_high: AnyWatermark | None
    work_units: tuple[WorkUnit, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks for people, such as late files and vanished files."""
    problem: str = ""
    """Why the dataset cannot be planned; empty if it can. Other datasets of the job go on."""
    code: str = SourceError.code
    """Error code of `problem`."""
    quarantined: bool = False
    """True if `problem` is a quarantined commit sequence that waits for a person."""
    previous_schemas: Mapping[str, str] = field(default_factory=dict)
    startpoints: tuple[Startpoint, ...] = ()
    """The startpoints in force, as they are applied: a later one wins. The commit consumes them all."""
    applied_startpoints: tuple[str, ...] = ()
    """Ids of startpoints for all jobs that this job has applied after a commit that consumes `startpoints`."""
    begin: AnyRanges | None = None
    """The ranges that count as read under the startpoint; None if they are the committed ones."""
    replaces: tuple[str, ...] = ()
    """Absolute paths of published files that the commit takes out of the snapshot, because their rows are read again
    (`Startpoint.on_rewind`)."""
    expired: tuple[Startpoint, ...] = ()
    """Startpoints that have expired and are not applied; the run deletes them even if there is nothing to commit."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the objects that are read, by name (`DatasetOffer.origin`); the commit stores them."""
    inferred: Mapping[str, str] = field(default_factory=dict)
    """Types inferred for columns, by name (`DatasetOffer.inferred`); the commit stores them."""
    type_notes: tuple[str, ...] = ()
    """Sentences on types that were inferred for this plan."""

    @property
    def startpoint(self) -> Startpoint | None:
        """The newest startpoint in force."""
        return self.startpoints[-1] if self.startpoints else None

    @property
    def is_moving(self) -> bool:
        """True if a run would commit something: data that it reads, or a start at another position."""
        return not self.problem and (self.has_work or self.begin is not None)

    @property
    def has_work(self) -> bool:
        """True if there is anything to read."""
        return bool(self.work_units)

    @property
    def files(self) -> int | None:
        """Number of input files; None if the source has no files."""
        return _total(unit.files for unit in self.work_units)

    @property
    def rows(self) -> int | None:
        """Expected number of rows; None if the source does not know."""
        return _total(unit.rows for unit in self.work_units)

    @property
    def size_bytes(self) -> int | None:
        """Expected size in bytes; None if the source does not know."""
        return _total(unit.size_bytes for unit in self.work_units)

    @property
    def cost_ms(self) -> int | None:
        """Expected milliseconds of all work units; None if no dataset of the plan has a history."""
        return _total(unit.cost_ms for unit in self.work_units)


def _total(parts: object) -> int | None:
    values = list(parts)  # type: ignore[call-overload]  # a generator of int | None
    return None if any(value is None for value in values) else sum(values)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A stored commit sequence that the next run will recover first, or that waits for a person."""

    sequence_id: str
    dataset_urn: str
    state: str
    reason: str = ""


_PLANS: tuple[Column[DatasetPlan], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("from", "text", lambda one: mark(one.low)),
    Column("to", "text", lambda one: mark(one.expected_high)),
    Column("work units", "number", lambda one: len(one.work_units)),
    Column("files", "number", lambda one: one.files if one.has_work else 0),
    Column("rows", "number", lambda one: one.rows if one.has_work else 0),
    Column("bytes", "number", lambda one: one.size_bytes if one.has_work else 0),
    Column("startpoint", "text", lambda one: ", ".join(map(str, one.startpoints)) or None),
    Column("notes", "text", lambda one: " ".join(one.notes) or None),
    Column("problem", "text", lambda one: one.problem or None),
)


@dataclass(frozen=True, slots=True, repr=False)
class JobPlan(Table[DatasetPlan]):
    """The plan of a job, as data: compared by value, iterated and shown as a table of its datasets."""

    job: str
    run_id: str
    datasets: tuple[DatasetPlan, ...]
    packs: tuple[tuple[str, ...], ...] = ()
    """Work unit ids by pack; a Spark task runs one pack."""
    leftovers: tuple[Leftover, ...] = ()
    branches: tuple[str, ...] = ()
    """Branches that each dataset is published to, including the quarantine if a policy uses it."""
    scope: Literal["dataset", "job"] = "dataset"
    """`dataset`: each dataset is published on its own. `job`: all datasets of the run are published together."""
    commit_steps: tuple[str, ...] = ()
    """The steps of a dataset's commit, in order, as text for people."""
    place: TaskPlace | None = None
    """Where its work units are run, if that is not always Spark."""

    @property
    def has_work(self) -> bool:
        """True if a run would read anything."""
        return any(dataset.has_work for dataset in self.datasets)

    @property
    def pack_weights(self) -> tuple[int, ...]:
        """Expected cost of each pack (`WorkUnit.weight`): in milliseconds if datasets have a history."""
        weights = {unit.id: unit.weight for dataset in self.datasets for unit in dataset.work_units}
        return tuple(sum(weights[unit_id] for unit_id in pack) for pack in self.packs)

    @property
    def skew(self) -> float | None:
        """Weight of the heaviest pack as a multiple of the mean; 1.0 is even. None without packs."""
        weights = self.pack_weights
        return max(weights) * len(weights) / sum(weights) if weights else None

    @property
    def has_changes(self) -> bool:
        """True if a run would change anything: read data, apply a startpoint, or finish a stored sequence."""
        return self.is_moving or any(left.state != SequenceState.QUARANTINED for left in self.leftovers)

    @property
    def has_problems(self) -> bool:
        """True if a dataset cannot be planned."""
        return any(dataset.problem for dataset in self.datasets)

    @property
    def is_moving(self) -> bool:
        """True if a run would commit anything, apart from stored sequences that it finishes."""
        return any(dataset.is_moving for dataset in self.datasets)

    def _title(self) -> str:
        moving = sum(dataset.is_moving for dataset in self.datasets)
        left = f", {count(len(self.leftovers), 'unfinished commit')} to recover" if self.leftovers else ""
        return f"job {self.job}: {moving:,} of {count(len(self.datasets), 'dataset')} with something new{left}"

    def _items(self) -> Sequence[DatasetPlan]:
        return self.datasets

    def _columns(self) -> Sequence[Column[DatasetPlan]]:
        return _PLANS


def left_out(dataset: DatasetPlan, problem: str, code: str = SourceError.code) -> DatasetPlan:
    """Return the plan of a dataset with nothing to read and the reason in `problem`."""
    code = dataset.code if dataset.problem else code
    return dataclasses.replace(dataset, work_units=(), startpoints=(), begin=None, problem=problem, code=code)


def with_notes_of_idle(plan: JobPlan, notes: Sequence[str]) -> JobPlan:
    """Return the plan with notes on the datasets that a run would leave as they are; the others are told by the run."""
    datasets = (
        one
        if one.is_moving or one.problem or not one.version_read
        else dataclasses.replace(one, notes=(*one.notes, *notes))
        for one in plan.datasets
    )
    return dataclasses.replace(plan, datasets=tuple(datasets))


def replanned(plan: JobPlan, datasets: Sequence[DatasetPlan]) -> JobPlan:
    """Return the plan with other datasets; packs lose the work units that these datasets do not have."""
    ours = {unit.id for dataset in datasets for unit in dataset.work_units}
    packs = (tuple(unit_id for unit_id in pack if unit_id in ours) for pack in plan.packs)
    return dataclasses.replace(plan, datasets=tuple(datasets), packs=tuple(filter(None, packs)))
