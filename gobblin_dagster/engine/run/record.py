"""Compute the status of a finished run, and its record for the history. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.watermark.types import positions_between
from gobblin_dagster.engine.commit.all_or_none import is_held_back
from gobblin_dagster.engine.results import DatasetResult, RecoveredDataset, RunResult

_MAX_ERROR = 1000
"""Number of characters that are kept of a dataset's errors."""


def run_status(
    datasets: Sequence[DatasetResult], recovered: Sequence[RecoveredDataset], *, interrupted: bool, is_strict: bool
) -> RunStatus:
    """Return the status of a run; a strict run fails if any part of any dataset failed (`failed_units_fail_run`)."""
    if interrupted:
        return RunStatus.INTERRUPTED
    good = any(d.outcome is DatasetOutcome.COMMITTED for d in datasets)
    good |= any(r.state == SequenceState.COMMITTED for r in recovered)
    bad = [d for d in datasets if not d.outcome.is_good or d.failures]
    left = [
        r
        for r in recovered
        if r.manifest == "missing" or r.state not in (SequenceState.COMMITTED, SequenceState.ABORTED)
    ]
    if not bad and not left:
        return RunStatus.SUCCEEDED
    if good and not (is_strict and any(d.failed_ranges for d in datasets)):
        return RunStatus.PARTIAL
    waits = all(d.outcome is DatasetOutcome.BUSY or is_held_back(d) for d in bad) and all(r.is_busy for r in left)
    return RunStatus.BUSY if waits else RunStatus.FAILED


def run_record(result: RunResult) -> RunRecord:
    """Return the record of a run: the datasets that had work or errors."""
    moved = {
        dataset.dataset_urn: DatasetRunRecord(
            outcome=dataset.outcome,
            low=str(dataset.low or ""),
            high=str(dataset.actual_high or ""),
            rows=dataset.rows_read,
            quarantined=dataset.rows_quarantined,
            error="; ".join(failure.message for failure in dataset.failures)[:_MAX_ERROR],
            failed_ranges=dataset.failed_ranges,
            left=positions_between(dataset.actual_high, dataset.expected_high),
        )
        for dataset in result.datasets
        if dataset.outcome is not DatasetOutcome.IDLE
    }
    return RunRecord(result.run_id, result.job, result.started_at, result.status, result.ended_at, moved)
