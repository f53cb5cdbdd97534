"""Find the cheapest ways through a flow graph: a pure search over (node, what is known of the dataset there).

One search serves all destinations. Equal input gives equal ways: edges are looked at by name, and of two ways with one
cost the one with fewer hops is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from gobblin_dagster.service.compiler.explanation import MOST_USEFUL, Refusal
from gobblin_dagster.service.topology.graph import FlowEdge, FlowGraph
from gobblin_dagster.service.topology.model import ANY, ANYTHING, Dataset
from gobblin_dagster.spec.explain import nearest


@dataclass(frozen=True, slots=True)
class Quest:
    """What is looked for."""

    source: str
    destinations: tuple[str, ...]
    dataset: Dataset = ANYTHING
    """The dataset at the source."""
    wanted: Dataset = ANYTHING
    """What it must be at each destination."""
    excluded: frozenset[str] = frozenset()
    """Edges that the flow does not want."""
    former: frozenset[str] = frozenset()
    """Edges that the flow's last execution took; a way with fewer others is taken whatever it costs. Empty if there was
    none."""


@dataclass(frozen=True, slots=True)
class Step:
    """An edge that is taken, and the dataset before and after it."""

    edge: FlowEdge
    before: Dataset
    after: Dataset


@dataclass(slots=True)
class Found:
    """What a search found."""

    ways: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    """Steps by destination; destinations without a way are not in it."""
    reasons: list[str] = field(default_factory=list)
    """Why destinations have no way: the most useful refusals of each."""
    refused: list[Refusal] = field(default_factory=list)
    """Edges that could not be taken, the most useful first."""


_State = tuple[str, Dataset]


@dataclass(slots=True)
class _Reached:
    """Nodes that the data reach, and why they go no further."""

    came_by: dict[_State, tuple[_State, FlowEdge] | None] = field(default_factory=dict)
    """By state, the state before it and the edge between them; None at the source."""
    goals: dict[str, _State] = field(default_factory=dict)
    """The cheapest state at each destination that is as wanted."""
    taken: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    """Reasons by edge; the cheapest arrival's counts."""
    arrivals: dict[str, Refusal] = field(default_factory=dict)
    """By destination, the arrival of a dataset that is not as wanted."""


def find_ways(graph: FlowGraph, quest: Quest) -> Found:
    """Return the cheapest way to each destination, or why there is none.

    Source: gobblin-service `BFSPathFinder`, `AbstractPathFinder`. Differs: the cheapest way, not the shortest; hops
        that ways to several destinations share are taken once.
    """
    found = Found(reasons=list(_faults(graph, quest)))
    if found.reasons:
        return found
    reached = _search(graph, quest, (quest.source, _at_source(graph, quest)))
    for destination in quest.destinations:
        if destination in reached.goals:
            found.ways[destination] = _steps(reached, reached.goals[destination])
    missing = [destination for destination in quest.destinations if destination not in found.ways]
    for destination in missing:
        distances = _distances(graph, quest, [destination])
        found.refused = _ranked(graph, reached, [destination], distances)
        found.reasons += _reasons(quest, reached, destination, found.refused, distances)
    if len(missing) != 1:
        every = missing or quest.destinations
        found.refused = _ranked(graph, reached, every, _distances(graph, quest, every))
    return found


def follow_path(graph: FlowGraph, quest: Quest, path: Sequence[str]) -> Found:
    """Return the way that a flow gives itself, or all that is wrong with it."""
    found = Found(reasons=list(_faults(graph, quest)))
    unknown = [name for name in path if name not in graph.edges]
    found.reasons += [f"there is no edge {name[:80]!r}; {nearest(name, graph.edges)}" for name in unknown]
    if found.reasons:
        return found
    (destination,) = quest.destinations
    node, dataset = quest.source, _at_source(graph, quest)
    steps: list[Step] = []
    for name in path:
        edge = graph.edge(name)
        if edge.spec.source != node:
            found.reasons.append(f"edge {name!r} begins at {edge.spec.source!r}, and the path has come to {node!r}")
        elif told := _refusal(edge, dataset, quest.excluded):
            found.refused.append(Refusal(name, edge.spec.source, edge.spec.destination, told))
        node = edge.spec.destination
        after = dataset.through(edge.takes, edge.makes, graph.nodes[node].platform)
        steps.append(Step(edge, dataset, after))
        dataset = after
    if node != destination:
        found.reasons.append(f"the path ends at {node!r}, not at the destination {destination!r}")
    elif told := dataset.mismatch(quest.wanted):
        found.reasons.append(f"the path brings data of the wrong kind to {destination!r}: {told}")
    found.reasons += map(str, found.refused)
    if not found.reasons:
        found.ways[destination] = tuple(steps)
    return found


def _faults(graph: FlowGraph, quest: Quest) -> Iterator[str]:
    for end, node in (("source", quest.source), *(("destination", one) for one in quest.destinations)):
        if node not in graph.nodes:
            yield f"the {end} {node[:80]!r} is no data node of the topology; {nearest(node, graph.nodes)}"
    if quest.source in quest.destinations:
        yield f"{quest.source!r} is both source and destination"
    if quest.source in graph.nodes:
        platform = Dataset(platform=graph.nodes[quest.source].platform)
        if told := platform.mismatch(Dataset(platform=quest.dataset.platform)):
            yield f"the dataset at {quest.source!r}: {told}"


def _at_source(graph: FlowGraph, quest: Quest) -> Dataset:
    """Return what is known of the dataset before its first hop."""
    platform = graph.nodes[quest.source].platform
    return quest.dataset if platform == ANY else quest.dataset._replace(platform=platform)


def _search(graph: FlowGraph, quest: Quest, start: _State) -> _Reached:
    reached = _Reached()
    numbers = count()  # of two ways that cost the same, the one that was found first is taken
    heap: list[tuple[int, float, int, int, _State, tuple[_State, FlowEdge] | None]]
    heap = [(0, 0, 0, next(numbers), start, None)]
    while heap:
        others, cost, hops, _, state, came_by = heapq.heappop(heap)
        if state in reached.came_by:
            continue
        reached.came_by[state] = came_by
        node, dataset = state
        if node in quest.destinations and node not in reached.goals:
            told = dataset.mismatch(quest.wanted)
            if not told:
                reached.goals[node] = state
                if len(reached.goals) == len(quest.destinations):
                    break
            elif came_by is not None:
                edge = came_by[1]
                told = f"it brings data of the wrong kind: {told}"
                reached.arrivals.setdefault(node, Refusal(edge.name, edge.spec.source, node, told))
        for edge in graph.outgoing[node]:
            reason = _refusal(edge, dataset, quest.excluded)
            if reason:
                reached.refusals.setdefault(edge.name, reason)
                continue
            reached.taken.add(edge.name)
            there = edge.spec.destination
            after = dataset.through(edge.takes, edge.makes, graph.nodes[there].platform)
            if (there, after) not in reached.came_by:
                is_other = bool(quest.former) and edge.name not in quest.former
                total = (others + is_other, cost + edge.spec.cost, hops + 1)
                heapq.heappush(heap, (*total, next(numbers), (there, after), (state, edge)))
    return reached


def _refusal(edge: FlowEdge, dataset: Dataset, excluded: Collection[str]) -> str:
    if edge.name in excluded:
        return "the flow excludes it"
    return edge.refusal or dataset.mismatch(edge.takes)


def _steps(reached: _Reached, goal: _State) -> tuple[Step, ...]:
    steps: list[Step] = []
    state = goal
    while (came_by := reached.came_by[state]) is not None:
        before, edge = came_by
        steps.append(Step(edge, before[1], state[1]))
        state = before
    return tuple(reversed(steps))


_Distances = Mapping[str, tuple[int, int]]
"""How far nodes are from the nearest destination: edges that no flow may take, then all edges."""
_FAR = (10**9, 10**9)
"""The distance of a node from which no edges lead to a destination."""


def _ranked(graph: FlowGraph, reached: _Reached, destinations: Collection[str], distances: _Distances) -> list[Refusal]:
    """Return the refusals, those first without which a destination would be reached with the fewest other changes."""
    ranked = []
    for name, reason in reached.refusals.items():
        if name not in reached.taken:
            edge = graph.edges[name]
            far = distances.get(edge.destination, _FAR)
            ranked.append((far, name, Refusal(name, edge.source, edge.destination, reason)))
    arrivals = [reached.arrivals[one] for one in destinations if one in reached.arrivals and one not in reached.goals]
    return [*arrivals, *(refusal for *_, refusal in sorted(ranked, key=lambda one: one[:2]))]


def _distances(graph: FlowGraph, quest: Quest, destinations: Collection[str]) -> _Distances:
    """Return the distance of each node from which edges lead to one of the destinations."""
    distances: dict[str, tuple[int, int]] = {}
    heap = [(0, 0, destination) for destination in destinations]
    while heap:
        blocked, hops, node = heapq.heappop(heap)
        if node in distances:
            continue
        distances[node] = (blocked, hops)
        for edge in graph.incoming[node]:
            if edge.spec.source not in distances:
                is_blocked = bool(edge.refusal) or edge.name in quest.excluded
                heapq.heappush(heap, (blocked + is_blocked, hops + 1, edge.spec.source))
    return distances


def _reasons(
    quest: Quest, reached: _Reached, destination: str, refused: Sequence[Refusal], distances: _Distances
) -> list[str]:
    """Return why a destination has no way: at most `MOST_USEFUL` refused edges, or where the data end."""
    way = f"no way from {quest.source!r} to {destination!r}"
    useful = [one for one in refused if one.destination in distances][:MOST_USEFUL]
    if not useful:
        nodes = sorted({node for node, _ in reached.came_by} - {quest.source})
        before = sorted(set(distances) - {destination})
        told = f"from the source the data reach {_some(nodes)}; edges lead to the destination from {_some(before)}"
        return [f"{way}: {told}"]
    reasons = [f"{way}: {refusal}" for refusal in useful]
    if len(refused) > len(useful):
        reasons[-1] += f" (and {len(refused) - len(useful)} more refused edges; `gobblin flow explain` lists all)"
    return reasons


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more if names else "no other node"
