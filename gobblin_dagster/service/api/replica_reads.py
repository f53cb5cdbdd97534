"""Answers to GET from this node's copy of the database, if the copy holds all that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.flowexecutions import execution_of
from gobblin_dagster.service.api.messages import STALE, Answer, Request
from gobblin_dagster.service.model import ExecutionId
from gobblin_dagster.service.store.replica import NEWEST, Replica


class ReplicaReads:
    """Answers requests about flows and their versions, and about the newest executions of each.

    Args:
        replica: the copy.
        answer: answers a request from the copy; raises as the resources do.
    """

    def __init__(self, replica: Replica, answer: Callable[[Request], Answer]) -> None:
        self._replica = replica
        self._answer = answer

    def find(self, request: Request) -> Answer | None:
        """Return the answer, marked as stale; None if the copy may lack something of it.

        What the copy does not hold is not said to be missing: another node may have stored it just before.
        """
        if not self._holds(request):
            return None
        answer = self._answer(request)
        headers: Mapping[str, str] = {"Age": str(int(self._replica.age_s)), "Warning": STALE}
        return replace(answer, headers={**answer.headers, **headers})

    def _holds(self, request: Request) -> bool:
        resource, finder = request.segments[0], request.text("q")
        if resource in ("flowconfigs", "flowconfigsV2"):
            return self._replica.has_flows and finder in (None, "filterFlows", "history")
        if resource not in ("flowexecutions", "flowstatuses"):
            return False
        if finder in ("latestFlowExecution", "latestFlowStatus"):
            count = restli.int_parameter(request.parameters, "count", 1, least=1)
            is_plain = request.text("executionStatus") is None and count <= NEWEST
            return is_plain and self._replica.has_executions(request.flow_parameter())
        if finder == "latestFlowGroupExecutions":
            group = request.text("flowGroup")
            count = restli.int_parameter(request.parameters, "countPerFlow", 1, least=1)
            return group is not None and count <= NEWEST and self._replica.has_group(group)
        if finder == "events":
            number = request.text("flowExecutionId") or ""
            execution = ExecutionId(request.flow_parameter(), int(number) if number.isdecimal() else -1)
            return self._replica.holds(execution)
        return finder is None and len(request.segments) == 2 and self._replica.holds(execution_of(request))
