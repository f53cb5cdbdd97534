"""`gobblin flow explain` and `create` of flows that name where their data go: the way, the jobs, what was refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.client import FlowClient
from tests.services.flow_project import NEVER, URI, make_project, open_core
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli

TOPOLOGY = f"""\
nodes: {{landing: {{type: files}}, lake: {{type: lake}}, shop: {{type: database}}}}
executors: {{here: {{capabilities: [{{}}]}}}}
edges:
  in: {{source: landing, destination: lake, template: "{URI}"}}
  out: {{source: lake, destination: shop, template: "{URI}"}}
  old: {{source: landing, destination: shop, template: "{URI}", enabled: false}}
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlowClient]:
    make_project(tmp_path)
    (tmp_path / "topology").mkdir()
    (tmp_path / "topology" / "all.yaml").write_text(TOPOLOGY)
    core = open_core(tmp_path)
    monkeypatch.chdir(tmp_path)
    with answering(core) as url, FlowClient(url, core.token) as connected:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        yield connected
    core.datasets.close()
    core.store.close()


def test_explain_shows_way_jobs_and_refused_edges_and_stores_nothing(cli: Cli, client: FlowClient) -> None:
    out = cli("flow", "explain", "g/n", "--from", "landing", "--to", "shop", "--set", "rows=3").out.splitlines()
    assert out[:4] == [
        "Way to shop: landing --in--> lake --out--> shop (cost 2)",
        "  in: job g__n__in on executor embedded",
        "  out: job g__n__out on executor embedded",
        "Refused: old (landing -> shop): it is not enabled",
    ]
    assert "Job g__n__out on executor embedded, after g__n__in:" in out
    told = cli("flow", "explain", "g/n", "--from", "landing", "--to", "lake", "-o", "json").json()
    assert [job["job"] for job in told["jobs"]] == ["g__n__in"]
    assert told["ways"][0]["cost"] == 1
    assert list(client.find()) == []


def test_explain_of_a_flow_without_a_way_shows_all_refusals_then_the_most_useful(cli: Cli, client: FlowClient) -> None:
    called = cli("flow", "explain", "g/n", "--from", "lake", "--to", "landing")
    assert called.code == 2
    assert "no way from 'lake' to 'landing': from the source the data reach shop" in called.err
    text = "flow.excludedEdges=in,out"
    called = cli("flow", "explain", "g/n", "--from", "landing", "--to", "shop", "--set", text)
    assert called.out.splitlines() == [
        "Refused: old (landing -> shop): it is not enabled",
        "Refused: in (landing -> lake): the flow excludes it",
    ]
    assert "no way from 'landing' to 'shop': edge 'old' (landing -> shop): it is not enabled" in called.err


def test_flow_is_created_by_its_ends(cli: Cli, client: FlowClient) -> None:
    assert (
        cli("flow", "create", "g/n", "--from", "landing", "--to", "lake", "--to", "shop", "--schedule", NEVER).code == 0
    )
    properties = client.get("g", "n")["properties"]
    assert properties["gobblin.flow.sourceIdentifier"] == "landing"
    assert properties["gobblin.flow.destinationIdentifier"] == "lake,shop"
    found = list(client.find(sourceIdentifier="landing"))
    assert [one["id"]["flowName"] for one in found] == ["n"]


@pytest.mark.parametrize("given", [[], ["--from", "a"], ["--to", "a"], ["--template", URI, "--from", "a", "--to", "b"]])
def test_flow_that_names_neither_templates_nor_a_way_is_refused(cli: Cli, client: FlowClient, given: list[str]) -> None:
    called = cli("flow", "create", "g/n", *given)
    assert called.code == 2
    assert "Name templates with --template, or a way with --from NODE and --to NODE" in called.err


def test_explain_over_rest_tells_reasons_and_refusals(client: FlowClient) -> None:
    ends = {"gobblin.flow.sourceIdentifier": "landing", "gobblin.flow.destinationIdentifier": "shop"}
    told = client.create("g", "n", "", {**ends, "flow.excludedEdges": "in"}, explain=True)["properties"]
    assert told["gobblin.flow.compiled"] == ""
    assert "gobblin.flow.ways" not in told
    assert [one["edge"] for one in json.loads(told["gobblin.flow.refused"])] == ["old", "in"]
    (first, _) = json.loads(told["gobblin.flow.compile.errors"])
    assert first == "no way from 'landing' to 'shop': edge 'old' (landing -> shop): it is not enabled"


def test_flow_without_templates_goes_through_files_and_back(cli: Cli, client: FlowClient, tmp_path: Path) -> None:
    assert cli("flow", "create", "g/n", "--from", "landing", "--to", "lake", "--schedule", NEVER).code == 0
    folder = tmp_path / "flows"
    assert cli("flow", "export", folder).code == 0
    (file,) = folder.iterdir()
    assert "templates" not in file.read_text()
    assert "Nothing to do" in cli("flow", "apply", folder, "--yes").out
    file.write_text("flow: g/n\n")
    told = cli("flow", "apply", folder, "--yes")
    assert "templates: takes a URI or a list of URIs; only a flow that sets gobblin.flow.sourceIdentifier" in told.err


def test_flow_of_flows_is_applied_after_its_children_and_explained(
    cli: Cli, client: FlowClient, tmp_path: Path
) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    after = "{flow.children: 'g/b,g/inner', flow.child.after.g/inner: g/b}"
    (folder / "a.yaml").write_text(f"flow: g/a\nset: {after}\nschedule: '{NEVER}'\n")
    (folder / "b.yaml").write_text(f"flow: g/b\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    (folder / "inner.yaml").write_text(f"flow: g/inner\nset: {{flow.children: g/z}}\nschedule: '{NEVER}'\n")
    (folder / "z.yaml").write_text(f"flow: g/z\ntemplates: {URI}\nschedule: '{NEVER}'\n")
    assert [line for line in cli("flow", "apply", folder, "--yes").out.splitlines() if line.startswith("create")] == [
        "create g/b",
        "create g/z",
        "create g/inner",
        "create g/a",
    ]
    told = cli("flow", "explain", "g/a", "-o", "json").json()
    assert [(job["job"], job["parents"]) for job in told["jobs"]] == [
        ("g__b__rows", []),
        ("g__z__rows", ["g__b__rows"]),
    ]
    circle = cli("flow", "update", "g/inner", "--set", "flow.children=g/a")
    assert circle.code == 2
    assert "in g/a: flow g/inner is a child of itself: g/inner -> g/a -> g/inner" in circle.err
    assert cli("flow", "create", "g/once", "--set", "flow.children=g/b").code == 0
    (folder / "b.yaml").write_text("flow: g/b\nset: {flow.children: g/a}\n")
    assert "child of itself" in cli("flow", "apply", folder, "--yes").err, "the service tells of the circle"
