"""ExecutorCompiler: the jobs of a flow run on the executor that the flow asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.service.catalog.flow_config import ExecutorName, FlowSettings
from gobblin_dagster.service.compiler.compilers import FlowCompiler, open_compiler
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.model import Dag, FlowConfig
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.project import ServiceSpec


class ExecutorCompiler:
    """Compiles a flow for the executor that its property `flow.executor` names.

    A flow that is routed through the topology has the executors of its edges.

    Args:
        make: returns a compiler whose jobs run on the first of some executors.
    """

    def __init__(self, make: Callable[[Sequence[str]], FlowCompiler]) -> None:
        self._compilers = {name: make([name.value]) for name in ExecutorName}

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError."""
        return self._of(config).compile(config, former)

    def explain(self, config: FlowConfig) -> Explanation:
        """Return the flow's jobs, or why it has none."""
        return self._of(config).explain(config)

    def _of(self, config: FlowConfig) -> FlowCompiler:
        return self._compilers[FlowSettings.stored(config.properties).executor]


def open_flow_compiler(root: Path, spec: ServiceSpec, allow: AllowLists, store: ServiceStore) -> ExecutorCompiler:
    """Return the compiler of a project's service, for programs that work beside it and have its store open.

    Raises:
        UsageError: the project names a compiler that there is not.
    """
    return ExecutorCompiler(lambda executors: open_compiler(root, spec, executors, allow, store))
