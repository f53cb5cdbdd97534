"""Read the rejected rows in the newest snapshots, with rule, reason and origin.

They are the published files of the branch `quarantine`, on the storage of the job's output. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.spec.job import QUARANTINE_BRANCH
from gobblin_dagster.state.store import StateStore

_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class QuarantineCount:
    """Rejected rows of one dataset under one policy."""

    job: str
    dataset_urn: str
    policy: str
    rows: int


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """One rejected row."""

    policy: str
    """Name of the row policy that rejected it, or of the converter that could not convert it."""
    reason: str
    source_file: str
    source_row: int | None
    """Row number in the file, from 1 and without the header; None if the faulty row is not known."""
    stage: str
    """`pre_fork`, or the branch that rejected it."""
    record: str
    """The row as JSON; empty if only its origin was read."""


def count_quarantined(store: StateStore, job: str, urns: Sequence[str] | None = None) -> list[QuarantineCount]:
    """Count rejected rows by policy; memory does not grow with the number of rows.

    Args:
        store: the state store.
        job: name of a job; it need not have a job file any more.
        urns: datasets; default: all published ones.

    Returns:
        One entry for each dataset and policy with rejected rows, by dataset.urn, then policy.

    Raises:
        TransientError: store or storage cannot be reached.
    """
    counts = []
    states = store.load_readable_states(job)[0] if urns is None else store.load_dataset_states(job, urns)
    for urn, state in sorted(states.items()):
        if state.totals.rows_quarantined:
            files = _files(store, job, urn)
            found = Counter(
                policy for part in _parts(files, ["policy"]) for policy in part.column("policy").to_pylist()
            )
            counts += [QuarantineCount(job, urn, policy, rows) for policy, rows in sorted(found.items())]
    return counts


def read_quarantined(
    store: StateStore, job: str, dataset_urn: str, policy: str | None = None, limit: int = 20
) -> list[QuarantinedRow]:
    """Read rejected rows of a dataset, in the order of its files.

    Args:
        store: the state store.
        job: name of the job.
        dataset_urn: the dataset.
        policy: only rows that broke this policy; default: all.
        limit: number of rows at most; reads no more than needed.

    Raises:
        TransientError: store or storage cannot be reached.
    """
    rows: list[QuarantinedRow] = []
    for part in _parts(_files(store, job, dataset_urn), list(QuarantinedRow.__slots__)):
        for record in part.to_pylist():
            if len(rows) == limit:
                return rows
            if policy in {None, record["policy"]}:
                rows.append(QuarantinedRow(**record))
    return rows


def first_quarantined(files: Sequence[PublishedFile], limit: int) -> list[QuarantinedRow]:
    """Return the origins of the first rejected rows among published files, without the rows themselves.

    Raises:
        TransientError: the storage cannot be reached.
    """
    columns = [name for name in QuarantinedRow.__slots__ if name != "record"]
    rows: list[QuarantinedRow] = []
    for part in _parts([file for file in files if file.branch == QUARANTINE_BRANCH], columns):
        rows += [QuarantinedRow(**record, record="") for record in part.slice(0, limit - len(rows)).to_pylist()]
        if len(rows) == limit:
            break
    return rows


def _files(store: StateStore, job: str, dataset_urn: str) -> list[PublishedFile]:
    return [file for file in store.load_snapshot(job, dataset_urn) if file.branch == QUARANTINE_BRANCH]


def _parts(files: Sequence[PublishedFile], columns: list[str]) -> Iterator[Any]:
    """Yield record batches of some columns, file by file."""
    # Imported here because the command line's help does not need it.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    filesystem, paths = arrow_files([file.path for file in files])
    for path in paths:
        with filesystem.open_input_file(path) as opened:
            yield from pq.ParquetFile(opened, pre_buffer=False).iter_batches(batch_size=_BATCH_ROWS, columns=columns)
