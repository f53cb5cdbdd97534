"""A folder of topology files: one graph, or all faults at once, each with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.topology.files import read_topology
from tests.unit.service.topology.conftest import SOUND, Write


def told(folder: Path) -> list[str]:
    return [fault.text("") for fault in read_topology(folder).faults]


def test_files_of_a_folder_make_one_topology(write: Write) -> None:
    parts = SOUND.partition("executors:")
    folder = write(nodes=parts[0], rest="executors:" + parts[2])
    found = read_topology(folder)
    assert found.faults == ()
    assert set(found.graph.nodes) == {"landing", "lake", "shop"}
    assert found.graph.edge("in").executor == "here"
    assert found.graph.edge("out").executor == "there", "the only one that has the capability"
    assert found.places["edges", "out"].line == 6
    assert found.files == ("topology/nodes.yaml", "topology/rest.yaml")


def test_all_faults_of_all_files_are_told_at_once_with_file_and_line(write: Write) -> None:
    folder = write(
        a="nodes:\n  one: {type: files}\n  two: {type: lake}\n  'no name': {type: lake}\nedge: {}\n",
        b=(
            "executors:\n  here: {capabilities: [{source: files}]}\n"
            "edges:\n"
            "  e1:\n    source: one\n    destination: too\n    template: FS:///t\n    executors: [hier]\n"
            "  e2: {source: two, destination: one, template: FS:///t, executors: [here]}\n"
            "  e3: {source: one, destination: one, template: FS:///t}\n"
            "  e4: {source: one, destination: two, template: FS:///t, cost: -1}\n"
            "  e5: {source: one, destination: two, template: FS:///t, executors: []}\n"
            "  e6: {source: two, destination: one, template: FS:///t}\n"
        ),
        c="nodes:\n  one: {type: files}\n",
        d="nodes: [\n",
    )
    faults = told(folder)
    for start in (
        "topology/a.yaml:4: nodes.no name: 'no name' is no name",
        "topology/a.yaml:5: edge: unknown key; did you mean 'edges'?",
        "topology/b.yaml:6: edges.e1.destination: there is no node 'too'; did you mean 'two'?",
        "topology/b.yaml:8: edges.e1.executors: there is no executor 'hier'; did you mean 'here'?",
        "topology/b.yaml:9: edges.e2.executors: none of here has the capability from 'lake' to 'files'",
        "topology/b.yaml:10: edges.e3.destination: leads from 'one' to itself",
        "topology/b.yaml:11: edges.e4.cost: expected at least 0",
        "topology/b.yaml:12: edges.e5.executors: names no executor",
        "topology/b.yaml:13: edges.e6: no executor has the capability from 'lake' to 'files'",
        "topology/c.yaml:2: nodes.one: the name 'one' is taken in topology/a.yaml:2 already",
        "topology/d.yaml:",
    ):
        assert [fault for fault in faults if fault.startswith(start)], (start, faults)
    assert len(faults) == 11, faults


def test_part_with_a_fault_of_its_own_is_not_unknown_to_others(write: Write) -> None:
    faults = told(write(a=SOUND.replace("{type: database}", "{tipe: database}")))
    assert len(faults) == 2, "the missing key and the unknown one, and nothing about the edge to it"


def test_cycle_that_costs_nothing_is_a_fault_of_one_of_its_edges(write: Write) -> None:
    text = (
        SOUND.replace("cost: 2", "cost: 0")
        + '  back: {source: shop, destination: lake, template: "FS:///x", cost: 0}\n'
    )
    text = text.replace("{source: lake}]", "{source: lake}, {source: database}]")
    (fault,) = told(write(a=text))
    assert "is part of a cycle that costs nothing: " in fault
    assert fault.endswith("give one of its edges a cost above 0")
    assert told(write(a=text.replace("cost: 0}\n", "cost: 1}\n", 1))) == []


def test_template_that_is_not_there_is_a_fault_of_the_edge(write: Write, tmp_path: Path) -> None:
    found = read_topology(write(a=SOUND), TemplateCatalog(tmp_path))
    assert [(fault.path, fault.line) for fault in found.faults] == [
        ("edges.in.template", 9),
        ("edges.out.template", 10),
    ]


def test_references_to_variables_stay_for_the_executor(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET", "mine")
    found = read_topology(write(a="nodes:\n  lake: {type: lake, properties: {bucket: '${BUCKET}'}}\n"))
    assert found.graph.nodes["lake"].properties == {"bucket": "${BUCKET}"}


def test_secrets_in_a_folder_are_faults_each_with_its_line(write: Write) -> None:
    text = SOUND.replace("properties: {path: landing}", "properties: {api_key: hunter2}")
    found = told(write(a=text.replace("cost: 2", "values: {db.password: hunter2}")))
    problem = "must hold no secret, as topologies are shown; take it from the executor's environment: ${NAME}"
    assert found == [
        f"topology/a.yaml:2: nodes.landing.properties.api_key: {problem}",
        f"topology/a.yaml:10: edges.out.values.db.password: {problem}",
    ]


def test_folder_that_is_not_there_is_refused_and_an_empty_file_is_an_empty_topology(write: Write) -> None:
    with pytest.raises(UsageError, match="There is no folder nowhere"):
        read_topology(Path("nowhere"))
    assert read_topology(write(a="")).faults == ()


def test_values_that_templates_need_and_nodes_lack_are_faults_of_the_edge(write: Write, tmp_path: Path) -> None:
    (tmp_path / "t.template").write_text(
        "template: t\nparameters:\n"
        "  source.path: {type: path}\n  destination.url: {}\n  destination.port: {type: integer}\n  table: {}\n"
        "job:\n  source: {type: files, path: '${source.path}'}\n"
        "  output: {path: '${destination.url}:${destination.port}/${table}'}\n"
    )
    folder = write(
        a=(
            "nodes:\n  a: {type: n, properties: {path: /etc}}\n  b: {type: n, properties: {port: '${PORT}'}}\n"
            "executors: {x: {capabilities: [{}]}}\nedges:\n"
            "  e: {source: a, destination: b, template: 'FS:///t.template', values: {tabel: orders}}\n"
        )
    )
    found = [fault.text("") for fault in read_topology(folder, TemplateCatalog(tmp_path)).faults]
    assert found == [
        "topology/a.yaml:6: edges.e.template: FS:///t.template:8 gets ${source.path} = '/etc', "
        "which is no relative path inside of its folder",
        "topology/a.yaml:6: edges.e.template: FS:///t.template:9 needs ${destination.url}, "
        "and node 'b' has no property 'url'",
        "topology/a.yaml:6: edges.e.values.tabel: template FS:///t.template declares no parameter 'tabel'; "
        "did you mean 'table'?",
    ]


def test_executors_of_one_edge_keep_watermarks_in_one_store(write: Write) -> None:
    folder = write(
        all=SOUND.replace("executors: [here]", "executors: [here, east]").replace(
            "  there:", "  east: {type: store, state: east, capabilities: [{source: files}]}\n  there:"
        )
    )
    [fault] = told(folder)
    assert "edges.in.executors: its executors keep watermarks in different state stores ('' and 'east')" in fault


def test_names_of_the_services_own_executors_are_taken(write: Write) -> None:
    executors = "executors:\n  dagster: {type: store, capabilities: [{}]}\n  embedded: {capabilities: [{}]}\n"
    [fault] = told(write(all=executors))
    assert "executors.dagster: 'dagster' is the name of an executor of the service" in fault


def test_link_to_nothing_is_a_fault(write: Write) -> None:
    folder = write(all=SOUND)
    (folder / "more.yaml").symlink_to("gone.yaml")
    (folder / ".#all.yaml").symlink_to("me@here.17:1")
    [fault] = told(folder)
    assert "more.yaml:1" in fault
    assert "cannot be read: No such file" in fault


def test_folder_that_kubernetes_mounts_holds_each_file_once(write: Write) -> None:
    folder = write(all=SOUND)
    hidden = folder / "..2026_11_23"
    hidden.mkdir()
    (folder / "all.yaml").rename(hidden / "all.yaml")
    (folder / "..data").symlink_to(hidden.name)
    (folder / "all.yaml").symlink_to("..data/all.yaml")
    found = read_topology(folder)
    assert (found.files, found.faults) == (("topology/all.yaml",), ())
