"""Ways through a flow graph: the cheapest one under the constraints of datasets, or the most useful refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.service.compiler.ways import Found, Quest, find_ways, follow_path
from gobblin_dagster.service.topology.graph import FlowGraph
from gobblin_dagster.service.topology.model import CapabilitySpec, Dataset, EdgeSpec, NodeSpec, TopologySpec

X = TopologySpec(capabilities=(CapabilitySpec(),))


def edge(ends: str, cost: float = 1, **more: object) -> EdgeSpec:
    return EdgeSpec.model_validate(
        {"source": ends[0], "destination": ends[1], "template": "FS:///t", "cost": cost, **more}
    )


def graph(**edges: EdgeSpec) -> FlowGraph:
    """Return a graph whose nodes are letters."""
    names = {end for one in edges.values() for end in (one.source, one.destination)} | set("ad")
    return FlowGraph({name: NodeSpec(type="n") for name in sorted(names)}, edges, {"x": X})


def taken(found: Found) -> dict[str, list[str]]:
    return {destination: [step.edge.name for step in steps] for destination, steps in found.ways.items()}


QUEST = Quest("a", ("d",))


def test_cheapest_way_is_taken_not_the_shortest() -> None:
    found = find_ways(graph(e1=edge("ab"), e2=edge("bc"), e3=edge("cd"), direct=edge("ad", 5)), QUEST)
    assert taken(found) == {"d": ["e1", "e2", "e3"]}


def test_of_two_ways_that_cost_the_same_the_one_with_fewer_hops_is_taken_then_the_first_by_name() -> None:
    edges = {"long1": edge("ab"), "long2": edge("bd"), "z": edge("ad", 2), "y": edge("ad", 2)}
    for order in permutations(edges):
        assert taken(find_ways(graph(**{name: edges[name] for name in order}), QUEST)) == {"d": ["y"]}


def test_several_destinations_get_ways_that_begin_alike() -> None:
    found = find_ways(graph(e1=edge("ab"), e2=edge("bc"), e3=edge("bd")), replace(QUEST, destinations=("c", "d")))
    assert taken(found) == {"c": ["e1", "e2"], "d": ["e1", "e3"]}


def test_way_goes_where_the_dataset_gets_the_wanted_form() -> None:
    edges = graph(
        raw=edge("ad"),
        convert=edge("ab", 3, input={"format": "csv"}, output={"format": "parquet"}),
        on=edge("bd", 3, input={"format": "parquet"}),
    )
    wanted = replace(QUEST, dataset=Dataset(format="csv"), wanted=Dataset(format="parquet"))
    found = find_ways(edges, wanted)
    assert taken(found) == {"d": ["convert", "on"]}
    assert [step.after.format for step in found.ways["d"]] == ["parquet", "parquet"]
    (refusal,) = find_ways(edges, replace(wanted, excluded=frozenset({"convert"}))).refused[:1]
    assert str(refusal) == "edge 'raw' (a -> d): it brings data of the wrong kind: format is csv, not parquet"


def test_edge_tells_what_was_not_known_of_the_dataset() -> None:
    found = find_ways(graph(e1=edge("ab", input={"codec": "gzip"}), e2=edge("bd", input={"codec": "none"})), QUEST)
    assert found.reasons == ["no way from 'a' to 'd': edge 'e2' (b -> d): codec is gzip, not none"]


def test_data_are_on_the_platform_of_their_node() -> None:
    nodes = {"a": NodeSpec(type="n", platform="local"), "d": NodeSpec(type="n", platform="s3")}
    found = FlowGraph(nodes, {"e": edge("ad", input={"platform": "local"})}, {"x": X})
    assert taken(find_ways(found, replace(QUEST, wanted=Dataset(platform="s3")))) == {"d": ["e"]}
    told = find_ways(found, replace(QUEST, dataset=Dataset(platform="hdfs"))).reasons
    assert told == ["the dataset at 'a': platform is local, not hdfs"]


def test_node_that_is_not_there_is_named_with_the_nearest() -> None:
    names = FlowGraph({"lake": NodeSpec(type="n")}, {}, {})
    assert find_ways(names, Quest("laek", ("shop", "lake"))).reasons == [
        "the source 'laek' is no data node of the topology; did you mean 'lake'?",
        "the destination 'shop' is no data node of the topology; known: lake",
    ]
    assert find_ways(names, Quest("lake", ("lake",))).reasons == ["'lake' is both source and destination"]


def test_three_most_useful_refusals_come_first() -> None:
    edges = {f"far{n}": edge("az", enabled=False) for n in range(10)}
    edges |= {
        "one_hop": edge("ad", input={"format": "csv"}),
        "two_hops": edge("ab", enabled=False),
        "on": edge("bd"),
        "blocked_twice": edge("ac", enabled=False),
        "blocked": edge("cd", enabled=False),
        "excluded": edge("ad"),
    }
    quest = replace(QUEST, dataset=Dataset(format="json"), excluded=frozenset({"excluded"}))
    found = find_ways(graph(**edges), quest)
    assert [refusal.edge for refusal in found.refused[:4]] == ["excluded", "one_hop", "two_hops", "blocked_twice"]
    assert len(found.refused) == 14
    assert found.reasons == [
        "no way from 'a' to 'd': edge 'excluded' (a -> d): the flow excludes it",
        "no way from 'a' to 'd': edge 'one_hop' (a -> d): format is json, not csv",
        "no way from 'a' to 'd': edge 'two_hops' (a -> b): it is not enabled"
        " (and 11 more refused edges; `gobblin flow explain` lists all)",
    ]


def test_without_a_useful_refusal_it_is_told_how_far_the_data_come() -> None:
    found = find_ways(graph(e1=edge("ab"), e2=edge("cd"), off=edge("bz", enabled=False)), QUEST)
    assert found.reasons == [
        "no way from 'a' to 'd': from the source the data reach b; edges lead to the destination from c"
    ]
    assert (
        find_ways(graph(), QUEST)
        .reasons[0]
        .endswith("reach no other node; edges lead to the destination from no other node")
    )


def test_one_destination_without_a_way_is_told_and_the_other_is_found() -> None:
    found = find_ways(graph(e1=edge("ab")), replace(QUEST, destinations=("b", "d")))
    assert taken(found) == {"b": ["e1"]}
    assert len(found.reasons) == 1


PATH = graph(e1=edge("ab"), e2=edge("bd", 9), cheap=edge("bd"), off=edge("bd", enabled=False), back=edge("da"))


def test_path_of_the_flow_is_taken_also_if_another_is_cheaper() -> None:
    assert taken(follow_path(PATH, QUEST, ["e1", "e2"])) == {"d": ["e1", "e2"]}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (["e1", "cheep"], "there is no edge 'cheep'; did you mean 'cheap'?"),
        (["e2"], "edge 'e2' begins at 'b', and the path has come to 'a'"),
        (["e1"], "the path ends at 'b', not at the destination 'd'"),
        (["e1", "off"], "edge 'off' (b -> d): it is not enabled"),
    ],
)
def test_path_that_cannot_be_taken_says_where_it_breaks(path: list[str], told: str) -> None:
    assert follow_path(PATH, QUEST, path).reasons == [told]


def test_path_that_brings_data_of_the_wrong_kind_is_refused() -> None:
    quest = replace(QUEST, dataset=Dataset(format="csv"), wanted=Dataset(format="orc"))
    assert follow_path(PATH, quest, ["e1", "e2"]).reasons == [
        "the path brings data of the wrong kind to 'd': format is csv, not orc"
    ]


_ENDS = st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")).filter(lambda ends: ends[0] != ends[1])
_EDGES = st.lists(st.tuples(_ENDS, st.integers(0, 3), st.sampled_from(["any", "csv", "orc"])), max_size=9)


@given(_EDGES)
def test_way_is_as_cheap_as_the_cheapest_of_all_paths(given_edges: list[tuple[tuple[str, str], int, str]]) -> None:
    edges = {
        f"e{n}": edge("".join(ends), cost, input={"format": kind}) for n, (ends, cost, kind) in enumerate(given_edges)
    }
    found = find_ways(graph(**edges), replace(QUEST, dataset=Dataset(format="csv")))
    costs = [
        sum(edges[name].cost for name in path)
        for size in range(1, 4)
        for path in permutations(edges, size)
        if _is_way([edges[name] for name in path])
    ]
    assert bool(found.ways) == bool(costs)
    assert bool(found.reasons) == (not costs)
    if costs:
        assert sum(step.edge.spec.cost for step in found.ways["d"]) == min(costs)


def _is_way(path: list[EdgeSpec]) -> bool:
    nodes = ["a", *(one.destination for one in path)]
    return (
        all(one.source == node for one, node in zip(path, nodes, strict=False))
        and nodes[-1] == "d"
        and all(one.input.format in ("any", "csv") for one in path)
    )
