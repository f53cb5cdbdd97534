"""A source whose datasets have partitions, for tests of positions by partition; each position is a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.core.constructs import Chunk, ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.errors import StartpointError
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import JobSpec, SpecModel
from tests.unit.engine.jobs import job_spec

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.string())])


class PartsOptions(SpecModel):
    """Options of PartsSource."""

    datasets: dict[str, dict[str, int]]
    """The end of each partition, by dataset and partition; a partition begins at 0."""
    brokers: str = "here"
    ids: dict[str, str] = Field(default_factory=dict)
    """Ids of the topics, by name."""


class PartsSource:
    """Partitions with positions 0, 1, ...; an instant is the position of its minute."""

    Options = PartsOptions
    identity = ("brokers",)

    def __init__(self, options: PartsOptions, context: ConstructContext) -> None:
        self._options = options

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        for urn, ends in self._options.datasets.items():
            if not context.is_selected(urn):
                continue
            state = context.states.get(urn)
            committed = state.committed if state is not None else CommittedRanges(CompositeWatermark, {})
            known: dict[str, Any] = dict(committed.ranges)
            units = []
            for name, end in ends.items():
                bounds: list[Any] = [*committed.gaps(name), (known.get(name, ((0, 0),))[-1][1], end)]
                for low, high in bounds:
                    if low < high:
                        marks = (CompositeWatermark({name: low}), CompositeWatermark({name: high}))
                        units.append(WorkUnit(f"{urn}-{name}-{low}", urn, *marks, rows=high - low))
            low = CompositeWatermark({name: known.get(name, ((0, 0),))[0][1] for name in ends})
            yield DatasetOffer(urn, low, CompositeWatermark(dict(ends)), units, origin=self._options.ids)

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark:
        ends = self._options.datasets.get(dataset_urn)
        if ends is None:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem="it does not exist")
        match position:
            case Oldest():
                return CompositeWatermark(dict.fromkeys(ends, 0))
            case Upcoming():
                return CompositeWatermark(dict(ends))
            case Timestamp():
                return CompositeWatermark({name: min(end, position.instant.minute) for name, end in ends.items()})
        found = {name: int(str(at)) for name, at in position.components().items() if name in ends}
        bad = {name: at for name, at in found.items() if not 0 <= at <= ends[name]}
        if bad:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=f"there is no {bad}")
        return CompositeWatermark(found)

    def extractor(self, unit: WorkUnit) -> PartsExtractor:
        return PartsExtractor(unit)

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> None:
        """Return None."""


class PartsExtractor:
    """Yields one row `<partition>:<position>` for each position of a work unit."""

    schema = SCHEMA

    def __init__(self, unit: WorkUnit) -> None:
        self.bytes_read = 0
        self._unit = unit

    def chunks(self) -> Iterator[Chunk]:
        for name, low, high in self._unit.interval.pairs():
            ids = [f"{name}:{at}" for at in range(int(str(low)), int(str(high)))]
            batch = pa.RecordBatch.from_pylist([{"id": one, "value": one} for one in ids], schema=SCHEMA)
            yield Chunk(batch, name, pa.array(range(1, len(ids) + 1), pa.int64()))

    def close(self) -> None:
        """Do nothing."""


def parts_job(
    datasets: dict[str, dict[str, int]], name: str = "numbers", brokers: str = "here", ids: dict[str, str] | None = None
) -> JobSpec:
    """Return a job over datasets with partitions."""
    source = {
        "type": "tests.unit.engine.parts:PartsSource",
        "datasets": datasets,
        "brokers": brokers,
        "ids": ids or {},
    }
    return job_spec({}, job=name, source=source, output={"path": f"lake/{name}"})
