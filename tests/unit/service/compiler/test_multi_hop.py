"""The multi-hop compiler: a job for each hop, in order, named uniquely; errors name key, template and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import FlowCompileError, InvalidSpecError
from gobblin_dagster.service.catalog.templates import TemplateCatalog, keys_body, keys_of_body
from gobblin_dagster.service.compiler.multi_hop import MultiHopCompiler
from gobblin_dagster.service.compiler.routed_flow import COMBINE, DESTINATIONS, EXCLUDED, INPUT, PATH, SOURCE, SUB_PATHS
from gobblin_dagster.service.executors.embedded import NAME as EMBEDDED
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.model import Dag, FlowConfig, FlowId
from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.service.topology.graph import EMPTY
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec

TEMPLATE = """\
template: {name}
parameters:
  source.path: {{}}
  destination.path: {{}}
  table: {{type: name, default: orders}}
  dataset.subPaths: {{type: text, default: "*"}}
job:
  source:
    type: files
    path: "${{source.path}}/{{dataset}}/${{dataset.subPaths}}.csv"
    format: {{type: csv}}
  extract: {{namespace: test, table: "${{table}}"}}
  output: {{path: "${{destination.path}}"}}
"""

TOPOLOGY = """\
nodes:
  landing: {type: files, properties: {path: "${LANDING}"}}
  lake: {type: lake, properties: {path: lake}}
  copy: {type: lake, properties: {path: copy}}
  shop: {type: lake, properties: {path: shop}}
executors:
  here: {capabilities: [{}]}
edges:
  in: {source: landing, destination: lake, template: "FS:///in.template", output: {format: parquet}}
  to-copy: {source: lake, destination: copy, template: "FS:///out.template"}
  to-shop: {source: lake, destination: shop, template: "FS:///out.template", values: {table: fixed}}
  direct: {source: landing, destination: shop, template: "FS:///in.template", cost: 9}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("in", "out"):
        (tmp_path / f"{name}.template").write_text(TEMPLATE.format(name=name))
    (tmp_path / "topology").mkdir()
    (tmp_path / "topology" / "all.yaml").write_text(TOPOLOGY)
    return tmp_path


def compiler(root: Path) -> MultiHopCompiler:
    templates = TemplateCatalog(root)
    found = read_topology(root / "topology", templates)
    assert found.faults == ()
    return MultiHopCompiler(templates, lambda: found.graph)


def flow(to: str = "shop", templates: str = "", **properties: str) -> FlowConfig:
    return FlowConfig(FlowId("g", "n"), templates, {SOURCE: "landing", DESTINATIONS: to, **properties})


def chain(dag: Dag) -> list[tuple[str, tuple[str, ...]]]:
    return [(job.name, job.parents) for job in dag.jobs]


def refused(root: Path, config: FlowConfig) -> str:
    with pytest.raises(FlowCompileError) as caught:
        compiler(root).compile(config)
    return str(caught.value)


def test_each_hop_becomes_a_job_after_the_one_before_byte_for_byte_the_same_each_time(root: Path) -> None:
    config = flow(**{"job.maxAttempts": "3"})
    dag = compiler(root).compile(config)
    name = "g__n__to_shop__xf63004b4f49c"
    assert chain(dag) == [("g__n__in", ()), (name, ("g__n__in",))]
    assert {(job.executor, job.max_attempts) for job in dag.jobs} == {(EMBEDDED, 3)}
    assert compiler(root).compile(config) == dag
    jobs = [JobSpec.model_validate(json.loads(job.body)) for job in dag.jobs]
    assert [job.extract.table for job in jobs] == ["orders", "fixed"]
    assert json.loads(dag.jobs[0].body)["source"]["path"] == "${LANDING}/{dataset}/*.csv", "the executor's variable"
    assert json.loads(dag.jobs[1].body)["output"]["path"] == "shop"


def test_ways_to_several_destinations_share_the_jobs_that_they_begin_with(root: Path) -> None:
    dag = compiler(root).compile(flow("copy,shop"))
    parents = dict(chain(dag))
    assert len(parents) == 3
    assert list(parents.values()) == [(), ("g__n__in",), ("g__n__in",)]


def test_destinations_that_share_no_hop_share_no_job(root: Path) -> None:
    dag = compiler(root).compile(flow("lake,shop", **{EXCLUDED: "to-shop"}))
    assert [parents for _, parents in chain(dag)] == [(), ()]


def test_sub_paths_are_parallel_chains_or_one(root: Path) -> None:
    config = {SUB_PATHS: "eu,us", f"{INPUT}path": "orders"}
    dag = compiler(root).compile(flow("copy", **config))
    assert len(dag.jobs) == 4
    assert [len(job.parents) for job in dag.jobs] == [0, 1, 0, 1]
    assert [json.loads(job.body)["source"]["path"].rpartition("/")[2] for job in dag.jobs] == [
        "eu.csv",
        "eu.csv",
        "us.csv",
        "us.csv",
    ]
    combined = compiler(root).compile(flow("copy", **config, **{COMBINE: "true"}))
    assert len(combined.jobs) == 2
    assert "eu,us" in combined.jobs[0].body


def test_path_of_the_flow_and_excluded_edges_change_the_way(root: Path) -> None:
    assert chain(compiler(root).compile(flow(**{PATH: "direct"}))) == [("g__n__direct", ())]
    assert chain(compiler(root).compile(flow(**{EXCLUDED: "to-shop"}))) == [("g__n__direct", ())]


def test_way_is_another_one_after_an_edge_went_away_and_none_after_the_second(root: Path) -> None:
    file = root / "topology" / "all.yaml"
    file.write_text(TOPOLOGY.replace("values: {table: fixed}", "enabled: false"))
    assert chain(compiler(root).compile(flow())) == [("g__n__direct", ())]
    file.write_text(file.read_text().replace("cost: 9", "enabled: false"))
    told = refused(root, flow())
    assert "no way from 'landing' to 'shop': edge 'direct' (landing -> shop): it is not enabled" in told
    assert "edge 'to-shop' (lake -> shop): it is not enabled" in told


def test_job_keeps_its_name_when_the_way_before_it_changes(root: Path) -> None:
    before = compiler(root).compile(flow()).jobs[-1].name
    (root / "topology" / "all.yaml").write_text(
        TOPOLOGY.replace("{source: landing, destination: lake,", "{source: landing, destination: copy,")
        + '  back: {source: copy, destination: lake, template: "FS:///out.template"}\n'
    )
    dag = compiler(root).compile(flow())
    assert len(dag.jobs) == 3
    assert dag.jobs[-1].name == before


def test_names_of_jobs_stay_unique_and_short(root: Path) -> None:
    long = "e" * 60
    (root / "topology" / "all.yaml").write_text(TOPOLOGY.replace("  in:", f"  {long}:"))
    config = FlowConfig(
        FlowId("g" * 128, "n" * 128), "", {SOURCE: "landing", DESTINATIONS: "lake", SUB_PATHS: "a/b,a_b," + "s" * 200}
    )
    names = [job.name for job in compiler(root).compile(config).jobs]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 63


def test_value_that_is_missing_names_key_template_line_and_node(root: Path) -> None:
    (root / "topology" / "all.yaml").write_text(
        TOPOLOGY.replace('properties: {path: "${LANDING}"}', "properties: {dir: x}")
    )
    templates = TemplateCatalog(root)
    found = read_topology(root / "topology")
    with pytest.raises(FlowCompileError) as caught:
        MultiHopCompiler(templates, lambda: found.graph).compile(flow("lake"))
    assert caught.value.reasons == (
        "edge 'in': ${source.path} in FS:///in.template:10 has no value: "
        "node 'landing' has no property 'path'; it has: dir",
    )


def test_flow_sets_what_a_template_on_the_way_declares_and_nothing_else(root: Path) -> None:
    told = refused(root, flow(**{"source.path": "/etc", "tabel": "t"}))
    assert "no template declares the parameter 'source.path'" in told, "operators set it"
    assert "no template declares the parameter 'tabel'; declared: dataset.subPaths, table" in told
    dag = compiler(root).compile(flow(table="mine"))
    tables = [json.loads(job.body)["extract"]["table"] for job in dag.jobs]
    assert tables == ["mine", "fixed"], "the edge's own value cannot be changed"


def test_wrong_value_names_the_edge_and_the_parameter(root: Path) -> None:
    assert "edge 'in': parameter 'table' of template in: '1 table' is no name" in refused(root, flow(table="1 table"))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (flow(""), "the flow names no destination"),
        (flow("shp"), "the destination 'shp' is no data node of the topology; did you mean 'shop'?"),
        (flow(templates="FS:///in.template"), "the flow names templates and a source"),
        (flow(**{PATH: "in"}), "the path ends at 'lake', not at the destination 'shop'"),
    ],
)
def test_flow_that_cannot_be_routed_says_why(root: Path, config: FlowConfig, told: str) -> None:
    assert told in refused(root, config)


def test_project_without_a_topology_says_so(root: Path) -> None:
    with pytest.raises(FlowCompileError, match="the project describes no topology"):
        MultiHopCompiler(TemplateCatalog(root), lambda: EMPTY).compile(flow())


def test_explanation_tells_way_and_every_refused_edge(root: Path) -> None:
    (root / "topology" / "all.yaml").write_text(TOPOLOGY.replace("cost: 9", "enabled: false"))
    found = compiler(root).explain(flow("shop,copy"))
    assert found.dag is not None
    assert [(way.destination, way.cost, [hop.edge for hop in way.hops]) for way in found.ways] == [
        ("shop", 2, ["in", "to-shop"]),
        ("copy", 2, ["in", "to-copy"]),
    ]
    assert {hop.executor for way in found.ways for hop in way.hops} == {EMBEDDED}, "as jobs name it"
    assert found.ways[0].hops[0].job == found.ways[1].hops[0].job == found.dag.jobs[0].name
    assert [str(refusal) for refusal in found.refused] == ["edge 'direct' (landing -> shop): it is not enabled"]


GOBBLINS = """\
source.class=org.apache.gobblin.example.simplejson.SimpleJsonSource
source.filebased.files.to.pull=${folder}/${env:MONTH}.json
extract.namespace=test
extract.table.name=orders
writer.output.format=AVRO
data.publisher.final.dir=${destination.path}
"""
CLUSTER = """\
nodes:
  landing: {type: files, properties: {path: in}}
  shop: {type: lake, properties: {path: shop}}
executors:
  cluster:
    type: kafka
    kafka: {brokers: "broker:9092", orders: jobs, reports: tracking, format: gobblin}
    capabilities: [{}]
edges:
  in: {source: landing, destination: shop, template: "FS:///in.job", executors: [cluster]}
"""


def test_executor_of_a_gobblin_cluster_gets_the_keys_of_the_job(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "in.job").write_text(GOBBLINS)
    (root / "topology" / "all.yaml").write_text(CLUSTER)
    (job,) = compiler(root).compile(flow(folder="in")).jobs
    assert job.executor == "cluster"
    keys = keys_of_body(job.body)
    assert keys is not None
    assert keys["source.filebased.files.to.pull"] == "in/${env:MONTH}.json"
    assert keys["data.publisher.final.dir"] == "shop"
    monkeypatch.setenv("MONTH", "may")
    told = {"flow.executionId": "7", "job.currentAttempts": "1"}  # what the order adds is not of the job
    spec = read_job_body(job.name, keys_body({**keys, **told}), root, ProjectSpec(project="tests"))
    assert (spec.job, spec.extract.table, spec.output.path) == (job.name, "ExampleTable", "shop")
    assert "in/may.json" in str(spec.source.options)
    with pytest.raises(InvalidSpecError, match=r"source\.class: .*shop\.Own"):
        read_job_body(job.name, keys_body({**keys, "source.class": "shop.Own"}), root, ProjectSpec(project="tests"))


def test_executor_of_a_gobblin_cluster_takes_no_template_of_ours(root: Path) -> None:
    (root / "topology" / "all.yaml").write_text(CLUSTER.replace("in.job", "in.template"))
    told = refused(root, flow())
    assert "executor 'cluster' takes Gobblin's job specs, and template FS:///in.template is none of Gobblin's" in told
