"""The Dagster job that runs orders of a service elsewhere: each order once, with its outcome in the run's tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.orchestration import order_definitions
from gobblin_dagster.orchestration.order_job import ORDER_JOB
from gobblin_dagster.service.executors.announcements import STATE, read_announcement
from gobblin_dagster.service.executors.messages import RunOrder, StopOrder, to_line
from gobblin_dagster.service.executors.remote_dagster import (
    ORDER_OP,
    OUTCOME_TAG,
    SERVICE_TAG,
    WORKER_METADATA,
    run_tags,
)
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.worker_rows import read_report
from gobblin_dagster.testing.inline_runner import InlineRunner

S = ExecutionStatus
KEY = JobKey("shop", "orders", 1, "rows", 1, 1)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def job(tmp_path: Path) -> dg.JobDefinition:
    (tmp_path / "gobblin.yaml").write_text("project: far\nallow: {paths: [lake]}\n")
    return order_definitions(tmp_path, runner=InlineRunner()).resolve_job_def(ORDER_JOB)


def body(path: str = "lake", **dataset: Any) -> str:
    source = {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": {"a": {"rows": 7, **dataset}}}
    extract = {"namespace": "test", "table": "rows"}
    return json.dumps({"job": "rows", "source": source, "extract": extract, "output": {"path": path}})


def launch(job: dg.JobDefinition, instance: dg.DagsterInstance, order: str) -> tuple[bool, JobReport | None, str]:
    """Return whether the run succeeded, its outcome, and its id."""
    config = {"ops": {ORDER_OP: {"config": {"order": order}}}}
    tags = {**run_tags(KEY), SERVICE_TAG: "ours"}
    done = job.execute_in_process(config, instance, tags=tags, raise_on_error=False)
    run = instance.get_run_by_id(done.run_id)
    assert run is not None
    text = run.tags.get(OUTCOME_TAG)
    return done.success, read_report(text) if text else None, done.run_id


def test_order_runs_once_and_its_run_tells_what_became_of_it(
    job: dg.JobDefinition, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    order = to_line(RunOrder(KEY, "", body()))
    is_good, told, run_id = launch(job, instance, order)
    assert is_good
    assert told is not None
    assert (told.key, told.status, told.run_id, told.processed_count) == (KEY, S.COMPLETE, run_id, 7)
    assert told.high_watermark == "7"
    files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert files
    # Its launch came twice, or somebody ran it again in Dagster's pages.
    is_good, told, _ = launch(job, instance, order)
    assert (is_good, told) == (False, None)
    assert [path for path in (tmp_path / "lake").rglob("*") if path.is_file()] == files


@pytest.mark.parametrize(
    ("order", "may_retry", "message"),
    [
        (RunOrder(KEY, "", body(fail_at=3)), True, "1 failed"),
        (RunOrder(KEY, "", body(path="/elsewhere")), False, "/elsewhere"),
    ],
    ids=["fails", "not allowed"],
)
def test_job_that_fails_or_is_not_allowed_here_fails_its_run_and_says_why(
    job: dg.JobDefinition, instance: dg.DagsterInstance, order: RunOrder, may_retry: bool, message: str
) -> None:
    is_good, told, _ = launch(job, instance, to_line(order))
    assert not is_good
    assert told is not None
    assert (told.status, told.may_retry) == (S.FAILED, may_retry)
    assert message in told.message


@pytest.mark.parametrize("order", ["no JSON", to_line(StopOrder(KEY))])
def test_order_that_is_none_fails_its_run(job: dg.JobDefinition, instance: dg.DagsterInstance, order: str) -> None:
    assert launch(job, instance, order)[:2] == (False, None)


def test_job_announces_what_it_can_do_and_where_it_keeps_watermarks(job: dg.JobDefinition, tmp_path: Path) -> None:
    text = job.metadata[WORKER_METADATA].value
    assert isinstance(text, str)
    about = read_announcement(text).about
    assert "source.files" in about["constructs"]
    assert about["roots"] == ["lake"]
    assert str(tmp_path) in about[STATE]
