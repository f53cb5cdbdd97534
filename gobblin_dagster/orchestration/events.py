"""Turn a commit of a dataset into Dagster's events: one materialization per branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from gobblin_dagster.constructs.types.schema_text import type_texts
from gobblin_dagster.core.commit import PublishedFile, StoredSequence
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import DatasetRunRecord
from gobblin_dagster.core.watermark.types import TimestampWatermark, positions_between, seconds_to
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.results import DatasetCommit, DatasetResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.checks import row_policies
from gobblin_dagster.orchestration.lineage import column_lineage
from gobblin_dagster.orchestration.partitions import to_key
from gobblin_dagster.state.store import StateStore

RECENT_RUNS_SHOWN = 10
"""Number of runs of a job that the metadata of its datasets tell of."""
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.AssetObservation

_BAR = 20
"""Characters of a longest bar in a table of recent runs."""


@dataclass(frozen=True, slots=True)
class RecentRun:
    """What one run of a job did with a dataset."""

    started_at: datetime
    dataset: DatasetRunRecord


def recent_runs(store: StateStore, job: str) -> Mapping[str, Sequence[RecentRun]]:
    """Return what the newest runs of a job did, newest first, by dataset.urn."""
    found: dict[str, list[RecentRun]] = {}
    for run in store.load_runs(job, RECENT_RUNS_SHOWN):
        for urn, dataset in run.datasets.items():
            found.setdefault(urn, []).append(RecentRun(run.started_at, dataset))
    return found


@dataclass(frozen=True, slots=True)
class Publication:
    """One commit of one dataset, as it is reported to Dagster."""

    result: DatasetResult
    run_id: str
    """The run that made the commit."""
    files: Sequence[PublishedFile] = ()
    """The files that the commit added."""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """The schema of the dataset by branch, as the dataset's state stores it."""
    committed_at: datetime | None = None
    """When the commit's state was made; None without a commit."""
    recent: Sequence[RecentRun] = ()
    """The newest runs that worked on the dataset, newest first; empty if a sensor reports the commit."""
    rejected: str = ""
    """The origins of its first rejected rows, as Markdown; empty if there are none, or if a sensor reports the
    commit."""
    moved: bool = True
    """False if an older commit is reported again because the run found nothing new."""

    @classmethod
    def of_commit(cls, commit: DatasetCommit, result: DatasetResult, run_id: str) -> Publication:
        """Return the publication of a dataset that a run has just committed."""
        if commit.sequence is None:
            return cls(result, run_id)
        after = commit.sequence.after
        return cls(result, run_id, commit.sequence.files, after.schemas, after.updated_at)

    @classmethod
    def of_stored(cls, stored: StoredSequence, places: Places) -> Publication:
        """Return the publication of a sequence of the store with these places; raises CorruptRecordError."""
        sequence = decode_sequence(stored, places)
        after = sequence.after
        return cls(DatasetResult.of_commit(sequence), sequence.run_id, sequence.files, after.schemas, after.updated_at)

    @property
    def commit_id(self) -> str:
        """Id of the commit sequence; empty if nothing was committed."""
        return self.result.sequence_id


def to_dagster_run(run_id: str) -> str:
    """Return the Dagster run id of an engine's run id; for runs of the command line, no such Dagster run exists."""
    return run_id.partition(".")[0]


def materializations(binding: JobBinding, publication: Publication) -> Iterator[dg.AssetMaterialization]:
    """Yield the materializations of all branches."""
    for branch in binding.specs:
        yield materialization(binding, branch, publication)


def materialization(binding: JobBinding, branch: str, publication: Publication) -> dg.AssetMaterialization:
    """Return the materialization of a branch of a dataset, with watermarks and counts in its metadata."""
    result = publication.result
    files = [file for file in publication.files if file.branch == branch]
    metadata: dict[str, Any] = {
        md.DATASET_URN: result.dataset_urn,
        md.LOW: str(result.low or ""),
        md.EXPECTED_HIGH: str(result.expected_high or ""),
        md.ACTUAL_HIGH: str(result.actual_high or ""),
        md.MOVED: publication.moved,
        md.ROWS: result.rows_by_branch.get(branch, 0),
        md.ROWS_READ: result.rows_read,
        md.QUARANTINED: result.rows_quarantined,
    }
    metadata |= _lag(publication)
    if result.seconds:
        metadata[md.DURATION_S] = round(result.seconds, 3)
    for policy in row_policies(binding.job, branch):
        metadata[md.REJECTED + policy.spec.name] = result.rejected.get(policy.counted_as, 0)
    metadata |= {md.FILES: len(files), md.BYTES: sum(file.size_bytes for file in files)}
    if publication.commit_id:
        metadata |= {md.SNAPSHOT: result.snapshot, md.COMMIT_ID: publication.commit_id}
    folder = binding.dataset_path(branch, result.dataset_urn)
    uri = binding.specs[branch].metadata.get(md.URI) or _uri(folder)
    metadata |= {md.RUN_ID: publication.run_id, md.PATH: dg.MetadataValue.path(folder), md.URI: uri}
    if columns := type_texts(publication.schemas.get(branch, "")):
        metadata[md.COLUMNS] = dg.TableSchema([dg.TableColumn(name, type_) for name, type_ in columns.items()])
        if lineage := column_lineage(binding, branch, columns):
            metadata[md.LINEAGE] = lineage
    if result.startpoint is not None and result.notes:
        metadata[md.STARTPOINT] = result.notes[0]
    if result.failures:
        metadata[md.FAILURES] = "\n".join(failure.message for failure in result.failures)
    if publication.rejected:
        metadata[md.REJECTED_ROWS] = dg.MarkdownMetadataValue(publication.rejected)
    if publication.recent:
        of_times = seconds_to(result.actual_high, publication.recent[0].started_at) is not None
        metadata[md.RECENT] = _table(publication.recent, of_times=of_times)
    if branch in result.queues:  # last, because it is long
        metadata[md.QUEUE] = dg.JsonMetadataValue(dataclasses.asdict(result.queues[branch]))
    return dg.AssetMaterialization(
        asset_key=binding.keys[branch],
        # Dagster's run log shows only this text of an event, and many datasets' events stand there one below the other.
        description=_describe(publication, metadata[md.ROWS]),
        partition=to_key(result.dataset_urn),
        metadata=metadata,
        tags={md.DATA_VERSION: publication.commit_id} if publication.commit_id else None,
    )


def _lag(publication: Publication) -> dict[str, int]:
    """Return how far the dataset is behind; what is not known is left out. Dagster plots these numbers."""
    reached, wanted = publication.result.actual_high, publication.result.expected_high
    seconds = seconds_to(reached, publication.committed_at) if publication.committed_at else None
    found = {md.LAG_S: seconds, md.LAG_POSITIONS: positions_between(reached, wanted)}
    return {key: value for key, value in found.items() if value is not None}


def _table(recent: Sequence[RecentRun], *, of_times: bool) -> dg.MarkdownMetadataValue:
    """Return a table as Markdown: as a table of Dagster's own it would cost a third of the event more.

    `of_times` says that watermarks are dates or times, so that the lag of a run is a time and not a number of
    positions.
    """
    rows = _bars([one.dataset.rows for one in recent])
    lags = [_seconds_behind(one) if of_times else one.dataset.left for one in recent]
    lines = ["| begun | outcome | rows | | quarantined | watermark | lag | |", "|---|---|--:|---|--:|---|--:|---|"]
    for one, bar, lag, lag_bar in zip(recent, rows, lags, _bars(lags), strict=True):
        ran, high = one.dataset, one.dataset.high.replace("|", "\\|")
        behind = "" if lag is None else timedelta(seconds=lag) if of_times else lag
        begun = f"{one.started_at:%Y-%m-%d %H:%M:%S}"
        lines.append(
            f"| {begun} | {ran.outcome} | {ran.rows} | {bar} | {ran.quarantined} | {high} | {behind} | {lag_bar} |"
        )
    return dg.MarkdownMetadataValue("\n".join(lines))


def _bars(numbers: Sequence[int | None]) -> list[str]:
    most = max(number or 0 for number in numbers) or 1
    return ["█" * round(_BAR * (number or 0) / most) for number in numbers]


def _seconds_behind(one: RecentRun) -> int | None:
    """Return the seconds from the watermark of a run, a date or a time, to its begin; None if it did not move."""
    try:
        reached = datetime.fromisoformat(one.dataset.high)
    except ValueError:  # empty, or of another type in an earlier run
        return None
    return seconds_to(TimestampWatermark(reached if reached.tzinfo else reached.replace(tzinfo=UTC)), one.started_at)


def _describe(publication: Publication, rows: int) -> str:
    """Return what happened to a branch of a dataset, in one line."""
    result = publication.result
    if not publication.moved:
        return f"{result.dataset_urn}: nothing new" + (f" since snapshot {result.snapshot}" if result.snapshot else "")
    said = f"{result.dataset_urn}: {rows} rows, watermark {result.low} -> {result.actual_high}"
    if result.rows_quarantined:
        said += f", {result.rows_quarantined} rows quarantined"
    return said + (", only in part" if result.failures else "")


def failure_observation(key: dg.AssetKey, dataset_urn: str, reason: str) -> dg.AssetObservation:
    """Return the event that tells on a failed partition's page why it failed."""
    return dg.AssetObservation(
        asset_key=key,
        description=f"{dataset_urn}: not committed: {reason}",
        partition=to_key(dataset_urn),
        metadata={md.FAILURES: reason},
    )


def _uri(folder: str) -> str:
    return folder if "://" in folder else Path(folder).as_uri()
