"""The executor `dagster` of a topology: what its webserver answers, and runs that are lost, refused or gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import TransientError, UsageError
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.remote_dagster import (
    KEY_TAG,
    OUTCOME_TAG,
    WORKER_METADATA,
    DagsterExecutor,
    GraphqlDagster,
    outcome_tag,
    run_tags,
)
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import worker_jobs
from gobblin_dagster.service.topology.model import DagsterAddress
from tests.contract.executor_worlds import FAR, MemoryDagster
from tests.services.json_api import Asked, JsonApi, Reply, running_api

S = ExecutionStatus
KEY = JobKey("shop/eu", "größe", 1, "a", 1, 1)
TOKEN = "s3cret-of-the-instance"
LOADED = {
    "workspaceLocationEntryOrError": {
        "__typename": "WorkspaceLocationEntry",
        "loadStatus": "LOADED",
        "locationOrLoadError": {"__typename": "RepositoryLocation"},
    },
    "pipelineOrError": {"__typename": "Pipeline", "metadataEntries": [{"label": WORKER_METADATA, "text": "{}"}]},
}


class Line(MemoryDagster):
    """Loses the answer of a launch, or refuses it."""

    error: Exception | None = None
    launches = 0

    def launch(self, order: str, tags: Mapping[str, str]) -> str:
        self.launches += 1
        if isinstance(self.error, UsageError):
            raise self.error
        run_id = super().launch(order, tags)
        if self.error is not None:
            raise self.error
        return run_id


LOST = TransientError(problem="no answer")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceStore]:
    with ServiceStore(f"sqlite:///{tmp_path_factory.mktemp('far')}/service.db", SystemClock()) as made:
        yield made


@pytest.fixture
def store(opened: ServiceStore) -> Iterator[ServiceStore]:
    yield opened
    with opened.write() as transaction:
        transaction.execute(delete(worker_jobs))


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def executor(line: Line, store: ServiceStore) -> DagsterExecutor:
    return DagsterExecutor("far", FAR, store, line)


def reports(executor: DagsterExecutor) -> list[JobReport]:
    found = list(executor.take_reports(10))
    executor.acknowledge(found)
    return found


def test_launch_whose_answer_is_lost_is_looked_for_by_its_tags_and_not_repeated(
    line: Line, executor: DagsterExecutor
) -> None:
    line.error = LOST
    executor.add(RunOrder(KEY, "", "{}"))
    [told] = reports(executor)  # that it was handed over does not wait for the instance
    assert told.status is S.ORCHESTRATED
    line.error = None
    assert reports(executor) == []
    assert (line.launches, list(line.runs)) == (1, ["run-0"])
    assert line.runs["run-0"].tags.items() >= run_tags(KEY).items()
    line.show("run-0", "STARTED")
    [told] = reports(executor)
    assert (told.status, told.run_id) == (S.RUNNING, "run-0")


def test_run_that_is_there_before_the_first_launch_is_the_jobs(line: Line, executor: DagsterExecutor) -> None:
    executor.add(RunOrder(KEY, "", "{}"))
    reports(executor)
    [run] = line.runs.values()
    other = replace(KEY, attempt=2)  # as if the service's database were put back to a copy from before the launch
    line.runs["run-2"] = replace(run, run_id="run-2", status="STARTED", tags={**run.tags, **run_tags(other)})
    executor.add(RunOrder(other, "", "{}"))
    told = {one.attempt: (one.status, one.run_id) for one in reports(executor)}
    assert (told, line.launches) == ({2: (S.RUNNING, "run-2")}, 1)


def test_launch_that_may_be_under_way_is_not_repeated_before_its_time(line: Line, store: ServiceStore) -> None:
    for wait_s, launches in ((60, 1), (0, 2)):
        executor = DagsterExecutor("far", FAR, store, line, wait_s=wait_s)
        line.error = LOST if not line.launches else None
        executor.add(RunOrder(KEY, "", "{}"))
        reports(executor)
        line.runs.clear()  # the request has not come through yet
        reports(executor)
        assert line.launches == launches


def test_job_that_is_stopped_while_its_launch_has_no_answer_is_cancelled_without_a_run(
    line: Line, store: ServiceStore
) -> None:
    executor = DagsterExecutor("far", FAR, store, line, wait_s=0)
    line.error = LOST
    executor.add(RunOrder(KEY, "", "{}"))
    reports(executor)
    line.runs.clear()
    executor.delete(KEY)
    [told] = reports(executor)
    assert (told.status, told.run_id, line.launches) == (S.CANCELLED, "", 1)


def test_order_that_can_never_be_launched_fails_its_job(line: Line, executor: DagsterExecutor) -> None:
    line.error = UsageError(problem="the job has no op run_order")
    executor.add(RunOrder(KEY, "", "{}"))
    [told] = reports(executor)
    assert (told.status, told.may_retry, told.run_id) == (S.FAILED, False, "")
    assert "no op run_order" in told.message


@pytest.mark.parametrize(
    ("status", "outcome", "expected", "message"),
    [
        ("SUCCESS", None, S.COMPLETE, ""),
        ("FAILURE", None, S.FAILED, "run-0 ended as FAILURE before the job did"),
        ("CANCELED", None, S.CANCELLED, "run-0 ended as CANCELED"),
        ("FAILURE", JobReport(KEY.execution_id, "a", 1, 1, S.COMPLETE, "7 rows"), S.COMPLETE, "7 rows"),
        ("FAILURE", JobReport(KEY.execution_id, "b", 1, 1, S.COMPLETE, "of another job"), S.FAILED, "as FAILURE"),
        ("SUCCESS", JobReport(KEY.execution_id, "a", 1, 1, S.RUNNING, "not over"), S.COMPLETE, ""),
        ("CANCELED", "no JSON", S.CANCELLED, "run-0 ended"),
    ],
)
def test_outcome_is_what_the_run_says_of_its_own_job_else_what_dagster_says(
    line: Line,
    executor: DagsterExecutor,
    status: str,
    outcome: JobReport | str | None,
    expected: ExecutionStatus,
    message: str,
) -> None:
    executor.add(RunOrder(KEY, "", "{}"))
    reports(executor)
    text = outcome_tag(outcome) if isinstance(outcome, JobReport) else outcome
    line.show("run-0", status, **({OUTCOME_TAG: text} if text else {}))
    told = reports(executor)
    assert [one.status for one in told] == [S.RUNNING, expected]
    assert message in told[-1].message
    assert told[-1].run_id == "run-0"
    assert executor.list() == []


def test_run_that_is_gone_fails_its_job_and_is_not_launched_again(line: Line, executor: DagsterExecutor) -> None:
    executor.add(RunOrder(KEY, "", "{}"))
    reports(executor)
    line.runs.clear()
    assert "its run run-0 is gone" in reports(executor)[-1].message
    assert line.launches == 1


def test_stop_ends_the_run_and_one_that_was_never_launched_at_once(line: Line, executor: DagsterExecutor) -> None:
    asked: list[tuple[str, bool]] = []
    line.end = lambda run_id, *, at_once: asked.append((run_id, at_once))  # type: ignore[method-assign]  # notes it
    executor.add(RunOrder(KEY, "", "{}"))
    reports(executor)
    executor.delete(KEY)
    for status in ("STARTED", "CANCELING", "NOT_STARTED"):
        line.show("run-0", status)
        reports(executor)
    assert asked == [("run-0", False), ("run-0", True)]


def test_reports_that_are_known_do_not_wait_while_the_instance_is_away(line: Line, executor: DagsterExecutor) -> None:
    executor.add(RunOrder(KEY, "", "{}"))
    executor.take_reports(10)
    line.is_cut = True
    assert [one.status for one in reports(executor)] == [S.ORCHESTRATED]
    with pytest.raises(TransientError, match="is cut"):
        executor.take_reports(10)
    assert "is cut" in executor.health()


def test_outcome_fits_into_a_tag_whatever_its_texts_are() -> None:
    long = JobReport(KEY.execution_id, "a", 1, 1, S.FAILED, "ß\n" * 9000, "r", 1, "'\"" * 900, "x" * 9000)
    assert len(outcome_tag(long).encode()) < 2700


def test_announcement_that_cannot_be_read_changes_nothing(line: Line, executor: DagsterExecutor) -> None:
    line.announced = "no JSON"
    assert executor.health() == ""
    assert executor.take_announcements() == []


def asked(reply: Callable[[Asked], Reply] | Reply, do: Callable[[GraphqlDagster], Any], **more: str) -> Any:
    """Return what a call returns, asked from a server with one answer, and the server."""
    with running_api(reply if callable(reply) else lambda _: reply) as api:
        dagster = GraphqlDagster(DagsterAddress(url=f"{api.url}/far", location="gobblin", **more), Path())
        try:
            return do(dagster), api
        finally:
            dagster.close()


def test_requests_show_the_token_and_go_to_the_path_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_TOKEN", TOKEN)
    for header, value in (("Authorization", f"Bearer {TOKEN}"), ("Dagster-Cloud-Api-Token", TOKEN)):
        found: tuple[str, JsonApi] = asked(
            Reply({"data": LOADED}), lambda one: one.look(), token_env="FAR_TOKEN", token_header=header
        )
        [request] = found[1].asked
        assert (found[0], request.path, request.headers[header]) == ("{}", "/far/graphql", value)
    for token in (f"{TOKEN}\n", f"{TOKEN}ß"):
        monkeypatch.setenv("FAR_TOKEN", token)
        with pytest.raises(TransientError, match="FAR_TOKEN holds a sign that no header takes") as raised:
            asked(Reply({"data": LOADED}), lambda one: one.look(), token_env="FAR_TOKEN")
        assert TOKEN not in str(raised.value)
    monkeypatch.delenv("FAR_TOKEN")
    with pytest.raises(TransientError, match="taken from FAR_TOKEN, which is not set"):
        asked(Reply({"data": LOADED}), lambda one: one.look(), token_env="FAR_TOKEN")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply({}, 401), "answers 401"),
        (Reply({}, 302, {"Location": "https://other.example/"}), "points to https://other.example/"),
        (Reply(b"<html>", 200), "does not answer"),
        (Reply([]), "answers 200"),
        (Reply({"errors": [{"message": f"no {TOKEN}"}]}, 400), "answers 400: .*no \\${FAR_TOKEN}"),
        (
            Reply({"data": LOADED | {"workspaceLocationEntryOrError": None}}),
            "has not loaded .*'gobblin': there is none",
        ),
        (
            Reply(
                {"data": LOADED | {"pipelineOrError": {"__typename": "PipelineNotFoundError", "message": "no such"}}}
            ),
            "has no job 'gobblin_order' to run orders: no such",
        ),
    ],
    ids=["token", "redirect", "page", "list", "error", "location", "job"],
)
def test_answers_that_are_none_are_tried_again_and_show_no_token(
    reply: Reply, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", TOKEN)
    with pytest.raises(TransientError, match=told) as raised:
        asked(reply, lambda one: one.look(), token_env="FAR_TOKEN")
    assert TOKEN not in str(raised.value)


def test_oldest_run_of_each_set_of_tags_is_found_in_one_query() -> None:
    def reply(request: Asked) -> Reply:
        variables = json.loads(request.body)["variables"]
        data = {}
        for name, filter_ in variables.items():
            [tag] = filter_["tags"]
            runs = [] if tag["value"] == "2" else [f"new-{tag['value']}", f"old-{tag['value']}"]
            results = [{"runId": one, "status": "QUEUED", "tags": [tag]} for one in runs]
            data[name.replace("f", "r")] = {"__typename": "Runs", "results": results}
        return Reply({"data": data})

    tags = [{KEY_TAG: str(number)} for number in range(60)]
    found, api = asked(reply, lambda one: one.find(tags))
    assert [run and run.run_id for run in found[:4]] == ["old-0", "old-1", None, "old-3"]
    assert (len(found), len(api.asked)) == (60, 2)


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (
            {"__typename": "RunConfigValidationInvalid", "errors": [{"message": "unexpected config"}]},
            UsageError,
            "RunConfigValidationInvalid: unexpected config",
        ),
        ({"__typename": "UnauthorizedError", "message": "a viewer"}, TransientError, "UnauthorizedError: a viewer"),
    ],
)
def test_launch_that_is_refused_is_told_and_tried_again_if_that_may_help(
    answer: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        asked(Reply({"data": {"launchRun": answer}}), lambda one: one.launch("order", {KEY_TAG: "1"}))


def test_run_that_cannot_be_ended_yet_raises_nothing() -> None:
    answer = {"terminateRun": {"__typename": "TerminateRunFailure", "message": "it begins"}}
    asked(Reply({"data": answer}), lambda one: one.end("run-0", at_once=False))
