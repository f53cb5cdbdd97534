"""Reads from the copy of the database: what it holds is answered and marked, what it may lack is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.service.api.messages import Answer, Request
from gobblin_dagster.service.api.replica_reads import ReplicaReads
from gobblin_dagster.service.security.access import OWNER
from gobblin_dagster.service.store.replica import Replica
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, OwnClock, flow

CASES = [
    ("/flowconfigsV2", "", True),
    ("/flowconfigs/(flowGroup:g,flowName:n)", "", True),
    ("/flowconfigsV2", "q=filterFlows&flowGroup=g", True),
    ("/flowconfigsV2", "q=history&flowId=(flowGroup:g,flowName:n)", True),
    ("/flowdatasets/(flowGroup:g,flowName:n)", "", False),
    ("/flowtemplates", "", False),
    ("/flowexecutions", "q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)", True),
    ("/flowexecutions", "q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)&count=10", True),
    ("/flowexecutions", "q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)&count=11", False),
    ("/flowexecutions", "q=latestFlowExecution&flowId=(flowGroup:g,flowName:n)&executionStatus=FAILED", False),
    ("/flowexecutions", "q=latestFlowExecution&flowId=(flowGroup:g,flowName:other)", False),
    ("/flowexecutions", "q=latestFlowGroupExecutions&flowGroup=g", True),
    ("/flowexecutions", "q=latestFlowGroupExecutions&flowGroup=g&countPerFlow=10", True),
    ("/flowexecutions", "q=latestFlowGroupExecutions&flowGroup=g&countPerFlow=11", False),
    ("/flowexecutions", "q=latestFlowGroupExecutions", False),
    ("/flowexecutions", "q=events&flowId=(flowGroup:g,flowName:n)&flowExecutionId=NUMBER", True),
    ("/flowexecutions", "q=events&flowId=(flowGroup:g,flowName:n)&flowExecutionId=5", False),
    ("/flowexecutions", "q=events&flowId=(flowGroup:g,flowName:n)&flowExecutionId=x", False),
    ("/flowexecutions/(flowExecutionId:NUMBER,flowGroup:g,flowName:n)", "", True),
    ("/flowstatuses/(flowExecutionId:NUMBER,flowGroup:g,flowName:n)", "", True),
    ("/flowstatuses/(flowExecutionId:7,flowGroup:g,flowName:n)", "", False),
    ("/flowexecutions", "", False),
]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_copy_answers_what_it_holds_whole(store: ServiceStore, create: Create, clock: OwnClock, tmp_path: Path) -> None:
    number = create(flow())
    replica = Replica(store, tmp_path, clock)
    reads = ReplicaReads(replica, lambda request: Answer(200, {"path": request.path}))

    def ask(path: str, query: str) -> Answer | None:
        path, query = (text.replace("NUMBER", str(number)) for text in (path, query))
        return reads.find(Request("GET", path, query, {"x-restli-protocol-version": "2.0.0"}, b"", OWNER))

    assert ask("/flowconfigsV2", "") is None, "nothing is copied yet"
    replica.follow()
    for path, query, is_held in CASES:
        answer = ask(path, query)
        assert (answer is not None) == is_held, (path, query)
        if answer is not None:
            assert (answer.headers["Age"], answer.headers["Warning"]) == ("0", '110 - "Response is Stale"')
    replica.close()
