"""Compilers by name, a user's own among them; which one a flow asks for."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import FlowCompileError, UsageError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.compilers import COMPILERS, CompilerContext, make_compiler, open_compiler
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.topology_rows import save_file
from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.spec.project import ServiceSpec
from tests.unit.service.compiler.test_multi_hop import TEMPLATE, TOPOLOGY

ROUTED = FlowConfig(FlowId("g", "n"), "", {SOURCE: "landing", DESTINATIONS: "lake"})
NAMED = FlowConfig(FlowId("g", "n"), "FS:///plain.template")
PLAIN = """\
template: plain
job:
  source: {type: files, path: "landing/{dataset}.csv", format: {type: csv}}
  extract: {namespace: test, table: orders}
  output: {path: lake}
"""


class OwnCompiler:
    """Makes one job of each flow, named as the flow is."""

    def __init__(self, context: CompilerContext) -> None:
        self._executor = context.executors[0]

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        return Dag((DagJob(config.id.name, self._executor, "{}"),))

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        return Explanation(self.compile(config, former))


def context(root: Path, allow: AllowLists = EVERYTHING) -> CompilerContext:
    return CompilerContext(TemplateCatalog(root), TopologyCatalog(root / "topology"), ["embedded"], allow)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {"in": TEMPLATE.format(name="in"), "out": TEMPLATE.format(name="out"), "plain": PLAIN}.items():
        (tmp_path / f"{name}.template").write_text(text)
    (tmp_path / "topology").mkdir()
    (tmp_path / "topology" / "all.yaml").write_text(TOPOLOGY)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "takes"), [("auto", (True, True)), ("identity", (False, True)), ("multi_hop", (True, False))]
)
def test_compiler_takes_the_flows_that_are_its_own(root: Path, name: str, takes: tuple[bool, bool]) -> None:
    compiler = make_compiler(name, context(root))
    for config, is_taken in zip((ROUTED, NAMED), takes, strict=True):
        assert (compiler.explain(config).dag is not None) == is_taken
        if not is_taken:
            with pytest.raises(FlowCompileError):
                compiler.compile(config)


def test_compiler_of_a_user_is_named_by_its_class(root: Path) -> None:
    made = make_compiler(f"{__name__}:OwnCompiler", context(root))
    assert made.compile(NAMED).jobs[0].name == "n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("multihop", "There is no compiler 'multihop'. .* one of auto, identity, multi_hop"),
        ("nowhere.at.all:Compiler", "cannot be imported"),
        (f"{__name__}:NoSuch", "cannot be imported"),
    ],
)
def test_compiler_that_is_not_there_is_refused(root: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make_compiler(name, context(root))


def test_compiler_of_a_module_that_the_project_does_not_allow_is_not_imported(root: Path) -> None:
    with pytest.raises(UsageError, match="antigravity"):
        make_compiler("antigravity:Compiler", context(root, AllowLists(modules=("shop",))))
    assert "antigravity" not in sys.modules


def test_compiler_of_a_project_reads_its_folders(root: Path) -> None:
    spec = ServiceSpec(templates=".")
    assert spec.compiler in COMPILERS
    with ServiceStore(f"sqlite:///{root}/service.db", SystemClock()) as store:
        found = open_compiler(root, spec, ["embedded"], EVERYTHING, store).explain(ROUTED)
    assert [way.destination for way in found.ways] == ["lake"]


def test_compiler_of_a_project_knows_topology_files_that_the_service_keeps(root: Path) -> None:
    spec = ServiceSpec(templates=".")
    [file] = (root / "topology").glob("*.yaml")
    with ServiceStore(f"sqlite:///{root}/service.db", SystemClock()) as store:
        with store.write() as transaction:
            save_file(transaction, "all", file.read_text(), "me", SystemClock().now())
        file.unlink()
        found = open_compiler(root, spec, ["embedded"], EVERYTHING, store).explain(ROUTED)
    assert [way.destination for way in found.ways] == ["lake"]
