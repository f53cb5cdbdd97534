"""Compile a routed flow so that it keeps the way that its jobs took last, in its own executions or in those of others.

A way through other edges has jobs with watermarks of their own, which would publish rows again that the former ones
have brought. So a flow keeps its way as long as there is one, and takes another one only if it says so, or if it was
changed to lead elsewhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.compiler.routed_flow import is_routed, read_routed_flow
from gobblin_dagster.service.model import Dag, ExecutionId, FlowConfig, FlowId, TakenWay
from gobblin_dagster.service.store.execution_rows import last_with_jobs
from gobblin_dagster.service.store.flow_rows import load_version
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.way_rows import load_way, save_way
from gobblin_dagster.service.topology.model import ANY, Dataset


def compile_keeping_way(config: FlowConfig, former: TakenWay | None, compile_flow: Callable[..., Dag]) -> Dag:
    """Compile a flow so that it goes on where its jobs ended.

    Args:
        config: the flow, in the version that runs.
        former: the way that its jobs took last (`former_way`).
        compile_flow: as `FlowCompiler.compile`.

    Raises:
        FlowCompileError: the flow does not compile, or its way is gone and it may not take another one.
    """
    if former is None or not is_routed(config.properties, config.template_uris):
        return compile_flow(config)
    dag = compile_flow(config, former.jobs)
    if reason := lost_way(config, former, dag):
        raise FlowCompileError(flow=str(config.id), reasons=(reason,), is_without_way=True)
    return dag


def lost_way(config: FlowConfig, former: TakenWay, dag: Dag) -> str:
    """Return why a flow must not take the way that it has now; empty if it may.

    Args:
        config: the flow.
        former: the way that its jobs took last.
        dag: its jobs now.
    """
    new = [job.name for job in dag.jobs if job.name not in former.jobs]
    is_same = former.route == route_of(config)
    if not new or not is_same or FlowSettings.stored(config.properties).may_change_edges:
        return ""
    return (
        f"its way is gone, and the next one has other jobs ({', '.join(new)}), whose watermarks begin again: "
        "rows that are there already may come again. Say where they begin (`gobblin flow startpoint`) and set "
        "flow.mayChangeEdges=true, or bring the way back"
    )


def former_way(transaction: Transaction, flow: FlowId, before: int = sys.maxsize) -> TakenWay | None:
    """Return the way that the jobs of a routed flow took last; None if they never ran.

    Args:
        transaction: open.
        flow: the flow.
        before: number of the execution that is to begin.
    """
    if (kept := load_way(transaction, flow)) is not None:
        return kept
    # Programs before revision 0011 kept no ways: that of the flow's last own execution counts.
    last = last_with_jobs(transaction, ExecutionId(flow, before))
    spec = None if last is None else load_version(transaction, flow, last.version)
    if last is None or spec is None:
        return None
    return TakenWay(flow, route_of(spec.config), frozenset(one.job.name for one in load_jobs(transaction, last.id)))


def save_ways(transaction: Transaction, config: FlowConfig, dag: Dag) -> None:
    """Note the ways that an execution takes: that of its flow, and those of its children."""
    if is_routed(config.properties, config.template_uris):
        save_way(transaction, taken_way(config, dag))
    for way in dag.ways:
        save_way(transaction, way)


def taken_way(config: FlowConfig, dag: Dag) -> TakenWay:
    """Return the way that a routed flow takes with its jobs."""
    return TakenWay(config.id, route_of(config), frozenset(job.name for job in dag.jobs))


def route_of(config: FlowConfig) -> str:
    """Return what a flow says of its way, as a text that is stored and compared; what it leaves open is not in it."""
    flow = read_routed_flow(config.properties)[0]
    said = {one.name: _said(getattr(flow, one.name)) for one in fields(flow)}
    return json.dumps({name: one for name, one in said.items() if one}, default=sorted)


def _said(value: Any) -> Any:
    if isinstance(value, Dataset):
        return {name: one for name, one in value._asdict().items() if one != ANY}
    return value
