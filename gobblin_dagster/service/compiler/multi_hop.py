"""The multi-hop compiler: a flow names a source, destinations and a dataset; each hop of the way becomes one job.

A pure function of the flow, the templates and the topology: compiled twice, the same DAG comes out, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.service.catalog.templates import Template, TemplateCatalog, TemplateError, missing_and_unknown
from gobblin_dagster.service.compiler.explanation import Explanation, Hop, Refusal, Way
from gobblin_dagster.service.compiler.jobs import fill_job, job_name, parameter_values, undeclared
from gobblin_dagster.service.compiler.routed_flow import RoutedFlow, read_routed_flow
from gobblin_dagster.service.compiler.ways import Found, Quest, Step, find_ways, follow_path
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId
from gobblin_dagster.service.topology.graph import FlowGraph
from gobblin_dagster.service.topology.model import ANY, Dataset


class MultiHopCompiler:
    """Finds the cheapest way through the topology and makes a job of each hop.

    Args:
        templates: where the templates of edges come from.
        graph: returns the topology as it is now.
        allow: what jobs may use; default: everything.

    Source: gobblin-service `MultiHopFlowCompiler`. Differs: hops that ways to several destinations share are one job,
        so that no row is brought to a place between them twice; a flow sets declared parameters and nothing else.
    """

    def __init__(
        self, templates: TemplateCatalog, graph: Callable[[], FlowGraph], allow: AllowLists = EVERYTHING
    ) -> None:
        self._templates = templates
        self._graph = graph
        self._allow = allow

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError with the most useful reasons."""
        return self.explain(config, former).require_dag(config.id)

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        """Return the flow's ways and jobs, or the reasons why it has none, and all refused edges."""
        flow, reasons = read_routed_flow(config.properties)
        if config.template_uris.strip():
            reasons.append("the flow names templates and a source; the templates of its edges make its jobs")
        if reasons:
            return Explanation(None, tuple(reasons))
        graph = self._graph()
        if not graph.nodes:
            reason = "the project describes no topology; `gobblin topology check` says what is wrong with it"
            return Explanation(None, (reason,), is_without_way=True)
        making = _Making(config, graph, self._templates, self._allow)
        refused: dict[str, Refusal] = {}
        ways: list[Way] = []
        for sub_path, dataset in flow.parts:
            found = _find(graph, flow, dataset, _former_edges(graph, config.id, sub_path, former))
            reasons += found.reasons
            for refusal in found.refused:
                refused.setdefault(refusal.edge, refusal)
            for destination, steps in found.ways.items():
                ways.append(
                    Way(destination, tuple(making.hop(flow, sub_path, steps, at) for at in range(len(steps))), sub_path)
                )
        is_without_way = bool(reasons)
        reasons = reasons or making.reasons()
        dag = None if reasons else Dag(tuple(making.jobs.values()))
        told = tuple(dict.fromkeys(reasons))
        return Explanation(dag, told, tuple(ways), tuple(refused.values()), is_without_way)


def _find(graph: FlowGraph, flow: RoutedFlow, dataset: Dataset, former: frozenset[str]) -> Found:
    quest = Quest(flow.source, flow.destinations, dataset, flow.wanted, flow.excluded, former)
    return follow_path(graph, quest, flow.path) if flow.path else find_ways(graph, quest)


def _former_edges(graph: FlowGraph, flow: FlowId, sub_path: str, former: Collection[str]) -> frozenset[str]:
    """Return the edges that had a job of the flow."""
    if not former:
        return frozenset()
    return frozenset(edge for edge in graph.edges if job_name(flow, *_parts(edge, sub_path)) in former)


def _parts(edge: str, sub_path: str) -> list[str]:
    return [edge, *([sub_path] if sub_path else [])]


_Key = tuple[str, str, Dataset]
"""Edge, sub-path and the dataset before the edge: what makes two hops one job."""


@dataclass(slots=True)
class _Making:
    """The jobs of a flow so far, and what is wrong with them."""

    config: FlowConfig
    graph: FlowGraph
    templates: TemplateCatalog
    allow: AllowLists
    jobs: dict[str, DagJob] = field(default_factory=dict)
    _names: dict[_Key, str] = field(default_factory=dict)
    _faults: list[str] = field(default_factory=list)
    _declared: set[str] = field(default_factory=set)
    _is_filled: bool = True
    """Whether each hop's template could be read, so that all parameters are known."""

    def hop(self, flow: RoutedFlow, sub_path: str, steps: Sequence[Step], at: int) -> Hop:
        """Return a hop of a way, with its job."""
        step = steps[at]
        parent = self._names[_key(sub_path, steps[at - 1])] if at else ""
        key = _key(sub_path, step)
        if key not in self._names:
            self._names[key] = self._name(sub_path, step)
            self._make(flow, sub_path, step, self._names[key], (parent,) if parent else ())
        spec = step.edge.spec
        return Hop(step.edge.name, spec.source, spec.destination, self._queue(step), spec.cost, self._names[key])

    def reasons(self) -> list[str]:
        """Return what is wrong with the jobs."""
        unknown = undeclared(self._declared, parameter_values(self.config)) if self._is_filled else []
        return [*dict.fromkeys(self._faults), *unknown]

    def _queue(self, step: Step) -> str:
        return self.graph.executors[step.edge.executor].queue(step.edge.executor)

    def _name(self, sub_path: str, step: Step) -> str:
        """Return a job's name; it stays when the way before the hop changes, so that watermarks stay too."""
        parts = _parts(step.edge.name, sub_path)
        name = job_name(self.config.id, *parts)
        if name in self._names.values():  # another destination brings the dataset here in another form
            name = job_name(self.config.id, *parts, repr(step.before))
        return name

    def _make(self, flow: RoutedFlow, sub_path: str, step: Step, name: str, parents: tuple[str, ...]) -> None:
        edge = step.edge
        try:
            template = self.templates.load(edge.spec.template)
        except TemplateError as error:
            self._is_filled = False
            self._faults.append(f"edge {edge.name!r}: {error}")
            return
        operators = self.graph.operators_values(edge.spec)
        template = template.with_values(operators)
        settable = set(template.spec.parameters) - set(operators)
        self._declared |= settable
        values = {**parameter_values(self.config), **_dataset_values(flow, sub_path, step)}
        own = {key: value for key, value in values.items() if key in settable}
        faults = list(_missing(self.graph, step, template, own))
        if not faults:
            takes_keys = self.graph.executors[edge.executor].takes_keys
            job, faults = fill_job(
                self.config, name, template, own, self._queue(step), parents, self.allow, takes_keys=takes_keys
            )
            if job is not None:
                self.jobs[name] = job
        self._faults += [f"edge {edge.name!r}: {fault}" for fault in faults]


def _key(sub_path: str, step: Step) -> _Key:
    return step.edge.name, sub_path, step.before


def _dataset_values(flow: RoutedFlow, sub_path: str, step: Step) -> dict[str, str]:
    """Return what is known of the dataset at this hop: `dataset.*`, `input.*` and `output.*`; `any` is not set."""
    found = {
        **{f"input.{name}": value for name, value in step.before._asdict().items()},
        **{f"output.{name}": value for name, value in step.after._asdict().items()},
        "dataset.path": step.before.path,
        "dataset.subPaths": ",".join([sub_path] if sub_path else flow.sub_paths) or ANY,
    }
    return {name: value for name, value in found.items() if value != ANY}


def _missing(graph: FlowGraph, step: Step, template: Template, values: Mapping[str, str]) -> list[str]:
    """Return an error for each parameter that has no value or a wrong one: the key, the template, the line."""
    spec = step.edge.spec
    ends = {"source": spec.source, "destination": spec.destination}
    faults = []
    for name, parameter in template.spec.parameters.items():
        end, _, key = name.partition(".")
        if end in ends and parameter.default is None:
            has = ", ".join(sorted(graph.nodes[ends[end]].properties)) or "none"
            told = f"${{{name}}} in {template.place(name)} has no value: node {ends[end]!r} has no property {key!r}"
            faults.append(f"{told}; it has: {has}")
    known = {name: one for name, one in template.spec.parameters.items() if name.partition(".")[0] not in ends}
    others = template.spec.model_copy(update={"parameters": known})
    return faults + list(missing_and_unknown(others, values, template.place))
