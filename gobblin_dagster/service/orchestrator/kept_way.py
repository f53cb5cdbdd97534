"""Compile an execution of a routed flow so that it keeps the way of the flow's last execution."""

from __future__ import annotations

from collections.abc import Callable

from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.compiler.routed_flow import is_routed, read_routed_flow
from gobblin_dagster.service.model import Dag, FlowConfig
from gobblin_dagster.service.store.execution_rows import Execution, last_with_jobs, load_jobs
from gobblin_dagster.service.store.flow_rows import load_version
from gobblin_dagster.service.store.store import Transaction


def compile_keeping_way(
    transaction: Transaction,
    execution: Execution,
    config: FlowConfig,
    settings: FlowSettings,
    compile_flow: Callable[..., Dag],
) -> Dag:
    """Compile a flow so that it goes on where its last execution ended.

    A way through other edges has jobs with watermarks of their own, which would publish rows again that the former
    ones have brought. So a flow keeps its way as long as there is one, and takes another one only if it says so,
    or if it was changed to lead elsewhere.

    Args:
        transaction: open for reading.
        execution: the execution whose turn has come.
        config: the flow, in the version that runs.
        settings: those of the flow.
        compile_flow: as `FlowCompiler.compile`.

    Raises:
        FlowCompileError: the flow does not compile, or its way is gone and it may not take another one.
    """
    former = _former_jobs(transaction, execution) if is_routed(config.properties, config.template_uris) else None
    if former is None:
        return compile_flow(config)
    before, names = former
    dag = compile_flow(config, names)
    new = [job.name for job in dag.jobs if job.name not in names]
    is_same = read_routed_flow(before.properties)[0] == read_routed_flow(config.properties)[0]
    if new and is_same and not settings.may_change_edges:
        reason = (
            f"its way is gone, and the next one has other jobs ({', '.join(new)}), whose watermarks begin again: "
            "rows that are there already may come again. Say where they begin (`gobblin flow startpoint`) and set "
            "flow.mayChangeEdges=true, or bring the way back"
        )
        raise FlowCompileError(flow=str(config.id), reasons=(reason,), is_without_way=True)
    return dag


def _former_jobs(transaction: Transaction, execution: Execution) -> tuple[FlowConfig, set[str]] | None:
    """Return the flow as it was in the last execution that had jobs, and the names of these jobs."""
    last = last_with_jobs(transaction, execution.id)
    spec = None if last is None else load_version(transaction, execution.id.flow, last.version)
    if last is None or spec is None:
        return None
    return spec.config, {one.job.name for one in load_jobs(transaction, last.id)}
