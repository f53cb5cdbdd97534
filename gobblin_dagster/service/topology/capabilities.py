"""What workers announce that they can do, and what the templates of edges need of them.

A worker announces the constructs that it can make, without sources that its `gobblin.yaml` does not allow, the extras
that are installed, and the modules and roots that it allows. Roots are announced for people: paths are checked by the
worker, on its own machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from gobblin_dagster.constructs.extras import installed_extras, needed_packages
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.utils.optional_packages import EXTRAS
from gobblin_dagster.service.catalog.templates import Template, TemplateCatalog, TemplateError
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.topology.graph import FlowGraph
from gobblin_dagster.spec.load import constructs


@dataclass(frozen=True, slots=True)
class Announced:
    """What a worker can do."""

    constructs: frozenset[str]
    """Constructs as `kind.type`, such as `source.kafka`."""
    extras: frozenset[str]
    """Extras of `gobblin-dagster` whose packages are installed."""
    modules: tuple[str, ...] | None
    """Modules whose classes jobs may name; None: all."""

    def lacks(self, needs: Needs) -> list[str]:
        """Return what is needed and not there, in words."""
        lists = AllowLists(modules=self.modules)
        return [
            *(one.replace(".", " ", 1) for one in sorted(needs.constructs - self.constructs)),
            *(f"extra {one}" for one in sorted(needs.extras - self.extras)),
            *(f"module {one.partition(':')[0]}" for one in sorted(needs.targets) if lists.module_problem(one)),
        ]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the job of an edge needs of a worker."""

    constructs: frozenset[str] = frozenset()
    """Constructs as `kind.type`."""
    extras: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    """Classes of users, as `module:Class`."""


NO_NEEDS = Needs()


def announce(allow: AllowLists) -> dict[str, Any]:
    """Return what this process can do, as JSON takes it.

    Args:
        allow: what jobs may use.

    Raises:
        UsageError: an installed package declares a construct with a fault.
    """
    return {
        "constructs": sorted(
            f"{kind}.{name}"
            for kind in ConstructKind
            for name in registry.types(kind)
            if kind is not ConstructKind.SOURCE or not allow.source_problem(name)
        ),
        "extras": installed_extras(),
        "modules": None if allow.modules is None else list(allow.modules),
        "roots": None if allow.paths is None else list(allow.paths),
    }


def read_announced(about: Mapping[str, Any]) -> Announced | None:
    """Return what a worker announced; None if its program is older, or what it says cannot be read."""
    known, extras, modules = about.get("constructs"), about.get("extras"), about.get("modules")
    if not _is_texts(known) or not _is_texts(extras):
        return None
    if modules is None:
        return Announced(frozenset(known), frozenset(extras), None)
    return Announced(frozenset(known), frozenset(extras), tuple(modules)) if _is_texts(modules) else None


def announced_by(workers: Iterable[Node]) -> dict[str, list[Announced | None]]:
    """Return what workers announced, by executor."""
    found: dict[str, list[Announced | None]] = {}
    for one in workers:
        found.setdefault(one.executor, []).append(read_announced(one.about))
    return found


def worker_document(worker: Node) -> dict[str, Any]:
    """Return what is known of a worker, for people and over REST; None stands for what an older program does not say.

    `modules` and `roots` are None too if the worker allows all.
    """
    about = worker.about
    return {
        "name": worker.name,
        "executor": worker.executor,
        "version": worker.program,
        "startedAt": worker.started_at.isoformat(),
        "seenAt": worker.seen_at.isoformat(),
        "inlet": about.get("inlet"),
        "jobsAtOnce": about.get("jobs_at_once"),
        "sources": _of_kind(about, ConstructKind.SOURCE),
        "publishers": _of_kind(about, ConstructKind.PUBLISHER),
        "constructs": about.get("constructs"),
        "extras": about.get("extras"),
        "modules": about.get("modules"),
        "roots": about.get("roots"),
    }


def _of_kind(about: Mapping[str, Any], kind: ConstructKind) -> list[str] | None:
    announced = read_announced(about)
    if announced is None:
        return None
    return sorted(one.partition(".")[2] for one in announced.constructs if one.partition(".")[0] == kind)


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


class EdgeNeeds:
    """Tells which executors lack what the templates of edges need.

    Args:
        templates: where the templates are; one that cannot be read needs nothing, since compilers tell its faults.
    """

    def __init__(self, templates: TemplateCatalog) -> None:
        self._templates = templates
        self._known: dict[str, tuple[Template, Mapping[str, str], Needs]] = {}
        """By edge: its template, what operators say for it, and what it needs then."""

    def lacking(
        self, graph: FlowGraph, announced: Mapping[str, Sequence[Announced | None]]
    ) -> dict[str, dict[str, str]]:
        """Return what executors lack, in words, by edge and executor; executors that lack nothing are not in it.

        One worker must have all that an edge needs, as it runs the whole job. If an executor's workers are not
        known, or one did not announce what it can do, nothing is known: the executor lacks nothing.

        Args:
            graph: the topology.
            announced: what the workers of executors announced, by executor.
        """
        told = {name: [one for one in found if one is not None] for name, found in announced.items() if all(found)}
        told = {name: found for name, found in told.items() if found and name in graph.executors}
        templates: dict[str, Template | None] = {}
        lacking: dict[str, dict[str, str]] = {}
        for name, edge in graph.edges.items() if told else ():
            for executor in graph.capable_executors(edge):
                if executor not in told:
                    continue
                if edge.template not in templates:
                    templates[edge.template] = self._load(edge.template)
                needs = self._needs(graph, name, templates[edge.template])
                missing = min((one.lacks(needs) for one in told[executor]), key=len)
                if missing:
                    lacking.setdefault(name, {})[executor] = ", ".join(missing)
        return lacking

    def _load(self, uri: str) -> Template | None:
        try:
            return self._templates.load(uri)
        except TemplateError:
            return None

    def _needs(self, graph: FlowGraph, edge: str, template: Template | None) -> Needs:
        if template is None:
            return NO_NEEDS
        values = graph.operators_values(graph.edges[edge])
        known = self._known.get(edge)
        if known is None or known[0] is not template or known[1] != values:
            known = self._known[edge] = template, values, _needs_of(template.with_values(values))
        return known[2]


def _needs_of(template: Template) -> Needs:
    """Return what a template needs whatever flows set."""
    try:
        return job_needs(template.fill({}))
    except TemplateError:
        return NO_NEEDS


def job_needs(job: Mapping[str, Any]) -> Needs:
    """Return what a job document needs; parts that have faults need nothing. Imports no module of a user's."""
    named = [(kind, node["type"]) for _, kind, node in constructs(job) if node["type"] and "$" not in node["type"]]
    short = [(ConstructKind(kind), name) for kind, name in named if ":" not in name and kind in list(ConstructKind)]
    return Needs(
        frozenset(f"{kind}.{registry.short_name(kind, name)}" for kind, name in short),
        frozenset(EXTRAS[module].extra for module in _modules(job) if module in EXTRAS),
        frozenset(name for _, name in named if ":" in name),
    )


def _modules(job: Mapping[str, Any]) -> Iterator[str]:
    try:
        for _, module in needed_packages(job, loads_targets=False):
            yield module
    except GobblinDagsterError:  # a type that is not known here: its name is among what is needed
        return
