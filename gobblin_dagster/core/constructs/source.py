"""Sources plan work units and open them; below `Source` stand the optional additions to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.constructs.extractor import Extractor
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

TYPES_INFERRED = "types inferred from "
"""How the sentence on the types of a dataset begins."""


@dataclass(frozen=True, slots=True)
class DatasetOffer:
    """What a source found for one dataset: the work units that would read all new data."""

    dataset_urn: str
    low: Watermark | None
    """First position that would be read, inclusive; None if nothing is new or there is a `problem`."""
    expected_high: Watermark | None
    """End of the positions that would be read, exclusive; None like `low`."""
    work_units: Sequence[WorkUnit] = ()
    """In the order of their low watermarks. Their ids must be unique inside the dataset; the planner replaces them."""
    problem: str = ""
    """Why the dataset cannot be read, in one sentence. It fails this dataset only."""
    notes: Sequence[str] = ()
    """Sentences to show in the plan, for example about files that came late."""
    is_absent: bool = False
    """Whether the source does not have the dataset now (its folder, table or topic is gone): a startpoint waits."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, tables and so on that the work units read, by name, if these have ids. The commit stores them
    (`DatasetState.origin`), so that the next plan notices if one was deleted and created again. No secrets."""
    inferred: Mapping[str, str] = field(default_factory=dict)
    """Types that the source inferred for columns, by name. The commit stores them (`DatasetState.inferred`), so that
    later runs read these columns with the same types."""
    type_notes: Sequence[str] = ()
    """Sentences on types that were inferred now, and from how much. Plans show them; results of runs do not.

    One that begins with `TYPES_INFERRED`, goes on with how much was looked at, and has the types behind the first colon
    is shown once for all datasets of the same types.
    """


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source gets when it plans: the job's extract and the stored progress of its datasets."""

    extract: Extract
    states: Mapping[str, DatasetState]
    """State by dataset.urn; a dataset that was never committed is absent. Startpoints are already applied to it."""
    is_selected: Callable[[str], bool]
    """Returns whether a dataset.urn is selected for this run."""
    clock: Clock
    previous_runs: Callable[[], Sequence[RunRecord]] = tuple
    """Loads the job's last runs, newest first: the outcome of each dataset that had work, and its failed ranges. Costs
    a query. What is left to read of a dataset is already in `states`.
    Source: gobblin-api `SourceState.getPreviousWorkUnitStates`."""
    publishes_parts: bool = False
    """Whether successful work units of a dataset are published even if others failed (`commit.policy` is not
    `full`)."""
    widens: frozenset[Widening] = frozenset()
    """How inferred types of published datasets may become wider: as the writers and publishers of all branches allow;
    empty unless the schema contract of each branch is `evolve`."""
    may_be_open: Callable[[str], bool] = lambda _: False
    """Returns whether a column that has had no value yet may be left out of the rows until it has one: nothing in the
    job needs it, and all branches take new columns."""


class Source(Protocol):
    """Finds datasets, and cuts their new data into work units.

    Made with `cls(options, context)`: on the driver to plan, and again in the Spark task of each work unit to read it.
    `core.traits.SourceTraits` lists the attributes that a source may set.

    Source: gobblin-api `Source`. Differs: planning only lists and reads metadata, and needs no Spark.
    """

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        """Yield one offer per selected dataset, also if it has nothing new.

        Called on the driver, once per plan; a run may plan again if another run committed in between. Change nothing.

        Raises:
            SourceError: the datasets cannot be listed at all; the run fails. For a fault of one dataset yield an offer
                with a `problem` instead.
            TransientError: a retry may succeed.
        """

    def extractor(self, unit: WorkUnit) -> Extractor:
        """Open a work unit that `plan` offered; raises like `Extractor.chunks`.

        Called in a Spark task, once per attempt.
        """

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        """Count the rows of a dataset in `ranges` by reading the source; return None if the source cannot count them.

        Called on the driver by `gobblin audit`, once per dataset. Raises like `plan`.
        """


@runtime_checkable
class PositionedSource(Protocol):
    """Optional addition to `Source`: its extractors may be PositionedExtractors.

    Source: none; see `PositionedExtractor`.
    """

    def tells_positions(self) -> bool:
        """Return whether extractors implement `position` with the options given.

        Called on the driver when the job file is checked, if `execution.limit` may end work units early.
        """


@runtime_checkable
class ChecksExtract(Protocol):
    """Optional addition to `Source`: it refuses kinds of extraction that its options do not allow.

    Source: none; Gobblin's sources accept any `extract.table.type`.
    """

    def check_extract(self, extract: Extract) -> None:
        """Raise UsageError if runs with this `extract` would publish rows twice.

        Called on the driver when the job file is checked; call it at the beginning of `plan` too.
        """


@runtime_checkable
class ChecksPositions(Protocol):
    """Optional addition to `Source`: it refuses watermarks at which no run can begin, whatever the data.

    `gobblin state set` asks it; startpoints are checked by `StartpointResolver`.

    Source: none; Gobblin's watermarks are changed by hand in its state store.
    """

    def check_position(self, position: Watermark) -> None:
        """Raise ValueError, with what to write instead, if rows at the position would be skipped; reads no data."""


@runtime_checkable
class ReadsPaths(Protocol):
    """Optional addition to `Source`: it finds files, tables or topics by their names.

    The engine refuses a job whose source would read the job's own output: each run would read all earlier ones again.
    """

    def would_read(self, path: str) -> bool:
        """Return whether a file at an absolute path or URL would be read, or a table or topic; it need not exist.

        Called on the driver when the job file is checked.
        """

    def named_datasets(self) -> Sequence[str]:
        """Return the names of datasets that the job file spells out; none if any name may come. Called as the other."""


@runtime_checkable
class AsksServer(Protocol):
    """Optional addition to `Source` and `DataPublisher`: its server tells who it is, whatever its address.

    The engine refuses datasets that are read from a table or topic that the job itself publishes to.
    """

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        """Return texts of the tables or topics of datasets, by dataset.urn; leave out those that nobody knows.

        Two texts, of a source and of a publisher, are equal only if they are one table or topic. Called on the driver
        once per plan, for all datasets with work.

        Raises:
            GobblinDagsterError: the server cannot be asked.
        """


@runtime_checkable
class FrameSource(Protocol):
    """Optional addition to `Source`: Spark reads the rows. Each work unit becomes a Spark job of its own.

    The engine does not call `Source.extractor`. It runs converters, policies and writers on each partition of the
    DataFrame.

    Source: none; Gobblin has no Spark source.
    """

    def frame(self, session: Any, unit: WorkUnit) -> Any:
        """Return the rows of a work unit as a Spark DataFrame, without an action on it.

        Called on the driver, once per attempt, for several work units at once in threads.

        Raises:
            ExtractError, TransientError: as `Extractor.chunks`. Any other exception fails the work unit too.
        """


@runtime_checkable
class PreviewsSchema(Protocol):
    """Optional addition to `Source`: it knows the schema of a work unit without reading rows; for notes in plans."""

    def preview_schema(self, unit: WorkUnit) -> pa.Schema | None:
        """Return the schema that the extractor of a work unit will have; None if only reading rows can tell.

        Called on the driver by `gobblin plan`, for the first work unit of some datasets. May read a file's footer.
        Raises like `Source.extractor`.
        """


@runtime_checkable
class DeclaresSchema(Protocol):
    """Optional addition to `Source`: its options may name all columns; `gobblin check` asks for them."""

    def declared_schema(self) -> pa.Schema | None:
        """Return the schema of all rows by the options alone; None if only reading can tell. Called on the driver."""


@runtime_checkable
class StartpointResolver(Protocol):
    """Optional addition to `Source`: it finds the position of a startpoint, e.g. the first offset after an instant.

    Without it, a source takes startpoints that are watermarks, `oldest`, and instants if its watermarks are instants.

    Source: samza-api `SystemAdmin.resolveStartpointToOffset`.
    """

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | CommittedRanges | None:
        """Return where to begin: the first position to read, or the ranges that count as read; None to read everything.

        Called on the driver, before `plan`, once for each dataset with a startpoint.

        Args:
            dataset_urn: the dataset.
            position: if it is a watermark, check that the dataset has it, and return it.
            context: as `plan` will get it.

        Raises:
            StartpointError: the dataset has no such position.
            SourceError, TransientError: the source cannot be asked now.
        """


@runtime_checkable
class PartitionStartpointResolver(Protocol):
    """Optional addition to `StartpointResolver`: it finds the position of a startpoint for one partition of a dataset.

    Without it, partitions are the components of the dataset's watermark, if this is a `CompositeWatermark`.

    Source: samza-api `SystemAdmin.resolveStartpointToOffset`, which takes one partition.
    """

    def resolve_partition_startpoint(
        self,
        dataset_urn: str,
        partition: str,
        position: Watermark | Timestamp | Oldest | Upcoming,
        context: SourceContext,
    ) -> Watermark | None:
        """Return where to begin, with the component of this partition alone; None if the partition is not there now.

        Called as `resolve_startpoint`, and raises like it. A watermark in `position` has this partition alone.
        """
