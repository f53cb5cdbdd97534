"""Compilers by name: `auto`, `identity`, `multi_hop`, or a user's own as `module:Class`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.compiler.multi_hop import MultiHopCompiler
from gobblin_dagster.service.compiler.routed_flow import is_routed
from gobblin_dagster.service.model import Dag, FlowConfig
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.service.topology.stored import StoredTopology
from gobblin_dagster.spec.project import ServiceSpec


class FlowCompiler(Protocol):
    """Makes jobs of flows.

    Called by the service for each flow that is posted, and again for each execution; in several threads at once. The
    same flow, templates and topology must give the same DAG, byte for byte. It should take milliseconds: a request
    waits for it.

    Source: gobblin-runtime `SpecCompiler`.
    """

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError with the reasons.

        Args:
            config: the flow.
            former: names of the jobs of its last execution. Of several ways, the one with the fewest other jobs is
                taken: another job has watermarks of its own, and would bring rows a second time.
        """

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        """Return the jobs and how they were found, or the reasons; raises nothing. Arguments as of `compile`."""


@dataclass(frozen=True, slots=True)
class CompilerContext:
    """What compilers get."""

    templates: TemplateCatalog
    topology: TopologyCatalog
    executors: Sequence[str]
    """Executors of flows that name their templates, the first one first."""
    allow: AllowLists
    """What jobs may use."""


class AutoCompiler:
    """Finds the way of a flow that names only its ends; makes the jobs of the others from their templates."""

    def __init__(self, context: CompilerContext) -> None:
        self._identity = _identity(context)
        self._multi_hop = _multi_hop(context)

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError."""
        return self._chosen(config).compile(config, former)

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        """Return the flow's jobs, or why it has none."""
        return self._chosen(config).explain(config, former)

    def _chosen(self, config: FlowConfig) -> FlowCompiler:
        return self._multi_hop if is_routed(config.properties, config.template_uris) else self._identity


def _identity(context: CompilerContext) -> IdentityCompiler:
    return IdentityCompiler(context.templates, context.executors, context.allow)


def _multi_hop(context: CompilerContext) -> MultiHopCompiler:
    return MultiHopCompiler(context.templates, lambda: context.topology.graph, context.allow)


COMPILERS: Mapping[str, Callable[[CompilerContext], FlowCompiler]] = {
    "auto": AutoCompiler,
    "identity": _identity,
    "multi_hop": _multi_hop,
}
"""Compilers of the service, by name."""


def make_compiler(name: str, context: CompilerContext) -> FlowCompiler:
    """Return a compiler by name; `module:Class` is called with the context.

    Raises:
        UsageError: there is no such compiler, or the project does not allow its module.
    """
    if name in COMPILERS:
        return COMPILERS[name](context)
    hint = f"Set `service: {{compiler: ...}}` to one of {', '.join(COMPILERS)}, or to `module:Class`."
    if ":" not in name:
        raise UsageError(problem=f"There is no compiler {name[:80]!r}.", hint=hint)
    if refused := context.allow.module_problem(name):
        raise UsageError(problem=f"The compiler {name[:80]!r}: {refused}.", hint=hint)
    try:
        made: FlowCompiler = load_target(name)(context)
    except ImportError as error:
        raise UsageError(problem=f"The compiler {name[:80]!r} cannot be imported: {error}.", hint=hint) from error
    return made


def open_compiler(
    root: Path, spec: ServiceSpec, executors: Sequence[str], allow: AllowLists, store: ServiceStore
) -> FlowCompiler:
    """Return the compiler of a project, for programs that work beside the service; raises as `make_compiler`.

    Args:
        root: the project.
        spec: the service.
        executors: as in `CompilerContext`.
        allow: what jobs may use.
        store: the service's store, which holds topology files too.
    """
    templates = TemplateCatalog(root / spec.templates)
    stored = StoredTopology(store, root / spec.topology, templates, allow, root)
    topology = TopologyCatalog(root / spec.topology, stored=stored)
    return make_compiler(spec.compiler, CompilerContext(templates, topology, executors, allow))
