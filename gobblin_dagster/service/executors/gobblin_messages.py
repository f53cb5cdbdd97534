"""Orders as Gobblin's own clusters read them from Kafka, and reports as they send them.

Both are Avro records behind four bytes with the number 1. An order is an `AvroJobSpec`, whose properties are the keys
of a Gobblin job; a report is a `GobblinTrackingEvent`; only those about the begin and the end of a job count.

Source: gobblin-runtime `AvroJobSpec.avsc`, `AvroJobSpecKafkaJobMonitor`; gobblin-metrics `GobblinTrackingEvent.avsc`,
`FixedSchemaVersionWriter`; gobblin-service `SimpleKafkaSpecProducer`, `KafkaAvroJobStatusMonitor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import quote, unquote

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.service.catalog.templates import keys_body, keys_of_body
from gobblin_dagster.service.executors.flows_around import FlowsAround, split_body, with_flows_around
from gobblin_dagster.service.executors.messages import RunOrder, StopOrder
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport

HEADER = (1).to_bytes(4, "big")
"""Gobblin's version of the schema; its `FixedSchemaVersionWriter` writes no other."""

_TEXTS = {"type": "map", "values": "string"}
_JOB_SPEC: dict[str, Any] = {
    "type": "record",
    "name": "AvroJobSpec",
    "namespace": "org.apache.gobblin.runtime.job_spec",
    "fields": [
        *({"name": name, "type": "string"} for name in ("uri", "version", "description", "templateUri")),
        *({"name": name, "type": _TEXTS} for name in ("properties", "metadata")),
    ],
}
_TRACKING_EVENT: dict[str, Any] = {
    "type": "record",
    "name": "GobblinTrackingEvent",
    "namespace": "org.apache.gobblin.metrics",
    "fields": [
        {"name": "timestamp", "type": "long"},
        {"name": "namespace", "type": ["string", "null"]},
        {"name": "name", "type": "string"},
        {"name": "metadata", "type": _TEXTS},
    ],
}
_VERB = "Verb"
_FLOWS = "gobblin_dagster.flows"
"""Entry that workers of ours read; a Gobblin leaves it alone."""
_MOST_DIGITS = 18
"""Digits of a number that every database holds."""
_STARTS, _STOPS = ("ADD", "UPDATE", "UNKNOWN"), ("DELETE", "CANCEL")
_STATUSES = {
    "JobOrchestrated": ExecutionStatus.ORCHESTRATED,
    "JobPrepareTimer": ExecutionStatus.RUNNING,
    "JobStartTimer": ExecutionStatus.RUNNING,
    "JobSucceededTimer": ExecutionStatus.COMPLETE,
    "JobFailedTimer": ExecutionStatus.FAILED,
    "JobCancelTimer": ExecutionStatus.CANCELLED,
}
"""Names of events, and what they tell of a job; all others tell nothing."""


def write_job_spec(order: RunOrder | StopOrder) -> bytes:
    """Return an order as an `AvroJobSpec`.

    Raises:
        UsageError: the job is not made of a Gobblin template, so that there are no keys of it.
    """
    key = order.key
    properties = {
        "flow.group": key.group,
        "flow.name": key.flow,
        "flow.executionId": str(key.execution),
        "job.name": key.job,
        "job.group": key.group,
        "job.currentGeneration": str(key.generation),
        "job.currentAttempts": str(key.attempt),
    }
    metadata = {_VERB: "ADD" if isinstance(order, RunOrder) else "CANCEL"}
    if isinstance(order, RunOrder):
        body, around = split_body(order.body)
        metadata |= {} if around is None else {_FLOWS: around.write()}
        keys = keys_of_body(body)
        if keys is None:
            raise UsageError(
                problem=f"Job {key.job} has no keys of Gobblin's, and its executor takes job specs of Gobblin's.",
                hint="Give its edge a template in Gobblin's format.",
            )
        properties = {**keys, **properties}
    segments = (key.group, key.flow, key.group, key.job, str(key.execution))
    record = {
        "uri": "gobblin-job:/" + "/".join(quote(segment, safe="") for segment in segments),
        "version": "1",
        "description": "",
        "templateUri": "",
        "properties": properties,
        "metadata": metadata,
    }
    with optional_package("fastavro"):
        from fastavro import schemaless_writer  # noqa: PLC0415  # optional package

    target = BytesIO(HEADER)
    target.seek(len(HEADER))
    schemaless_writer(target, _JOB_SPEC, record)
    return target.getvalue()


def read_job_spec(data: bytes) -> RunOrder | StopOrder:
    """Read an order that begins with `HEADER`, of this service or of a Gobblin's; raises ValueError if it is none."""
    record = _read(data, _JOB_SPEC, "AvroJobSpec")
    properties: dict[str, str] = record["properties"]
    verb = record["metadata"].get(_VERB)
    if verb not in (*_STARTS, *_STOPS):
        raise ValueError(
            f"an AvroJobSpec has the verb {str(verb)[:40]!r}; expected one of {', '.join(_STARTS + _STOPS)}"
        )
    key = _key(properties, str(record["uri"]))
    if verb in _STOPS:
        return StopOrder(key)
    if record["templateUri"]:
        raise ValueError(f"an AvroJobSpec names the template {record['templateUri'][:200]!r}; send the keys of the job")
    if any(storable(text) != text for pair in properties.items() for text in pair):
        raise ValueError("no database can hold a text of an AvroJobSpec")
    body = keys_body(properties)
    flows = record["metadata"].get(_FLOWS)  # those of a Gobblin say nothing of its flows
    return RunOrder(key, "", body if flows is None else with_flows_around(body, FlowsAround.read(flows)))


def read_tracking_event(data: bytes) -> JobReport | None:
    """Read a report that begins with `HEADER`; None if it tells nothing of a job. Raises ValueError if it is none."""
    event = _read(data, _TRACKING_EVENT, "GobblinTrackingEvent")
    metadata: dict[str, str] = event["metadata"]
    status = _STATUSES.get(event["name"])
    job = metadata.get("jobName", "NA")
    names = {"flow.group": "flowGroup", "flow.name": "flowName", "flow.executionId": "flowExecutionId"}
    if status is None or job == "NA" or not all(name in metadata for name in names.values()):
        return None
    attempt = {"job.currentGeneration": "currentGeneration", "job.currentAttempts": "currentAttempts"}
    found = {ours: metadata[theirs] for ours, theirs in {**names, **attempt}.items() if theirs in metadata}
    key = _key({**found, "job.name": job}, "")
    count = metadata.get("processedCount", "")
    return JobReport.of(
        key,
        status,
        storable(metadata.get("message", "")),
        "",
        int(count) if count.isdecimal() and len(count) <= _MOST_DIGITS else 0,
        storable(metadata.get("lowWatermark", "")),
        storable(metadata.get("highWatermark", "")),
    )


def _read(data: bytes, schema: dict[str, Any], name: str) -> dict[str, Any]:
    with optional_package("fastavro"):
        from fastavro import schemaless_reader  # noqa: PLC0415  # optional package

    source = BytesIO(data)
    source.seek(len(HEADER))
    try:
        record: Any = schemaless_reader(source, schema, None)
    except Exception as error:
        # For damaged bytes the library raises all kinds of exceptions.
        raise ValueError(f"no {name}: {str(error)[:200] or type(error).__name__}") from error
    if source.read(1):
        raise ValueError(f"no {name}: bytes are left after it")
    return dict(record)


def _key(properties: Mapping[str, str], uri: str) -> JobKey:
    """Return the job that properties name, or else the last parts of its URI."""
    group, flow, _, job, execution = ["", "", "", "", "", *map(unquote, uri.split("/")[1:])][-5:]
    number = properties.get("flow.executionId", execution)
    generation = properties.get("job.currentGeneration", "1")
    attempt = properties.get("job.currentAttempts", "1")
    for name, text in {"flow.executionId": number, "generation": generation, "attempt": attempt}.items():
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise ValueError(f"{name} of a job is {text[:40]!r}, which is no number")
    fields = {
        "group": properties.get("flow.group", group),
        "flow": properties.get("flow.name", flow),
        "execution": int(number),
        "job": properties.get("job.name", job),
        "generation": int(generation),
        "attempt": int(attempt),
    }
    missing = [name for name in ("group", "flow", "job") if not fields[name]]
    if missing:
        raise ValueError(f"an order names no {' and no '.join(missing)}")
    return JobKey.read(fields)
