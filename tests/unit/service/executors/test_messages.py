"""Messages of workers that came from elsewhere: what is none is refused before it reaches a database."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gobblin_dagster.service.executors.messages import JobNews, RunOrder, StopOrder, from_line, to_line
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.worker_rows import read_report, write_report

KEY = JobKey("g", "n", 1, "a", 1, 1)
KEYS = [
    pytest.param({"execution": "1"}, id="text for a number"),
    pytest.param({"execution": 1 << 63}, id="number no database holds"),
    pytest.param({"attempt": 1 << 31}, id="attempt no database holds"),
    pytest.param({"attempt": True}, id="flag for a number"),
    pytest.param({"attempt": -1}, id="below zero"),
    pytest.param({"group": None}, id="nothing for a text"),
    pytest.param({"job": "a\0"}, id="NUL"),
    pytest.param({"flow": "\udc80"}, id="half of a character"),
    pytest.param({"job": "a" * 1001}, id="endless name"),
    pytest.param({"group": "ö" * 1000, "flow": "ö" * 1000}, id="names that no index holds"),
    pytest.param({"more": 1}, id="field that is not known"),
]


@pytest.mark.parametrize("message", [RunOrder(KEY, "", "{}"), StopOrder(KEY)])
def test_orders_come_back_as_they_were(message: RunOrder | StopOrder) -> None:
    assert from_line(to_line(message)) == message


@pytest.mark.parametrize("change", KEYS)
def test_keys_that_no_database_holds_are_refused(change: dict[str, object]) -> None:
    order = json.loads(to_line(StopOrder(KEY)))
    with pytest.raises(ValueError, match="no message of a worker"):
        from_line(json.dumps(order | {"key": order["key"] | change}))
    report = json.loads(write_report(JobReport(KEY.execution_id, "a", 1, 1, ExecutionStatus.FAILED)))
    with pytest.raises(ValueError, match="no report of a job"):
        read_report(json.dumps(report | {"key": report["key"] | change}))


@pytest.mark.parametrize("change", [{"body": 1}, {"run_id": None}, {"body": None}, {"body": "\ud800"}, {"body": "a\0"}])
def test_orders_whose_body_no_database_holds_are_refused(change: dict[str, object]) -> None:
    order = json.loads(to_line(RunOrder(KEY, "", "{}")))
    with pytest.raises(ValueError, match="no message of a worker"):
        from_line(json.dumps(order | change))


@pytest.mark.parametrize("change", [{"message": 1}, {"processed_count": 1 << 63}, {"status": "DONE"}, {"may_retry": 1}])
def test_reports_with_other_types_are_refused(change: dict[str, object]) -> None:
    report = json.loads(write_report(JobReport(KEY.execution_id, "a", 1, 1, ExecutionStatus.FAILED, "x")))
    with pytest.raises(ValueError, match="no report of a job"):
        read_report(json.dumps(report | change))


@pytest.mark.parametrize("read", [from_line, read_report])
def test_json_that_is_too_deep_is_no_message(read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"no message of a worker|no report of a job"):
        read("[" * 200_000)


def test_report_comes_back_as_it_was_but_for_what_postgresql_cannot_hold() -> None:
    report = JobReport(KEY.execution_id, "a", 1, 1, ExecutionStatus.COMPLETE, "2 committed\0", "r", 7, "1", "8", False)
    back = read_report(write_report(report))
    assert back == JobReport(
        KEY.execution_id, "a", 1, 1, ExecutionStatus.COMPLETE, "2 committed", "r", 7, "1", "8", False
    )


def test_news_of_a_file_whose_name_is_not_utf8_reach_every_database() -> None:
    news = JobNews(KEY, ExecutionStatus.FAILED, "a\udcff.csv is cut off\0")
    assert from_line(to_line(news)) == JobNews(KEY, ExecutionStatus.FAILED, "a\\udcff.csv is cut off")
    report = JobReport(KEY.execution_id, "a", 1, 1, ExecutionStatus.FAILED, "a\udcff.csv is cut off")
    assert read_report(write_report(report)).message == "a\\udcff.csv is cut off"
