"""What workers announce, and which executors lack what the templates of edges need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.topology.capabilities import Announced, EdgeNeeds, announce, read_announced
from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.service.topology.graph import FlowGraph

from .conftest import Write

TOPOLOGY = """\
nodes:
  broker: {type: broker}
  lake: {type: lake, properties: {url: "s3://bucket/lake"}}
  shop: {type: database}
executors:
  east: {type: store, capabilities: [{}]}
  west: {type: store, capabilities: [{}]}
edges:
  in: {source: broker, destination: lake, template: "FS:///in.template"}
  out: {source: lake, destination: shop, template: "FS:///out.template", executors: [east]}
"""
IN = """\
template: in
parameters: {destination.url: {}, wanted: {}}
job:
  source: {type: org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource, topics: ["${wanted}"]}
  converters: [{type: "shop.masks:Mask"}, {type: "${KIND}"}]
  output: {path: "${destination.url}"}
"""
OUT = "template: out\njob:\n  source: {type: files}\n  publisher: {type: from_a_package}\n"
WHOLE = Announced(frozenset({"source.kafka", "source.files"}), frozenset({"kafka", "s3"}), None)


def lacking(write: Write, *east: Announced | None, west: Announced | None = None) -> dict[str, dict[str, str]]:
    """Return what executors lack whose workers announced this; `west` has one."""
    folder = write(all=TOPOLOGY)
    for name, text in (("in", IN), ("out", OUT)):
        (folder / f"{name}.template").write_text(text)
    needs = EdgeNeeds(TemplateCatalog(folder))
    graph = read_topology(folder).graph
    found = needs.lacking(graph, {"east": east, "west": [west], "gone": [WHOLE]})
    assert needs.lacking(graph, {"east": east, "west": [west]}) == found, "the second look is at what is kept"
    return found


def test_executor_lacks_the_constructs_extras_and_modules_that_none_of_its_workers_has(write: Write) -> None:
    bare = Announced(frozenset({"source.files"}), frozenset({"s3"}), ("other",))
    assert lacking(write, bare, west=WHOLE) == {
        "in": {"east": "source kafka, extra kafka, module shop.masks"},
        "out": {"east": "publisher from_a_package"},
    }


def test_one_worker_must_have_all_that_an_edge_needs(write: Write) -> None:
    one, other = replace(WHOLE, extras=frozenset({"kafka"})), replace(WHOLE, modules=())
    assert lacking(write, one, other)["in"] == {"east": "extra s3"}
    assert "in" not in lacking(write, one, other, WHOLE)


def test_nothing_is_lacking_while_workers_are_not_known_or_older(write: Write) -> None:
    bare = Announced(frozenset(), frozenset(), None)
    assert lacking(write) == {}
    assert lacking(write, bare, None) == {}


def test_template_is_read_again_when_it_has_changed_and_one_with_faults_needs_nothing(write: Write) -> None:
    folder = write(all=TOPOLOGY)
    needs, graph = EdgeNeeds(TemplateCatalog(folder)), read_topology(folder).graph
    announced = {"east": [replace(WHOLE, constructs=frozenset())]}
    assert needs.lacking(graph, announced) == {}
    (folder / "out.template").write_text(OUT)
    assert needs.lacking(graph, announced) == {"out": {"east": "publisher from_a_package, source files"}}
    (folder / "out.template").write_text(OUT.replace("  publisher: {type: from_a_package}\n", ""))
    assert needs.lacking(graph, announced) == {"out": {"east": "source files"}}
    (folder / "out.template").write_text("template: [\n")
    assert needs.lacking(graph, announced) == {}


def test_worker_announces_what_is_installed_and_what_its_project_allows() -> None:
    about = announce(AllowLists(paths=("/data",), modules=("shop",)))
    assert {"source.kafka", "publisher.iceberg", "writer.parquet"} <= set(about["constructs"])
    assert "kafka" in about["extras"]
    assert (about["roots"], about["modules"]) == (["/data"], ["shop"])
    announced = read_announced(about)
    assert announced is not None
    assert announced.modules == ("shop",)
    assert announce(EVERYTHING)["modules"] is None


def test_worker_announces_no_source_that_its_project_does_not_allow() -> None:
    about = announce(AllowLists(sources=("files",)))
    assert [one for one in about["constructs"] if one.startswith("source.")] == ["source.files"]
    assert {*announce(EVERYTHING)["constructs"]} - {*about["constructs"]} >= {"source.kafka", "source.query"}
    assert [one for one in announce(EVERYTHING)["constructs"] if not one.startswith("source.")] == [
        one for one in about["constructs"] if not one.startswith("source.")
    ]


def test_announcement_of_another_form_says_nothing() -> None:
    for about in ({}, {"constructs": "all", "extras": []}, {"constructs": [], "extras": [1]}):
        assert read_announced(about) is None
    assert read_announced({"constructs": [], "extras": [], "modules": 1}) is None


def test_edge_goes_to_an_executor_that_can_and_is_refused_without_one(write: Write) -> None:
    graph: FlowGraph = replace(read_topology(write(all=TOPOLOGY)).graph, lacking={"in": {"east": "source kafka"}})
    assert graph.edge("in").executor == "west"
    none = replace(graph, lacking={"in": {"east": "source kafka", "west": "extra kafka"}})
    told = "no worker of east has source kafka; no worker of west has extra kafka"
    assert (none.edge("in").executor, none.edge("in").refusal) == ("", told)
    off = {**graph.executors, "west": graph.executors["west"].model_copy(update={"enabled": False})}
    told = "no worker of east has source kafka; no executor that can run it is enabled: west"
    assert replace(graph, executors=off).edge("in").refusal == told
    apart = replace(graph, places={"east": frozenset({"one"}), "west": frozenset({"two"})})
    assert apart.edge("in").refusal == (
        "no worker of east has source kafka, and west keeps watermarks in another state store: rows would come again"
    )


def test_needs_of_a_file_of_gobblins_are_those_of_the_job_that_it_becomes(tmp_path: Path) -> None:
    text = "source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource\n"
    (tmp_path / "pull.job").write_text(f"{text}topic.whitelist=orders\nkafka.brokers=b:9092\n")
    graph = read_topology_of(tmp_path)
    found = EdgeNeeds(TemplateCatalog(tmp_path)).lacking(graph, {"east": [replace(WHOLE, constructs=frozenset())]})
    assert "source kafka" in found["pull"]["east"]


def read_topology_of(folder: Path) -> FlowGraph:
    text = TOPOLOGY.partition("edges:")[0]
    (folder / "all.yaml").write_text(
        text + 'edges: {pull: {source: broker, destination: lake, template: "FS:///pull.job", executors: [east]}}\n'
    )
    return read_topology(folder).graph
