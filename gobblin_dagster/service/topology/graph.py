"""FlowGraph: the nodes, edges and executors that compilers search. A value: a change makes a new graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from gobblin_dagster.service.topology.model import ANYTHING, Dataset, EdgeSpec, NodeSpec, TopologySpec


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """An edge with the executor that runs its jobs."""

    name: str
    spec: EdgeSpec
    executor: str
    """The first of its executors that can run it and is not lost, or else the first one; empty if none can."""
    refusal: str = ""
    """Why no flow can take it today; empty if flows can."""
    takes: Dataset = ANYTHING
    """Datasets that fit it."""
    makes: Dataset = ANYTHING
    """What datasets are after it."""


@dataclass(frozen=True)
class FlowGraph:
    """What operators described, without faults.

    Source: gobblin-service `BaseFlowGraph`. Differs: it never changes.
    """

    nodes: Mapping[str, NodeSpec]
    edges: Mapping[str, EdgeSpec]
    executors: Mapping[str, TopologySpec]
    lost: frozenset[str] = frozenset()
    """Executors that are not used for edges that others can run."""
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """State stores in which executors, by the names under which they take orders, have kept watermarks so far."""
    lacking: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By edge and executor, what no worker of the executor has that the edge's template needs."""

    @cached_property
    def outgoing(self) -> Mapping[str, tuple[FlowEdge, ...]]:
        """Edges by the node that they begin at, sorted by name."""
        found: dict[str, list[FlowEdge]] = {name: [] for name in self.nodes}
        for name in sorted(self.edges):
            found[self.edges[name].source].append(self.edge(name))
        return {node: tuple(edges) for node, edges in found.items()}

    @cached_property
    def incoming(self) -> Mapping[str, tuple[FlowEdge, ...]]:
        """Edges by the node that they lead to, sorted by name."""
        found: dict[str, list[FlowEdge]] = {name: [] for name in self.nodes}
        for edges in self.outgoing.values():
            for edge in edges:
                found[edge.spec.destination].append(edge)
        return {node: tuple(sorted(edges, key=lambda edge: edge.name)) for node, edges in found.items()}

    @cached_property
    def version(self) -> str:
        """Digest of the whole topology: two graphs are equal if their versions are."""
        body = {
            kind: {name: part.model_dump() for name, part in sorted(parts.items())}
            for kind, parts in (("nodes", self.nodes), ("edges", self.edges), ("executors", self.executors))
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]

    def edge(self, name: str) -> FlowEdge:
        """Return an edge by name, with the executor that would run it now; raises KeyError."""
        spec = self.edges[name]
        ends = spec.input.dataset, spec.output.dataset
        if not spec.enabled:
            return FlowEdge(name, spec, "", "it is not enabled", *ends)
        candidates = self.capable_executors(spec)
        lacking = self.lacking.get(name, {})
        able = [one for one in candidates if self.executors[one].enabled and one not in lacking]
        fit = [one for one in self._of_one_state(candidates) if one in able]
        ready = next((one for one in fit if one not in self.lost), next(iter(fit), ""))
        return FlowEdge(name, spec, ready, "" if ready else self._refusal(candidates, able, lacking), *ends)

    def _refusal(self, candidates: Sequence[str], able: Sequence[str], lacking: Mapping[str, str]) -> str:
        """Return why none of the executors of an edge can run it.

        Args:
            candidates: the executors.
            able: those that could, if they kept watermarks where the first one does.
            lacking: what workers of executors lack, by executor.
        """
        without = [f"no worker of {one} has {lacking[one]}" for one in candidates if one in lacking]
        if able:
            first = candidates[0]
            why = without[0] if first in lacking else f"{first} is not enabled"
            told = f"{', '.join(able)} keeps watermarks in another state store: rows would come again"
            return f"{why}, and {told}"
        off = [one for one in candidates if one not in lacking]
        return "; ".join([*without, *([f"no executor that can run it is enabled: {', '.join(off)}"] if off else [])])

    def _of_one_state(self, candidates: Iterable[str]) -> list[str]:
        """Return the first executor and those that may run its jobs.

        Two executors in different places share no state, though each may share it with a third whose place is unknown.
        """
        kept: list[str] = []
        for one in candidates:
            if all(self.shares_state(other, one) for other in kept):
                kept.append(one)
        return kept

    def shares_state(self, one: str, other: str) -> bool:
        """Tell whether two executors may run the same jobs: nothing is known of watermarks in different state stores.

        Names that files give to state stores (`state`) count more than what workers said.
        """
        first, second = self.executors[one], self.executors[other]
        if one == other or first.state or second.state:
            return first.state == second.state
        return len(self._places(one) | self._places(other)) <= 1

    def _places(self, executor: str) -> frozenset[str]:
        return self.places.get(self.executors[executor].queue(executor), frozenset())

    def operators_values(self, edge: EdgeSpec) -> dict[str, str]:
        """Return what an edge and its nodes say for parameters of its template: values that flows cannot change."""
        values: dict[str, str] = {}
        for end, name in (("source", edge.source), ("destination", edge.destination)):
            node = self.nodes[name]
            values |= {f"{end}.{key}": value for key, value in node.properties.items()}
            values |= {f"{end}.node": name, f"{end}.type": node.type, f"{end}.platform": node.platform}
        return values | edge.values

    def capable_executors(self, edge: EdgeSpec) -> list[str]:
        """Return the executors that may run an edge and have the capability, the preferred one first."""
        types = self.nodes[edge.source].type, self.nodes[edge.destination].type
        named = sorted(self.executors) if edge.executors is None else edge.executors
        return [name for name in named if name in self.executors and self.executors[name].can_move(*types)]


EMPTY = FlowGraph({}, {}, {})
"""The topology of a project that describes none."""


def free_cycles(edges: Mapping[str, EdgeSpec]) -> Iterator[list[str]]:
    """Yield cycles of edges that cost nothing, as lists of nodes that begin and end with the same one.

    Each cycle that is told is cut at one edge before the next is looked for, so that the list is short and complete
    enough to mend all.
    """
    before: dict[str, set[str]] = {}
    for edge in edges.values():
        if edge.cost == 0:
            before.setdefault(edge.destination, set()).add(edge.source)
    while True:
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            # Each node of the list stands before the next one.
            cycle = list(error.args[1])
            yield cycle
            before[cycle[1]].discard(cycle[0])
        else:
            return
