"""The records of Gobblin's clients as JSON documents. No null: what is not known is left out, or an empty text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.service.catalog.flow_config import EXECUTION_ID, REQUESTERS
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.datasets import FlowDataset, lag_s
from gobblin_dagster.service.model import ExecutionStatus, FlowConfig, FlowId, FlowSpec
from gobblin_dagster.service.scheduler.scheduler import epoch_ms
from gobblin_dagster.service.store.event_rows import Event
from gobblin_dagster.service.store.execution_rows import Execution
from gobblin_dagster.service.store.job_rows import JobExecution

_HIDDEN = ("job.schedule", "job.template")


def key_document(flow: FlowId) -> dict[str, Any]:
    """Return a FlowId."""
    return {"flowGroup": flow.group, "flowName": flow.name}


def config_document(config: FlowConfig) -> dict[str, Any]:
    """Return a FlowConfig as it was posted."""
    document: dict[str, Any] = {
        **config.more,
        "id": key_document(config.id),
        "templateUris": config.template_uris,
        "properties": dict(config.properties),
    }
    if config.schedule is not None:
        document["schedule"] = {
            "cronSchedule": config.schedule.cron,
            "runImmediately": config.schedule.run_immediately,
        }
    if config.owning_group is not None:
        document["owningGroup"] = config.owning_group
    return document


def created_document(posted: Mapping[str, Any], execution: int) -> dict[str, Any]:
    """Return the answer to a create: the flow as it was posted, with the id of its execution if it runs once.

    Defaults are not filled in: Gobblin's service echoes what it got.
    """
    added = {REQUESTERS: "[]", **posted["properties"]}
    if "schedule" not in posted:
        added[EXECUTION_ID] = str(execution)
    return {**posted, "properties": added}


def explained_document(posted: Mapping[str, Any], found: Explanation) -> dict[str, Any]:
    """Return the answer to an explain: the flow, with texts of JSON as further properties.

    `gobblin.flow.compiled` holds the jobs, and is empty if there are none; then `gobblin.flow.compile.errors` holds the
    reasons. `gobblin.flow.ways` and `gobblin.flow.refused` tell of flows that name a source.
    """
    jobs = [
        {"job": job.name, "executor": job.executor, "parents": list(job.parents), "config": json.loads(job.body)}
        for job in (found.dag.jobs if found.dag else ())
    ]
    ways = [{**asdict(way), "cost": way.cost} for way in found.ways]
    told = {
        "gobblin.flow.compile.errors": list(found.reasons),
        "gobblin.flow.ways": ways,
        "gobblin.flow.refused": [asdict(one) for one in found.refused],
    }
    properties = {name: json.dumps(value, ensure_ascii=False) for name, value in told.items() if value}
    compiled = json.dumps(jobs, ensure_ascii=False) if jobs else ""
    return {**posted, "properties": {**posted["properties"], "gobblin.flow.compiled": compiled, **properties}}


def flow_document(spec: FlowSpec) -> dict[str, Any]:
    """Return the answer to a GET: the flow, with the properties that Gobblin's service adds."""
    document = config_document(spec.config)
    schedule = spec.config.schedule
    added = {
        "flow.group": spec.id.group,
        "flow.name": spec.id.name,
        "flow.runImmediately": str(bool(schedule and schedule.run_immediately)).lower(),
        REQUESTERS: "[]",
    }
    if spec.config.owning_group is not None:
        added["flow.owningGroup"] = spec.config.owning_group
    own = {name: value for name, value in document["properties"].items() if name not in _HIDDEN}
    document["properties"] = {**added, **own}
    return document


def version_document(spec: FlowSpec) -> dict[str, Any]:
    """Return a version of a flow's history."""
    return {
        "version": spec.version,
        "change": spec.change.value,
        "changedAt": epoch_ms(spec.changed_at),
        "changedBy": spec.changed_by,
        "paused": spec.is_paused,
        "managedBy": spec.managed_by,
        "flowConfig": config_document(spec.config),
    }


def execution_document(execution: Execution, jobs: Iterable[JobExecution], tag: str | None = None) -> dict[str, Any]:
    """Return a FlowExecution; `tag` leaves out the jobs that do not carry it."""
    flow = execution.id.flow
    shown = [job_document(flow, job) for job in jobs] if tag is None else []
    shown.sort(key=lambda job: job["executionStatistics"]["executionStartTime"])
    return {
        "id": {**key_document(flow), "flowExecutionId": execution.id.number},
        "executionStatus": execution.status.value,
        "message": execution.message,
        "executionStatistics": {
            "executionStartTime": execution.id.number,
            "executionEndTime": _ms(execution.ended_at),
        },
        "jobStatuses": shown,
        "issues": _issues(execution, shown),
    }


def job_document(flow: FlowId, job: JobExecution) -> dict[str, Any]:
    """Return a JobStatus."""
    return {
        "flowId": key_document(flow),
        "jobId": {"jobName": job.job.name, "jobGroup": flow.group},
        "executionStatus": job.status.value,
        "message": job.message,
        "executionStatistics": {
            "executionStartTime": _ms(job.started_at),
            "executionEndTime": _ms(job.ended_at),
            "processedCount": job.processed_count,
            "jobProgress": 100 if job.status is ExecutionStatus.COMPLETE else 0,
            "estimatedSecondsToCompletion": 0,
        },
        "jobState": {"lowWatermark": job.low_watermark, "highWatermark": job.high_watermark},
        "issues": [],
    }


def event_document(event: Event) -> dict[str, Any]:
    """Return something that happened in an execution."""
    return {
        "number": event.number,
        "time": epoch_ms(event.at),
        "jobName": event.job,
        "executionStatus": event.status.value,
        "message": event.message,
    }


def dataset_document(flow: FlowId, dataset: FlowDataset, now: datetime) -> dict[str, Any]:
    """Return how far a dataset of a flow is; what is not known is left out."""
    document: dict[str, Any] = {
        "flowId": key_document(flow),
        "jobName": dataset.job,
        "datasetUrn": dataset.urn,
        "openSequences": [
            {
                "sequence": one.id,
                "state": one.state.value,
                "createdAt": epoch_ms(one.created_at),
                "runId": one.run_id,
                "reason": one.reason,
            }
            for one in dataset.sequences
        ],
        "problem": dataset.problem,
    }
    if dataset.startpoint is not None:
        document["startpoint"] = startpoint_document(dataset.startpoint)
    state = dataset.state
    if state is None:
        return document
    if state.watermark is not None:
        document["watermark"] = str(state.watermark)
    if (lag := lag_s(state, now)) is not None:
        document["lagSeconds"] = lag
    if dataset.lag_positions is not None:
        document["lagPositions"] = dataset.lag_positions
    totals = state.totals
    return {
        **document,
        "version": state.version,
        "snapshot": state.snapshot,
        "updatedAt": epoch_ms(state.updated_at),
        "runId": state.run_id,
        "rowsRead": totals.rows_read,
        "rowsWritten": dict(totals.branch_rows),
        "rowsQuarantined": totals.rows_quarantined,
        "files": totals.files,
        "bytesWritten": totals.bytes_written,
        "failedRanges": list(state.failed_ranges),
    }


def startpoint_document(startpoint: Startpoint) -> dict[str, Any]:
    """Return where the next run of a dataset begins."""
    return {
        "jobName": startpoint.job,
        "datasetUrn": startpoint.dataset_urn,
        "position": str(startpoint),
        "onRewind": startpoint.on_rewind,
        "reason": startpoint.why,
        "setBy": startpoint.who,
        "createdAt": epoch_ms(startpoint.created_at),
        "expiresAt": epoch_ms(startpoint.expires_at),
    }


def _issues(execution: Execution, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one issue for each job that failed, or one for a flow that failed before it had jobs."""
    failed = [job for job in jobs if job["executionStatus"] == ExecutionStatus.FAILED]
    told = [(job["jobId"]["jobName"], job["message"], job["executionStatistics"]["executionEndTime"]) for job in failed]
    if not told and execution.status is ExecutionStatus.FAILED and execution.message:
        told = [("", execution.message, _ms(execution.ended_at))]
    return [
        {
            "time": time,
            "severity": "ERROR",
            "code": "JOB_FAILED" if name else "FLOW_FAILED",
            "summary": message[:200],
            "details": message,
            "properties": {"jobName": name} if name else {},
        }
        for name, message, time in told
    ]


def _ms(instant: datetime | None) -> int:
    return 0 if instant is None else epoch_ms(instant)


def nested(document: Any) -> Any:
    """Return the seed's flat FlowConfig in Gobblin's nested form; anything else as it is.

    The document that the service follows shows `flowName`, `flowGroup` and a text `schedule` at the top, and calls the
    template's field `templateUris`, `templateNames` and `templateName` by turns.
    """
    if not isinstance(document, dict) or "id" in document or not {"flowName", "flowGroup"} & set(document):
        return document
    rest = dict(document)
    key = {name: rest.pop(name) for name in ("flowGroup", "flowName") if name in rest}
    for name in ("templateNames", "templateName"):
        if name in rest:
            rest.setdefault("templateUris", rest.pop(name))
    schedule, runs_now = rest.pop("schedule", ""), rest.pop("runImmediately", False)
    if schedule != "":
        rest["schedule"] = {"cronSchedule": schedule, "runImmediately": runs_now}
    return {"id": key, **rest}
