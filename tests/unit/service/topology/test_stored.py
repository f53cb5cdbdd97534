"""Topology files that came over REST: with those of the folder they are one topology, without faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import FlowNotFoundError, InvalidSpecError, UsageError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.service.topology.stored import StoredTopology
from tests.unit.service.topology.conftest import SOUND, Write

TEMPLATE = "template: {0}\njob: {{source: {{type: files}}}}\n"
MORE = """\
nodes: {cellar: {type: lake}}
edges: {down: {source: lake, destination: cellar, template: "FS:///in.template", executors: [there]}}
"""


def no_note(_: Transaction) -> None:
    """Leave none."""


class Nodes:
    """Two nodes of one service, with a folder of templates and a folder of files."""

    def __init__(self, write: Write, root: Path) -> None:
        (root / "templates").mkdir()
        for name in ("in", "out"):
            (root / "templates" / f"{name}.template").write_text(TEMPLATE.format(name))
        self.folder = write(a=SOUND)
        self.store = ServiceStore(f"sqlite:///{root}/service.db", SystemClock())
        self.stored = StoredTopology(self.store, self.folder, TemplateCatalog(root / "templates"))
        self.catalog = TopologyCatalog(self.folder, stored=self.stored)


@pytest.fixture
def nodes(write: Write, tmp_path: Path) -> Nodes:
    return Nodes(write, tmp_path)


def test_stored_files_and_those_of_the_folder_are_one_topology_on_every_node(nodes: Nodes) -> None:
    other = TopologyCatalog(nodes.folder, stored=nodes.stored)
    assert nodes.stored.put("west", MORE, "me", no_note) == 1
    for catalog in (nodes.catalog, other):
        assert catalog.refresh()
        assert set(catalog.graph.edges) == {"in", "out", "down"}
        assert not catalog.refresh()
    assert nodes.stored.put("west", "nodes: {cellar: {type: lake}}", "me", no_note) == 2
    assert other.refresh()
    assert set(other.graph.edges) == {"in", "out"}
    assert nodes.stored.delete("west", "you", no_note) == 3
    assert other.refresh()
    assert "cellar" not in other.graph.nodes
    assert (nodes.stored.version(), nodes.stored.files()) == (3, [])
    nodes.store.close()


def test_file_with_which_the_topology_has_a_fault_is_refused_and_not_stored(nodes: Nodes) -> None:
    for body, told in (
        ("nodes: {lake: {type: lake}}", r"west \(in the service\):1: nodes.lake: the name 'lake' is taken in"),
        ("edges: {x: {source: lake, destination: moon, template: FS:///in.template}}", "there is no node 'moon'"),
        (MORE.replace("in.template", "no.template"), "no.template cannot be read"),
        ("nodes: [", "west"),
    ):
        with pytest.raises(InvalidSpecError, match=told):
            nodes.stored.put("west", body, "me", no_note)
    nodes.stored.put("base", "nodes: {cellar: {type: lake}}", "me", no_note)
    edge = MORE.partition("\n")[2]
    nodes.stored.put("edge", edge, "me", no_note)
    with pytest.raises(InvalidSpecError, match="there is no node 'cellar'"):
        nodes.stored.delete("base", "me", no_note)
    assert [(one.name, one.version, one.changed_by) for one in nodes.stored.files()] == [
        ("base", 1, "me"),
        ("edge", 2, "me"),
    ]
    nodes.store.close()


def test_file_with_a_secret_is_refused_and_one_that_an_older_version_stored_stays(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "must hold no secret, as topologies are shown; take it from the executor's environment"
    body = """\
nodes: {{cellar: {{type: lake, properties: {{{0}: "{1}"}}}}}}
edges: {{down: {{source: lake, destination: cellar, template: "FS:///in.template", executors: [there]}}}}
"""
    for key, value in (("db.password", "hunter2"), ("url", "postgresql://u:hunter2@h/d")):
        with pytest.raises(InvalidSpecError) as raised:
            nodes.stored.put("west", body.format(key, value), "me", no_note)
        assert [(one.path, one.problem) for one in raised.value.faults] == [
            (f"nodes.cellar.properties.{key}", f"{told}: ${{NAME}}")
        ]
        assert "hunter2" not in str(raised.value)
    nodes.stored.put("west", body.format("db.password", "${PASSWORD}"), "me", no_note)

    with monkeypatch.context() as older:
        older.setattr("gobblin_dagster.service.topology.files.is_literal_secret", lambda *_: False)
        nodes.stored.put("west", body.format("db.password", "hunter2"), "me", no_note)
    nodes.stored.put("east", "nodes: {attic: {type: lake}}", "me", no_note)
    assert nodes.catalog.refresh()
    assert (nodes.catalog.problem, "attic" in nodes.catalog.graph.nodes) == ("", True)
    nodes.store.close()


def test_names_and_texts_that_no_file_can_have_are_refused(nodes: Nodes) -> None:
    with pytest.raises(UsageError, match="no name of a topology file"):
        nodes.stored.put("../west", MORE, "me", no_note)
    with pytest.raises(UsageError, match="NUL"):
        nodes.stored.put("west", "a: '\0'", "me", no_note)
    with pytest.raises(FlowNotFoundError, match="keeps no topology file 'west'"):
        nodes.stored.delete("west", "me", no_note)
    nodes.store.close()


def test_topology_is_not_known_before_the_store_was_there_and_stays_while_it_is_away(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.stored.put("west", MORE, "me", no_note)
    away = ServiceStore("postgresql://nobody@127.0.0.1:1/none", SystemClock(), may_be_away=True)
    monkeypatch.setattr(nodes.stored, "_store", away)
    catalog = TopologyCatalog(nodes.folder, stored=nodes.stored)
    assert (catalog.is_known, catalog.graph.edges) == (False, {})
    monkeypatch.setattr(nodes.stored, "_store", nodes.store)
    assert catalog.refresh()
    assert (catalog.is_known, len(catalog.graph.edges)) == (True, 3)
    monkeypatch.setattr(nodes.stored, "_store", away)
    assert not catalog.refresh()
    assert len(catalog.graph.edges) == 3
    assert "postgresql" in catalog.problem
    monkeypatch.setattr(nodes.stored, "_store", nodes.store)
    assert not catalog.refresh()
    assert catalog.problem == ""
    nodes.store.close()
    away.close()


def test_executors_of_a_stored_file_name_only_what_the_project_allows(nodes: Nodes, tmp_path: Path) -> None:
    lists = AllowLists(paths=("tls",), environment=(), modules=(), hosts=("near:9092",))
    stored = StoredTopology(nodes.store, nodes.folder, TemplateCatalog(tmp_path / "templates"), lists, tmp_path)
    refused = """\
executors:
  queue:
    {type: kafka, capabilities: [{}], kafka: {brokers: "far:9092", orders: o, reports: r,
     config: {plugin.library.paths: /tmp/x.so}, config_env: {sasl.password: SERVICE_PASSWORD}}}
  caller:
    {type: rest, capabilities: [{}], rest: {url: "https://far:1", ca: tls/ca.pem, certificate: /etc/c.pem, key: tls/k}}
  pages:
    {type: dagster, capabilities: [{}], dagster: {url: "https://far:2", location: g, token_env: TOKEN, ca: /etc/c.pem}}
"""
    with pytest.raises(InvalidSpecError) as raised:
        stored.put("west", refused, "me", no_note)
    told = [(one.path, one.line, one.problem.partition(":")[0]) for one in raised.value.faults]
    assert sorted(told) == [
        ("executors.caller", 5, "certificate_file"),
        ("executors.caller", 5, "url"),
        ("executors.pages", 7, "ca_file"),
        ("executors.pages", 7, "token_env"),
        ("executors.pages", 7, "url"),
        ("executors.queue", 2, "brokers"),
        ("executors.queue", 2, "config.plugin.library.paths"),
        ("executors.queue", 2, "config_env.sasl.password"),
    ]
    near = 'executors: {queue: {type: kafka, capabilities: [{}], kafka: {brokers: "near:9092", orders: o, reports: r}}}'
    assert stored.put("west", near, "me", no_note) == 1
    nodes.store.close()
