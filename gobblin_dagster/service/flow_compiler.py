"""ExecutorCompiler: the jobs of a flow run on the executor that the flow asks for; those of its children on theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.service.catalog.flow_config import ExecutorName, FlowSettings
from gobblin_dagster.service.compiler.children import ChildrenCompiler, has_children
from gobblin_dagster.service.compiler.compilers import FlowCompiler, open_compiler
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.kept_way import former_way, lost_way, taken_way
from gobblin_dagster.service.compiler.routed_flow import is_routed
from gobblin_dagster.service.model import Dag, FlowConfig, FlowId, FlowSpec
from gobblin_dagster.service.store.flow_rows import load_flow
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.project import ServiceSpec


class ExecutorCompiler:
    """Compiles a flow for the executor that its property `flow.executor` names.

    A flow that is routed through the topology has the executors of its edges.

    Args:
        make: returns a compiler whose jobs run on the first of some executors.
        store: has the flows that others name as children.
    """

    def __init__(self, make: Callable[[Sequence[str]], FlowCompiler], store: ServiceStore) -> None:
        self._compilers = {name: make([name.value]) for name in ExecutorName}
        self._store = store
        self._children = ChildrenCompiler(self._explain, self._find)

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError."""
        if has_children(config.properties):
            return self._children.explain(config).require_dag(config.id)
        return self._of(config).compile(config, former)

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        """Return the flow's jobs, or why it has none; it knows the former ones by itself."""
        if has_children(config.properties):
            return self._children.explain(config)
        return self._explain(config)

    def _explain(self, config: FlowConfig) -> Explanation:
        """Return the jobs of a flow without children; they take the way that they took last, whoever ran them."""
        compiler = self._of(config)
        if not is_routed(config.properties, config.template_uris):
            return compiler.explain(config)
        with self._store.read() as transaction:
            former = former_way(transaction, config.id)
        found = compiler.explain(config) if former is None else compiler.explain(config, former.jobs)
        if found.dag is None:
            return found
        if former is not None and (reason := lost_way(config, former, found.dag)):
            return replace(found, dag=None, reasons=(reason,), is_without_way=True)
        return replace(found, dag=replace(found.dag, ways=(taken_way(config, found.dag),)))

    def _find(self, flow: FlowId) -> FlowSpec | None:
        with self._store.read() as transaction:
            return load_flow(transaction, flow)

    def _of(self, config: FlowConfig) -> FlowCompiler:
        return self._compilers[FlowSettings.stored(config.properties).executor]


def open_flow_compiler(root: Path, spec: ServiceSpec, allow: AllowLists, store: ServiceStore) -> ExecutorCompiler:
    """Return the compiler of a project's service, for programs that work beside it and have its store open.

    Raises:
        UsageError: the project names a compiler that there is not.
    """
    return ExecutorCompiler(lambda executors: open_compiler(root, spec, executors, allow, store), store)
