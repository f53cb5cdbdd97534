"""A flow of flows: its jobs are the jobs of other flows of the catalog, its children, as one DAG.

A child's jobs are those that it has when it runs by itself, with the same names, so that both share watermarks and
leases. Children run side by side, or after others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from gobblin_dagster.service.catalog.flow_config import EXECUTOR, MAX_ATTEMPTS, START_DEADLINE
from gobblin_dagster.service.compiler.explanation import Explanation, Refusal, Way
from gobblin_dagster.service.compiler.jobs import parameter_values, undeclared
from gobblin_dagster.service.compiler.routed_flow import is_routed
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId, FlowSpec, TakenWay
from gobblin_dagster.spec.explain import nearest

CHILDREN = "flow.children"
"""Property with the children, as GROUP/NAME, with commas between them."""
AFTER = "flow.child.after."
"""Properties with the children that must be complete before another one begin so; its GROUP/NAME follows."""
MAX_CHILDREN = 100
MAX_JOBS = 1_000
"""Jobs of all children together at most."""


def has_children(properties: Mapping[str, str]) -> bool:
    """Tell whether a flow is one of flows."""
    return CHILDREN in properties


def read_children(properties: Mapping[str, str]) -> tuple[dict[FlowId, tuple[FlowId, ...]], list[str]]:
    """Return the children that each child comes after, in the order of the flow, and all that is wrong with them."""
    reasons: list[str] = []
    children = _flows(properties, CHILDREN, reasons)
    if not children:
        reasons.append(f"{CHILDREN} names no flow; write GROUP/NAME, with commas between several")
    after: dict[FlowId, tuple[FlowId, ...]] = dict.fromkeys(children, ())
    known = {str(child): child for child in children}
    for key in properties:
        name = key.removeprefix(AFTER)
        if not key.startswith(AFTER):
            continue
        before = _flows(properties, key, reasons)
        for one in (name, *map(str, before)):
            if one not in known:
                reasons.append(f"{key}: {one[:80]!r} is not among {CHILDREN}; {nearest(one, known)}")
        if name in known:
            after[known[name]] = tuple(one for one in before if one in after)
    return after, reasons


def _flows(properties: Mapping[str, str], key: str, reasons: list[str]) -> list[FlowId]:
    names = [name.strip() for name in properties[key].split(",") if name.strip()]
    if len(names) > MAX_CHILDREN:
        reasons.append(f"{key} has {len(names)} names; at most {MAX_CHILDREN} are allowed")
        return []
    reasons += [f"{key}: {one[:80]!r} names no flow; write GROUP/NAME" for one in names if not all(_parts(one))]
    return list(dict.fromkeys(FlowId(*_parts(one)) for one in names if all(_parts(one))))


def _parts(text: str) -> tuple[str, str]:
    group, _, name = text.partition("/")
    return group, name


class ChildrenCompiler:
    """Makes one DAG of the jobs of a flow's children, and of their children.

    Args:
        explain: tells the jobs of a flow that has no children.
        find: returns a flow of the catalog in its newest version; None if there is none.

    Source: gobblin-runtime `FlowSpec.getChildSpecs`. Differs: children are named, not held, and run as one DAG.
    """

    def __init__(self, explain: Callable[[FlowConfig], Explanation], find: Callable[[FlowId], FlowSpec | None]) -> None:
        self._explain = explain
        self._find = find

    def explain(self, config: FlowConfig) -> Explanation:
        """Return the jobs of all children, or all reasons why there are none.

        A child that is not there, or has no way, is no fault of the flow: it may be there later.
        """
        making = _Making(self._explain, self._find)
        making.add(config, (config.id,), ())
        if len(making.jobs) > MAX_JOBS:
            making.faults.append(f"the children have {len(making.jobs)} jobs; at most {MAX_JOBS} are allowed")
        reasons = tuple(dict.fromkeys([*making.faults, *making.missing]))
        dag = None if reasons else Dag(tuple(making.jobs), ways=tuple(making.taken))
        is_without_way = bool(reasons) and not making.faults
        return Explanation(dag, reasons, tuple(making.ways), tuple(making.refused), is_without_way)


@dataclass(slots=True)
class _Making:
    """The jobs of a flow of flows so far, and what is wrong with it."""

    explain: Callable[[FlowConfig], Explanation]
    find: Callable[[FlowId], FlowSpec | None]
    jobs: list[DagJob] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    taken: list[TakenWay] = field(default_factory=list)
    """The ways that executions of the children keep."""
    refused: list[Refusal] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What is not there now."""
    _seen: set[FlowId] = field(default_factory=set)

    def add(self, config: FlowConfig, path: tuple[FlowId, ...], before: Sequence[str]) -> list[str]:
        """Add the jobs of a flow's children, and return those that end it.

        Args:
            config: a flow with children.
            path: the flow, behind those whose child it is.
            before: jobs that must be complete before any of its own begins.
        """
        after, reasons = read_children(config.properties)
        if config.template_uris.strip() or is_routed(config.properties):
            reasons.append(f"a flow with {CHILDREN} names neither templates nor a source or destination of its own")
        reasons += [f"{key} is for flows with jobs of their own: set it in the children" for key in _of_jobs(config)]
        reasons += undeclared(set(), parameter_values(config))
        try:
            order = list(TopologicalSorter(after).static_order())
        except CycleError as error:
            circle = " -> ".join(map(str, error.args[1]))
            reasons.append(f"children come after each other: {circle}")
        self.faults += [f"{_shown(path)}{reason}" for reason in reasons]
        if reasons:
            return []
        ends: dict[FlowId, list[str]] = {}
        for child in order:
            first = [job for one in after[child] for job in ends[one]]
            ends[child] = self._add_child(child, path, first or before)
        inner = {one for several in after.values() for one in several}
        return [job for child in order if child not in inner for job in ends[child]]

    def _add_child(self, child: FlowId, path: tuple[FlowId, ...], before: Sequence[str]) -> list[str]:
        """Add the jobs of a child, and return those that end it."""
        found = None if child in path else self.find(child)
        if child in path:
            circle = " -> ".join(map(str, (*path[path.index(child) :], child)))
            self.faults.append(f"{_shown(path)}flow {child} is a child of itself: {circle}")
        elif child in self._seen:
            self.faults.append(f"{_shown(path)}flow {child} is a child twice; its jobs can run once in an execution")
        elif found is None:
            self.missing.append(f"{_shown(path)}there is no flow {child}")
        elif has_children(found.config.properties):
            self._seen.add(child)
            return self.add(found.config, (*path, child), before)
        else:
            return self._add_jobs(found, path, before)
        self._seen.add(child)
        return []

    def _add_jobs(self, child: FlowSpec, path: tuple[FlowId, ...], before: Sequence[str]) -> list[str]:
        self._seen.add(child.id)
        found = self.explain(child.config)
        told = [f"{_shown(path)}child {child.id}: {reason}" for reason in found.reasons]
        (self.missing if found.is_without_way else self.faults).extend(told)
        self.ways += found.ways
        self.refused += found.refused
        jobs = () if found.dag is None else found.dag.jobs
        self.taken += () if found.dag is None else found.dag.ways
        whose = (child.id, child.version)
        self.jobs += [replace(job, parents=job.parents or tuple(before), child=whose) for job in jobs]
        inner = {parent for job in jobs for parent in job.parents}
        return [job.name for job in jobs if job.name not in inner]


def _of_jobs(config: FlowConfig) -> list[str]:
    """Return the settings of a flow that are about its own jobs."""
    return [key for key in config.properties if key in (EXECUTOR, MAX_ATTEMPTS) or key.startswith(f"{START_DEADLINE}.")]


def _shown(path: Sequence[FlowId]) -> str:
    """Return whose child is spoken of; empty for those of the flow itself."""
    return f"in {' -> '.join(map(str, path[1:]))}: " if len(path) > 1 else ""
