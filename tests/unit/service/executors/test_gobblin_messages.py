"""Orders and reports in Gobblin's own form: bytes as its classes write them, and what is none of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.service.catalog.templates import keys_body, keys_of_body
from gobblin_dagster.service.executors.flows_around import FlowsAround, split_body, with_flows_around
from gobblin_dagster.service.executors.gobblin_messages import (
    HEADER,
    read_job_spec,
    read_tracking_event,
    write_job_spec,
)
from gobblin_dagster.service.executors.messages import RunOrder, StopOrder
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobKey, JobReport

KEY = JobKey("shop", "or/ders", 7, "shop__orders", 2, 3)
KEYS = {"source.class": "org.apache.gobblin.example.Source", "limit": "5"}


def text(value: str) -> bytes:
    """Write a text as Avro does: twice its length, and its bytes."""
    assert len(value) < 64
    return bytes([2 * len(value)]) + value.encode()


def texts(values: dict[str, str]) -> bytes:
    """Write a map as Avro does: one block, then an empty one."""
    pairs = b"".join(text(name) + text(value) for name, value in values.items())
    return (bytes([2 * len(values)]) + pairs if values else b"") + b"\0"


def job_spec(properties: dict[str, str], verb: str | None = "ADD", uri: str = "", template: str = "") -> bytes:
    """Write the fields of `AvroJobSpec.avsc` by hand."""
    metadata = {} if verb is None else {"Verb": verb}
    fields = [text(uri), text("1"), text("what it is"), text(template), texts(properties), texts(metadata)]
    return b"\0\0\0\1" + b"".join(fields)


def event(name: str, metadata: dict[str, str]) -> bytes:
    """Write the fields of `GobblinTrackingEvent.avsc` by hand."""
    return b"\0\0\0\1" + b"\x02" + b"\0" + text("gobblin") + text(name) + texts(metadata)


FLOW = {"flow.group": "shop", "flow.name": "orders", "flow.executionId": "7", "job.name": "to_lake"}
EVENT = {"flowGroup": "shop", "flowName": "orders", "flowExecutionId": "7", "jobName": "to_lake", "jobGroup": "shop"}


def test_order_has_the_bytes_that_gobblin_writes() -> None:
    identity = {
        "flow.group": "shop",
        "flow.name": "or/ders",
        "flow.executionId": "7",
        "job.name": "shop__orders",
        "job.group": "shop",
        "job.currentGeneration": "2",
        "job.currentAttempts": "3",
    }
    uri = text("gobblin-job:/shop/or%2Fders/shop/shop__orders/7")
    stop = write_job_spec(StopOrder(KEY))
    assert stop == HEADER + uri + text("1") + text("") + text("") + texts(identity) + texts({"Verb": "CANCEL"})
    start = write_job_spec(RunOrder(KEY, "", keys_body(KEYS)))
    assert start == HEADER + uri + text("1") + text("") + text("") + texts(KEYS | identity) + texts({"Verb": "ADD"})


def test_order_is_read_as_it_was_written() -> None:
    assert read_job_spec(write_job_spec(StopOrder(KEY))) == StopOrder(KEY)
    order = read_job_spec(write_job_spec(RunOrder(KEY, "", keys_body(KEYS))))
    assert isinstance(order, RunOrder)
    assert order.key == KEY
    keys = keys_of_body(order.body)
    assert keys is not None
    assert KEYS.items() <= keys.items()


def test_flows_around_a_job_go_beside_its_keys() -> None:
    around = FlowsAround(frozenset({"0123456789ab"}), datetime(2026, 11, 27, tzinfo=UTC))
    written = write_job_spec(RunOrder(KEY, "", with_flows_around(keys_body(KEYS), around)))
    order = read_job_spec(written)
    assert isinstance(order, RunOrder)
    body, read = split_body(order.body)
    assert read == around
    assert KEYS.items() <= (keys_of_body(body) or {}).items()
    with pytest.raises(ValueError, match="no flows around a job"):
        read_job_spec(written.replace(b"2026-11-27T00:00:00+00:00", b"2026-11-27T00:00:00      "))


def test_job_file_of_ours_cannot_be_an_order_for_gobblin() -> None:
    with pytest.raises(UsageError, match=r"Job shop__orders has no keys of Gobblin's.*template in Gobblin's format"):
        write_job_spec(RunOrder(KEY, "", '{"job": "shop__orders"}'))


@pytest.mark.parametrize("verb", ["ADD", "UPDATE", "UNKNOWN", "DELETE", "CANCEL"])
def test_order_of_a_gobblin_service_is_read(verb: str) -> None:
    """Its own service writes no attempt before the first retry."""
    order = read_job_spec(job_spec({**FLOW, **KEYS}, verb))
    key = JobKey("shop", "orders", 7, "to_lake", 1, 1)
    assert order == (StopOrder(key) if verb in ("DELETE", "CANCEL") else RunOrder(key, "", keys_body({**FLOW, **KEYS})))


def test_order_to_end_a_job_may_name_it_by_its_uri_alone() -> None:
    found = read_job_spec(job_spec({}, "CANCEL", "gobblin-job:/shop/or%2Fders/shop/to_lake/7"))
    assert found == StopOrder(JobKey("shop", "or/ders", 7, "to_lake", 1, 1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(HEADER, "no AvroJobSpec", id="nothing"),
        pytest.param(HEADER + b"\xff\xff\xff", "no AvroJobSpec", id="no-avro"),
        pytest.param(job_spec(FLOW)[:-3], "no AvroJobSpec", id="cut"),
        pytest.param(job_spec(FLOW) + b"x", "bytes are left after it", id="longer"),
        pytest.param(job_spec(FLOW, None), "has the verb 'None'; expected one of ADD", id="no-verb"),
        pytest.param(job_spec(FLOW, "EXPLODE"), "has the verb 'EXPLODE'", id="other-verb"),
        pytest.param(job_spec({**FLOW, "flow.executionId": "x"}), "flow.executionId of a job is 'x'", id="no-number"),
        pytest.param(
            job_spec({"flow.executionId": "7"}), "an order names no group and no flow and no job", id="nobody"
        ),
        pytest.param(
            job_spec(FLOW, "ADD", "", "FS:///a.template"), "names the template 'FS:///a.template'", id="template"
        ),
        pytest.param(job_spec({**FLOW, "a": "\0"}), "no database can hold a text", id="nul"),
    ],
)
def test_what_is_no_order_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_job_spec(data)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("JobStartTimer", ExecutionStatus.RUNNING),
        ("JobSucceededTimer", ExecutionStatus.COMPLETE),
        ("JobFailedTimer", ExecutionStatus.FAILED),
        ("JobCancelTimer", ExecutionStatus.CANCELLED),
    ],
)
def test_events_of_a_cluster_are_reports(name: str, status: ExecutionStatus) -> None:
    more = {"currentAttempts": "2", "processedCount": "12", "highWatermark": "40", "message": "done"}
    execution = ExecutionId(FlowId("shop", "orders"), 7)
    report = JobReport(execution, "to_lake", 1, 2, status, "done", "", 12, "", "40")
    assert read_tracking_event(event(name, EVENT | more)) == report


def test_count_that_no_database_holds_is_left_out() -> None:
    report = read_tracking_event(event("JobSucceededTimer", EVENT | {"processedCount": "9" * 19}))
    assert report is not None
    assert report.processed_count == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(event("JobCommitTimer", EVENT), id="no-status"),
        pytest.param(event("JobSucceededTimer", EVENT | {"jobName": "NA"}), id="of-a-flow"),
        pytest.param(event("JobSucceededTimer", {"jobName": "to_lake"}), id="of-no-flow"),
    ],
)
def test_other_events_are_no_reports(data: bytes) -> None:
    assert read_tracking_event(data) is None


@pytest.mark.parametrize("data", [HEADER + b"\xff", event("JobSucceededTimer", EVENT)[:-1]])
def test_what_is_no_event_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match="no GobblinTrackingEvent"):
        read_tracking_event(data)
