"""Log lines: each tells the flow, execution and job that it is about, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from threading import Thread

import pytest

from gobblin_dagster.core.secrets import remember
from gobblin_dagster.service.logs import about, start_logs
from gobblin_dagster.service.model import ExecutionId, FlowId, JobReport
from gobblin_dagster.service.model import ExecutionStatus as S
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator

from .conftest import Create, flow

FLOW = FlowId("shop", "orders")
log = logging.getLogger("gobblin_dagster.service.tests")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before


def test_json_lines_tell_what_they_are_about(stream: io.StringIO) -> None:
    start_logs(as_json=True, node="n1", stream=stream)
    with about(ExecutionId(FLOW, 7), "to_lake"):
        log.info("two\nlines, %s", "ünicode")
        thread = Thread(target=log.warning, args=("another thread",))
        thread.start()
        thread.join()
    with about(FLOW):
        try:
            raise ValueError("a fault")
        except ValueError:
            log.exception("it failed")
    logging.getLogger("uvicorn.error").info("left out")
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "INFO",
        "logger": "gobblin_dagster.service.tests",
        "message": "two\nlines, ünicode",
        "node": "n1",
        "flow": "shop/orders",
        "execution": 7,
        "job": "to_lake",
    }
    assert "flow" not in second
    assert (third["flow"], "execution" in third) == ("shop/orders", False)
    assert "ValueError: a fault" in third["error"]


def test_text_lines_end_with_what_they_are_about(stream: io.StringIO) -> None:
    start_logs(as_json=False, node="n1", stream=stream)
    with about(ExecutionId(FLOW, 7)):
        log.info("said")
    assert stream.getvalue().endswith("Z INFO tests: said [flow=shop/orders execution=7]\n")


def test_orchestrator_tells_the_way_of_an_execution(
    stream: io.StringIO, orchestrator: Orchestrator, create: Create
) -> None:
    start_logs(as_json=True, node="n1", stream=stream)
    number = create(flow())
    orchestrator.start_accepted()
    for status in (S.ORCHESTRATED, S.RUNNING, S.COMPLETE):
        orchestrator.report(JobReport(ExecutionId(FlowId("g", "n"), number), "a", 1, 1, status))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {(line["flow"], line["execution"]) for line in lines} == {("g/n", number)}
    assert [(line.get("job"), line["message"]) for line in lines] == [
        (None, f"execution g/n/{number} begins: 1 job(s), version 1"),
        ("a", "job a is ORCHESTRATED"),
        ("a", "job a is RUNNING"),
        ("a", "job a is COMPLETE"),
        ("a", f"execution g/n/{number} is COMPLETE: 0 rows in 1 job"),
    ]


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_lines_and_tracebacks_hide_values_of_variables(stream: io.StringIO, as_json: bool) -> None:
    remember({"s3cr3t-Word!9": "${PW}"})
    start_logs(as_json=as_json, node="n1", stream=stream)
    try:
        raise ValueError("No such configuration value: s3cr3t-Word!9")
    except ValueError:
        log.exception("login with %s", "s3cr3t-Word!9")
    assert "login with ${PW}" in stream.getvalue()
    assert "configuration value: ${PW}" in stream.getvalue()
    assert "s3cr3t" not in stream.getvalue()
