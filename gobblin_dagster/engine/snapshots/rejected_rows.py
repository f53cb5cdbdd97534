"""Read the rejected rows in the newest snapshots, with rule, reason and origin.

They are the published files of the branch `quarantine`, on the storage of the job's output. Changes nothing.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.utils.regular_file import open_regular
from gobblin_dagster.core.utils.text import count, first_line
from gobblin_dagster.spec.job import QUARANTINE_BRANCH
from gobblin_dagster.state.store import StateStore

_BATCH_ROWS = 10_000

log = logging.getLogger(__name__)


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

    Of all datasets, those whose records in the store are damaged are left out, with a warning.

    Args:
        store: the state store.
        job: name of a job; it need not have a job file any more.
        urns: datasets; default: all published ones.

    Returns:
        One entry for each dataset and policy with rejected rows, by dataset.urn, then policy.

    Raises:
        TransientError: store or storage cannot be reached.
        CorruptRecordError: a file of the quarantine is gone, or was changed.
    """
    counts, of_records, of_files = _count(store, job, urns)
    for fault in of_records.values():
        if urns is not None:
            raise fault
        log.warning("Not counted: %s", fault)
    for fault in of_files.values():
        raise fault
    return counts


def count_readable(store: StateStore, job: str) -> tuple[list[QuarantineCount], dict[str, CorruptRecordError]]:
    """Return the same counts as `count_quarantined`, and by urn why those of other datasets are not known.

    Raises:
        TransientError: store or storage cannot be reached.
    """
    counts, of_records, of_files = _count(store, job, None)
    return counts, of_records | of_files


_Faults = dict[str, CorruptRecordError]


def _count(store: StateStore, job: str, urns: Sequence[str] | None) -> tuple[list[QuarantineCount], _Faults, _Faults]:
    """Return the counts, and by urn the faults of records and those of files."""
    counts: list[QuarantineCount] = []
    of_files: _Faults = {}
    states, of_records = store.load_readable_states(job, urns)
    for urn, state in sorted(states.items()):
        if not state.totals.rows_quarantined:
            continue
        try:
            files = _files(store, job, urn)
        except CorruptRecordError as error:
            of_records[urn] = error
            continue
        try:
            found = Counter(
                policy for part in _parts(urn, files, ["policy"]) for policy in part.column("policy").to_pylist()
            )
        except CorruptRecordError as error:
            of_files[urn] = error
            continue
        counts += [QuarantineCount(job, urn, policy, rows) for policy, rows in sorted(found.items())]
    return counts, of_records, of_files


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
        CorruptRecordError: a file of the quarantine is gone, or was changed.
    """
    rows: list[QuarantinedRow] = []
    for part in _parts(dataset_urn, _files(store, job, dataset_urn), list(QuarantinedRow.__slots__)):
        for record in part.to_pylist():
            if len(rows) == limit:
                return rows
            if policy in {None, record["policy"]}:
                rows.append(QuarantinedRow(**record))
    return rows


def first_quarantined(dataset_urn: str, files: Sequence[PublishedFile], limit: int) -> list[QuarantinedRow]:
    """Return the origins of the first rejected rows among published files, without the rows themselves.

    Raises:
        TransientError: the storage cannot be reached.
        CorruptRecordError: a file of the quarantine is gone, or was changed.
    """
    columns = [name for name in QuarantinedRow.__slots__ if name != "record"]
    rows: list[QuarantinedRow] = []
    for part in _parts(dataset_urn, [file for file in files if file.branch == QUARANTINE_BRANCH], columns):
        rows += [QuarantinedRow(**record, record="") for record in part.slice(0, limit - len(rows)).to_pylist()]
        if len(rows) == limit:
            break
    return rows


def _files(store: StateStore, job: str, dataset_urn: str) -> list[PublishedFile]:
    return [file for file in store.load_snapshot(job, dataset_urn) if file.branch == QUARANTINE_BRANCH]


def _parts(dataset_urn: str, files: Sequence[PublishedFile], columns: list[str]) -> Iterator[Any]:
    """Yield record batches of some columns, file by file."""
    for file in files:
        with open_quarantined(dataset_urn, file) as reader:
            yield from reader.iter_batches(batch_size=_BATCH_ROWS, columns=columns)


@contextmanager
def open_quarantined(dataset_urn: str, file: PublishedFile) -> Iterator[Any]:
    """Open a file of the quarantine as a `ParquetFile`; raises CorruptRecordError if it is gone or no such file."""
    # Imported here because the command line's help does not need it.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.fs as pa_fs  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    filesystem, (path,) = arrow_files([file.path])
    if isinstance(filesystem, pa_fs.LocalFileSystem):
        try:
            os.close(open_regular(path))  # Arrow would wait for a pipe
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError)
            raise _unreadable(dataset_urn, file, "it is gone" if is_gone else f"{error.strerror}") from error
    try:
        with filesystem.open_input_file(path) as opened:
            yield pq.ParquetFile(opened, pre_buffer=False)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        is_gone = isinstance(error, FileNotFoundError)
        problem = "it is gone" if is_gone else f"it was changed after it was published ({first_line(error)})"
        raise _unreadable(dataset_urn, file, problem) from error


def _unreadable(dataset_urn: str, file: PublishedFile, problem: str) -> CorruptRecordError:
    return CorruptRecordError(
        what=f"Dataset {dataset_urn!r}: file {file.path} of the quarantine, with {count(file.rows, 'row')},",
        problem=f"{problem}. Put it back from a backup; `gobblin verify {shlex.quote(dataset_urn)}` names all files "
        "that are gone or changed",
    )
