"""The quarantine: rows that were rejected, as the newest snapshots hold them, with rule, reason and origin.

Reads the published files of the branch `quarantine`, wherever the job's output lies; changes nothing.
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
    """Name of the row policy, or of the converter that could not take it."""
    reason: str
    source_file: str
    source_row: int | None
    """Row number in the file, from 1, header not counted; None where no single row is to blame."""
    stage: str
    """`pre_fork`, or the branch that rejected it."""
    record: str
    """The row as JSON."""


def count_quarantined(store: StateStore, job: str, urns: Sequence[str] | None = None) -> list[QuarantineCount]:
    """Count rejected rows by policy; memory does not grow with their number.

    Args:
        store: the state store.
        job: name of a job, also of one that has no file any more.
        urns: datasets; default: all that were published.

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
        limit: at most this many; no more is read than is needed.

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


def _files(store: StateStore, job: str, dataset_urn: str) -> list[PublishedFile]:
    return [file for file in store.load_snapshot(job, dataset_urn) if file.branch == QUARANTINE_BRANCH]


def _parts(files: Sequence[PublishedFile], columns: list[str]) -> Iterator[Any]:
    """Yield record batches of some columns, file by file."""
    # Here and not above: the command line's help need not wait for it.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    filesystem, paths = arrow_files([file.path for file in files])
    for path in paths:
        with filesystem.open_input_file(path) as opened:
            yield from pq.ParquetFile(opened, pre_buffer=False).iter_batches(batch_size=_BATCH_ROWS, columns=columns)
