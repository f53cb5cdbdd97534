"""`gobblin topology`: the project's topology files, checked and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.service.store.node_rows import Node, save_node
from gobblin_dagster.service.topology.capabilities import announce
from tests.services.flow_project import open_core
from tests.services.rest_service import answering
from tests.unit.cli.conftest import Cli
from tests.unit.service.topology.conftest import SOUND

TEMPLATE = "template: {0}\njob: {{source: {{type: files}}}}\n"
EAST = """\
edges: {new: {source: lake, destination: landing, template: "FS:///in.template", executors: [east]}}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    for folder in ("templates", "topology"):
        (tmp_path / folder).mkdir()
    for name in ("in", "out"):
        (tmp_path / "templates" / f"{name}.template").write_text(TEMPLATE.format(name))
    (tmp_path / "topology" / "all.yaml").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_counts_a_sound_topology(cli: Cli, root: Path) -> None:
    called = cli("topology", "check")
    assert called.code == 0
    assert called.out.splitlines() == [
        "ok    topology: 3 nodes",
        "ok    topology: 2 edges",
        "ok    topology: 2 executors",
    ]


def test_check_tells_all_faults_with_file_and_line(cli: Cli, root: Path) -> None:
    (root / "templates" / "out.template").unlink()
    (root / "topology" / "more.yaml").write_text("nodes:\n  lake: {type: lake}\n")
    called = cli("topology", "check")
    assert called.code == ExitCode.USAGE
    lines = called.out.splitlines()
    assert lines[0].startswith(
        "FAULT topology/all.yaml:10: edges.out.template: template FS:///out.template cannot be read"
    )
    assert lines[1] == "FAULT topology/more.yaml:2: nodes.lake: the name 'lake' is taken in topology/all.yaml:3 already"
    told = cli("topology", "check", "--output", "json").json()
    assert (told["valid"], [fault["line"] for fault in told["faults"]]) == (False, [10, 2])
    assert "2 faults" in cli("topology", "list").err, "nothing is shown of a topology with faults"


def test_list_shows_everything_or_one_kind(cli: Cli, root: Path) -> None:
    out = cli("topology", "list").out
    for told in ("landing", "database", "FS:///out.template", "files -> lake", "lake -> any"):
        assert told in out
    edges = cli("topology", "list", "edges", "--output", "json").json()["edges"]
    assert [(one["name"], one["executor"], one["cost"]) for one in edges] == [("in", "here", 1), ("out", "there", 2)]
    (root / "topology" / "all.yaml").write_text("")
    assert cli("topology", "list", "nodes").out == "No nodes.\n"


def test_show_draws_the_whole_topology(cli: Cli, root: Path) -> None:
    text = SOUND.replace("{source: lake}]", "{source: lake}], enabled: false")
    (root / "topology" / "all.yaml").write_text(text)
    assert cli("topology", "show").out.splitlines() == [
        "lake (lake)",
        "  --out--> shop  (no executor that can run it is enabled: there)",
        "landing (files)",
        "  --in--> lake  (cost 1, on executor here)",
        "shop (database)",
    ]
    mermaid = cli("topology", "show", "--picture", "mermaid").out.splitlines()
    assert mermaid[0] == "flowchart LR"
    assert '  n0["lake<br>lake"]' in mermaid
    assert '  n0 -.->|"out"| n2' in mermaid
    assert '  n1 -->|"in"| n0' in mermaid


def test_show_tells_all_of_one_part(cli: Cli, root: Path) -> None:
    out = cli("topology", "show", "lake").out
    assert "platform  s3" in " ".join(out.split()) or "s3" in out
    assert "landing --in--> lake  (on executor here)" in out
    assert "lake --out--> shop  (on executor there)" in out
    assert "FS:///in.template" in cli("topology", "show", "in").out
    assert cli("topology", "show", "here", "-o", "json").json()["executors"][0]["name"] == "here"
    missing = cli("topology", "show", "laek")
    assert missing.code == ExitCode.USAGE
    assert "did you mean 'lake'?" in missing.err


def test_apply_stores_files_in_the_service_and_refuses_faults(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = open_core(root)
    (root / "west.yaml").write_text("nodes: {cellar: {type: lake}}\n")
    (root / "bad.yaml").write_text("nodes:\n  lake: {type: lake}\n")
    with answering(core) as url:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        assert cli("topology", "apply").out == "The service keeps no topology files.\n"
        assert cli("topology", "apply", "west.yaml").out == "west.yaml is stored as west: change 1 of the topology.\n"
        assert "cellar" in core.topology.graph.nodes
        assert cli("topology", "show", "cellar").out.startswith("node      cellar\n")
        (root / "topology" / "more.yaml").write_text("nodes:\n  cellar: {type: lake}\n")
        assert "the name 'cellar' is taken" in cli("topology", "check").out
        (root / "topology" / "more.yaml").unlink()
        refused = cli("topology", "apply", "bad.yaml")
        assert refused.code == ExitCode.USAGE
        assert "bad (in the service):2: nodes.lake: the name 'lake' is taken in" in refused.err
        assert cli("topology", "apply", "gone.yaml").code == ExitCode.USAGE
        assert "west" in cli("topology", "apply").out
        assert cli("topology", "apply", "--delete", "west").out == "west is deleted.\n"
        assert "cellar" not in core.topology.graph.nodes
    core.datasets.close()
    core.store.close()


def test_provision_registers_an_executor_with_workers_and_retire_removes_it(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = open_core(root)
    with answering(core) as url:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", core.token)
        told = cli("topology", "provision", "east", "--workers", "2", "--from", "lake", "--jobs", "3").out
        assert told == "east is an executor with 2 workers; their logs are .gobblin/provisioned-east-*.log.\n"
        with core.store.write() as transaction:
            now = core.store.now(transaction)
            about = {"jobs_at_once": 3, **announce(AllowLists(paths=("/data",), modules=()))}
            about["constructs"].remove("source.files")
            save_node(transaction, Node("w1", LeaseOwner.current("w1"), "", "0.1", now, now, now, "east", about))
            save_node(transaction, Node("w0", LeaseOwner.current("w0"), "", "0.0", now, now, now, "there"))
        shown = cli("topology", "list", "workers").out.splitlines()
        assert [line.split()[:4] for line in shown[1:]] == [["w1", "east", "0.1", "3"], ["w0", "there", "0.0", "-"]]
        assert shown[1].endswith(" /data")
        assert "kafka, python, query, rest, spark" in shown[1]
        told = cli("topology", "show", "east").out
        assert "w1" in told
        assert "constructs" not in told
        (root / "topology" / "east.yaml").write_text(EAST)
        assert "no worker of east has source files" in cli("topology", "list", "edges").out
        [worker] = cli("topology", "show", "east", "-o", "json").json()["workers"]
        assert (worker["version"], worker["roots"], worker["modules"]) == ("0.1", ["/data"], [])
        (root / "topology" / "east.yaml").unlink()
        east = core.topology.graph.executors["east"]
        assert (east.type, east.workers, east.jobs_at_once) == ("store", 2, 3)
        assert east.can_move("lake", "database")
        assert not east.can_move("files", "lake")
        assert cli("topology", "provision", "east").code == 0, "it changes what is there"
        assert core.topology.graph.executors["east"].workers == 1
        edge = "edges: {more: {source: lake, destination: shop, template: FS:///in.template, executors: [east]}}\n"
        (root / "edge.yaml").write_text(edge)
        assert cli("topology", "apply", "edge.yaml").code == 0
        assert "there is no executor 'east'" in cli("topology", "retire", "east").err
        assert cli("topology", "apply", "--delete", "edge").code == 0
        assert cli("topology", "retire", "east").out == "east is no executor any more; its workers end.\n"
        assert "east" not in core.topology.graph.executors
        assert cli("topology", "retire", "east").code != 0
        assert "is no name" in cli("topology", "provision", "../x").err
    core.datasets.close()
    core.store.close()
