"""The jobs under whose names a flow keeps its state: those of its newest version, and those that its executions had."""

from __future__ import annotations

from collections.abc import Callable

from gobblin_dagster.core.errors import FlowCompileError, FlowNotFoundError
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId
from gobblin_dagster.service.store.flow_rows import newest_version
from gobblin_dagster.service.store.job_rows import jobs_that_ran
from gobblin_dagster.service.store.store import ServiceStore


def flow_jobs(store: ServiceStore, compile_flow: Callable[[FlowConfig], Dag], flow: FlowId) -> list[DagJob]:
    """Return the jobs of a flow, also of one that was deleted: its newest version's first, then earlier ones.

    A flow whose template is gone has the jobs that ran.

    Raises:
        FlowNotFoundError: there never was such a flow.
    """
    with store.read() as transaction:
        newest = newest_version(transaction, flow)
        ran = jobs_that_ran(transaction, flow)
    if newest is None:
        raise FlowNotFoundError(problem=f"Flow requested does not exist: {flow}")
    try:
        found = list(compile_flow(newest.config).jobs)
    except FlowCompileError:
        found = []
    names = {job.name for job in found}
    return [*found, *(job for job in ran if job.name not in names)]
