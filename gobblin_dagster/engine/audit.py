"""The audit: rows of the source counted anew against the published files counted anew."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.engine.results import Audit
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore

_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}


def audit_dataset(job: JobSpec, source: Source, store: StateStore, dataset_urn: str) -> Audit | None:
    """Count a dataset's rows in its source (within the committed ranges) and in its published files.

    Neither count comes from the state: the source is read again, the files are opened. Only the rows that converters,
    policies and the fork kept back are taken from the commits' records.

    Returns:
        The counts, or None where the source cannot count or nothing was committed.
    """
    state = store.load_dataset_states(job.job, [dataset_urn]).get(dataset_urn)
    if state is None:
        return None
    source_rows = source.count_rows(dataset_urn, state.committed)
    if source_rows is None:
        return None
    files = store.load_snapshot(job.job, dataset_urn)
    totals = state.totals
    kept_back = {branch: totals.rows_read - rows for branch, rows in totals.branch_rows.items()}
    expected = {branch: source_rows - rows for branch, rows in kept_back.items()}
    if totals.rows_quarantined:
        expected[QUARANTINE_BRANCH] = totals.rows_quarantined
    published = {branch: count_published([f for f in files if f.branch == branch]) for branch in expected}
    return Audit(dataset_urn, source_rows, published, expected)


def count_published(files: Sequence[PublishedFile]) -> int:
    """Count the rows in published files by opening them."""
    # Here and not above: it imports pandas where that is installed, most of a second that an idle run need not pay.
    import pyarrow.dataset as ds  # noqa: PLC0415

    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    by_format: dict[str, list[str]] = {}
    filesystem, paths = arrow_files([file.path for file in files])
    for path in paths:
        by_format.setdefault(file_format(path), []).append(path)
    groups = by_format.items()
    return sum(int(ds.dataset(group, filesystem=filesystem, format=name).count_rows()) for name, group in groups)


def file_format(path: str) -> str:
    """Return pyarrow's name for the format of a published file; codecs after it are recognised by pyarrow itself."""
    return _FORMATS[path.rpartition("/")[2].split(".")[1]]
