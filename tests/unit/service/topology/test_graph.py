"""FlowGraph: which executor runs an edge, and cycles that cost nothing."""

from __future__ import annotations

from dataclasses import replace

from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.service.topology.graph import EMPTY, FlowGraph, free_cycles
from gobblin_dagster.service.topology.model import CapabilitySpec, EdgeSpec, NodeSpec, TopologySpec
from tests.unit.service.topology.conftest import SOUND, Write


def graph(*executors: tuple[str, bool], named: tuple[str, ...] | None = None, enabled: bool = True) -> FlowGraph:
    """Return two nodes with one edge between them."""
    capabilities = (CapabilitySpec(),)
    return FlowGraph(
        {"a": NodeSpec(type="files"), "b": NodeSpec(type="lake")},
        {"ab": EdgeSpec(source="a", destination="b", template="FS:///t", executors=named, enabled=enabled)},
        {name: TopologySpec(type="store", capabilities=capabilities, enabled=is_on) for name, is_on in executors},
    )


def test_edge_is_run_by_the_first_of_its_executors_that_is_enabled() -> None:
    assert graph(("x", True), ("y", True)).edge("ab").executor == "x"
    assert graph(("x", True), ("y", True), named=("y", "x")).edge("ab").executor == "y"
    assert graph(("x", False), ("y", True)).edge("ab").executor == "y"


def test_edge_is_run_by_another_executor_while_the_first_is_lost() -> None:
    found = graph(("x", True), ("y", True))
    assert replace(found, lost=frozenset("x")).edge("ab").executor == "y"
    assert replace(found, lost=frozenset("xy")).edge("ab").executor == "x", "jobs wait for it"
    assert replace(found, lost=frozenset("x")).version == found.version


def test_executor_that_keeps_watermarks_elsewhere_takes_no_edge_of_a_lost_one() -> None:
    found = replace(graph(("x", True), ("y", True)), lost=frozenset("x"))
    here, there = frozenset({"sqlite:one"}), frozenset({"sqlite:two"})
    assert replace(found, places={"x": here, "y": there}).edge("ab").executor == "x", "jobs wait for it"
    for places in ({"x": here, "y": here}, {"y": there}, {"x": here}):
        assert replace(found, places=places).edge("ab").executor == "y"
    assert replace(found, places={"x": here | there}).edge("ab").executor == "x", "whose own workers do not agree"
    named = {name: spec.model_copy(update={"state": "one"}) for name, spec in found.executors.items()}
    assert replace(found, executors=named, places={"x": here, "y": there}).edge("ab").executor == "y", "files say so"
    three = replace(graph(("w", True), ("x", True), ("y", True)), lost=frozenset("wx"))
    assert replace(three, places={"x": here, "y": here}).edge("ab").executor == "y"
    assert replace(three, places={"x": here, "y": there}).edge("ab").executor == "w", "x ran its jobs, and y may not"
    off = replace(graph(("x", False), ("y", True)), places={"x": here, "y": there}).edge("ab")
    assert off.refusal == "x is not enabled, and y keeps watermarks in another state store: rows would come again"


def test_edge_that_nobody_may_take_says_why() -> None:
    assert graph(("x", False)).edge("ab").refusal == "no executor that can run it is enabled: x"
    assert graph(("x", True), enabled=False).edge("ab").refusal == "it is not enabled"


def test_edges_are_found_at_both_of_their_nodes(write: Write) -> None:
    found = read_topology(write(all=SOUND)).graph
    assert [edge.name for edge in found.outgoing["lake"]] == ["out"]
    assert [edge.name for edge in found.incoming["lake"]] == ["in"]
    assert found.outgoing["shop"] == ()


def test_version_tells_whether_two_topologies_are_equal() -> None:
    assert graph(("x", True)).version == graph(("x", True)).version
    assert graph(("x", True)).version != graph(("x", False)).version
    assert EMPTY.version != graph(("x", True)).version


def edges(*ends: str, cost: float = 0) -> dict[str, EdgeSpec]:
    return {two: EdgeSpec(source=two[0], destination=two[1], template="FS:///t", cost=cost) for two in ends}


def test_each_cycle_that_costs_nothing_is_told() -> None:
    assert list(free_cycles(edges("ab", "bc", "ca") | edges("cd", cost=1))) in (
        [["a", "b", "c", "a"]],
        [["b", "c", "a", "b"]],
        [["c", "a", "b", "c"]],
    )
    assert len(list(free_cycles(edges("ab", "ba", "cd", "dc")))) == 2
    assert list(free_cycles(edges("ab", "bc") | edges("ca", cost=0.5))) == []
