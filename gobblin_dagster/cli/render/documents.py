"""The documents of `--output json`: plain dicts with stable keys. Watermarks are shown as text for people."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gobblin_dagster.core.commit import CommitSequence, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.task_state import QueueStats
from gobblin_dagster.core.watermark import Watermark

if TYPE_CHECKING:  # the engine takes a third of a second to import, which lists of states need not pay
    from gobblin_dagster.engine.commit.inspect import StepStatus
    from gobblin_dagster.engine.maintenance.abandon import Abandonment
    from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
    from gobblin_dagster.engine.results import Audit, DatasetResult, RecoveredDataset, RunResult


NO_PLAN: dict[str, Any] = {"run_id": None, "has_changes": False, "datasets": [], "leftovers": []}
"""Instead of the plan of a job that could not be planned."""
NO_RUN: dict[str, Any] = {
    "run_id": None,
    "status": "failed",
    "started_at": None,
    "ended_at": None,
    "datasets": [],
    "recovered": [],
}
"""Instead of the result of a run that could not begin, or that an error ended."""


def plan_view(plan: JobPlan) -> dict[str, Any]:
    """Return a plan; datasets with nothing new have no work units."""
    return {
        "job": plan.job,
        "run_id": plan.run_id,
        "has_changes": plan.has_changes,
        "branches": list(plan.branches),
        "commit_steps": list(plan.commit_steps),
        "packs": [
            {"work_units": len(pack), "weight": weight}
            for pack, weight in zip(plan.packs, plan.pack_weights, strict=True)
        ],
        "runs_on": None if plan.place is None else {"spark": plan.place.is_spark, "why": plan.place.why},
        "skew": None if plan.skew is None else round(plan.skew, 2),
        "datasets": [_dataset_plan(dataset) for dataset in plan.datasets],
        "leftovers": [
            {"sequence": left.sequence_id, "dataset": left.dataset_urn, "state": left.state, "reason": left.reason}
            for left in plan.leftovers
        ],
    }


def _dataset_plan(dataset: DatasetPlan) -> dict[str, Any]:
    return {
        "dataset": dataset.dataset_urn,
        "low": mark(dataset.low),
        "expected_high": mark(dataset.expected_high),
        "work_units": len(dataset.work_units),
        "files": dataset.files if dataset.has_work else 0,
        "rows": dataset.rows if dataset.has_work else 0,
        "bytes": dataset.size_bytes if dataset.has_work else 0,
        "cost_ms": dataset.cost_ms if dataset.has_work else 0,
        "startpoint": startpoint_view(dataset.startpoint) if dataset.startpoint else None,
        "notes": list(dataset.notes),
        "inferred": dict(dataset.inferred),
        "type_notes": list(dataset.type_notes),
        "problem": dataset.problem,
    }


def startpoint_view(one: Startpoint) -> dict[str, Any]:
    """Return a startpoint: where a run begins, and who set it why."""
    return {
        "id": one.id,
        "partition": one.partition,
        "position": str(one.position),
        "until": None if one.until is None else str(one.until),
        "who": one.who,
        "why": one.why,
    }


def run_view(result: RunResult) -> dict[str, Any]:
    """Return the result of a run."""
    return {
        "job": result.job,
        "run_id": result.run_id,
        "status": result.status.value,
        "exit_code": result.exit_code,
        "started_at": result.started_at,
        "ended_at": result.ended_at,
        "datasets": [_dataset_result(dataset) for dataset in result.datasets],
        "recovered": [recovered_view(dataset) for dataset in result.recovered],
    }


def _dataset_result(dataset: DatasetResult) -> dict[str, Any]:
    return {
        "dataset": dataset.dataset_urn,
        "outcome": dataset.outcome.value,
        "low": mark(dataset.low),
        "expected_high": mark(dataset.expected_high),
        "actual_high": mark(dataset.actual_high),
        "rows_read": dataset.rows_read,
        "rows_filtered": dataset.rows_filtered,
        "rows_untaken": dataset.rows_untaken,
        "rows_by_branch": dict(dataset.rows_by_branch),
        "rejected": dict(dataset.rejected),
        "rows_quarantined": dataset.rows_quarantined,
        "files": dataset.files,
        "bytes_written": dataset.bytes_written,
        "snapshot": dataset.snapshot,
        "sequence": dataset.sequence_id,
        "startpoint": startpoint_view(dataset.startpoint) if dataset.startpoint else None,
        "checks": [
            {
                "policy": p.policy,
                "branch": p.branch,
                "result": p.result.value,
                "enforced": p.enforced,
                "detail": p.detail,
            }
            for p in dataset.policies
        ],
        "failures": [{"code": f.code, "message": f.message, "branch": f.branch} for f in dataset.failures],
        "failed_ranges": list(dataset.failed_ranges),
        "notes": list(dataset.notes),
        "queues": {branch: queue_view(queue) for branch, queue in dataset.queues.items()},
    }


def queue_view(queue: QueueStats) -> dict[str, Any]:
    """Return the use of a branch's queue, in batches and seconds."""
    return {
        "capacity": queue.capacity,
        "puts": queue.puts,
        "gets": queue.gets,
        "largest": queue.largest,
        "fill_ratio": queue.fill_ratio,
        "put_wait_s": queue.put_wait_s,
        "get_wait_s": queue.get_wait_s,
        "put_rate": round(queue.put_rate, 3),
        "get_rate": round(queue.get_rate, 3),
    }


def recovered_view(dataset: RecoveredDataset) -> dict[str, Any]:
    """Return the result of a sequence of an earlier run."""
    return {
        "sequence": dataset.sequence_id,
        "dataset": dataset.dataset_urn,
        "state": str(dataset.state),
        "steps_found_done": dataset.steps_found_done,
        "steps_redone": dataset.steps_redone,
        "reason": dataset.reason,
        "manifest": dataset.manifest or None,
        "audit": _audit(dataset.audit) if dataset.audit else None,
    }


def _audit(audit: Audit) -> dict[str, Any]:
    return {
        "source_rows": audit.source_rows,
        "published_rows": dict(audit.published_rows),
        "expected_rows": dict(audit.expected_rows),
        "lost": audit.lost,
        "duplicated": audit.duplicated,
    }


def origin_text(state: DatasetState) -> str:
    """Return some of the ids of what a dataset was read from; empty if the source gives none."""
    ids = [f"{name} ({identity})" for name, identity in sorted(state.origin.items())]
    more = [f"{len(ids) - 4:,} more"] if len(ids) > 4 else []
    return ", ".join([*ids[:4], *more])


def state_view(state: DatasetState) -> dict[str, Any]:
    """Return the progress of a dataset; `committed` is the stored, typed form of its ranges."""
    totals = state.totals
    return {
        "job": state.job,
        "dataset": state.dataset_urn,
        "watermark": mark(state.watermark),
        "version": state.version,
        "snapshot": state.snapshot,
        "run_id": state.run_id,
        "updated_at": state.updated_at,
        "committed": state.committed.to_json(),
        "failed_ranges": list(state.failed_ranges),
        "given_up": state.given_up.to_json() if state.given_up is not None else None,
        "origin": dict(state.origin),
        "row_marks": {name: dataclasses.asdict(mark) for name, mark in state.row_marks.items()},
        "rows_read": totals.rows_read,
        "rows_quarantined": totals.rows_quarantined,
        "rows_by_branch": dict(totals.branch_rows),
        "files": totals.files,
        "bytes_written": totals.bytes_written,
    }


def sequence_view(stored: StoredSequence, sequence: CommitSequence | None = None) -> dict[str, Any]:
    """Return a commit sequence, with its steps and files if they were decoded."""
    view: dict[str, Any] = {
        "sequence": stored.id,
        "job": stored.job,
        "dataset": stored.dataset_urn,
        "state": stored.state.value,
        "run_id": stored.run_id,
        "version_read": stored.version_read,
        "created_at": stored.created_at,
        "redo_failures": stored.redo_failures,
        "reason": stored.reason,
    }
    if sequence is not None:
        view["steps"] = [step.describe() for step in sequence.steps]
        view["files"] = [{"path": f.path, "branch": f.branch, "rows": f.rows} for f in sequence.files]
        view["watermark_after"] = mark(sequence.after.watermark)
    return view


def status_view(status: StepStatus) -> dict[str, Any]:
    """Return a step and whether it is done; `done` is null if that is unknown."""
    return {"step": status.step, "done": status.is_done}


def abandonment_view(found: Abandonment) -> dict[str, Any]:
    """Return an abandoned sequence, or the preview of one."""
    return {
        "sequence": found.sequence_id,
        "dataset": found.dataset_urn,
        "state": found.state.value,
        "reason": found.reason,
        "orphans": list(found.orphans),
        "in_tables": list(found.in_tables),
        "rejected": list(found.rejected),
    }


def mark(watermark: Watermark | None) -> str | None:
    """Show a watermark; None if there is none."""
    return None if watermark is None else str(watermark)
