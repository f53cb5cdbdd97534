"""Sources: they plan work units, and what else they may be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.constructs.extractor import Extractor
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit


@dataclass(frozen=True, slots=True)
class DatasetOffer:
    """What a source found for one dataset: the work units to come, in order of their low watermarks.

    Work units carry ids of the source's choice, unique inside the dataset; the plan replaces them. `problem` fails the
    dataset alone and leaves the others; `notes` are shown in the plan (late files and the like).
    """

    dataset_urn: str
    low: Watermark | None
    expected_high: Watermark | None
    work_units: Sequence[WorkUnit] = ()
    problem: str = ""
    notes: Sequence[str] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the things that the work units read, by name, where they have any: what is committed keeps them
    (`DatasetState.origin`), and the next plan can tell a thing that was made anew. No secrets."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may know when it plans."""

    extract: Extract
    states: Mapping[str, DatasetState]
    """State by dataset.urn; datasets never committed are absent."""
    is_selected: Callable[[str], bool]
    """Whether the user asked for a dataset.urn."""
    clock: Clock
    previous_runs: Callable[[], Sequence[RunRecord]] = tuple
    """Loads the job's last runs, newest first: what became of each dataset that had work, and which ranges failed. Costs a
    query; where a dataset stands, and what of it is left to read, is in `states`.
    Source: gobblin-api `SourceState.getPreviousWorkUnitStates`."""
    publishes_parts: bool = False
    """Whether what succeeded of a dataset is published beside what failed: `commit.policy` is not `full`."""


class Source(Protocol):
    """Finds datasets and cuts what is new of them into work units.

    May say more of itself: `core.traits.SourceTraits`.

    Source: gobblin-api `Source`. Differs: planning is pure (listing and reading metadata only) and needs no Spark.
    """

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Yield one offer per selected dataset, also where nothing is new; raises SourceError where nothing can be listed."""

    def extractor(self, unit: WorkUnit) -> Extractor:
        """Open a work unit; raises as `Extractor.chunks`."""

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        """Count the source's rows in committed ranges anew, for the audit; None where the source cannot."""


@runtime_checkable
class PositionedSource(Protocol):
    """What a source also implements where its extractors may be PositionedExtractors.

    Source: none; see `PositionedExtractor`.
    """

    def tells_positions(self) -> bool:
        """Return whether, with the options given, extractors tell positions."""


@runtime_checkable
class ChecksExtract(Protocol):
    """What a source also implements where not every kind of extraction fits its options; `gobblin check` asks it.

    Source: none; Gobblin's sources take any `extract.table.type`.
    """

    def check_extract(self, extract: Extract) -> None:
        """Raise UsageError where such extractions would publish rows twice; `plan` begins with it."""


@runtime_checkable
class ReadsPaths(Protocol):
    """What a source also implements where it finds files by their paths: `gobblin check` asks it about the job's own output."""

    def would_read(self, path: str) -> bool:
        """Tell whether a file at an absolute path, or a URL, would be read."""


@runtime_checkable
class FrameSource(Protocol):
    """What a source also implements where Spark itself reads: each work unit becomes a Spark job of its own.

    `Source.extractor` is not called; every partition of the DataFrame runs through the task of the lane.

    Source: none; Gobblin has no Spark source.
    """

    def frame(self, session: Any, unit: WorkUnit) -> Any:
        """Return the rows of a work unit as a DataFrame, unread; on the driver, once per attempt and in several threads.

        Raises as `Extractor.chunks`, and what Spark raises, which fails the work unit.
        """


@runtime_checkable
class ForeseesSchema(Protocol):
    """What a source also implements where it knows the schema of its rows before it reads any; for notes in plans."""

    def foresee_schema(self, unit: WorkUnit) -> pa.Schema | None:
        """Return the schema that the extractor of a work unit will have; None where it takes reading rows to know.

        Called on the driver. May read a file's footer, raises as `Source.extractor`.
        """


@runtime_checkable
class StartpointResolver(Protocol):
    """What a source also implements where it can look positions up for startpoints; called on the driver, when planning.

    Source: samza-api `SystemAdmin.resolveStartpointToOffset`.
    """

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | CommittedRanges | None:
        """Return the first position to read, or all that counts as read; None: nothing does, begin as the first time.

        A position that is given as a watermark is checked and returned.

        Raises:
            StartpointError: the dataset has no such position.
            SourceError, TransientError: the source cannot be asked now.
        """
