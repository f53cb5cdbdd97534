"""Read a folder of topology files: one graph, or all faults of all files at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gobblin_dagster.core.errors import SpecFault, UsageError
from gobblin_dagster.service.catalog.flow_config import ExecutorName, is_literal_secret
from gobblin_dagster.service.catalog.templates import TemplateCatalog, TemplateError, value_problem
from gobblin_dagster.service.topology.graph import FlowGraph, free_cycles
from gobblin_dagster.service.topology.model import KINDS, Part, TopologyFile
from gobblin_dagster.spec.document import Document, Loc, is_meant_as_file, read_document
from gobblin_dagster.spec.explain import explain, nearest
from gobblin_dagster.spec.load import shown_path

SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 16 << 20
"""Bytes of one file at most."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RULE = "is no name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 63"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part of a topology stands."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class TopologyFolder:
    """What a folder holds."""

    graph: FlowGraph
    """All that could be read; to be used only if there is no fault."""
    faults: tuple[SpecFault, ...] = ()
    """By file and line; each names its file."""
    files: tuple[str, ...] = ()
    """Files that were read."""
    places: dict[tuple[str, str], Place] = field(default_factory=dict)
    """Where each part stands, by kind (`nodes`, `edges`, `executors`) and name."""


@dataclass(slots=True)
class _Reading:
    """What was found so far."""

    parts: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    documents: dict[str, Document] = field(default_factory=dict)
    owner: dict[tuple[str, str], str] = field(default_factory=dict)
    """The file of each part, by kind and name."""
    faults: list[SpecFault] = field(default_factory=list)

    def fault(self, kind: str, name: str, problem: str, *below: str) -> None:
        """Note a fault of a part, or of something below it."""
        file = self.owner[kind, name]
        self.faults.append(replace(self.documents[file].fault((kind, name, *below), problem), file=file))


def topology_files(folder: Path) -> list[Path]:
    """Return the topology files of a folder and the folders below it, sorted by path; not those of hidden folders.

    A ConfigMap of Kubernetes holds each of its files once more in a hidden folder, to which the visible one is a link.
    """
    found = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and is_meant_as_file(path))
    return sorted(path for path in found if not _is_in_hidden(path.relative_to(folder)))


def read_topology(
    folder: Path, templates: TemplateCatalog | None = None, more: Mapping[str, str] | None = None, new: str = ""
) -> TopologyFolder:
    """Read all files of a folder.

    Args:
        folder: the folder; its files are read with those of the folders below it.
        templates: where the edges' templates must be; None: they are not looked for.
        more: files that are not in the folder, as texts by the names under which faults tell them. Secrets in them are
            no fault, as files that are stored already stay valid.
        new: the one of these that is not stored yet; secrets in it are faults, as in the folder's files.

    Raises:
        UsageError: there is no such folder, and no other file.
    """
    if not folder.is_dir() and not more:
        raise UsageError(
            problem=f"There is no folder {folder}.",
            hint="Make it and describe nodes, edges and executors in YAML files, or set `service: {topology: ...}`.",
        )
    reading = _Reading()
    for path in topology_files(folder):
        _read_file(reading, path, shown_path(path))
    for name, text in (more or {}).items():
        _read_text(reading, name, text.encode())
    graph = FlowGraph(reading.parts["nodes"], reading.parts["edges"], reading.parts["executors"])
    _check_executors(reading, graph)
    _check_secrets(reading, graph, {*(more or {})} - {new})
    _check_edges(reading, graph)
    _check_cycles(reading, graph)
    if templates is not None:
        _check_templates(reading, graph, templates)
    places = {
        (kind, name): Place(file, reading.documents[file].line((kind, name)))
        for (kind, name), file in reading.owner.items()
    }
    faults = sorted(set(reading.faults), key=lambda fault: (fault.file, fault.line or 0, fault.path, fault.problem))
    return TopologyFolder(graph, tuple(faults), tuple(reading.documents), places)


def _is_in_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts[:-1])


def _read_file(reading: _Reading, path: Path, file: str) -> None:
    try:
        if path.stat().st_size > MAX_BYTES:
            reading.faults.append(SpecFault("", f"is larger than {MAX_BYTES >> 20} MiB", 1, file))
            return
        content = path.read_bytes()
    except OSError as error:
        reading.faults.append(SpecFault("", f"cannot be read: {error.strerror}", 1, file))
        return
    _read_text(reading, file, content)


def _read_text(reading: _Reading, file: str, content: bytes) -> None:
    # References to variables stay: the executor that runs the job replaces them.
    document = read_document(content, None)
    reading.documents[file] = document
    found = [document.fault(*fault) for fault in document.faults]
    data = document.data
    if not found and data is not None:
        found = [document.fault(*fault) for fault in _model_faults(document, data)]
    reading.faults += [replace(fault, file=file) for fault in found]
    for kind, name, node in _parts(data):
        _read_part(reading, file, kind, name, node)


def _model_faults(document: Document, data: Any) -> Iterator[tuple[Loc, str]]:
    try:
        TopologyFile.model_validate(data)
    except ValidationError as error:
        yield from explain(error, TopologyFile, document.written.get)
    for kind, name, _ in _parts(data):
        if not _NAME.fullmatch(name):
            yield (kind, name), f"{name[:80]!r} {_RULE}"


def _parts(data: Any) -> Iterator[tuple[str, str, Any]]:
    for kind in KINDS if isinstance(data, dict) else ():
        parts = data.get(kind)
        for name, node in parts.items() if isinstance(parts, dict) else ():
            yield kind, name, node


def _read_part(reading: _Reading, file: str, kind: str, name: str, node: Any) -> None:
    """Take in a part if it has no fault of its own, so that faults between parts are told with those of others."""
    if (kind, name) in reading.owner:
        first = reading.owner[kind, name]
        told = f"the name {name!r} is taken in {first}:{reading.documents[first].line((kind, name))} already"
        reading.faults.append(replace(reading.documents[file].fault((kind, name), told), file=file))
        return
    reading.owner[kind, name] = file
    try:
        part: Part = KINDS[kind].model_validate(node)
    except ValidationError:
        return  # its faults were told with those of the file
    reading.parts[kind][name] = part


def _check_executors(reading: _Reading, graph: FlowGraph) -> None:
    """Note executors whose names stand for others."""
    for name, executor in graph.executors.items():
        if executor.type != "embedded" and name in {one.value for one in ExecutorName}:
            reading.fault("executors", name, f"{name!r} is the name of an executor of the service; choose another")


def _check_secrets(reading: _Reading, graph: FlowGraph, stored: Set[str]) -> None:
    """Note secrets that stand in files as they are: topologies are shown, and their values go into jobs."""
    values = {
        **{("nodes", name, "properties"): node.properties for name, node in graph.nodes.items()},
        **{("edges", name, "values"): edge.values for name, edge in graph.edges.items()},
    }
    problem = "must hold no secret, as topologies are shown; take it from the executor's environment: ${NAME}"
    for (kind, name, key), texts in values.items():
        for one in texts if reading.owner[kind, name] not in stored else ():
            if is_literal_secret(one, texts[one]):
                reading.fault(kind, name, problem, key, one)


def _check_edges(reading: _Reading, graph: FlowGraph) -> None:
    """Note edges whose ends or executors are not there, and those that no executor can run."""
    there = {kind: {name for owned, name in reading.owner if owned == kind} for kind in KINDS}
    for name, edge in graph.edges.items():
        for end in ("source", "destination"):
            node = getattr(edge, end)
            if node not in there["nodes"]:
                reading.fault("edges", name, f"there is no node {node[:80]!r}; {nearest(node, there['nodes'])}", end)
        if edge.source == edge.destination:
            reading.fault("edges", name, f"leads from {edge.source!r} to itself", "destination")
        unknown = [one for one in edge.executors or () if one not in there["executors"]]
        for executor in unknown:
            told = f"there is no executor {executor[:80]!r}; {nearest(executor, there['executors'])}"
            reading.fault("edges", name, told, "executors")
        is_whole = {edge.source, edge.destination} <= set(graph.nodes)
        named = graph.executors if edge.executors is None else edge.executors
        if is_whole and not unknown and not graph.capable_executors(edge) and set(named) <= set(graph.executors):
            types = f"from {graph.nodes[edge.source].type!r} to {graph.nodes[edge.destination].type!r}"
            who = "no executor" if edge.executors is None else f"none of {', '.join(edge.executors)}"
            reading.fault("edges", name, f"{who} has the capability {types}", *_if_written(edge.executors))
        if is_whole and len(states := {graph.executors[one].state for one in graph.capable_executors(edge)}) > 1:
            told = " and ".join(repr(state) for state in sorted(states))
            problem = (
                f"its executors keep watermarks in different state stores ({told}): another one would bring rows "
                "again; name executors of one state store"
            )
            reading.fault("edges", name, problem, *_if_written(edge.executors))


def _if_written(executors: tuple[str, ...] | None) -> tuple[str, ...]:
    return () if executors is None else ("executors",)


def _check_cycles(reading: _Reading, graph: FlowGraph) -> None:
    for cycle in free_cycles(graph.edges):
        name = next(
            name
            for name, edge in graph.edges.items()
            if (edge.source, edge.destination, edge.cost) == (cycle[0], cycle[1], 0)
        )
        told = f"is part of a cycle that costs nothing: {' -> '.join(cycle)}; give one of its edges a cost above 0"
        reading.fault("edges", name, told, "cost")


def _check_templates(reading: _Reading, graph: FlowGraph, templates: TemplateCatalog) -> None:
    """Note templates that cannot be read, and values that a template needs and nodes lack, or does not take."""
    for name, edge in graph.edges.items():
        try:
            template = templates.load(edge.template)
        except TemplateError as error:
            reading.fault("edges", name, str(error), "template")
            continue
        parameters = template.spec.parameters
        for key in edge.values:
            if key not in parameters:
                told = f"template {edge.template} declares no parameter {key!r}; {nearest(key, parameters)}"
                reading.fault("edges", name, told, "values", key)
        if not {edge.source, edge.destination} <= set(graph.nodes):
            continue
        values = graph.operators_values(edge)
        for key, parameter in parameters.items():
            end, _, wanted = key.partition(".")
            if end in ("source", "destination") and key not in values and parameter.default is None:
                node = getattr(edge, end)
                told = f"{template.place(key)} needs ${{{key}}}, and node {node!r} has no property {wanted!r}"
                reading.fault("edges", name, told, "template")
            elif key in values and "${" not in values[key] and (problem := value_problem(parameter, values[key])):
                told = f"{template.place(key)} gets ${{{key}}} = {values[key][:80]!r}, which {problem}"
                reading.fault("edges", name, told, "template")
