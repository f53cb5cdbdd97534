"""A flow of flows: the jobs of its children as one DAG, in order; what is wrong is told by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.children import AFTER, CHILDREN, MAX_CHILDREN, ChildrenCompiler
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, PATH, SOURCE
from gobblin_dagster.service.model import Change, FlowConfig, FlowId, FlowSpec

TEMPLATE = """
template: {name}
parameters:
  where: {{default: landing}}
job:
  source: {{type: files, path: "${{where}}/{{dataset}}.csv", format: {{type: csv}}}}
  extract: {{namespace: test, table: orders}}
  output: {{path: "lake/{name}"}}
"""


def leaf(name: str, templates: str = "FS:///one.template", **properties: str) -> FlowConfig:
    return FlowConfig(FlowId("g", name), templates, properties)


def parent(name: str, children: str, **after: str) -> FlowConfig:
    """Return a flow of flows; `after` maps names of children in the group `g` to those before them."""
    return leaf(name, "", **{CHILDREN: children, **{f"{AFTER}g/{one}": text for one, text in after.items()}})


class Catalog:
    """Flows by their ids, and their compiler."""

    def __init__(self, root: Path) -> None:
        for name in ("one", "two"):
            (root / f"{name}.template").write_text(TEMPLATE.format(name=name))
        self.flows: dict[FlowId, FlowConfig] = {}
        self.identity = IdentityCompiler(TemplateCatalog(root), ["embedded"])
        self._compiler = ChildrenCompiler(self.identity.explain, self._find)

    def add(self, *configs: FlowConfig) -> None:
        self.flows.update({config.id: config for config in configs})

    def _find(self, flow: FlowId) -> FlowSpec | None:
        config = self.flows.get(flow)
        return None if config is None else FlowSpec(config, 7, Change.UPDATED, datetime(2026, 1, 1, tzinfo=UTC), "me")

    def explain(self, config: FlowConfig) -> Explanation:
        found = self._compiler.explain(config)
        assert self._compiler.explain(config) == found
        return found

    def jobs(self, config: FlowConfig) -> dict[str, tuple[str, ...]]:
        """Return the parents of each job."""
        dag = self.explain(config).require_dag(config.id)
        return {job.name: job.parents for job in dag.jobs}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def test_children_have_their_own_jobs_side_by_side_or_after_others(catalog: Catalog) -> None:
    chain = leaf("orders", "FS:///one.template,FS:///two.template", **{"job.maxAttempts": "3"})
    catalog.add(chain, leaf("customers"), leaf("report", where="lake"))
    config = parent("all", "g/report, g/orders,g/customers", report="g/orders,g/customers")
    assert catalog.jobs(config) == {
        "g__orders__one": (),
        "g__orders__two": ("g__orders__one",),
        "g__customers__one": (),
        "g__report__one": ("g__orders__two", "g__customers__one"),
    }
    alone = {job.name: job for job in catalog.identity.compile(chain).jobs}
    together = {job.name: job for job in catalog.explain(config).require_dag(config.id).jobs}
    whose = (chain.id, 7)
    two = replace(alone["g__orders__two"], child=whose)
    assert together["g__orders__two"] == two, "attempts and parameters are the child's"
    report = catalog.identity.compile(catalog.flows[FlowId("g", "report")]).jobs[0]
    assert replace(together["g__report__one"], parents=(), child=None) == report


def test_children_may_have_children_that_come_after_the_same_jobs(catalog: Catalog) -> None:
    catalog.add(leaf("a"), leaf("b"), leaf("c"), leaf("d"), parent("inner", "g/b,g/c", c="g/b"))
    assert catalog.jobs(parent("all", "g/a,g/inner,g/d", inner="g/a", d="g/inner")) == {
        "g__a__one": (),
        "g__b__one": ("g__a__one",),
        "g__c__one": ("g__b__one",),
        "g__d__one": ("g__c__one",),
    }


def test_circles_are_refused_by_name(catalog: Catalog) -> None:
    one, two = parent("one", "g/two"), parent("two", "g/one")
    catalog.add(one, two, leaf("a"), leaf("b"))
    found = catalog.explain(one)
    assert found.reasons == ("in g/two: flow g/one is a child of itself: g/one -> g/two -> g/one",)
    assert not found.is_without_way, "waiting does not help"
    assert "g/self -> g/self" in catalog.explain(parent("self", "g/self")).reasons[0], "before it is stored, too"
    [told] = catalog.explain(parent("all", "g/a,g/b", a="g/b", b="g/a")).reasons
    assert told.startswith("children come after each other: g/")
    assert set(told.removeprefix("children come after each other: ").split(" -> ")) == {"g/a", "g/b"}


def test_child_that_is_missing_may_be_waited_for_and_other_faults_may_not(catalog: Catalog) -> None:
    catalog.add(leaf("a"), parent("inner", "g/b"), leaf("bad", "FS:///gone.template"))
    found = catalog.explain(parent("all", "g/a,g/inner,h/x"))
    assert found.reasons == ("in g/inner: there is no flow g/b", "there is no flow h/x")
    assert (found.dag, found.is_without_way) == (None, True)
    found = catalog.explain(parent("all", "g/a,g/bad,h/x"))
    assert not found.is_without_way
    assert found.reasons[0].startswith("child g/bad: template FS:///gone.template")
    assert found.reasons[1] == "there is no flow h/x"


def test_flow_is_a_child_once(catalog: Catalog) -> None:
    catalog.add(leaf("a"), parent("inner", "g/a"))
    [told] = catalog.explain(parent("all", "g/a,g/inner")).reasons
    assert told == "in g/inner: flow g/a is a child twice; its jobs can run once in an execution"
    assert catalog.jobs(parent("all", "g/a,g/a")) == {"g__a__one": ()}, "naming it twice says nothing else"


def test_what_the_compiler_of_a_routed_child_says_is_told_of_the_child(catalog: Catalog) -> None:
    ends = {SOURCE: "landing", DESTINATIONS: "lake"}
    catalog.add(leaf("routed", "", **ends), leaf("fixed", "", **ends, **{PATH: "in"}))
    for name in ("routed", "fixed"):
        [told] = catalog.explain(parent("all", f"g/{name}")).reasons
        assert told.startswith(f"child g/{name}: ")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (parent("p", " , "), "flow.children names no flow; write GROUP/NAME, with commas between several"),
        (parent("p", "g/a,b"), "flow.children: 'b' names no flow; write GROUP/NAME"),
        (parent("p", "g/a", b="g/a"), "flow.child.after.g/b: 'g/b' is not among flow.children; "),
        (parent("p", "g/a", a="g/x"), "flow.child.after.g/a: 'g/x' is not among flow.children; "),
        (parent("p", ",".join(f"g/{n}" for n in range(MAX_CHILDREN + 1))), "flow.children has 101 names; at most 100"),
        (leaf("p", **{CHILDREN: "g/a"}), "a flow with flow.children names neither templates nor a source"),
        (leaf("p", "", **{CHILDREN: "g/a", SOURCE: "x"}), "a flow with flow.children names neither templates nor a"),
        (leaf("p", "", **{CHILDREN: "g/a", "job.maxAttempts": "2"}), "job.maxAttempts is for flows with jobs of their"),
        (leaf("p", "", **{CHILDREN: "g/a", "table": "x"}), "no template declares the parameter 'table'"),
    ],
    ids=["none", "name", "after", "before", "many", "templates", "source", "attempts", "parameter"],
)
def test_faults_of_the_flow_itself_are_told(catalog: Catalog, config: FlowConfig, reason: str) -> None:
    catalog.add(leaf("a"))
    found = catalog.explain(config)
    assert any(one.startswith(reason) for one in found.reasons), found.reasons
    assert not found.is_without_way
