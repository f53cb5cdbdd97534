"""Audit a dataset: count its rows again in the source and in the published files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gobblin_dagster.constructs.formats.lines_published import PublishedLines
from gobblin_dagster.constructs.formats.published import ending_of
from gobblin_dagster.constructs.registry import registry
from gobblin_dagster.core.commit import PublishedFile, SequenceState
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, SourceError
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.publishers import branches_without_files, publisher_traits, replaced_branches
from gobblin_dagster.engine.results import Audit
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore


def audit_dataset(job: JobSpec, source: Source, store: StateStore, dataset_urn: str) -> Audit | None:
    """Count a dataset's rows in its source (within the committed ranges) and in its published files.

    Neither count comes from the state: the source is read again, the files are opened. Three facts are taken from the
    records of commits: the rows that converters, policies and the fork kept back; for branches whose publisher replaces
    files, the rows of each file of the newest snapshot; for branches that once had a table or topic, the rows that went
    there.

    Returns:
        The counts, or None if the source cannot count or nothing was committed.

    Raises:
        SourceError: the source does not hold the rows any more that were read, so that there is nothing to compare
            with.
    """
    state = store.load_dataset_states(job.job, [dataset_urn]).get(dataset_urn)
    if state is None:
        return None
    source_rows = source.count_rows(dataset_urn, state.committed)
    if source_rows is None:
        return None
    totals = state.totals
    if not source_rows and totals.rows_read:
        raise _too_few(job.job, dataset_urn, source_rows, totals.rows_read)
    files = store.load_snapshot(job.job, dataset_urn)
    writers = {branch.name: job.writer_of(branch) for branch in job.fork.branches}
    unpublished = branches_without_files(job)
    kept_back = {name: totals.rows_read - n for name, n in totals.branch_rows.items() if name not in unpublished}
    expected = {branch: source_rows - rows for branch, rows in kept_back.items()}
    for branch in replaced_branches(job) & expected.keys():
        # The source holds the rows of all publications, the snapshot only those of some.
        expected[branch] = sum(file.rows for file in files if file.branch == branch)
    if totals.rows_quarantined:
        expected[QUARANTINE_BRANCH] = totals.rows_quarantined
        if job.extract.reads_everything and all(one.on_again == "replace" for one in publisher_traits(job).values()):
            # Each publication takes what earlier ones rejected out of the snapshot.
            expected[QUARANTINE_BRANCH] = sum(file.rows for file in files if file.branch == QUARANTINE_BRANCH)
    published = {
        branch: count_published(
            [file for file in files if file.branch == branch], writers[branch].options if branch in writers else {}
        )
        for branch in expected
    }
    if short := [branch for branch, rows in published.items() if rows < expected[branch]]:
        elsewhere = _published_elsewhere(store, job.job, dataset_urn)
        expected |= {branch: expected[branch] - elsewhere[branch] for branch in short}
    audit = Audit(dataset_urn, source_rows, published, expected)
    if 0 < audit.duplicated <= totals.rows_read - source_rows:
        raise _too_few(job.job, dataset_urn, source_rows, totals.rows_read)
    return audit


def _too_few(job: str, dataset_urn: str, source_rows: int, rows_read: int) -> SourceError:
    gone = (
        f"it holds only {source_rows:,} of the {rows_read:,} rows"
        if source_rows
        else f"it holds none of the {rows_read:,} rows any more"
    )
    why = ": the others are gone from it, or were read again after a startpoint" if source_rows else ""
    return SourceError(job=job, problem=f"{gone} that were read from dataset {dataset_urn!r}{why}.")


def _published_elsewhere(store: StateStore, job: str, dataset_urn: str) -> Counter[str]:
    """Count by branch the rows that commits brought only to tables and topics, which the job may have lost since."""
    elsewhere: Counter[str] = Counter()
    found = sorted(store.load_sequences(job, {SequenceState.COMMITTED}, [dataset_urn]), key=lambda s: s.version_read)
    for number, stored in enumerate(found):
        try:
            sequence = decode_sequence(stored, store.places)
        except CorruptRecordError:
            continue  # the rows that it brought there are unknown, so the audit reports them as lost
        if not number and stored.version_read:
            elsewhere.update(_in_no_file(store, sequence.after))
            continue
        if not any(traits_of(step, StepTraits).reads_staging for step in sequence.steps):
            continue
        in_files = {file.branch for file in sequence.files}
        written = sequence.report.rows_by_branch
        elsewhere.update({branch: rows for branch, rows in written.items() if branch not in in_files})
    return elsewhere


def _in_no_file(store: StateStore, state: DatasetState) -> Counter[str]:
    """Count by branch the written rows that no file of the state's snapshot holds; older sequences are pruned."""
    rows = Counter(state.totals.branch_rows)
    for one in store.load_history(state.job, state.dataset_urn):
        if any(state.snapshot in held for held in state.holding(one.file.snapshot, one.removed)):
            rows[one.file.branch] -= one.file.rows
    return +rows


def count_published(files: Sequence[PublishedFile], options: Mapping[str, Any]) -> int:
    """Count the rows in published files by opening them; files of an unregistered format are counted by lines.

    Args:
        files: files of one branch.
        options: options of the branch's writer.
    """
    # Imported here because it loads pyarrow's file systems, which an idle run does not need.
    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    by_format: dict[str, list[str]] = {}
    filesystem, paths = arrow_files([file.path for file in files])
    for path in paths:
        by_format.setdefault(ending_of(path)[0], []).append(path)
    return sum(
        (registry.published_format(group[0], options) or PublishedLines(options)).count_rows(filesystem, group)
        for group in by_format.values()
    )
