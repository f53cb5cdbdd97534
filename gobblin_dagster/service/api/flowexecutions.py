"""The resources `/flowexecutions` and `/flowstatuses`: what became of flows.

Source: gobblin-restli `FlowExecutionResource`, `FlowStatusResource`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from gobblin_dagster.core.errors import FlowNotFoundError
from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.errors import BadRequest
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.messages import Answer, Request, collection, require_fields
from gobblin_dagster.service.api.records import event_document, execution_document
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId
from gobblin_dagster.service.orchestrator.orchestrator import Note, Orchestrator
from gobblin_dagster.service.security.access import Action
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import (
    Execution,
    flows_with_executions,
    list_executions,
    load_execution,
)
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.store import ServiceStore, Transaction

PART = 200
"""Executions that one part of an answer holds at most."""


class FlowExecutionsResource:
    """Answers requests about executions.

    Args:
        store: the service's store.
        orchestrator: kills and resumes.
        guard: decides who may.
    """

    def __init__(self, store: ServiceStore, orchestrator: Orchestrator, guard: Guard) -> None:
        self._store = store
        self._orchestrator = orchestrator
        self._guard = guard

    def get(self, request: Request) -> Answer:
        """GET one execution, with its jobs and issues."""
        execution_id = execution_of(request)
        self._guard.require(request, Action.READ, execution_id.flow)
        with self._store.read() as transaction:
            execution = load_execution(transaction, execution_id)
            if execution is None:
                raise _not_found(execution_id)
            document = execution_document(execution, load_jobs(transaction, execution_id))
        if request.segments[0] == "flowstatuses":
            document["issues"] = []
        return Answer(200, document)

    def delete(self, request: Request) -> Answer:
        """DELETE ends an execution."""
        execution_id = execution_of(request)
        self._guard.require(request, Action.KILL, execution_id.flow)
        self._orchestrator.kill(execution_id, self._note(request, Action.KILL, execution_id))
        return Answer()

    def action(self, request: Request, name: str) -> Answer:
        """POST an action on one execution: resume, killJob."""
        if name not in ("resume", "killJob"):
            raise BadRequest(f"There is no action {name[:40]!r}; actions: resume, killJob.")
        execution_id = execution_of(request)
        if name == "killJob":
            return self._kill_job(request, execution_id)
        self._guard.require(request, Action.RESUME, execution_id.flow)
        self._orchestrator.resume(execution_id, self._note(request, Action.RESUME, execution_id))
        return Answer()

    def _kill_job(self, request: Request, execution_id: ExecutionId) -> Answer:
        self._guard.require(request, Action.KILL, execution_id.flow)
        document = request.document()
        job = document.get("jobName") if isinstance(document, dict) else None
        if not isinstance(job, str):
            raise BadRequest('The body of killJob is {"jobName": "..."}, a job of the execution.')
        note = self._note(request, Action.KILL, execution_id, f", job {job[:100]}")
        self._orchestrator.kill_job(execution_id, job, note)
        return Answer()

    def _note(self, request: Request, action: Action, execution_id: ExecutionId, more: str = "") -> Note:
        """Return what leaves a row of the audit trail in the transaction of the change, so that none lacks one."""
        told = f"execution {execution_id.number}{more}"
        return lambda transaction: self._guard.note(transaction, request, action, execution_id.flow, told)

    def find(self, request: Request, name: str) -> Answer:
        """GET what a finder finds."""
        if name in ("latestFlowExecution", "latestFlowStatus"):
            return self._latest(request)
        if name == "latestFlowGroupExecutions":
            return self._latest_of_group(request)
        if name == "events":
            return self._events(request)
        raise BadRequest(
            f"There is no finder {name[:40]!r}; finders: latestFlowExecution, latestFlowGroupExecutions, events."
        )

    def _latest(self, request: Request) -> Answer:
        flow = request.flow_parameter()
        self._guard.require(request, Action.READ, flow)
        count = restli.int_parameter(request.parameters, "count", 1, least=1)
        parts = self._newest(request, [flow], count, _status_parameter(request))
        first = next(parts)
        if not first:
            raise FlowNotFoundError(problem=f"No flow execution found for flowId {flow}. The flowId may be incorrect.")
        return _in_parts(request, first, parts)

    def _latest_of_group(self, request: Request) -> Answer:
        group = request.text("flowGroup")
        if group is None:
            raise BadRequest("Parameter 'flowGroup' is required")
        self._guard.require(request, Action.READ, None)
        count = restli.int_parameter(request.parameters, "countPerFlow", 1, least=1)
        with self._store.read() as transaction:
            flows = flows_with_executions(transaction, group)
        parts = self._newest(request, flows, count)
        return _in_parts(request, next(parts, []), parts)

    def _newest(
        self, request: Request, flows: Iterable[FlowId], count: int, status: ExecutionStatus | None = None
    ) -> Iterator[list[dict[str, object]]]:
        """Yield the newest executions of flows, newest first, in parts of at most `PART`.

        Each part is read in a transaction of its own, whenever it is asked for.
        """
        left = deque[tuple[FlowId, int, int | None]]((flow, count, None) for flow in flows)
        while left:
            part: list[dict[str, object]] = []
            with self._store.read() as transaction:
                while left and len(part) < PART:
                    flow, wanted, before = left.popleft()
                    asked = min(wanted, PART - len(part))
                    found = list_executions(transaction, flow, asked, status, before)
                    part += [self._document(transaction, request, one) for one in found]
                    if len(found) == asked < wanted:
                        left.appendleft((flow, wanted - asked, found[-1].id.number))
            yield part

    def _events(self, request: Request) -> Answer:
        flow = request.flow_parameter()
        self._guard.require(request, Action.READ, flow)
        number = _number(request.text("flowExecutionId") or "")
        after = restli.int_parameter(request.parameters, "after", 0)
        with self._store.read() as transaction:
            found = list_events(transaction, ExecutionId(flow, number), after)
        elements = [event_document(event) for event in found]
        return collection(elements, request.path, request.query, 0, None, more=False)

    def _document(self, transaction: Transaction, request: Request, execution: Execution) -> dict[str, object]:
        document = execution_document(execution, load_jobs(transaction, execution.id), request.text("tag"))
        if not restli.bool_parameter(request.parameters, "includeIssues"):
            document["issues"] = []
        return document


def execution_of(request: Request) -> ExecutionId:
    """Return the execution that the key names; raises BadRequest."""
    names = ("flowGroup", "flowName", "flowExecutionId")
    group, name, number = require_fields(request.key(), names, f"/{request.segments[0]}")
    return ExecutionId(FlowId(group, name), _number(number))


def _in_parts(request: Request, first: list[dict[str, object]], parts: Iterator[list[dict[str, object]]]) -> Answer:
    """Return a collection whose first part is read; if there is a second one, it is sent while others are read."""
    answer = collection(first, request.path, request.query, 0, None, more=False)
    second = next(parts, None)
    return answer if second is None else replace(answer, more=chain([second], parts))


def _number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise BadRequest(f"flowExecutionId takes a number, epoch milliseconds, got {text[:40]!r}.")
    return int(text)


def _status_parameter(request: Request) -> ExecutionStatus | None:
    text = request.text("executionStatus")
    if text is not None and text not in list(ExecutionStatus):
        raise BadRequest(f"executionStatus takes one of {', '.join(ExecutionStatus)}, got {text[:40]!r}.")
    return None if text is None else ExecutionStatus(text)


def _not_found(execution: ExecutionId) -> FlowNotFoundError:
    return FlowNotFoundError(
        problem=f"No flow execution found for flowId {execution.flow}, flowExecutionId {execution.number}."
    )
