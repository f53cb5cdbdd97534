"""The executor `dagster` of a topology: the service launches runs of another Dagster instance, and watches them.

The orders stand in the service's own database (`store`), so that each is known once and a job that was stopped before
it began never begins. A run is found by its tags: the service looks for it before each launch, and the run itself ends
if an older one has the same tags. The instance opens no connection to the service.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import requests

from gobblin_dagster.core.errors import GobblinDagsterError, TransientError, UsageError
from gobblin_dagster.core.secrets import hidden, variable
from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.service.executors.announcements import read_announcement
from gobblin_dagster.service.executors.messages import RunOrder, to_line
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.worker_rows import (
    WorkerJob,
    begin_job,
    forget_old_jobs,
    list_jobs,
    read_report,
    save_report,
    take_jobs,
    write_report,
)
from gobblin_dagster.service.topology.model import CapabilitySpec, DagsterAddress

log = logging.getLogger(__name__)

FLOW_TAG, EXECUTION_TAG, JOB_TAG = "gobblin/flow", "gobblin/flow_execution", "gobblin/job"
KEY_TAG = "gobblin/job_execution"
"""Tag with which a run is found again: one attempt of one job of one execution."""
SERVICE_TAG = "gobblin/service"
"""Tag with the name of the service's database: two services may give flows the same names."""
OUTCOME_TAG = "gobblin/outcome"
"""Tag with what became of the job, as the run itself says."""
WORKER_METADATA = "gobblin/worker"
"""Metadata of the Dagster job: what its runs can do, as workers announce it."""
ORDER_OP = "run_order"
"""The op that takes the order from the run config."""

AT_ONCE = 20
"""Runs that one look launches."""
LAUNCH_WAIT_S = 60.0
"""Seconds before a launch without an answer is tried again: it may still be under way."""
_WAIT_S = 30
_FIND_AT_ONCE = 50
"""Runs that are looked up by their tags in one query."""
_READ_AT_ONCE = 200
"""Runs that are looked up by their ids in one query."""
_MOST_OF_A_MESSAGE, _MOST_OF_A_MARK = 1000, 400
"""Characters of JSON that texts of an outcome have at most: PostgreSQL indexes no tag of more than 2,700 bytes."""
_HOLDER = "dagster"
"""Holds all jobs: each node of the service may launch and watch them."""
_ASKED = "asked for"
"""In place of the run's id, from before the launch until the answer."""
_FINISHED = {
    "SUCCESS": ExecutionStatus.COMPLETE,
    "FAILURE": ExecutionStatus.FAILED,
    "CANCELED": ExecutionStatus.CANCELLED,
}
_NEVER_LAUNCHED = "NOT_STARTED"
"""Status of a run whose launch was cut off between its two halves; nothing begins it any more."""

_LAUNCH = """
mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message }
  ... on RunConfigValidationInvalid { errors { message } } } }
"""
_END = """
mutation ($id: String!, $policy: TerminateRunPolicy) { terminateRun(runId: $id, terminatePolicy: $policy) {
  __typename ... on Error { message } ... on TerminateRunFailure { message } } }
"""
_LOOK = """
query ($job: PipelineSelector!, $location: String!) {
  workspaceLocationEntryOrError(name: $location) { __typename ... on PythonError { message }
    ... on WorkspaceLocationEntry { loadStatus locationOrLoadError { __typename ... on PythonError { message } } } }
  pipelineOrError(params: $job) { __typename ... on Error { message }
    ... on Pipeline { metadataEntries { label ... on TextMetadataEntry { text } } } } }
"""
_FOUND = """
fragment Found on RunsOrError { __typename ... on Error { message }
  ... on Runs { results { runId status tags { key value } } } }
"""
_REFUSED = frozenset({"RunConfigValidationInvalid", "InvalidSubsetError", "NoModeProvidedError"})
"""Answers that the same launch gets each time."""


def run_tags(key: JobKey) -> dict[str, str]:
    """Return the tags of the run of an attempt."""
    return {
        FLOW_TAG: f"{key.group}/{key.flow}",
        EXECUTION_TAG: str(key.execution),
        JOB_TAG: key.job,
        KEY_TAG: str(key),
    }


def outcome_tag(report: JobReport) -> str:
    """Return what became of a job as the value of a tag; long texts are cut."""
    low, high = (_cut(text, _MOST_OF_A_MARK) for text in (report.low_watermark, report.high_watermark))
    message = _cut(report.message, _MOST_OF_A_MESSAGE)
    return write_report(replace(report, message=message, low_watermark=low, high_watermark=high))


def _cut(text: str, most: int) -> str:
    shown = text
    while len(json.dumps(shown)) > most:
        shown = f"{shown[: len(shown) * 3 // 4]}..." if len(shown) > 8 else ""
    return shown


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run as Dagster has it."""

    run_id: str
    status: str
    """In Dagster's words, such as `STARTED`."""
    tags: Mapping[str, str] = field(default_factory=dict)


class RemoteDagster(Protocol):
    """A Dagster instance with one job that runs orders. Each method raises TransientError if there is no answer."""

    def look(self) -> str:
        """Return what the job's metadata announce, or nothing; raises TransientError also if the job is not loaded."""

    def find(self, tags: Sequence[Mapping[str, str]]) -> Sequence[FoundRun | None]:
        """Return, for each set of tags, the oldest run that has all of them."""

    def read(self, run_ids: Sequence[str]) -> Mapping[str, FoundRun]:
        """Return runs by their ids; those that are gone are left out."""

    def launch(self, order: str, tags: Mapping[str, str]) -> str:
        """Launch a run, and return its id; raises UsageError if it can never be launched."""

    def end(self, run_id: str, *, at_once: bool) -> None:
        """Ask a run to end; at once: mark one that no process runs as ended."""

    def close(self) -> None:
        """Let connections go."""


class GraphqlDagster:
    """A Dagster webserver, asked by GraphQL.

    Args:
        address: where it is, and which job runs orders; files are relative to `root`.
        root: the project of the service.
    """

    def __init__(self, address: DagsterAddress, root: Path) -> None:
        self._url = f"{address.url.rstrip('/')}/graphql"
        self._about = address
        self._job = {
            "repositoryName": address.repository,
            "repositoryLocationName": address.location,
            "pipelineName": address.job,
        }
        self._session = requests.Session()
        self._session.trust_env = False
        if address.ca:
            self._session.verify = str(root / address.ca)

    def look(self) -> str:
        """Return what the job announces."""
        data = self._ask(_LOOK, {"job": self._job, "location": self._about.location})
        entry = data.get("workspaceLocationEntryOrError") or {}
        loaded = entry.get("locationOrLoadError") or {}
        if entry.get("__typename") != "WorkspaceLocationEntry" or loaded.get("__typename") != "RepositoryLocation":
            told = loaded.get("message") or entry.get("message") or entry.get("loadStatus") or "there is none"
            raise self._problem(f"has not loaded the code location {self._about.location!r}: {told}")
        job = data["pipelineOrError"]
        if job["__typename"] != "Pipeline":
            raise self._problem(f"has no job {self._job['pipelineName']!r} to run orders: {job.get('message')}")
        texts = {one["label"]: one.get("text") for one in job["metadataEntries"]}
        return texts.get(WORKER_METADATA) or ""

    def find(self, tags: Sequence[Mapping[str, str]]) -> Sequence[FoundRun | None]:
        """Return the oldest run of each set of tags."""
        found: list[FoundRun | None] = []
        for at in range(0, len(tags), _FIND_AT_ONCE):
            asked = [{"tags": _pairs(one)} for one in tags[at : at + _FIND_AT_ONCE]]
            names = ", ".join(f"$f{number}: RunsFilter!" for number in range(len(asked)))
            parts = " ".join(
                f"r{number}: runsOrError(filter: $f{number}) {{ ...Found }}" for number in range(len(asked))
            )
            variables = {f"f{number}": one for number, one in enumerate(asked)}
            data = self._ask(f"query ({names}) {{ {parts} }} {_FOUND}", variables)
            for number in range(len(asked)):
                runs = self._runs(data[f"r{number}"])
                found.append(runs[-1] if runs else None)  # Dagster returns the newest first
        return found

    def read(self, run_ids: Sequence[str]) -> Mapping[str, FoundRun]:
        """Return runs by their ids."""
        found: dict[str, FoundRun] = {}
        for at in range(0, len(run_ids), _READ_AT_ONCE):
            asked = {"filter": {"runIds": list(run_ids[at : at + _READ_AT_ONCE])}}
            query = f"query ($filter: RunsFilter!) {{ runsOrError(filter: $filter) {{ ...Found }} }} {_FOUND}"
            found |= {run.run_id: run for run in self._runs(self._ask(query, asked)["runsOrError"])}
        return found

    def launch(self, order: str, tags: Mapping[str, str]) -> str:
        """Launch a run."""
        params = {
            "selector": self._job,
            "mode": "default",
            "runConfigData": {"ops": {ORDER_OP: {"config": {"order": order}}}},
            "executionMetadata": {"tags": _pairs(tags)},
        }
        told = self._ask(_LAUNCH, {"params": params})["launchRun"]
        if told["__typename"] == "LaunchRunSuccess":
            run_id: str = told["run"]["runId"]
            return run_id
        errors = "; ".join(str(one.get("message")) for one in told.get("errors", ())[:5])
        problem = f"does not launch the run: {told['__typename']}: {errors or told.get('message')}"
        if told["__typename"] in _REFUSED:
            raise UsageError(
                problem=str(self._problem(problem)),
                hint=f"Its job needs the op {ORDER_OP!r} with the setting `order`, as order_definitions() makes it.",
            )
        raise self._problem(problem)

    def end(self, run_id: str, *, at_once: bool) -> None:
        """Ask a run to end."""
        policy = "MARK_AS_CANCELED_IMMEDIATELY" if at_once else "SAFE_TERMINATE"
        told = self._ask(_END, {"id": run_id, "policy": policy})["terminateRun"]
        if told["__typename"] != "TerminateRunSuccess":  # one that just begins, or ends, cannot be ended: asked again
            log.info("run %s does not end yet: %s", run_id, hidden(str(told.get("message"))[:500]))

    def close(self) -> None:
        """Let connections go."""
        self._session.close()

    def _ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = self._session.post(
                self._url,
                json={"query": query, "variables": variables},
                headers=self._token(),
                timeout=_WAIT_S,
                allow_redirects=False,  # orders are for this address alone, and so is the token
            )
            if answer.is_redirect:
                raise self._problem(f"points to {answer.headers['location']}; the topology must name that")
            told = answer.json() if answer.status_code in (200, 400) else {}
        except (OSError, ValueError, requests.RequestException) as error:
            raise self._problem(f"does not answer: {error}") from error
        data = told.get("data") if isinstance(told, dict) else None
        if answer.status_code != 200 or not isinstance(data, dict) or told.get("errors"):
            errors = told.get("errors") if isinstance(told, dict) else None
            raise self._problem(f"answers {answer.status_code}: {str(errors or answer.reason)[:500]}")
        return data

    def _token(self) -> dict[str, str]:
        """Return the header that shows the token; its variable may be set, or change, while the service runs."""
        about = self._about
        if about.token_env is None:
            return {}
        token = variable(about.token_env)
        if not token:
            raise self._problem(f"is not asked: its token is taken from {about.token_env}, which is not set here")
        if not (token.isascii() and token.isprintable()):  # the library's error would quote it
            raise self._problem(
                f"is not asked: {about.token_env} holds a sign that no header takes, such as a line end"
            )
        return {about.token_header: f"Bearer {token}" if about.token_header.lower() == "authorization" else token}

    def _runs(self, answer: Mapping[str, Any]) -> list[FoundRun]:
        if answer["__typename"] != "Runs":
            raise self._problem(f"does not list runs: {answer.get('message')}")
        return [
            FoundRun(one["runId"], one["status"], {tag["key"]: tag["value"] for tag in one["tags"]})
            for one in answer["results"]
        ]

    def _problem(self, what: str) -> TransientError:
        return TransientError(problem=hidden(f"The Dagster at {self._url} {storable(what)[:2000]}"))


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


class DagsterExecutor:
    """Orders jobs from another Dagster instance.

    Args:
        name: of the executor.
        address: of the instance, for people.
        store: the service's store; orders and what became of them are rows of it.
        dagster: the instance.
        description: for people.
        capabilities: kinds of movement that it can do.
        wait_s: seconds before a launch without an answer is tried again.
    """

    def __init__(
        self,
        name: str,
        address: DagsterAddress,
        store: ServiceStore,
        dagster: RemoteDagster,
        description: str = "",
        capabilities: Sequence[CapabilitySpec] = (),
        wait_s: float = LAUNCH_WAIT_S,
    ) -> None:
        self.name = name
        self.description = description
        self.capabilities = tuple(capabilities)
        self._address = address
        self._store = store
        self._dagster = dagster
        self._orders = StoreExecutor(name, store)
        self._wait_s = wait_s
        self._service = ""
        self._announced: list[Node] = []
        self._asked_at: dict[JobKey, float] = {}
        """When a launch that has no answer was noticed first, in seconds of the monotonic clock."""
        self._running: set[JobKey] = set()
        """Jobs that were reported as running; told once more after a restart."""

    @property
    def uri(self) -> str:
        """The webserver."""
        return self._address.url

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings."""
        about = self._address
        return {"url": about.url, "location": about.location, "repository": about.repository, "job": about.job}

    def health(self) -> str:
        """Return why jobs would wait."""
        try:
            text = self._dagster.look()
        except GobblinDagsterError as error:
            return str(error)
        if text:
            try:
                self._announced = [read_announcement(text)]
            except ValueError as error:
                log.warning("executor %s: %s", self.name, error)
        return ""

    def add(self, order: RunOrder) -> None:
        """Order a job."""
        self._orders.add(order)

    def update(self, order: RunOrder) -> None:
        """Give a job whose run was not asked for another body."""
        self._orders.update(order)

    def delete(self, key: JobKey) -> None:
        """Order the end of a job."""
        self._orders.delete(key)

    def list(self) -> Sequence[JobKey]:
        """Return the jobs that are not over."""
        return self._orders.list()

    def take_reports(self, limit: int) -> Sequence[JobReport]:
        """Launch what was ordered, look at the runs, and return reports that were not acknowledged."""
        try:
            self._look_at_runs()
        except TransientError:
            # What is known already must not wait for the instance.
            if found := self._orders.take_reports(limit):
                return found
            raise
        return self._orders.take_reports(limit)

    def acknowledge(self, reports: Sequence[JobReport]) -> None:
        """Note that the service has reports; jobs that were over for long are forgotten."""
        self._orders.acknowledge(reports)
        if any(report.status.is_final for report in reports):
            with self._store.write() as transaction:
                forget_old_jobs(transaction, self.name, self._store.now(transaction))

    def take_announcements(self) -> Sequence[Node]:
        """Return what the job of the instance announced."""
        found, self._announced = self._announced, []
        return found

    def close(self) -> None:
        """Let connections go."""
        self._dagster.close()

    def _look_at_runs(self) -> None:
        with self._store.read() as transaction:
            jobs = list_jobs(transaction, self.name)
        if not jobs:
            return
        if not all(job.holder for job in jobs):
            with self._store.write() as transaction:
                take_jobs(transaction, self.name, _HOLDER, len(jobs))
        known = [job for job in jobs if job.run_id not in ("", _ASKED)]
        runs = self._dagster.read([job.run_id for job in known])
        for job in known:
            self._watch(job, runs.get(job.run_id))
        asked = [job for job in jobs if job.run_id == _ASKED]
        waiting = [*asked, *[job for job in jobs if not job.run_id][:AT_ONCE]]
        found = self._dagster.find([self._tags(job.key, (KEY_TAG,)) for job in waiting])
        for job, run in zip(waiting, found, strict=True):
            if run is not None:
                self._note(job.key, run.run_id)
                self._watch(replace(job, run_id=run.run_id), run)
            elif job.run_id == _ASKED and self._may_be_under_way(job.key):
                continue
            elif job.is_stop_requested:
                self._save(JobReport.of(job.key, ExecutionStatus.CANCELLED, "stopped before it began"), has_run=False)
            else:
                self._launch(job.key)

    def _may_be_under_way(self, key: JobKey) -> bool:
        now = time.monotonic()
        return now - self._asked_at.setdefault(key, now) < self._wait_s

    def _launch(self, key: JobKey) -> None:
        """Launch a job whose run was just looked for."""
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            # Before the launch: from here on an order to end the job waits until the run is found.
            body = begin_job(transaction, key, _HOLDER, _ASKED, now)
        if body is None:
            return  # ended meanwhile
        self._asked_at[key] = time.monotonic()
        try:
            run_id = self._dagster.launch(to_line(RunOrder(key, "", body)), self._tags(key))
        except UsageError as error:
            refused = replace(JobReport.of(key, ExecutionStatus.FAILED, str(error)), may_retry=False)
            self._save(refused, has_run=False)
            return
        log.info("executor %s has launched run %s of job %s", self.name, run_id, key)
        self._note(key, run_id)

    def _note(self, key: JobKey, run_id: str) -> None:
        """Keep the id of a job's run."""
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            begin_job(transaction, key, _HOLDER, run_id, now)
            save_report(transaction, JobReport.of(key, ExecutionStatus.ORCHESTRATED), _HOLDER, now)
        self._asked_at.pop(key, None)

    def _watch(self, job: WorkerJob, run: FoundRun | None) -> None:
        """Report what changed about a job's run, and ask it to end if that was ordered."""
        key = job.key
        if run is None:
            self._save(JobReport.of(key, ExecutionStatus.FAILED, f"its run {job.run_id} is gone from Dagster"))
        elif run.status in _FINISHED:
            self._save(_outcome(key, run))
        elif job.is_stop_requested:
            if run.status != "CANCELING":
                self._dagster.end(run.run_id, at_once=run.status == _NEVER_LAUNCHED)
        elif run.status == "STARTED" and key not in self._running:
            self._save(JobReport.of(key, ExecutionStatus.RUNNING))
            self._running.add(key)

    def _save(self, report: JobReport, *, has_run: bool = True) -> None:
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            if not has_run:
                begin_job(transaction, report.key, _HOLDER, "", now)
            save_report(transaction, report, _HOLDER, now)
        if report.status.is_final:
            self._asked_at.pop(report.key, None)
            self._running.discard(report.key)

    def _tags(self, key: JobKey, only: Sequence[str] = ()) -> dict[str, str]:
        """Return the tags of a job's run, or those of them that it is looked for by."""
        if not self._service:
            self._service = self._orders.store_name()
        tags = run_tags(key)
        return {name: tags[name] for name in only or tags} | {SERVICE_TAG: self._service}


def _outcome(key: JobKey, run: FoundRun) -> JobReport:
    """Return what became of a job: as its run says, or else by how Dagster ended the run."""
    if text := run.tags.get(OUTCOME_TAG):
        try:
            told = read_report(text)
        except ValueError as error:
            log.warning("run %s: %s", run.run_id, error)
        else:
            if told.key == key and told.status.is_final:
                return told
    status = _FINISHED[run.status]
    is_complete = status is ExecutionStatus.COMPLETE
    message = (
        "" if is_complete else f"its Dagster run {run.run_id} ended as {run.status} before the job did; see its log"
    )
    return JobReport.of(key, status, message)
